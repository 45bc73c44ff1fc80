"""From a scatter and the places of its operands to a kernel and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.loops.sequential.scatter import INDEX, PIECE, TARGET, VALUE, ScatterKernel
from morpho.base.dims import Size, product
from morpho.program.view import View


@dataclass(frozen=True, slots=True)
class ScatterCall:
    """A kernel and what to call it with."""

    kernel: ScatterKernel
    values: tuple[Size, ...]
    items: Size
    work: Size  # of one item


def lower_scatter(places: tuple[View, View, View], axis: int, mode: str) -> ScatterCall:
    """The kernel for index, value and target: the columns run along the axis in which most lies side by side."""
    others = [d for d in range(len(places[TARGET].shape)) if d != axis]
    columns = _column_axis(places, others)
    outer = [d for d in others if d != columns]
    shape = places[VALUE].shape
    width: Size = 1 if columns is None else shape[columns]
    pieces = -(-width // PIECE) if isinstance(width, int) else width  # an unknown width has at most so many
    strides = [[p.strides[d] for d in outer] + [p.strides[axis], 0 if columns is None else p.strides[columns]]
               for p in places]
    kernel = ScatterKernel(mode, places[VALUE].dtype, places[TARGET].dtype, places[INDEX].dtype, len(outer),
                           shared=strides[INDEX][-1] == 0,
                           unit=strides[VALUE][-1] == 1 and strides[TARGET][-1] == 1)
    values = kernel.record.values(
        extents=[shape[d] for d in outer], count=shape[axis], columns=width, pieces=pieces,
        size=places[TARGET].shape[axis], index=strides[INDEX], value=strides[VALUE], target=strides[TARGET])
    work = shape[axis] * (min(width, PIECE) if isinstance(width, int) else PIECE)
    return ScatterCall(kernel, values, product(tuple(shape[d] for d in outer)) * pieces, work)


def _column_axis(places: tuple[View, View, View], others: list[int]) -> int | None:
    """An axis whose elements share their index, best one along which the target lies side by side."""
    if not others:
        return None
    return max(others, key=lambda d: (places[TARGET].strides[d] == 1, places[INDEX].strides[d] == 0, d))
