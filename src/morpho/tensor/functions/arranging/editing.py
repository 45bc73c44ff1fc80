"""Parts of a tensor taken out, put in or chosen, as NumPy names it; tensors are values: the given one stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.arranging.axes import ravel
from morpho.tensor.functions.move import broadcast_to, concat, moveaxis, reshape, stack
from morpho.tensor.functions.searching.search import scatter, take, take_along_axis
from morpho.tensor.functions.statistics.choosing import flatnonzero
from morpho.tensor.operands import as_node, promoted, promoted_arrays


def _along(name: str, array: Any, axis: int | None) -> tuple[Tensor, int, int]:
    """A tensor, an axis of it with a known length, and that length; without an axis all elements as a line."""
    value = Tensor.of_node(as_node(array, name))
    if axis is None:
        value, axis = ravel(value), 0
    axis = normalise_axis(axis, value.ndim, name)
    length = value.shape[axis]
    if not isinstance(length, int):
        raise fail(ShapeError, name, f"axis {axis} has a dynamic size", "places must be known to the compiler")
    return value, axis, length


def _places(name: str, obj: Any, length: int) -> Any:
    """An int, or an array of places, of whatever says which."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(length))
    found = np.asarray(obj.numpy() if isinstance(obj, Tensor) else obj)
    if found.size == 0:
        return found.astype(np.int64)
    if found.dtype != np.bool_ and not np.issubdtype(found.dtype, np.integer):
        raise fail(ArgumentError, name, f"places of dtype {found.dtype} are no integers")
    return found


def _edited(name: str, edit: Any, *given: Any) -> Any:
    """Apply a NumPy edit to a line of numbers."""
    try:
        return edit(*given)
    except (IndexError, ValueError) as error:
        raise fail(ArgumentError, name, str(error)) from None


def append(array: Any, values: Any, /, *, axis: int | None = None) -> Tensor:
    """`values` after the elements of `array`: along an axis, or both as lines.

    >>> mo.append([[1, 2], [3, 4]], [[5, 6]], axis=0).tolist(), mo.append([1, 2], [[3]]).tolist()
    ([[1, 2], [3, 4], [5, 6]], [1, 2, 3])
    """
    first, second = (Tensor.of_node(node) for node in promoted_arrays("append", array, values))
    if axis is None:
        return concat([ravel(first), ravel(second)])
    return concat([first, second], axis=axis)


def delete(array: Any, obj: Any, /, *, axis: int | None = None) -> Tensor:
    """Without the places that an int, a slice, a mask or a list of ints names along an axis (all elements as a line
    without one). They must be known when the line runs.

    >>> mo.delete([[1, 2, 3], [4, 5, 6]], 1, axis=1).tolist(), mo.delete([1, 2, 3, 4], [0, -1]).tolist()
    ([[1, 3], [4, 6]], [2, 3])
    """
    value, axis, length = _along("delete", array, axis)
    kept = _edited("delete", np.delete, np.arange(length), _places("delete", obj, length))
    return take(value, unplaced(kept), axis=axis)


def insert(array: Any, obj: Any, values: Any, /, *, axis: int | None = None) -> Tensor:
    """With `values` before the places that an int, a slice or a list of ints names along an axis (all elements as a
    line without one). They must be known when the line runs; values have the dtype of `array` then.

    >>> mo.insert([1, 2, 3], 1, [8, 9]).tolist(), mo.insert([[1, 2], [3, 4]], [0, 2], 7, axis=1).tolist()
    ([1, 8, 9, 2, 3], [[7, 1, 2, 7], [7, 3, 4, 7]])
    """
    value, axis, length = _along("insert", array, axis)
    places = _places("insert", obj, length)
    new = ew.astype(Tensor.of_node(as_node(values, "insert")), value.dtype)
    new = reshape(new, (*[1] * (value.ndim - new.ndim), *new.shape))
    if places.ndim == 0:  # as many as there are values
        new = moveaxis(new, 0, axis)
        places = np.repeat(places, int(new.shape[axis]))
    new = broadcast_to(new, (*value.shape[:axis], len(places), *value.shape[axis + 1:]))
    order = _edited("insert", np.insert, np.arange(length), places, length + np.arange(len(places)))
    return take(concat([value, new], axis=axis), unplaced(order), axis=axis)


def block(arrays: Any, /) -> Tensor:
    """Tensors in lists of lists put together: the innermost lists along the last axis, the next ones along the one
    before it.

    >>> mo.block([[mo.ones((2, 2)), mo.zeros((2, 1))], [mo.zeros((1, 2)), mo.ones((1, 1))]]).shape
    (3, 3)
    """
    depth = _depth(arrays, "block")
    leaves = [Tensor.of_node(as_node(leaf, "block")) for leaf in _leaves(arrays)]
    rank = max([depth, *(leaf.ndim for leaf in leaves)])
    return _joined(arrays, depth, rank)


def _depth(arrays: Any, name: str) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(part, name) for part in arrays}
    if len(depths) != 1:
        raise fail(ArgumentError, name, "its lists are not equally deep" if depths else "an empty list is not taken")
    return 1 + depths.pop()


def _leaves(arrays: Any) -> list[Any]:
    return [leaf for part in arrays for leaf in _leaves(part)] if isinstance(arrays, list) else [arrays]


def _joined(arrays: Any, depth: int, rank: int) -> Tensor:
    if depth == 0:
        leaf = Tensor.of_node(as_node(arrays, "block"))
        return reshape(leaf, (*[1] * (rank - leaf.ndim), *leaf.shape))
    return concat([_joined(part, depth - 1, rank) for part in arrays], axis=-depth)


def put_along_axis(array: Any, indices: Any, values: Any, /, *, axis: int) -> Tensor:
    """With `values` at each line's own indices along an axis, as `take_along_axis` reads them; NumPy's changes its
    array instead.

    >>> mo.put_along_axis(mo.zeros((2, 3)), mo.asarray([[2], [0]]), 5.0, axis=1).tolist()
    [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    """
    value, where = Tensor.of_node(as_node(array, "put_along_axis")), Tensor.of_node(as_node(indices, "put_along_axis"))
    axis = normalise_axis(axis, value.ndim, "put_along_axis")
    if where.ndim != value.ndim:
        raise fail(ShapeError, "put_along_axis", f"indices of shape {where.shape} have other axes than {value.shape}")
    shape = (*value.shape[:axis], where.shape[axis], *value.shape[axis + 1:])
    new = ew.astype(Tensor.of_node(as_node(values, "put_along_axis")), value.dtype)
    length = value.shape[axis]
    wrapped = ew.where(where < 0, where + length, where)
    return scatter(value, broadcast_to(wrapped, shape), broadcast_to(new, shape), axis=axis)


def compress(condition: Any, array: Any, /, *, axis: int | None = None) -> Tensor:
    """The places along an axis at which a line of conditions holds.

    >>> mo.compress([False, True, True], [[1, 2, 3], [4, 5, 6]], axis=1).tolist()
    [[2, 3], [5, 6]]
    """
    value, axis, _ = _along("compress", array, axis)
    chosen = Tensor.of_node(as_node(condition, "compress"))
    if chosen.ndim != 1:
        raise fail(ShapeError, "compress", f"conditions of shape {chosen.shape} are no line")
    return take(value, flatnonzero(chosen), axis=axis)


def choose(which: Any, choices: Sequence[Any], /) -> Tensor:
    """For every element the choice with that number; an index outside them is an error.

    >>> mo.choose([0, 1, 1], [[10, 20, 30], 7]).tolist()
    [10, 7, 7]
    """
    index = Tensor.of_node(as_node(which, "choose"))
    if not len(choices):
        raise fail(ArgumentError, "choose", "there is nothing to choose from")
    parts = [Tensor.of_node(node) for node in promoted("choose", *choices)]
    shape = np.broadcast_shapes(index.shape, *(part.shape for part in parts))
    every = stack([broadcast_to(part, shape) for part in parts])
    return take_along_axis(every, broadcast_to(index, shape)[None], axis=0)[0]


def select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0, /) -> Tensor:
    """Of every element the choice of the first condition that holds there, else `default`.

    >>> x = mo.arange(5)
    >>> mo.select([x < 2, x > 3], [x, x * 10], -1).tolist()
    [0, 1, -1, -1, 40]
    """
    if not all(isinstance(lines, list | tuple) or getattr(lines, "ndim", 0) for lines in (conditions, choices)):
        raise fail(ArgumentError, "select", "the conditions and the choices are not lists of as many of each",
                   "write mo.select([condition], [choice], default) for NumPy's choice, x.select(dim, index) or "
                   "x[..., index] for PyTorch's")
    if len(conditions) != len(choices) or not len(choices):
        raise fail(ArgumentError, "select", f"there are {len(conditions)} conditions and {len(choices)} choices")
    *values, found = (Tensor.of_node(node) for node in promoted("select", *choices, default))
    for condition, value in reversed([*zip(conditions, values, strict=True)]):
        found = ew.where(condition, value, found)
    return found
