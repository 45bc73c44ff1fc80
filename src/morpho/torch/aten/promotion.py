"""PyTorch's type promotion: tensors with axes lead, then tensors without, then Python numbers, by category."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.dtypes import DType
from morpho.tensor.core import Tensor

_ORDER = {"bool": 0, "int": 1, "float": 2, "complex": 3}
_SIGNED = (mo.int8, mo.int16, mo.int32, mo.int64)


def category(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    if dtype is mo.bool:
        return 0
    if mo.isdtype(dtype, "integral"):
        return 1
    return 2 if mo.isdtype(dtype, "real floating") else 3


def promoted_pair(a: DType, b: DType) -> DType:
    """The dtype of two tensors of equal standing (`torch.promote_types`).

    >>> promoted_pair(mo.int64, mo.float16), promoted_pair(mo.bfloat16, mo.float16), promoted_pair(mo.uint8, mo.int8)
    (float16, float32, int16)
    """
    if a is b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) < category(high):
        wide = category(high) == 3 and low is mo.float64
        return mo.complex128 if wide else high
    if category(a) == 2 and a.itemsize == b.itemsize:  # float16 and bfloat16
        return mo.float32
    if category(a) == 1 and (a in _SIGNED) != (b in _SIGNED):
        signed, unsigned = (a, b) if a in _SIGNED else (b, a)
        wider = [d for d in _SIGNED if d.itemsize > unsigned.itemsize and d.itemsize >= signed.itemsize]
        return wider[0] if wider else mo.float32
    return a if a.itemsize > b.itemsize else b


def _number_dtype(value: Any) -> DType:
    if isinstance(value, bool):
        return mo.bool
    if isinstance(value, float):
        return mo.float32
    return mo.complex64 if isinstance(value, complex) else mo.int64


def _combined(higher: DType | None, lower: DType | None) -> DType | None:
    """The dtype where `lower` matters only by a category above `higher`'s."""
    if higher is None or lower is None:
        return higher or lower
    if category(higher) >= 2:
        if category(lower) == 3 and category(higher) == 2:
            return mo.complex128 if higher is mo.float64 else mo.complex64
        return higher
    return promoted_pair(higher, lower) if category(lower) > category(higher) else higher


def promoted(*operands: Any) -> DType:
    """The dtype in which PyTorch computes an elementwise operation of these tensors and numbers (`torch.result_type`).

    >>> promoted(mo.ones(2, dtype="int32"), 2.5), promoted(mo.ones(2, dtype="bfloat16"), mo.ones((), dtype="float64"))
    (float32, bfloat16)
    """
    ranks: list[DType | None] = [None, None, None]
    for operand in operands:
        if operand is None:
            continue
        if isinstance(operand, Tensor):
            rank, dtype = int(operand.ndim == 0), operand.dtype
        else:
            rank, dtype = 2, _number_dtype(operand)
        held = ranks[rank]
        ranks[rank] = dtype if held is None else promoted_pair(held, dtype)
    found = _combined(ranks[0], _combined(ranks[1], ranks[2]))
    assert found is not None
    return found


def floating(dtype: DType) -> DType:
    """The dtype of an operation that makes floats of integers: PyTorch's default float for them."""
    return dtype if category(dtype) >= 2 else mo.float32


def cast(value: Any, dtype: DType) -> Any:
    """A tensor in this dtype; a number in the Python type that goes with it."""
    if isinstance(value, Tensor):
        return value if value.dtype is dtype else mo.astype(value, dtype)
    kind = category(dtype)
    if isinstance(value, mo.Dim):
        return value
    return bool(value) if kind == 0 else int(value) if kind == 1 else float(value) if kind == 2 else complex(value)


def tensor(value: Any, dtype: DType) -> Tensor:
    """A tensor in this dtype, of a number too."""
    found = cast(value, dtype)
    return found if isinstance(found, Tensor) else mo.full((), found, dtype=dtype)
