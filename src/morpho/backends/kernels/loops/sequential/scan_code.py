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


def generate(kernel: ScanKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `ScanKernel`."""
    e = Emitter(1, isa.native_half)
    memory, register = scalars.memory_type(kernel.dtype), scalars.register_type(kernel.dtype)
    rank = kernel.outer_rank
    source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
    v = kernel.record.load(e)
    extents, *strides = (kernel.record.loaded(field, v) for field in ("extents", "source", "target"))
    length = v["length"]
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
        index, places = rows.index, [e.constant(0, "i64", 1)] * 2
        for axis in reversed(range(rank)):
            quotient = e.instruction("udiv", index, extents[axis])
            coordinate = index - quotient * extents[axis]
            places = [p + coordinate * s[axis] for p, s in zip(places, strides, strict=True)]
            index = quotient
        start = e.constant(first_value(kernel), register, 1)
        lines = [e.offset(base, memory, p) for base, p in zip((source, target), places, strict=True)]
        with e.loop(0, length, carried=[start]) as loop:
            steps = [e.offset(line, memory, loop.index * s[rank]) for line, s in zip(lines, strides, strict=True)]
            x = scalars.from_memory(e, e.load(steps[0], memory, 1), kernel.dtype)
            total = _next(e, kernel, loop.values[0], x)
            rounded = scalars.round_to(e, total, kernel.dtype)
            e.store(scalars.to_memory(e, rounded, kernel.dtype), steps[1])
            loop.next(total)
    e.line("ret i32 0")
    return defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations))
