"""Shapes and strides: broadcasting, axes, contiguous layouts, reshapes without a copy.

Strides are in elements, not bytes, everywhere in Morpho.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from morpho.base.checks import shown
from morpho.base.dims import Dim, Shape, Size, bounds, divide, product
from morpho.base.errors import ArgumentError, AxisError, ShapeError, fail

MOST_DIMENSIONS = 64  # NumPy's limit, which host operations and exports share
MOST_BYTES = (1 << 63) - 1  # what an address can tell apart, and NumPy's limit


def as_integer(value: Any, operation: str, what: str, hint: str = "") -> int:
    """A Python integer from anything that counts as one, such as NumPy's; a float is an error that says so.

    >>> as_integer(3, "eye", "k")
    3
    """
    try:
        return int(operator.index(value))  # a truth value is its own index
    except TypeError:
        raise fail(ArgumentError, operation, f"{what} {shown(value)} is not an integer",
                   hint or _whole(value)) from None


def _whole(value: object) -> str:
    """Spelling to suggest instead of a float that counts something."""
    return f"write {int(value)}" if isinstance(value, float) and value.is_integer() else ""


def as_shape(value: object, operation: str = "shape") -> Shape:
    """A tuple of sizes from an integer or a sequence of integers."""
    items = value if isinstance(value, tuple | list) else (value,)
    return tuple([item if isinstance(item, Dim) else _as_size(item, operation) for item in items])


def _as_size(value: Any, operation: str) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        raise fail(ArgumentError, operation, f"{shown(value)} is not a size", _whole(value) or "sizes are integers",
                   ) from None


def as_sizes(value: object, operation: str, itemsize: int = 1) -> Shape:
    """The shape of a tensor to be made, of elements of so many bytes: `as_shape`, checked.

    >>> as_sizes([2, 3], "zeros")
    (2, 3)
    """
    shape = as_shape(value, operation)
    check_shape(shape, operation, itemsize)
    return shape


def check_shape(shape: Shape, operation: str, itemsize: int = 1) -> None:
    """Refuse a shape that no memory holds: negative sizes, more bytes than have addresses, too many dimensions."""
    if len(shape) > MOST_DIMENSIONS:
        raise fail(ShapeError, operation, f"a shape of {len(shape)} dimensions is more than {MOST_DIMENSIONS}")
    total = itemsize
    for size in shape:
        if type(size) is int:
            if size < 0:
                raise fail(ShapeError, operation, f"shape {shape} has a negative size")
            total *= size or 1  # strides are those of the other sizes, also where there is no element
        elif not isinstance(size, Dim):
            raise fail(ArgumentError, operation, f"size {size!r} of shape {shape} is not a Python integer",
                       "convert it with int()")
        elif bounds(size)[0] < 0:
            raise fail(ShapeError, operation, f"shape {shape} has a size that may be negative: {size}",
                       "use bounds of mo.Dim that rule it out")
    if total > MOST_BYTES:
        raise fail(ShapeError, operation, f"shape {shown(shape)} has more elements than have addresses")


def as_items(value: Any) -> list[Any]:
    """Return one value or several (such as axes) as a list."""
    return list(value) if hasattr(value, "__iter__") else [value]


def broadcast(operation: str, *shapes: Shape, inner: int = 0) -> Shape:
    """The shape that all of them broadcast to, without the last `inner` axes of each.

    >>> broadcast("add", (2, 1), (3,)), broadcast("matmul", (7, 2, 3), (3, 4), inner=2)
    ((2, 3), (7,))
    """
    outer = [shape[:len(shape) - inner] for shape in shapes]
    rank = max((len(shape) for shape in outer), default=0)
    result: list[Size] = []
    for axis in range(-rank, 0):
        size: Size = 1
        for shape in outer:
            if len(shape) < -axis or shape[axis] == 1 or shape[axis] == size:
                continue
            if size != 1:
                listed = " and ".join(str(s) for s in shapes)
                what, where = ("the batch axes of ", f" at axis {axis - inner}") if inner else ("", "")
                raise fail(ShapeError, operation,
                           f"{what}shapes {listed} do not broadcast: {size} != {shape[axis]}{where}",
                           "sizes must be equal or 1, counted from the last axis")
            size = shape[axis]
        result.append(size)
    return tuple(result)


def normalise_axis(axis: object, rank: int, operation: str) -> int:
    """One axis in 0..rank-1 from one that may count from the end."""
    try:
        number = operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise fail(ArgumentError, operation, f"axis {axis!r} is not an integer") from None
    if not -rank <= number < rank:
        raise fail(AxisError, operation, f"axis {number} is out of range for {rank} dimensions")
    return number % rank


def normalise_axes(axes: object, rank: int, operation: str) -> tuple[int, ...]:
    """Several axes, sorted, each once; None means all of them."""
    if axes is None:
        return tuple(range(rank))
    items = axes if isinstance(axes, tuple | list) else (axes,)
    result = [normalise_axis(axis, rank, operation) for axis in items]
    if len(set(result)) != len(result):
        raise fail(AxisError, operation, f"axes {tuple(items)} name an axis twice")
    return tuple(sorted(result))


def contiguous_strides(shape: Shape) -> tuple[Size, ...]:
    """Row-major strides in elements."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: Sequence[Size]) -> bool:
    """Whether the elements lie one after another in row-major order."""
    step: Size = 1
    for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if size != 1 and stride != step:
            return product(shape) == 0
        step = step * size
    return True


def resolve_reshape(old: Shape, new: Shape, operation: str = "reshape") -> Shape:
    """The new shape with one -1 filled in, checked to hold as many elements."""
    total = product(old)
    holes = [i for i, size in enumerate(new) if isinstance(size, int) and size == -1]
    if len(holes) > 1:
        raise fail(ShapeError, operation, f"shape {new} has more than one -1")
    if any(bounds(size)[0] < 0 for i, size in enumerate(new) if i not in holes):
        raise fail(ShapeError, operation, f"shape {new} has a negative size")
    if holes:
        rest = product(tuple(size for size in new if size != -1))
        missing = divide(total, rest) if rest != 0 else None
        if missing is None:
            raise fail(ShapeError, operation, f"{old} does not divide into shape {new}")
        new = tuple(missing if i == holes[0] else size for i, size in enumerate(new))
    if product(new) != total:
        raise fail(ShapeError, operation, f"shape {old} holds {total} elements, {new} holds {product(new)}")
    return new


def reshape_strides(shape: Shape, strides: tuple[Size, ...], new: Shape) -> tuple[Size, ...] | None:
    """Strides that show the same elements in the new shape, or None when only a copy can."""
    if product(shape) == 0 or is_contiguous(shape, strides):
        return contiguous_strides(new)
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result: list[Size] = []
    position = 0
    remaining = list(new)
    index = 0
    while index < len(remaining):
        if remaining[index] == 1:
            result.append(0)
            index += 1
            continue
        if position >= len(old):
            return None
        # Match a run of old axes with a run of new ones of equal product; the old run must be one chain of strides.
        old_total, new_total = old[position][0], remaining[index]
        old_end, new_end = position + 1, index + 1
        while old_total != new_total:
            grow_old = _known_less(old_total, new_total)
            if grow_old is None:
                return None
            if grow_old:
                if old_end >= len(old):
                    return None
                if old[old_end - 1][1] != old[old_end][1] * old[old_end][0]:
                    return None
                old_total = old_total * old[old_end][0]
                old_end += 1
            else:
                if new_end >= len(remaining):
                    return None
                new_total = new_total * remaining[new_end]
                new_end += 1
        step = old[old_end - 1][1]
        run: list[Size] = []
        for size in reversed(remaining[index:new_end]):
            run.append(step)
            step = step * size
        result.extend(reversed(run))
        position, index = old_end, new_end
    return tuple(result)


def _known_less(a: Size, b: Size) -> bool | None:
    """Whether a < b for certain, b < a for certain, or None when the symbols do not tell."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if divide(b, a) is not None:
        return True
    return False if divide(a, b) is not None else None
