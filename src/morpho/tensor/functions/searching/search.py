"""Finding and choosing by data: take, embedding, scatter, one_hot, nonzero, searchsorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import bounds
from morpho.base.dtypes import DType, as_dtype, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import as_shape, broadcast, check_shape, normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant, expand, reshape
from morpho.tensor.convert import asarray, borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions.indexing.fancy import wrapped
from morpho.tensor.functions.reduce import truth
from morpho.tensor.functions.searching.selection import compacted, is_compacted, is_data, selected, unravelled
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.scalars import DEFAULT_FLOAT, is_scalar, scalar_node
from morpho.tensor.sync import realised_array


def checked_indices(name: str, indices: Any) -> Node:
    """Integers, for an operation of this name."""
    node = as_node(indices, name)
    if not node.dtype.is_integer:
        raise fail(DTypeError, name, f"indices are {node.dtype}, not integers", "convert them with astype")
    return node


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """The elements at `indices` along an axis, without one those of x read as a vector; negative ones count from the
    end, and each is checked.

    >>> mo.take(mo.asarray([10, 20, 30]), mo.asarray([2, 0])).tolist()
    [30, 10]
    """
    node, index = as_node(x, "take"), checked_indices("take", indices)
    if axis is None or (not node.shape and axis in (0, -1)):
        node, axis = reshape(node, (_count(node),)), 0
    number = normalise_axis(axis, len(node.shape), "take")
    before, after = node.shape[:number], node.shape[number + 1:]
    flat = reshape(wrapped(index, node.shape[number]), (_count(index),))
    spread = expand(reshape(flat, (1,) * number + flat.shape + (1,) * len(after)), (*before, *flat.shape, *after))
    return Tensor.of_node(reshape(build("gather", node, spread, axis=number, called="take"),
                                  (*before, *index.shape, *after)))


def embedding(weight: Any, ids: Any, /) -> Tensor:
    """The rows of a table at `ids`, of any shape, each id checked; unlike `take`, none counts from the end.

    Its gradient adds up what every id received, in the order of the ids.

    >>> mo.embedding(mo.asarray([[1.0, 2.0], [3.0, 4.0]]), mo.asarray([1, 1, 0])).tolist()
    [[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]]
    """
    return rows_of("embedding", weight, ids)


def rows_of(name: str, table: Any, ids: Any) -> Tensor:
    """`embedding` as a part of another operation, whose name its errors bear."""
    node, index = as_node(table, name), checked_indices(name, ids)
    if len(node.shape) < 2:
        raise fail(ShapeError, name, f"a table of shape {node.shape} has no rows", "it needs two dimensions")
    rest = node.shape[1:]
    flat = reshape(index, (_count(index), *[1] * len(rest)))
    found = build("gather", node, expand(flat, (flat.shape[0], *rest)), axis=0, called=name)
    return Tensor.of_node(reshape(found, (*index.shape, *rest)))


def _count(node: Node) -> Any:
    from morpho.base.dims import product

    return product(node.shape)


def along(name: str, node: Node, index: Node, axis: int) -> tuple[Node, Node, int]:
    """x and indices broadcast to each other outside the axis."""
    if len(node.shape) != len(index.shape):
        raise fail(ShapeError, name, f"shapes {node.shape} and {index.shape} have different numbers of dimensions")
    number = normalise_axis(axis, len(node.shape), name)

    def without(shape: Any) -> Any:
        return (*shape[:number], *shape[number + 1:])

    common = broadcast(name, without(node.shape), without(index.shape))
    sized = [expand(n, (*common[:number], n.shape[number], *common[number:])) for n in (node, index)]
    return sized[0], sized[1], number


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """For every line along an axis the elements at that line's own indices.

    >>> x = mo.asarray([[3.0, 1.0], [2.0, 4.0]])
    >>> mo.take_along_axis(x, mo.argsort(x))
    Tensor([[1., 3.],
            [2., 4.]], dtype=float32)
    """
    name = "take_along_axis"
    node, index, number = along(name, as_node(x, name), checked_indices(name, indices), axis)
    return Tensor.of_node(build("gather", node, wrapped(index, node.shape[number]), axis=number, called=name))


def classes_along(name: str, x: Any, classes: Any, axis: int) -> Tensor:
    """`take_along_axis` of one class per line, for a loss of this name: none counts from the end."""
    node, index, number = along(name, as_node(x, name), checked_indices(name, classes), axis)
    return Tensor.of_node(build("gather", node, index, axis=number, called=name))


def scatter(x: Any, indices: Any, values: Any, /, *, axis: int = -1) -> Tensor:
    """x with `values` put at `indices` along an axis, line by line; of equal indices the last one stays.

    >>> mo.scatter(mo.zeros(4), mo.asarray([1, 3]), mo.asarray([5.0, 7.0])).tolist()
    [0.0, 5.0, 0.0, 7.0]
    """
    return _scattered("scatter", x, indices, values, axis, "set")


def scatter_add(x: Any, indices: Any, values: Any, /, *, axis: int = -1) -> Tensor:
    """x with `values` added at `indices` along an axis, in index order; equal indices add up.

    >>> mo.scatter_add(mo.zeros(3), mo.asarray([0, 0, 2]), mo.asarray([1.0, 2.0, 5.0]))
    Tensor([3., 0., 5.], dtype=float32)
    """
    return _scattered("scatter_add", x, indices, values, axis, "add")


def _scattered(name: str, x: Any, indices: Any, values: Any, axis: int, mode: str) -> Tensor:
    node, index, number = along(name, as_node(x, name), checked_indices(name, indices), axis)
    index = wrapped(index, node.shape[number])
    given = scalar_node(values, node.dtype, name) if is_scalar(values) else as_node(values, name)
    if given.dtype is not node.dtype:
        raise fail(DTypeError, name, f"values of {given.dtype} do not fit {node.dtype}", "convert them with astype")
    if broadcast(name, given.shape, index.shape) != index.shape:
        raise fail(ShapeError, name, f"values of shape {given.shape} do not broadcast to indices of {index.shape}")
    return Tensor.of_node(build("scatter", node, index, expand(given, index.shape), axis=number, mode=mode,
                                called=name))


def one_hot(indices: Any, /, num_classes: int, *, dtype: Any = None) -> Tensor:
    """A new last axis with 1 at each index and 0 elsewhere; an index outside gives only zeros.

    >>> mo.one_hot(mo.asarray([2, 0]), 3)
    Tensor([[0., 0., 1.],
            [1., 0., 0.]], dtype=float32)
    """
    index = cast(checked_indices("one_hot", indices), int64)
    (count,) = as_shape((num_classes,), "one_hot")
    if bounds(count)[0] < 0:
        raise fail(ArgumentError, "one_hot", f"{count} classes cannot be made")
    shape = (*index.shape, count)
    check_shape(shape, "one_hot", 8)
    classes = build("iota", shape=shape, axis=len(shape) - 1, dtype=int64)
    target: DType = as_dtype(dtype) if dtype is not None else DEFAULT_FLOAT
    return Tensor.of_node(cast(build("equal", expand(reshape(index, (*index.shape, 1)), shape), classes), target))


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The positions of the elements that are not zero, a tensor per axis. How many there are is data: x is realised
    at once, or, in a compiled function, they have a dynamic size.

    >>> mo.nonzero(mo.asarray([0, 2, 0, 4]))
    (Tensor([1, 3], dtype=int64),)
    """
    found = x if isinstance(x, Tensor) else asarray(x)
    if found.ndim == 0:
        raise fail(ShapeError, "nonzero", "a 0-dimensional tensor has no positions")
    if is_data(found):
        return tuple(unravelled(selected(Tensor.of_node(truth(found.node)), "nonzero"), found.shape))
    if is_compacted(found):
        return tuple(unravelled(compacted(Tensor.of_node(truth(found.node))), found.shape))
    array = realised_array(found, "nonzero", "the number of elements that are not zero depends on data", "use mo.where")
    return tuple(on(borrowed(part), found.device) for part in np.nonzero(array))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where each of x2 would be put into the sorted x1 to keep it sorted.

    >>> mo.searchsorted([1.0, 3.0, 5.0], [0.0, 3.0, 9.0])
    Tensor([0, 1, 3], dtype=int64)
    """
    if side not in ("left", "right"):
        raise fail(ArgumentError, "searchsorted", f"side {side!r} is unknown", "use 'left' or 'right'")
    line, values = promoted("searchsorted", x1, x2)
    if sorter is not None:
        line = take(Tensor.of_node(line), sorter, axis=0).node
    return Tensor.of_node(build("searchsorted", line, values, side=side))


def positions(shape: Any, axis: int) -> Node:
    """Index numbers along an axis, in int64."""
    return build("iota", shape=shape, axis=axis, dtype=int64) if shape else constant(0, int64)
