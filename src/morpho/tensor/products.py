"""Matrix products."""

from __future__ import annotations

from typing import Any

from morpho.base.errors import ShapeError, fail
from morpho.base.shapes import broadcast
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand, reshape
from morpho.tensor.core import Tensor
from morpho.tensor.operands import promoted


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product; leading axes are batches and broadcast, a vector counts as a row or a column."""
    a, b = promoted("matmul", x1, x2)
    if not a.shape or not b.shape:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape}: a 0-dimensional tensor has no product",
                   "use multiply")
    if a.shape[-1] != b.shape[max(len(b.shape) - 2, 0)]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape} do not align: "
                                         f"{a.shape[-1]} != {b.shape[max(len(b.shape) - 2, 0)]}")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = reshape(a, (1, *a.shape)) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    batch = broadcast("matmul", a.shape[:-2], b.shape[:-2])
    result = build("matmul", expand(a, (*batch, *a.shape[-2:])), expand(b, (*batch, *b.shape[-2:])))
    return Tensor.of_node(_without(result, row, column))


def _without(node: Node, row: bool, column: bool) -> Node:
    shape = node.shape
    if column:
        shape = shape[:-1]
    if row:
        shape = shape[:-1] if column else (*shape[:-2], shape[-1])
    return reshape(node, shape)
