"""A strided view: slot, offset and strides of a value, all in elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.base.dims import Size, half_of, product
from morpho.base.dtypes import DType, complex64, complex128, float32, float64
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.ir.node import Node
from morpho.ir.views import CHANNELS_LAST, view_strides


@dataclass(frozen=True, slots=True)
class Border:
    """Where memory ends along one axis of what a place shows: positions, with an offset and strides like an address,
    that are less than 0 or not less than `size` are not there."""

    size: Size
    offset: Size
    strides: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A strided view of a slot. With `borders` it shows more than there is: `fill` stands outside them."""

    slot: int
    offset: Size
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    dtype: DType
    borders: tuple[Border, ...] = ()
    fill: float | int = 0
    part: int | None = None  # of complex numbers in memory: 0 for the real ones, beside each of which lies a 1

    @property
    def is_contiguous(self) -> bool:
        return is_contiguous(self.shape, self.strides)


def whole(slot: int, shape: tuple[Size, ...], dtype: DType) -> View:
    """A slot seen as one contiguous array."""
    return View(slot, 0, shape, contiguous_strides(shape), dtype)


def channels_last(place: View) -> View:
    """Images [image, channel, row, column] seen with their channels last."""
    return replace(place, shape=tuple(place.shape[axis] for axis in CHANNELS_LAST),
                   strides=tuple(place.strides[axis] for axis in CHANNELS_LAST))


def as_pairs(place: View) -> View:
    """A place of complex numbers as one of their real and imaginary parts, which native code can copy."""
    part = float32 if place.dtype is complex64 else float64
    return View(place.slot, 2 * place.offset, (*place.shape, 2), (*(2 * s for s in place.strides), 1), part)


def from_pairs(place: View) -> View | None:
    """A place of pairs as complex numbers; None where they do not lie side by side."""
    *steps, last = place.strides
    halves = [half_of(stride) for stride in (place.offset, *steps)]
    if last != 1 or place.borders or any(half is None for half in halves):
        return None
    whole_dtype = complex64 if place.dtype is float32 else complex128
    offset, *strides = [half for half in halves if half is not None]
    return View(place.slot, offset, place.shape[:-1], tuple(strides), whole_dtype)


def part_of(place: View, index: int) -> View:
    """The real (0) or imaginary (1) parts of a place of complex numbers."""
    dtype = float32 if place.dtype is complex64 else float64
    return View(place.slot, 2 * place.offset + index, place.shape, tuple(2 * s for s in place.strides), dtype,
                part=index)


def padded(place: View, pad: Node) -> View:
    """View of a `pad` of a value, without memory for it."""
    offset = place.offset
    for before, stride in zip(pad["before"], place.strides, strict=True):
        offset = offset - before * stride
    rank = len(place.shape)
    borders = tuple(Border(size, -before, tuple(int(d == axis) for d in range(rank)))
                    for axis, (size, before, after) in enumerate(zip(place.shape, pad["before"], pad["after"],
                                                                     strict=True)) if before != 0 or after != 0)
    return View(place.slot, offset, pad.shape, place.strides, place.dtype, borders, pad["value"])


def look(view: Node, place: View) -> View | None:
    """The place of a view of something; None when a reshape needs a copy first."""
    if view.op.name == "remat_barrier":
        return place
    if view.op.name == "part":
        return part_of(place, view["index"])
    if view.op.name == "as_real":
        return as_pairs(place)
    if view.op.name == "as_complex":
        return from_pairs(place)
    strides = view_strides(view, place.shape, place.strides)
    if strides is None:
        return None
    borders = []
    for border in place.borders:
        along = view_strides(view, place.shape, border.strides)
        if along is None:
            return None
        borders.append(Border(border.size, _moved(view, border.offset, border.strides), along))
    return View(place.slot, _moved(view, place.offset, place.strides), view.shape, strides, place.dtype,
                 tuple(borders), place.fill, place.part)


def _moved(view: Node, offset: Size, strides: tuple[Size, ...]) -> Size:
    """An offset after a slice, which may begin elsewhere."""
    if view.op.name == "slice" and product(view.shape) != 0:
        for start, stride in zip(view["starts"], strides, strict=True):
            offset = offset + start * stride
    return offset
