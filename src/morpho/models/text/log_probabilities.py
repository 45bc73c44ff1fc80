"""The one log-softmax of tokens: what the engine reports of a token and what a training step computes for it are this
function of the same logits, so they have the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail


def log_probabilities(logits: mo.Tensor, temperature: Any = 1.0, top_k: int = 0) -> mo.Tensor:
    """Log-probabilities of the distribution that tokens are drawn from, in float32, over the last axis.

    Args:
        logits: (..., vocabulary), of any float dtype.
        temperature: Divides the logits; a number above 0 or a float32 scalar tensor.
        top_k: Keep the `top_k` likeliest tokens, and those as likely as the last of them; 0 keeps all.

    >>> from morpho.models.text.log_probabilities import log_probabilities
    >>> log_probabilities(mo.asarray([0.0, 0.0, -9.0]), top_k=2).exp()
    Tensor([0.5, 0.5, 0. ], dtype=float32)
    """
    if not isinstance(temperature, mo.Tensor) and not 0 < temperature < float("inf"):
        raise fail(ArgumentError, "log_probabilities", f"temperature={temperature} is not a positive number")
    if top_k < 0:
        raise fail(ArgumentError, "log_probabilities", f"top_k={top_k} is negative", "0 keeps all tokens")
    scores = logits.astype(mo.float32) / temperature
    if 0 < top_k < logits.shape[-1]:
        least = mo.topk(mo.stop_gradient(scores), top_k)[0][..., -1:]
        scores = mo.where(scores < least, -mo.inf, scores)
    return mo.log_softmax(scores, axis=-1)


@functools.cache
def _of_row(top_k: int) -> Callable[[Any, Any], mo.Tensor]:
    function: Callable[[Any, Any], mo.Tensor] = mo.compile(functools.partial(log_probabilities, top_k=top_k))
    return function


def row_log_probabilities(row: np.ndarray, temperature: float = 1.0, top_k: int = 0) -> np.ndarray:
    """`log_probabilities` of one row of logits on the host, (vocabulary,) -> (vocabulary,): one compiled call.

    >>> from morpho.models.text.log_probabilities import row_log_probabilities
    >>> row_log_probabilities(np.zeros(4, np.float32)).round(3).tolist()
    [-1.3860000371932983, -1.3860000371932983, -1.3860000371932983, -1.3860000371932983]
    """
    row = np.ascontiguousarray(row, np.float32)
    values: np.ndarray = _of_row(top_k if top_k < row.size else 0)(row, mo.asarray(np.float32(temperature))).numpy()
    return values
