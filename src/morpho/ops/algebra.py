"""Short names for building nodes inside gradients and compositions: `mul(a, b)`, `constant_like(x, 2.0)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Shape, Size, product
from morpho.base.dtypes import DType, bfloat16, float64
from morpho.ir.node import Node, build
from morpho.ops.special import round_bfloat16


def constant(value: Any, dtype: DType) -> Node:
    """A scalar constant; the value is stored in its dtype's own Python form, rounded to the dtype's precision."""
    kinds: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    value = kinds[dtype.kind](value)
    if dtype.is_float and dtype is not float64:
        with np.errstate(all="ignore"):
            value = float(round_bfloat16(np.float32(value)) if dtype is bfloat16 else dtype.numpy.type(value))
    return build("constant", value=value, dtype=dtype)


def expand(node: Node, shape: Shape) -> Node:
    """Broadcast to a shape; missing leading axes are put in front."""
    if node.shape == shape:
        return node
    if len(node.shape) < len(shape):
        node = reshape(node, (1,) * (len(shape) - len(node.shape)) + node.shape)
    return node if node.shape == shape else build("expand", node, shape=shape)


def reshape(node: Node, shape: Shape) -> Node:
    while node.op.name == "reshape":  # the last one decides
        node = node.inputs[0]
    return node if node.shape == shape else build("reshape", node, shape=shape)


def permute(node: Node, axes: tuple[int, ...]) -> Node:
    return node if axes == tuple(range(len(axes))) else build("permute", node, axes=axes)


def constant_like(node: Node, value: Any) -> Node:
    """The constant with the shape and dtype of `node`."""
    return expand(constant(value, node.dtype), node.shape)


def cast(node: Node, dtype: DType) -> Node:
    return node if node.dtype is dtype else build("cast", node, dtype=dtype)


def size_value(size: Size, dtype: DType) -> Node:
    """A size as a scalar: a constant where it is known, else a value read when the function runs."""
    return constant(size, dtype) if isinstance(size, int) else build("dimension", size=size, dtype=dtype)


def add(a: Node, b: Node) -> Node:
    return build("add", a, b)


def sub(a: Node, b: Node) -> Node:
    return build("subtract", a, b)


def mul(a: Node, b: Node) -> Node:
    return build("multiply", a, b)


def div(a: Node, b: Node) -> Node:
    return build("divide", a, b)


def neg(a: Node) -> Node:
    return build("negative", a)


def conj(a: Node) -> Node:
    """The complex conjugate; a real number is its own."""
    if not a.dtype.is_complex:
        return a
    return a.inputs[0] if a.op.name == "conj" else build("conj", a)


def where(mask: Node, a: Node, b: Node) -> Node:
    return build("where", mask, a, b)


def zeros_like(node: Node) -> Node:
    return constant_like(node, 0)


def reduce(name: str, node: Node, axes: tuple[int, ...]) -> Node:
    """A reduction that keeps its axes with size 1."""
    return build(name, node, axes=axes) if axes else node


def count(node: Node, axes: tuple[int, ...]) -> Size:
    """How many elements a reduction over `axes` takes."""
    return product(tuple(node.shape[axis] for axis in axes))


def mean(node: Node, axes: tuple[int, ...]) -> Node:
    """Sum divided by the count, both in the node's dtype."""
    total = reduce("sum", node, axes)
    return div(total, expand(size_value(count(node, axes), node.dtype), total.shape))
