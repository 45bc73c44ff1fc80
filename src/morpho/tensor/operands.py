"""What every operation does before it builds a node: coerce, promote, broadcast, with errors at the user's line."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import DType, bool_, complex64, complex128, float32, float64, int64, promote
from morpho.base.errors import DTypeError, MorphoError, fail
from morpho.base.shapes import broadcast
from morpho.ir.node import Node
from morpho.ops.algebra import cast, constant, expand, size_value
from morpho.tensor.core import Tensor

DEFAULT_FLOAT, DEFAULT_INT, DEFAULT_COMPLEX = float32, int64, complex64
Scalar = bool | int | float | complex


def is_scalar(value: object) -> bool:
    """A Python number, which takes the dtype of what it meets."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def as_node(value: Any, operation: str) -> Node:
    """The node of a tensor, or of something that becomes one."""
    if isinstance(value, Tensor):
        return value.node
    from morpho.tensor.functions.create import asarray

    try:
        return asarray(value).node
    except MorphoError as error:
        raise fail(type(error), operation, error.message, error.hint) from None
    except (TypeError, ValueError) as error:
        raise fail(DTypeError, operation, f"{type(value).__name__} is not a tensor or a number ({error})") from error


def scalar_dtype(value: Scalar, other: DType, operation: str) -> DType:
    """The dtype a Python number takes beside a tensor: the tensor's, unless its kind cannot hold it."""
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        return DEFAULT_INT if other is bool_ else other
    if isinstance(value, float):
        return other if other.kind in "fc" else DEFAULT_FLOAT
    return other if other.is_complex else complex128 if other is float64 else DEFAULT_COMPLEX


def scalar_node(value: Scalar, dtype: DType, operation: str) -> Node:
    """A Python number as a constant of a dtype, checked to be in range for integers."""
    if isinstance(value, float) and dtype.is_integer:
        raise fail(DTypeError, operation, f"the number {value} does not fit {dtype}")
    if isinstance(value, int) and not isinstance(value, bool) and dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise fail(DTypeError, operation, f"the number {value} is out of range for {dtype}")
    return constant(rounded(value, dtype), dtype)


def rounded(value: Scalar, dtype: DType) -> Any:
    """A number at the precision of a dtype: a constant is stored as the value the kernels will see."""
    from morpho.base.dtypes import bfloat16
    from morpho.ops.special import round_bfloat16

    if dtype is float64 or dtype is float32:  # the common case, without NumPy's overhead
        return ctypes.c_float(value).value if dtype is float32 else float(value)
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return float(round_bfloat16(np.asarray(value, np.float32))[()])
        return np.asarray(value).astype(dtype.numpy)[()].item() if dtype.kind in "fc" else value


def promoted(operation: str, *values: Any, floating: bool = False) -> list[Node]:
    """Nodes of one dtype: tensors promote among themselves, Python numbers follow. `floating` wants a float result."""
    tensors = [as_node(v, operation) if not (is_scalar(v) or isinstance(v, Dim)) else None for v in values]
    found: DType | None = None
    for node in tensors:
        if node is not None:
            found = node.dtype if found is None else promote(found, node.dtype, operation)
    if found is None:  # only Python numbers: the largest kind among them
        kinds = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
        found = bool_
        for value in values:
            found = promote(found, kinds.get(type(value), DEFAULT_INT), operation)
    for value, node in zip(values, tensors, strict=True):
        if node is None and not isinstance(value, Dim):
            found = scalar_dtype(value, found, operation)
    if floating and found.kind in "biu":
        found = DEFAULT_FLOAT
    result = []
    for value, node in zip(values, tensors, strict=True):
        if isinstance(value, Dim):
            result.append(size_value(value, found))
        else:
            result.append(cast(node, found) if node is not None else scalar_node(value, found, operation))
    return result


def broadcasted(operation: str, *nodes: Node) -> list[Node]:
    """Nodes expanded to their common shape."""
    shape: Shape = broadcast(operation, *[node.shape for node in nodes])
    return [expand(node, shape) for node in nodes]
