"""Parts of complex numbers between memory and registers: two lie side by side there, and apart in vectors.

A load takes both parts of a chunk and keeps one, a store joins two vectors; ends of rows go element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.base.dims import Size
from morpho.program.view import View

PARTS = ("even", "odd")  # patterns of real and of imaginary parts along the columns


def with_pairs(kernel: LoopKernel, places: Sequence[View | None], steps: Sequence[Size]) -> LoopKernel:
    """The kernel with parts of complex numbers known as such, where they lie so along the columns (`steps`)."""
    if kernel.transposed or all(place is None or place.part is None for place in places):
        return kernel
    accesses = list(kernel.accesses)
    parts = {n: place for n, place in enumerate(places) if place is not None and place.part is not None
             and accesses[n].pattern == "strided" and steps[n] == 2 and not accesses[n].guards}
    for number, place in parts.items():
        if accesses[number].kind == "load":
            accesses[number] = replace(accesses[number], pattern=PARTS[place.part or 0])
    for step in kernel.passes:
        stored = {(parts[s.access].slot, parts[s.access].offset): s.access for s in step.stores if s.access in parts}
        for (slot, offset), number in stored.items():
            other = stored.get((slot, offset + 1)) if parts[number].part == 0 else None
            if other is not None and parts[other].part == 1 and parts[other].strides == parts[number].strides:
                accesses[number] = replace(accesses[number], pattern="even", other=other)
                accesses[other] = replace(accesses[other], pattern="odd", other=number)
    return replace(kernel, accesses=tuple(accesses))


def every_second(e: Emitter, place: str, element: str, first: int, lanes: int) -> Value:
    """Every second of twice as many elements in memory, from the `first` on."""
    wide = e.load(place, element, 2 * lanes)
    return picked(e, wide, [2 * i + first for i in range(lanes)])


def picked(e: Emitter, value: Value, lanes: Sequence[int]) -> Value:
    """Some lanes of a vector in an order."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.assign(f"shufflevector {value.type} {value.name}, {value.type} poison, <{len(lanes)} x i32> <{mask}>",
                    value.element, len(lanes))


def joined(e: Emitter, a: Value, b: Value) -> Value:
    """Lanes of two vectors by turns."""
    order = ", ".join(f"i32 {lane}" for i in range(a.lanes) for lane in (i, a.lanes + i))
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{2 * a.lanes} x i32> <{order}>", a.element,
                    2 * a.lanes)
