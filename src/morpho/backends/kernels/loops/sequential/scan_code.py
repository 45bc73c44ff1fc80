"""The function of a `ScanKernel`."""

from __future__ import annotations

import math

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops.sequential.scan import ScanKernel
from morpho.base.machine import Isa


def first_value(kernel: ScanKernel) -> float | int:
    """Initial value of the chain: combined with x it is x. -0.0 + x is x, and 0.0 + -0.0 is not."""
    if kernel.name == "sum":
        return -0.0 if kernel.dtype.is_float else 0
    if kernel.name == "prod":
        return 1
    if kernel.dtype.is_float:
        return math.inf if kernel.name == "min" else -math.inf
    bits = 8 * kernel.dtype.itemsize
    low, high = (0, (1 << bits) - 1) if kernel.dtype.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return high if kernel.name == "min" else low


def _next(e: Emitter, kernel: ScanKernel, total: Value, x: Value) -> Value:
    if kernel.name in ("sum", "prod"):
        return total + x if kernel.name == "sum" else total * x
    name = {"max": "maximum", "min": "minimum", "logsumexp": "logaddexp"}[kernel.name]
    return emit(e, name, [total, x], kernel.dtype.compute, kernel.dtype.compute)


def _line(e: Emitter, kernel: ScanKernel, v: dict[str, Value], index: Value, bases: tuple[str, str]) -> list[str]:
    """Where an item's chains begin in both operands."""
    extents, *strides = (kernel.record.loaded(field, v) for field in ("extents", "source", "target"))
    places, rank = [e.constant(0, "i64", 1)] * 2, kernel.outer_rank
    for axis in reversed(range(rank)):
        quotient = e.instruction("udiv", index, extents[axis])
        coordinate = index - quotient * extents[axis]
        if kernel.lanes > 1 and axis == rank - 1:
            coordinate = e.intrinsic("smin", coordinate * kernel.lanes, v["chains"] - kernel.lanes)
        places = [p + coordinate * s[axis] for p, s in zip(places, strides, strict=True)]
        index = quotient
    return [e.offset(base, scalars.memory_type(kernel.dtype), p) for base, p in zip(bases, places, strict=True)]


def generate(kernel: ScanKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `ScanKernel`."""
    e = Emitter(1, isa.native_half)
    memory, register = scalars.memory_type(kernel.dtype), scalars.register_type(kernel.dtype)
    rank = kernel.outer_rank
    source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
    v = kernel.record.load(e)
    strides = [kernel.record.loaded(field, v) for field in ("source", "target")]
    length = v["length"]
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
        start = e.constant(first_value(kernel), register, kernel.lanes)
        number = rows.index
        if kernel.together > 1:
            number = e.intrinsic("smin", number * kernel.together, v["rows"] - kernel.together)
        lines = [_line(e, kernel, v, number + n if n else number, (source, target)) for n in range(kernel.together)]
        with e.loop(0, length, carried=[start] * kernel.together) as loop:
            totals = []
            for before, line in zip(loop.values, lines, strict=True):
                steps = [e.offset(place, memory, loop.index * s[rank]) for place, s in zip(line, strides, strict=True)]
                x = scalars.from_memory(e, e.load(steps[0], memory, kernel.lanes), kernel.dtype)
                totals.append((_next(e, kernel, before, x), steps[1]))
            for total, place in totals:
                e.store(scalars.to_memory(e, scalars.round_to(e, total, kernel.dtype), kernel.dtype), place)
            loop.next(*[total for total, _ in totals])
    e.line("ret i32 0")
    wide = ' "prefer-vector-width"="512"' if kernel.lanes > 1 and isa.vector_bits >= 512 else ""
    return defined(f"i32 @{name}({SIGNATURE}) nounwind{wide}", e.text()) + "\n".join(sorted(e.declarations))
