"""Differences along an axis."""

from __future__ import annotations

from typing import Any

from morpho.base.dtypes import bool_
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import as_integer, normalise_axis
from morpho.ir.node import Node, build
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import concat, slice_node
from morpho.tensor.operands import as_node


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    """Each element along an axis less the one before it (of truth values: whether they differ), n times over;
    what is given to `prepend` and `append` is joined to x first. With n=0 it is x as it is.

    >>> mo.diff(mo.asarray([1, 4, 9])).tolist()
    [3, 5]
    """
    node, n = as_node(x, "diff"), as_integer(n, "diff", "n")
    if n < 0:
        raise fail(ArgumentError, "diff", f"{n} differences cannot be taken")
    number = normalise_axis(axis, len(node.shape), "diff")
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1 and n > 0:  # no difference is taken of nothing: as in NumPy, x itself
        node = concat(parts, axis=number).node
    for _ in range(n):
        node = _once(node, number)
    return Tensor.of_node(node)


def _once(node: Node, axis: int) -> Node:
    rank, size = len(node.shape), node.shape[axis]
    count = 0 if size == 0 else size - 1
    sizes = tuple(count if i == axis else s for i, s in enumerate(node.shape))
    ends = []
    for start in (1 if size != 0 and count != 0 else 0, 0):
        starts = tuple(start if i == axis else 0 for i in range(rank))
        ends.append(slice_node(node, starts, sizes, (1,) * rank))
    return build("logical_xor" if node.dtype is bool_ else "subtract", *ends)
