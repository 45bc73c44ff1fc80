"""Python numbers among tensors: which dtype they take, and the constants they become."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16, bool_, complex64, complex128, float32, float64, int64
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node
from morpho.ops.algebra import constant
from morpho.ops.special import round_bfloat16
from morpho.tensor.lifted import LiftedNumber

DEFAULT_FLOAT, DEFAULT_INT, DEFAULT_COMPLEX = float32, int64, complex64
Scalar = bool | int | float | complex


def is_scalar(value: object) -> bool:
    """A Python number, which takes the dtype of what it meets."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def scalar_dtype(value: Scalar, other: DType, operation: str) -> DType:
    """The dtype a Python number takes beside a tensor: the tensor's, unless its kind cannot hold it."""
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        return DEFAULT_INT if other is bool_ else other
    if isinstance(value, float):
        return other if other.kind in "fc" else DEFAULT_FLOAT
    return other if other.is_complex else complex128 if other is float64 else DEFAULT_COMPLEX


def scalar_node(value: Any, dtype: DType, operation: str) -> Node:
    """A Python number as a constant of a dtype, checked to be in range for integers."""
    if type(value) is LiftedNumber:
        made = value.in_dtype(dtype)
        if made is not None:
            return made
        value = value.seen()
    if isinstance(value, float) and dtype.is_integer:
        raise fail(DTypeError, operation, f"the number {value} does not fit {dtype}")
    if isinstance(value, int) and not isinstance(value, bool) and dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise fail(DTypeError, operation, f"the number {value} is out of range for {dtype}")
    return constant(rounded(value, dtype), dtype)


def rounded(value: Scalar, dtype: DType) -> Any:
    """A number at the precision of a dtype: a constant is stored as the value the kernels will see."""
    if dtype is float64 or dtype is float32:  # the common case, without NumPy's overhead
        return ctypes.c_float(value).value if dtype is float32 else float(value)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return float(round_bfloat16(np.asarray(value, np.float32))[()])
        return np.asarray(value).astype(dtype.numpy)[()].item() if dtype.kind in "fc" else value
