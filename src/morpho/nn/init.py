"""Initial values: draws from `nn.random`, scaled by the number of inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import morpho as mo
from morpho.nn.random import next_key
from morpho.tensor.state.variable import unfilled

_zeros: ContextVar[dict[Any, mo.Tensor]] = ContextVar("morpho_undrawn")  # inside `undrawn`, by shape and dtype


@contextmanager
def undrawn() -> Iterator[None]:
    """Inside, weights are zeros that take no memory, and no key is used: for a model whose weights come from a file. A
    compiled function refuses them until they have values.

    >>> with mo.nn.init.undrawn():
    ...     layer = mo.nn.Linear(2, 1)
    >>> layer.weight.numpy()
    array([[0., 0.]], dtype=float32)
    """
    token, zeros = unfilled.set(True), _zeros.set({})
    try:
        yield
    finally:
        unfilled.reset(token)
        _zeros.reset(zeros)


def _unfilled(shape: tuple[int, ...], dtype: Any) -> mo.Tensor:
    """Zeros, which layers of one model share: they are values, of which each state makes its own."""
    known = _zeros.get()
    if (shape, dtype) not in known:
        known[shape, dtype] = mo.zeros(shape, dtype=dtype)
    return known[shape, dtype]


def uniform(shape: tuple[int, ...], bound: float, dtype: Any = mo.float32) -> mo.Tensor:
    """Evenly between -bound and bound.

    >>> mo.nn.init.uniform((2, 3), 0.5).shape
    (2, 3)
    """
    if unfilled.get():
        return _unfilled(shape, dtype)
    drawn: mo.Tensor = mo.random.uniform(next_key(), shape, dtype=dtype)
    return (drawn * 2 - 1) * bound


def normal(shape: tuple[int, ...], std: float = 0.02, mean: float = 0.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Around a mean with a standard deviation.

    >>> mo.nn.init.normal((2, 3)).shape
    (2, 3)
    """
    if unfilled.get():
        return _unfilled(shape, dtype)
    drawn: mo.Tensor = mo.random.normal(next_key(), shape, dtype=dtype)
    return drawn * std + mean


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit for a weight (outputs, inputs, window...).

    >>> mo.nn.init.fans((8, 4, 3, 3))
    (36, 72)
    """
    window = math.prod(shape[2:])
    return (shape[1] if len(shape) > 1 else shape[0]) * window, shape[0] * window


def kaiming_uniform(shape: tuple[int, ...], gain: float = math.sqrt(1 / 3), dtype: Any = mo.float32) -> mo.Tensor:
    """Uniform with the variance gain^2 / inputs; the default gain is that of PyTorch's Linear and Conv.

    >>> weight = mo.nn.init.kaiming_uniform((8, 4))
    >>> weight.shape, mo.max(mo.abs(weight)).item() <= 0.5
    ((8, 4), True)
    """
    return uniform(shape, gain * math.sqrt(3 / max(fans(shape)[0], 1)), dtype)


def kaiming_normal(shape: tuple[int, ...], gain: float = math.sqrt(2), dtype: Any = mo.float32) -> mo.Tensor:
    """Normal with the variance gain^2 / inputs.

    >>> mo.nn.init.kaiming_normal((8, 4)).shape
    (8, 4)
    """
    return normal(shape, gain / math.sqrt(max(fans(shape)[0], 1)), dtype=dtype)


def xavier_uniform(shape: tuple[int, ...], gain: float = 1.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Uniform with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_uniform((8, 4)).shape
    (8, 4)
    """
    return uniform(shape, gain * math.sqrt(6 / sum(fans(shape))), dtype)


def xavier_normal(shape: tuple[int, ...], gain: float = 1.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Normal with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_normal((8, 4)).shape
    (8, 4)
    """
    return normal(shape, gain * math.sqrt(2 / sum(fans(shape))), dtype=dtype)
