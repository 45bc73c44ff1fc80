"""Running sums and products: one chain per row, index ascending. Half floats run in float32 and round each element."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Emitter
from morpho.base.dtypes import DType
from morpho.base.machine import Isa


@dataclass(frozen=True)
class ScanKernel:
    """`name` is sum or prod. Numbers: outer extents, the length, then strides of input and output (outer, along)."""

    name: str
    dtype: DType
    outer_rank: int

    scratch_bytes_per_column = 0
    scratch_bytes = 0
    flops = 2

    def generate(self, isa: Isa, name: str) -> str:
        from morpho.backends.cpu.loops.loop_base import SIGNATURE

        e = Emitter(1, isa.native_half)
        memory, register = scalars.memory_type(self.dtype), scalars.register_type(self.dtype)
        rank = self.outer_rank
        source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        v = [e.load(e.offset("%values", "i64", i), "i64", 1) for i in range(3 * (rank + 1))]
        extents, length, strides = v[:rank], v[rank], (v[rank + 1:2 * rank + 2], v[2 * rank + 2:])
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            index, places = rows.index, [e.constant(0, "i64", 1)] * 2
            for axis in reversed(range(rank)):
                quotient = e.instruction("udiv", index, extents[axis])
                coordinate = index - quotient * extents[axis]
                places = [p + coordinate * s[axis] for p, s in zip(places, strides, strict=True)]
                index = quotient
            start = e.constant(0 if self.name == "sum" else 1, register, 1)
            lines = [e.offset(base, memory, p) for base, p in zip((source, target), places, strict=True)]
            with e.loop(0, length, carried=[start]) as loop:
                steps = [e.offset(line, memory, loop.index * s[rank]) for line, s in zip(lines, strides, strict=True)]
                x = scalars.from_memory(e, e.load(steps[0], memory, 1), self.dtype)
                total = loop.values[0] + x if self.name == "sum" else loop.values[0] * x
                rounded = scalars.round_to(e, total, self.dtype)
                e.store(scalars.to_memory(e, rounded, self.dtype), steps[1])
                loop.next(total)
        e.line("ret i32 0")
        return f"define i32 @{name}({SIGNATURE}) nounwind {{\nentry:\n{e.text()}\n}}\n" + "\n".join(e.declarations)
