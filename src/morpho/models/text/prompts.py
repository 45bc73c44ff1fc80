"""Prompts as a caller may give them: one sequence of token numbers, or several of any lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel

NUMBERS = "pass tokenizer.encode(text)"


def prompts_of(ids: Any, mask: Any, model: LanguageModel) -> tuple[list[list[int]], bool]:
    """The prompts, checked, and whether there are several: an array of two axes, or a sequence of sequences. A `mask`
    that is 0 at padding takes it out."""
    _no_text(ids)
    found = _plain(ids)
    if isinstance(found, np.ndarray) and found.ndim > 2:
        raise fail(ArgumentError, "generate", f"prompts of shape {found.shape} are neither one nor several",
                   "give (length,) or (batch, length)")
    rows = [_plain(row) for row in found]
    several = bool(rows) and all(_is_sequence(row) for row in rows)
    if not several and any(_is_sequence(row) for row in rows):
        raise fail(ArgumentError, "generate", "the prompt mixes token numbers and lists of them")
    if not several:
        rows = [rows]
    if mask is not None:
        rows = _without_padding(rows, _plain(mask), several)
    most = model.context if not hasattr(model, "remember") else 1 << 30
    return [checked_ids(row, most, model) for row in rows], several


def checked_ids(ids: Any, most: int, model: LanguageModel) -> list[int]:
    """One prompt as Python's numbers, which are in the vocabulary."""
    _no_text(ids)
    found = []
    for token in np.asarray(_plain(ids)).reshape(-1) if not isinstance(ids, list) else ids:
        number = as_whole(token)
        if number is None:
            raise fail(ArgumentError, "generate", f"token numbers are whole numbers, not {token!r}", NUMBERS)
        found.append(number)
    words = model.config.get("vocab_size")
    wrong = next((token for token in found if token < 0 or (words is not None and token >= words)), None)
    if wrong is not None:
        raise fail(ArgumentError, "generate", f"token {wrong} is not in a vocabulary of {words}")
    if not found:
        raise fail(ArgumentError, "generate", "the prompt is empty", "begin with one token at least")
    if len(found) > most:
        raise fail(ArgumentError, "generate", f"the prompt has {len(found)} tokens, more than the limit of {most}",
                   "cut it, or keep its end only")
    return found


def _without_padding(rows: list[Any], mask: Any, several: bool) -> list[Any]:
    masks = [_plain(row) for row in mask] if several else [mask]
    if len(masks) != len(rows) or any(not _is_sequence(kept) or len(kept) != len(row)
                                      for kept, row in zip(masks, rows, strict=False)):
        raise fail(ArgumentError, "generate", "the mask is not of the prompts' shape", "both are (batch, length)")
    return [[token for token, keep in zip(row, kept, strict=True) if keep] for row, kept in zip(rows, masks,
                                                                                             strict=True)]


def _no_text(ids: Any) -> None:
    if isinstance(ids, str) or (isinstance(ids, list | tuple) and any(isinstance(part, str) for part in ids)):
        raise fail(ArgumentError, "generate", "the prompt is text, and the model takes token numbers", NUMBERS)
    if not hasattr(ids, "__iter__"):
        raise fail(ArgumentError, "generate", f"a {type(ids).__name__} is not a list of token numbers", NUMBERS)


def _plain(found: Any) -> Any:
    return found.numpy() if isinstance(found, mo.Tensor) else found


def _is_sequence(found: Any) -> bool:
    return isinstance(found, list | tuple | range) or (isinstance(found, np.ndarray) and found.ndim > 0)
