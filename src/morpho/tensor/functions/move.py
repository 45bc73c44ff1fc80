"""Shapes: views that move no byte (reshape, transpose, slices, broadcasting) and the few functions that copy."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Shape, Size, bounds, product
from morpho.base.dtypes import int64
from morpho.base.errors import ArgumentError, AxisError, ShapeError, ValueFault, fail
from morpho.base.shapes import (
    as_integer,
    as_items,
    as_shape,
    as_sizes,
    broadcast,
    check_shape,
    normalise_axes,
    normalise_axis,
    reshape_strides,
    resolve_reshape,
)
from morpho.ir.node import Node, build
from morpho.ops import algebra
from morpho.ops.reductions.scan import flip as flip_node
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.convert import asarray, unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions.arranging.borders import as_mode, bordered
from morpho.tensor.functions.searching.search import take
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.recorded import recorded, view
from morpho.tensor.sync import realised_array


@view
def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape, one size of which may be -1. A view where strides allow, else one counted
    copy; `copy=True` always copies, `copy=False` refuses to.

    >>> mo.reshape(mo.ones((2, 3)), (-1, 2), copy=False).shape
    (3, 2)
    """
    node = as_node(x, "reshape")
    sizes = resolve_reshape(node.shape, as_shape(shape, "reshape"))
    if copy is False:
        _check_view(Tensor.of_node(node) if not isinstance(x, Tensor) else x, sizes)
    result = algebra.reshape(node, sizes)
    return Tensor.of_node(build("copy", result) if copy else result)


def _check_view(x: Tensor, sizes: Shape) -> None:
    """Refuse what would need a copy. How values lie is known once they are there; views are at once."""
    if tracing.current is not None and not x.is_realised:
        if "view" not in x.node.op.properties and "strides" not in x.node.attributes:
            return  # an argument or a result without gaps
        raise fail(ArgumentError, "reshape", "copy=False inside a compiled function, where values have no place yet",
                   "leave it out: f.stats['copies'] counts copies")
    if reshape_strides(x.shape, x.strides, sizes) is None:
        raise fail(ValueFault, "reshape", f"shape {x.shape} with strides {x.strides} does not become {sizes} without a "
                                          "copy", "leave copy=False out")


@view
def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order.

    >>> mo.permute_dims(mo.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    node = as_node(x, "permute_dims")
    items = as_items(axes)
    numbers = tuple(normalise_axis(axis, len(node.shape), "permute_dims") for axis in items)
    if sorted(numbers) != list(range(len(node.shape))):
        raise fail(AxisError, "permute_dims", f"axes {tuple(items)} do not permute {len(node.shape)} dimensions")
    return Tensor.of_node(algebra.permute(node, numbers))


@view
def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged.

    >>> mo.linalg.matrix_transpose(mo.asarray([[1, 2], [3, 4]]))
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    node = as_node(x, "matrix_transpose")
    rank = len(node.shape)
    if rank < 2:
        raise fail(ShapeError, "matrix_transpose", f"shape {node.shape} is not a matrix")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


@view
def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to new positions, the others keeping their order.

    >>> mo.moveaxis(mo.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    rank = len(as_node(x, "moveaxis").shape)
    sources, targets = as_items(source), as_items(destination)
    if len(sources) != len(targets):
        raise fail(AxisError, "moveaxis", f"{len(sources)} axes cannot move to {len(targets)} places")
    moved = {normalise_axis(t, rank, "moveaxis"): normalise_axis(s, rank, "moveaxis")
             for s, t in zip(sources, targets, strict=True)}
    if len(moved) != len(sources) or len(set(moved.values())) != len(sources):
        raise fail(AxisError, "moveaxis", "an axis is named twice")
    rest = iter([axis for axis in range(rank) if axis not in moved.values()])
    return permute_dims(x, [moved[i] if i in moved else next(rest) for i in range(rank)])


@view
def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """x repeated along new or size-1 axes, without a copy.

    >>> mo.broadcast_to([1, 2], (2, 2))
    Tensor([[1, 2],
            [1, 2]], dtype=int64)
    """
    node = as_node(x, "broadcast_to")
    sizes = as_sizes(shape, "broadcast_to", node.dtype.itemsize)
    if broadcast("broadcast_to", node.shape, sizes) != sizes:
        raise fail(ShapeError, "broadcast_to", f"shape {node.shape} does not broadcast to {sizes}")
    return Tensor.of_node(algebra.expand(node, sizes))


@recorded
def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """All of them broadcast to their common shape.

    >>> a, b = mo.broadcast_arrays(mo.ones((3, 1)), mo.ones(4))
    >>> a.shape, b.shape
    ((3, 4), (3, 4))
    """
    shape = broadcast("broadcast_arrays", *[as_node(a, "broadcast_arrays").shape for a in arrays])
    return [broadcast_to(a, shape) for a in arrays]


@view
def expand_dims(x: Any, /, axis: Any = 0) -> Tensor:
    """New axes of size 1.

    >>> mo.expand_dims(mo.ones(3), axis=1).shape
    (3, 1)
    """
    node = as_node(x, "expand_dims")
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    numbers = normalise_axes(tuple(axes), len(node.shape) + len(axes), "expand_dims")
    left = iter(node.shape)
    rank = len(node.shape) + len(numbers)
    shape = tuple(1 if i in numbers else next(left) for i in range(rank))
    check_shape(shape, "expand_dims")
    return Tensor.of_node(algebra.reshape(node, shape))


@view
def squeeze(x: Any, /, axis: Any) -> Tensor:
    """Axes of size 1 taken away.

    >>> mo.squeeze(mo.ones((1, 3)), 0).shape
    (3,)
    """
    node = as_node(x, "squeeze")
    numbers = normalise_axes(axis, len(node.shape), "squeeze")
    for number in numbers:
        if node.shape[number] != 1:
            raise fail(ShapeError, "squeeze", f"axis {number} has size {node.shape[number]}, not 1")
    return Tensor.of_node(algebra.reshape(node, tuple(s for i, s in enumerate(node.shape) if i not in numbers)))


@recorded
def flip(x: Any, /, *, axis: Any = None) -> Tensor:
    """Axes read backwards.

    >>> mo.flip(mo.asarray([1, 2, 3]))
    Tensor([3, 2, 1], dtype=int64)
    """
    node = as_node(x, "flip")
    for number in normalise_axes(axis, len(node.shape), "flip"):
        node = flip_node(node, number)
    return Tensor.of_node(node)


def slice_node(node: Node, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> Node:
    """A region with a step per axis; the whole is the node itself."""
    if all(s == 0 for s in starts) and tuple(sizes) == node.shape and all(s == 1 for s in steps):
        return node
    return build("slice", node, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


@recorded
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, each a view without it.

    >>> first, second = mo.unstack(mo.asarray([[1, 2], [3, 4]]))
    >>> second
    Tensor([3, 4], dtype=int64)
    """
    node = as_node(x, "unstack")
    number = normalise_axis(axis, len(node.shape), "unstack")
    sizes = tuple(1 if i == number else s for i, s in enumerate(node.shape))
    shape = tuple(s for i, s in enumerate(node.shape) if i != number)
    steps = (1,) * len(sizes)
    parts = []
    for position in range(operator.index(node.shape[number])):
        starts = tuple(position if i == number else 0 for i in range(len(sizes)))
        parts.append(Tensor.of_node(algebra.reshape(slice_node(node, starts, sizes, steps), shape)))
    return tuple(parts)


# -- copies ----------------------------------------------------------------------------------------------------------
def _joined(arrays: Any, operation: str) -> list[Any]:
    """The tensors to join; one tensor is the sequence of its rows, as in NumPy."""
    if not hasattr(arrays, "__iter__") or getattr(arrays, "shape", None) == ():
        raise fail(ArgumentError, operation, f"{type(arrays).__name__} is not a sequence of tensors",
                   f"write {operation}([a, b])")
    found = list(arrays)
    if not found:
        raise fail(ArgumentError, operation, "there is nothing to join")
    return found


@recorded
def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; `axis=None` flattens them first.

    >>> mo.concat([mo.asarray([1, 2]), mo.asarray([3])])
    Tensor([1, 2, 3], dtype=int64)
    """
    arrays = _joined(arrays, "concat")
    nodes = promoted("concat", *arrays)
    if axis is None:
        nodes, axis = [algebra.reshape(n, resolve_reshape(n.shape, (-1,))) for n in nodes], 0
    number = normalise_axis(axis, len(nodes[0].shape), "concat")
    return Tensor.of_node(nodes[0] if len(nodes) == 1 else build("concatenate", *nodes, axis=number))


@recorded
def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    >>> mo.stack([mo.asarray([1, 2]), mo.asarray([3, 4])])
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    arrays = _joined(arrays, "stack")
    shapes = {as_node(a, "stack").shape for a in arrays}
    if len(shapes) != 1:
        raise fail(ShapeError, "stack", f"shapes {' and '.join(sorted(map(str, shapes)))} differ")
    number = normalise_axis(axis, len(as_node(arrays[0], "stack").shape) + 1, "stack")
    return concat([expand_dims(a, axis=number) for a in arrays], axis=number)


@recorded
def pad(x: Any, /, widths: Any, *, value: Any = 0, mode: str = "constant", constant_values: Any = None) -> Tensor:
    """x with a border of one value: `widths` is one number, one (before, after) pair for all axes, or a pair per axis.
    `constant_values` is NumPy's name of `value`, for libraries that call a namespace by it (xarray).

    mode: "constant" for `value`; "edge" ("replicate") repeats the last element; "reflect" goes back from it without
        repeating it, "symmetric" with; "wrap" ("circular") goes on at the other end.

    >>> mo.pad(mo.asarray([1, 2]), (1, 2)).tolist()
    [0, 1, 2, 0, 0]
    >>> mo.pad(mo.asarray([1, 2, 3]), 2, mode="reflect").tolist()
    [3, 2, 1, 2, 3, 2, 1]
    """
    node, mode = as_node(x, "pad"), as_mode("pad", mode)
    if constant_values is not None:
        if isinstance(constant_values, tuple | list) or not (value == 0):
            raise fail(ArgumentError, "pad", "constant_values is several numbers, or stands beside a value",
                       "give one number, and pad one side after another for several")
        value = constant_values
    pairs = _widths(widths, len(node.shape))
    if all(p == (0, 0) for p in pairs):
        return Tensor.of_node(node)
    if mode != "constant":
        return Tensor.of_node(bordered("pad", node, pairs, mode))
    before, after = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    kinds: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    return Tensor.of_node(build("pad", node, before=before, after=after, value=kinds[node.dtype.kind](value)))


def _widths(widths: Any, rank: int) -> list[Shape]:
    """(before, after) of every axis."""
    given = widths.tolist() if isinstance(widths, np.ndarray) else widths
    several = isinstance(given, tuple | list) and any(isinstance(item, tuple | list) for item in given)
    pairs = [as_shape(pair, "pad") for pair in (given if several else [given])]
    pairs = [pair * 2 if len(pair) == 1 else pair for pair in (pairs * rank if len(pairs) == 1 else pairs)]
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise fail(ArgumentError, "pad", f"widths {widths} do not fit {rank} dimensions",
                   "give one number, one (before, after) pair, or a pair per axis")
    if any(bounds(width)[0] < 0 for pair in pairs for width in pair):
        raise fail(ArgumentError, "pad", f"widths {widths} are negative", "slice to cut elements off")
    return pairs


@recorded
def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Elements moved along axes, those that leave at one end coming in at the other; flattened without an axis.

    >>> mo.roll(mo.asarray([1, 2, 3]), 1)
    Tensor([3, 1, 2], dtype=int64)
    """
    node = as_node(x, "roll")
    if axis is None:
        flat = algebra.reshape(node, (product(node.shape),))
        return Tensor.of_node(algebra.reshape(_rolled(flat, sum(_shifts(shift)), 0), node.shape))
    axes, shifts = as_items(axis), _shifts(shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise fail(ArgumentError, "roll", f"{len(shifts)} shifts do not fit {len(axes)} axes")
    for amount, number in zip(shifts, axes, strict=True):
        node = _rolled(node, amount, normalise_axis(number, len(node.shape), "roll"))
    return Tensor.of_node(node)


def _shifts(shift: Any) -> list[int]:
    several = shift if isinstance(shift, tuple | list) else [shift]
    return [as_integer(amount, "roll", "shift") for amount in several]


def _rolled(node: Node, shift: int, axis: int) -> Node:
    size = node.shape[axis]
    if isinstance(size, Dim):
        return _rolled_by_index(node, shift, axis)
    shift = shift % size if size else 0
    if not shift:
        return node
    pieces = []
    for start, count in ((size - shift, shift), (0, size - shift)):
        starts = [start if i == axis else 0 for i in range(len(node.shape))]
        sizes = [count if i == axis else s for i, s in enumerate(node.shape)]
        pieces.append(slice_node(node, starts, sizes, [1] * len(sizes)))
    return build("concatenate", *pieces, axis=axis)


def _rolled_by_index(node: Node, shift: int, axis: int) -> Node:
    """Along a dynamic axis the cut is known only at run time: every element is fetched from its place."""
    index = build("iota", shape=node.shape, axis=axis, dtype=int64)
    moved = algebra.sub(index, algebra.constant_like(index, shift))
    size = algebra.expand(algebra.size_value(node.shape[axis], int64), node.shape)
    return build("gather", node, build("remainder", moved, size), axis=axis)


@recorded
def tile(x: Any, repetitions: Any, /) -> Tensor:
    """x laid side by side, so many times along each axis.

    >>> mo.tile(mo.asarray([1, 2]), (3,))
    Tensor([1, 2, 1, 2, 1, 2], dtype=int64)
    """
    node, counts = as_node(x, "tile"), as_shape(repetitions, "tile")
    if any(isinstance(count, int) and count < 0 for count in counts):
        raise fail(ArgumentError, "tile", f"repetitions {counts} are negative")
    rank = max(len(counts), len(node.shape))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - len(node.shape)) + node.shape
    tiled = tuple(count * size for count, size in zip(counts, shape, strict=True))
    check_shape(tiled, "tile", node.dtype.itemsize)
    apart: list[Size] = []  # with an axis of its own for every count but 1, so that few dimensions are added
    spread: list[Size] = []
    for count, size in zip(counts, shape, strict=True):
        apart += (size,) if count == 1 else (1, size)
        spread += (size,) if count == 1 else (count, size)
    return Tensor.of_node(algebra.reshape(algebra.expand(algebra.reshape(node, tuple(apart)), tuple(spread)), tiled))


@recorded
def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Every element so many times in a row along an axis; flattened without one. A tensor of repeats is realised at
    once, because the resulting size is data.

    >>> mo.repeat(mo.asarray([1, 2]), 2)
    Tensor([1, 1, 2, 2], dtype=int64)
    """
    node = as_node(x, "repeat")
    if axis is None:
        node, axis = algebra.reshape(node, (product(node.shape),)), 0
    number = normalise_axis(axis, len(node.shape), "repeat")
    if isinstance(repeats, int | np.integer):
        repeats = int(repeats)
        if repeats < 0:
            raise fail(ArgumentError, "repeat", f"{repeats} repeats are negative")
        before, size, after = node.shape[:number], node.shape[number], node.shape[number + 1:]
        check_shape((*before, size * repeats, *after), "repeat", node.dtype.itemsize)
        spread = algebra.expand(algebra.reshape(node, (*before, size, 1, *after)), (*before, size, repeats, *after))
        return Tensor.of_node(algebra.reshape(spread, (*before, size * repeats, *after)))
    return _repeated_each(node, repeats, number)


def _repeated_each(node: Node, repeats: Any, axis: int) -> Tensor:
    counts = realised_array(asarray(repeats), "repeat", "the repeats decide the size of the result", "use an integer")
    size = operator.index(node.shape[axis])
    if counts.dtype.kind not in "iu" or counts.size not in (1, size) or (counts.size and counts.min() < 0):
        raise fail(ArgumentError, "repeat", f"repeats {counts.tolist()} do not fit an axis of size {size}")
    return take(Tensor.of_node(node), unplaced(np.repeat(np.arange(size), counts.reshape(-1))), axis=axis)
