"""Borders made of the elements themselves: reflected, symmetric, repeated or going round."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Dim, Shape
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand
from morpho.tensor.convert import unplaced

# another name for a mode -> ours, which are NumPy's
MODES = {"constant": "constant", "edge": "edge", "replicate": "edge", "reflect": "reflect", "symmetric": "symmetric",
         "wrap": "wrap", "circular": "wrap"}


def as_mode(name: str, mode: Any) -> str:
    """A mode by one of its names."""
    if not isinstance(mode, str) or mode not in MODES:
        raise fail(ArgumentError, name, f"mode {mode!r} is unknown", "the modes are " + ", ".join(map(repr, MODES)))
    return MODES[mode]


def bordered(name: str, node: Node, pairs: list[Shape], mode: str) -> Node:
    """x with borders of so many elements before and after each axis, one axis after the other."""
    for axis, (before, after) in enumerate(pairs):
        if before == 0 and after == 0:
            continue
        size = node.shape[axis]
        if isinstance(size, Dim) or isinstance(before, Dim) or isinstance(after, Dim):
            raise fail(ShapeError, name, f"a border of mode {mode!r} needs a known size, not {size}")
        if size == 0:
            raise fail(ShapeError, name, f"axis {axis} of shape {node.shape} has no elements to make a border of")
        places = source_places(np.arange(-before, size + after), size, mode)
        node = _taken(node, axis, places)
    return node


def source_places(places: Any, size: int, mode: str) -> Any:
    """Which element stands at each position, positions before 0 and from `size` on being the border's.

    >>> source_places(np.arange(-2, 5), 3, "reflect").tolist(), source_places(np.arange(-2, 5), 3, "symmetric").tolist()
    ([2, 1, 0, 1, 2, 1, 0], [1, 0, 0, 1, 2, 2, 1])
    """
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode == "symmetric":
        return np.minimum(places % (2 * size), 2 * size - 1 - places % (2 * size))
    period = max(2 * size - 2, 1)
    return np.minimum(places % period, period - places % period) if size > 1 else np.zeros_like(places)


def _taken(node: Node, axis: int, places: Any) -> Node:
    """Elements at known places along an axis: whole runs of it as slices where they are few, else looked up."""
    runs = _runs(places)
    if len(runs) > 3:
        index = unplaced(places.astype(np.int64)).node
        shape = (*node.shape[:axis], len(places), *node.shape[axis + 1:])
        spread = build("reshape", index, shape=(*[1] * axis, len(places), *[1] * (len(shape) - axis - 1)))
        return build("gather", node, expand(spread, shape), axis=axis)
    parts = []
    for start, count, step in runs:
        starts = tuple(start if d == axis else 0 for d in range(len(node.shape)))
        sizes = tuple(count if d == axis else s for d, s in enumerate(node.shape))
        steps = tuple((step or 1) if d == axis else 1 for d in range(len(node.shape)))
        if step == 0:
            one = build("slice", node, starts=starts, sizes=tuple(1 if d == axis else s for d, s in enumerate(sizes)),
                        steps=(1,) * len(sizes))
            parts.append(expand(one, sizes))
        else:
            parts.append(build("slice", node, starts=starts, sizes=sizes, steps=steps))
    return parts[0] if len(parts) == 1 else build("concatenate", *parts, axis=axis)


def _runs(places: Any) -> list[tuple[int, int, int]]:
    """The places as runs of equal steps: start, count, step."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(places):
        end = at + 1
        step = int(places[end] - places[at]) if end < len(places) else 1
        step = step if step in (-1, 0, 1) else 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        found.append((int(places[at]), end - at, step if end - at > 1 else 1))
        at = end
    return found
