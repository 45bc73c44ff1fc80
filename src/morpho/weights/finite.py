"""Weights that are not numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base import dtypes
from morpho.ops.neural.float8 import table
from morpho.ops.neural.quantised import LAYOUTS
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.quantised import Quantised

_BFLOAT16_INF, _FLOAT16_INF = 0x7F80, 0x7C00


def holds_nan(weight: Tensor | Quantised) -> bool:
    """Whether any number of a weight is NaN; of one in blocks, any scale, or any of its floats of 8 bits.

    >>> from morpho.weights.finite import holds_nan
    >>> holds_nan(mo.asarray([1.0, mo.inf])), holds_nan(mo.asarray([1.0, mo.nan], dtype=mo.bfloat16))
    (False, True)
    """
    if isinstance(weight, Quantised):
        layout = LAYOUTS[weight.kind]
        blocks = np.ascontiguousarray(weight.data.numpy()).reshape(-1, layout.block_bytes)
        if layout.float8 and np.isnan(table(layout.float8))[blocks[:, layout.header_bytes:]].any():
            return True
        kind = np.dtype(np.float32 if layout.wide else np.uint16)
        heads = [np.ndarray(len(blocks), kind, blocks.data, at, (layout.block_bytes,))  # one number of every block
                 for at in range(0, layout.header_bytes, kind.itemsize)] if blocks.size else []
        return any(_any_nan(head) if layout.wide else _any_nan_half(head) for head in heads)
    if not weight.dtype.is_float or not weight.size:
        return False
    array = weight.elements().numpy()
    if weight.dtype is dtypes.float16:
        return _any_nan_half(np.ascontiguousarray(array).view(np.uint16))
    if weight.dtype is dtypes.bfloat16:  # as bits: the largest without their sign are NaN's
        return bool(((array & 0x7FFF) > _BFLOAT16_INF).any())
    return _any_nan(array)  # type: ignore[no-any-return]


def _any_nan_half(bits: np.ndarray) -> bool:
    """As bits, as of bfloat16: NumPy compares half floats one by one."""
    return bool(((bits & 0x7FFF) > _FLOAT16_INF).any())


def _any_nan(array: np.ndarray) -> Any:
    with np.errstate(invalid="ignore"):
        return bool(np.isnan(array.min()))  # the least of numbers with NaN among them is NaN
