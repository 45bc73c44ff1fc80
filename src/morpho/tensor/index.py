"""Indexing: integers, slices, ellipsis and new axes are views; integer arrays gather with checked indices."""

from __future__ import annotations

import operator
from typing import Any

from morpho.base.dims import Dim, Size
from morpho.base.errors import IndexFault, fail
from morpho.ir.node import Node
from morpho.ops import algebra
from morpho.tensor.core import Tensor
from morpho.tensor.move import slice_node


def expand_ellipsis(key: Any, rank: int) -> list[Any]:
    """A key as a list with one item per axis (and the new axes), the ellipsis written out."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > rank:
        raise fail(IndexFault, "index", f"{used} indices are too many for {rank} dimensions")
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise fail(IndexFault, "index", "an index holds more than one ellipsis")
    gap = [slice(None)] * (rank - used)
    for i, item in enumerate(items):
        if item is Ellipsis:
            return items[:i] + gap + items[i + 1:]
    return items + gap


def resolve_slice(item: slice, size: Size) -> tuple[Size, Size, int]:
    """Start, count and step of a slice on an axis."""
    if isinstance(size, Dim):
        step = 1 if item.step is None else item.step
        start: Size = 0 if item.start is None else item.start
        stop: Size = size if item.stop is None else item.stop
        if step == -1 and item.start is None and item.stop is None:
            return size - 1, size, -1
        if step != 1:
            raise fail(IndexFault, "index", f"a dynamic dimension {size} takes no step of {step}")
        start = size + start if isinstance(start, int) and start < 0 else start
        stop = size + stop if isinstance(stop, int) and stop < 0 else stop
        return start, stop - start, 1
    try:
        start, stop, step = item.indices(size)
    except (TypeError, ValueError) as error:
        raise fail(IndexFault, "index", str(error)) from None
    count = len(range(start, stop, step))
    return (start if count else 0), count, step


def resolve_integer(item: Any, size: Size, axis: int) -> Size:
    number = operator.index(item)
    if isinstance(size, Dim):
        return number if number >= 0 else size + number
    if not -size <= number < size:
        raise fail(IndexFault, "index", f"index {number} is out of range for axis {axis} of size {size}")
    return number % size


def basic(node: Node, items: list[Any]) -> Node:
    """Integers, slices and new axes: a view."""
    starts: list[Size] = []
    sizes: list[Size] = []
    steps: list[int] = []
    shape: list[Size] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            start, count, step = resolve_slice(item, node.shape[axis])
            shape.append(count)
        else:
            start, count, step = resolve_integer(item, node.shape[axis], axis), 1, 1
        starts.append(start)
        sizes.append(count)
        steps.append(step)
        axis += 1
    return algebra.reshape(slice_node(node, starts, sizes, steps), tuple(shape))


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key]."""
    items = expand_ellipsis(key, x.ndim)
    return Tensor.of_node(basic(x.node, items))
