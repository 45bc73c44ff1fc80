"""Reductions of buffers on one rank: the arithmetic of collectives, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16, float16

_FUNCTIONS: dict[str, Any] = {"sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum,
                              "product": np.multiply}


def is_half(dtype: DType) -> bool:
    """Whether sums are made in float32 and rounded once."""
    return dtype is bfloat16 or dtype is float16


def widen(array: np.ndarray, dtype: DType) -> np.ndarray:
    """As numbers to compute with."""
    if dtype is bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if dtype is float16 else array


def narrow(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as they are stored, rounded to nearest even; a NaN stays one.

    >>> narrow(np.asarray([1.00390625, 1.01171875], np.float32), bfloat16).tolist()
    [16256, 16258]
    """
    if dtype is not bfloat16:
        with np.errstate(over="ignore"):
            return array.astype(dtype.numpy, copy=False)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0) | (bits >> 16), rounded).astype(np.uint16)


def reduce_into(target: np.ndarray, parts: Sequence[np.ndarray], op: str, dtype: DType) -> None:
    """Parts in their order, one after the other, into a buffer that may be one of them.

    >>> from morpho.base.dtypes import float32
    >>> out = np.zeros(2, np.float32)
    >>> reduce_into(out, [np.ones(2, np.float32), np.full(2, 3, np.float32)], "mean", float32)
    >>> out.tolist()
    [2.0, 2.0]
    """
    function = _FUNCTIONS[op]
    in_place = target is parts[0] and not is_half(dtype)
    total = target if in_place else np.array(widen(parts[0], dtype))
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            function(total, widen(part, dtype), out=total)
        if op == "mean":
            total /= total.dtype.type(len(parts))
    if not in_place:
        np.copyto(target, narrow(total, dtype).reshape(target.shape))
