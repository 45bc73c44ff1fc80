"""Where a value lies: a slot of memory, an offset into it and strides, all in elements."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dims import Size, product
from morpho.base.dtypes import DType, complex64, float32, float64
from morpho.base.shapes import contiguous_strides, is_contiguous
from morpho.ir.node import Node
from morpho.passes.canonical import view_strides


@dataclass(frozen=True, slots=True)
class Place:
    """A strided view of a slot."""

    slot: int
    offset: Size
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    dtype: DType

    @property
    def is_contiguous(self) -> bool:
        return is_contiguous(self.shape, self.strides)


def whole(slot: int, shape: tuple[Size, ...], dtype: DType) -> Place:
    """A slot seen as one contiguous array."""
    return Place(slot, 0, shape, contiguous_strides(shape), dtype)


def as_pairs(place: Place) -> Place:
    """A place of complex numbers as one of their real and imaginary parts, which native code can copy."""
    part = float32 if place.dtype is complex64 else float64
    return Place(place.slot, 2 * place.offset, (*place.shape, 2), (*(2 * s for s in place.strides), 1), part)


def look(view: Node, place: Place) -> Place | None:
    """The place of a view of something; None when a reshape needs a copy first."""
    strides = view_strides(view, place.shape, place.strides)
    if strides is None:
        return None
    offset = place.offset
    if view.op.name == "slice" and product(view.shape) != 0:
        for start, stride in zip(view["starts"], place.strides, strict=True):
            offset = offset + start * stride
    return Place(place.slot, offset, view.shape, strides, place.dtype)
