"""Axes exchanged, turned and joined."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import as_integer, normalise_axis
from morpho.tensor.core import Tensor
from morpho.tensor.functions.move import flip, permute_dims, reshape
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded, view


@view
def swapaxes(x: Any, axis1: int, axis2: int, /) -> Tensor:
    """Two axes exchanged.

    >>> mo.swapaxes(mo.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    rank = len(as_node(x, "swapaxes").shape)
    if rank == 0 and {axis1, axis2} <= {0, -1}:  # PyTorch's: a number has one axis to name
        return Tensor.of_node(as_node(x, "swapaxes"))
    first, second = (normalise_axis(axis, rank, "swapaxes") for axis in (axis1, axis2))
    axes = list(range(rank))
    axes[first], axes[second] = second, first
    return permute_dims(x, axes)


@view
def ravel(x: Any, /) -> Tensor:
    """All elements as a vector, in row-major order.

    >>> mo.ravel(mo.asarray([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    """
    return reshape(x, (product(as_node(x, "ravel").shape),))


@view
def flatten(x: Any, /, *, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """The axes from `start_axis` to `end_axis` as one.

    >>> mo.flatten(mo.ones((2, 3, 4)), start_axis=1).shape
    (2, 12)
    """
    shape = as_node(x, "flatten").shape or (1,)
    first, last = (normalise_axis(axis, len(shape), "flatten") for axis in (start_axis, end_axis))
    if first > last:
        raise fail(ArgumentError, "flatten", f"axis {start_axis} comes after axis {end_axis}")
    return reshape(x, (*shape[:first], product(shape[first:last + 1]), *shape[last + 1:]))


@view
def unflatten(x: Any, /, axis: int, sizes: Any) -> Tensor:
    """One axis as several, of which one size may be -1.

    >>> mo.unflatten(mo.ones((2, 12)), 1, (3, -1)).shape
    (2, 3, 4)
    """
    shape = as_node(x, "unflatten").shape
    number = normalise_axis(axis, len(shape), "unflatten")
    parts = tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)
    known = product(tuple(size for size in parts if size != -1))
    if sum(size == -1 for size in parts) > 1 or (isinstance(known, int) and isinstance(shape[number], int) and (
            shape[number] % max(known, 1) if -1 in parts else known != shape[number])):
        raise fail(ShapeError, "unflatten", f"an axis of size {shape[number]} does not become {parts}")
    return reshape(x, (*shape[:number], *parts, *shape[number + 1:]))


@recorded
def fliplr(x: Any, /) -> Tensor:
    """The second axis read backwards.

    >>> mo.fliplr(mo.asarray([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """
    return flip(x, axis=1)


@recorded
def flipud(x: Any, /) -> Tensor:
    """The first axis read backwards.

    >>> mo.flipud(mo.asarray([[1, 2], [3, 4]])).tolist()
    [[3, 4], [1, 2]]
    """
    return flip(x, axis=0)


def rot90(x: Any, /, *, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    """Turned k times by 90 degrees, from the first of two axes towards the second.

    >>> mo.rot90(mo.asarray([[0, 1, 2], [3, 4, 5]])).tolist()
    [[2, 5], [1, 4], [0, 3]]
    """
    rank, turns = len(as_node(x, "rot90").shape), as_integer(k, "rot90", "k") % 4
    if len(tuple(axes)) != 2:
        raise fail(ArgumentError, "rot90", f"axes {axes} are not two")
    first, second = (normalise_axis(axis, rank, "rot90") for axis in axes)
    if first == second:
        raise fail(ArgumentError, "rot90", f"axes {axes} are the same")
    if turns == 2:
        return flip(flip(x, axis=first), axis=second)
    if turns == 1:
        return swapaxes(flip(x, axis=second), first, second)
    return flip(swapaxes(x, first, second), axis=second) if turns else Tensor.of_node(as_node(x, "rot90"))
