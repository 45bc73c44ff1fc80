"""Steps before every operation builds a node: coerce, promote, broadcast, with errors at the user's line."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import DType, bool_, float32, float64, promote
from morpho.base.errors import DTypeError, MorphoError, fail, sentence
from morpho.base.shapes import broadcast
from morpho.ir.node import Node
from morpho.ops.algebra import cast, expand, size_value
from morpho.tensor.convert import following
from morpho.tensor.core import Tensor
from morpho.tensor.scalars import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT, is_scalar, scalar_dtype, scalar_node


def as_node(value: Any, operation: str) -> Node:
    """The node of a tensor, or of something that becomes one."""
    if isinstance(value, Tensor):
        return value.node
    try:
        return following(value).node
    except MorphoError as error:
        raise fail(type(error), operation, error.message, error.hint) from None
    except (TypeError, ValueError) as error:
        raise fail(DTypeError, operation, f"{type(value).__name__} is not a tensor or a number ({error})") from error


log = logging.getLogger("morpho")
_widened: list[str] = []  # the operation that was warned of
COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))


def _compared(values: tuple[Any, ...], dtype: DType) -> tuple[tuple[Any, ...], DType]:
    """Python integers beyond an integer dtype as infinities, beside which its numbers compare as they should."""
    info = np.iinfo(dtype.numpy)
    if all(type(value) is not int or info.min <= value <= info.max for value in values):
        return values, dtype
    return tuple(math.copysign(math.inf, value) if type(value) is int and not info.min <= value <= info.max else value
                 for value in values), DEFAULT_FLOAT


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
    if found.kind in "iu" and operation in COMPARISONS:
        values, found = _compared(values, found)
    if floating and found.kind in "biu":
        found = DEFAULT_FLOAT
    result = []
    for value, node in zip(values, tensors, strict=True):
        if isinstance(value, Dim):
            result.append(size_value(value, found))
        else:
            result.append(cast(node, found) if node is not None else scalar_node(value, found, operation))
    return result


def promoted_arrays(operation: str, *values: Any) -> list[Node]:
    """As `promoted`, of values that NumPy makes arrays of first: a Python integer beside integers is an int64."""
    nodes = [as_node(value, operation) for value in values if not (is_scalar(value) or isinstance(value, Dim))]
    if any(node.dtype.kind in "iu" for node in nodes):
        values = tuple(np.int64(value) if type(value) is int and -(1 << 63) <= value < 1 << 63 else value
                       for value in values)
    return promoted(operation, *values)


def check_widening(operation: str, x: Tensor | Node, weight: Tensor | Node) -> None:
    """Say once in a process that a float64 input makes float64 of a float32 layer: NumPy's arrays are float64 by
    default, so this is seldom meant, and takes twice the time."""
    if x.dtype is float64 and not _widened and weight.dtype is float32:
        _widened.append(operation)
        log.warning("%s", sentence(operation, "the input is float64 and the weight float32: the result, and what is "
                                              "computed from it, is float64 (said once)",
                                   "write x.astype('float32'), or model.double() where it is meant"))


def broadcasted(operation: str, *nodes: Node) -> list[Node]:
    """Nodes expanded to their common shape."""
    shape: Shape = broadcast(operation, *[node.shape for node in nodes])
    return [expand(node, shape) for node in nodes]
