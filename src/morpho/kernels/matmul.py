"""The matrix product by plain loops: a few rows times one chunk of columns, one FMA chain per output, k ascending.

bfloat16 adds in the order of AMX tiles: within each 32 values of k an even and an odd chain, added together, then
added to the accumulator. Integers wrap and are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dtypes import DType, bfloat16
from morpho.base.machine import Isa
from morpho.kernels import scalars
from morpho.kernels.emit import Emitter, Value

ROWS = 4  # rows of one tile
NAMES = ("m", "n", "k", "a_batch", "a_m", "a_k", "b_batch", "b_k", "c_batch", "c_m", "tiles")


@dataclass(frozen=True)
class MatmulKernel:
    """C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]; columns of B and C lie side by side.

    Called over rows of tiles: tile t is rows 4 (t mod tiles).. of batch t / tiles. Numbers as in `NAMES`.
    """

    dtype: DType

    scratch_bytes_per_column = 0
    scratch_bytes = 0

    @property
    def flops(self) -> int:
        return 2

    def generate(self, isa: Isa, name: str) -> str:
        return _Code(self, isa).module(name)


class _Code:
    def __init__(self, kernel: MatmulKernel, isa: Isa) -> None:
        self.dtype = kernel.dtype
        self.lanes = max(1, min(32, isa.vector_bits // 8 // max(4, kernel.dtype.itemsize) * 4))
        self.e = Emitter(self.lanes, isa.native_half)
        self.memory, self.register = scalars.memory_type(self.dtype), scalars.register_type(self.dtype)
        self.wide = isa.vector_bits >= 512

    def module(self, name: str) -> str:
        from morpho.kernels.loop_base import SIGNATURE

        e = self.e
        self.buffer = "%copy"
        self.a, self.b, self.c = (e.load_pointer("%buffers", i) for i in range(3))
        self.v = {key: e.load(e.offset("%values", "i64", i), "i64", 1) for i, key in enumerate(NAMES)}
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
            batch = e.instruction("udiv", loop.index, self.v["tiles"])
            first = (loop.index - batch * self.v["tiles"]) * ROWS
            with e.when(e.icmp("slt", first, self.v["m"])):  # an unknown m is called with more tiles than it has
                self.tile(batch, first)
        e.line("ret i32 0")
        wide = '"prefer-vector-width"="512"' if self.wide else ""
        head = f"define i32 @{name}({SIGNATURE}) nounwind {wide} {{\nentry:\n"
        head += f"  %copy = alloca [{self.lanes} x {self.memory}], align 64\n"
        return head + e.text() + "\n}\n" + "\n".join(sorted(e.declarations)) + "\n"

    def tile(self, batch: Value, first: Value) -> None:
        e, v = self.e, self.v
        a = e.offset(self.a, self.memory, batch * v["a_batch"])
        b = e.offset(self.b, self.memory, batch * v["b_batch"])
        c = e.offset(self.c, self.memory, batch * v["c_batch"])
        # Rows past the end repeat the last one: they compute and store the same values again.
        rows = [e.intrinsic("smin", first + r, v["m"] - 1) for r in range(ROWS)]
        lines = [e.offset(a, self.memory, row * v["a_m"]) for row in rows]
        outs = [e.offset(c, self.memory, row * v["c_m"]) for row in rows]
        if self.lanes == 1:
            with e.loop(0, v["n"]) as columns:
                self.columns(lines, outs, b, columns.index, None)
            return
        narrow, broad, after = e.fresh("narrow"), e.fresh("broad"), e.fresh("after")
        e.branch_if(e.icmp("slt", v["n"], self.lanes), narrow, broad)
        e.label(broad)
        with e.loop(0, v["n"], self.lanes) as columns:
            # The last chunk is moved back to end at the last column; the overlap is computed twice, alike.
            start = e.intrinsic("smin", columns.index, v["n"] - self.lanes)
            self.columns(lines, outs, b, start, None)
        e.branch(after)
        e.label(narrow)
        self.columns(lines, outs, b, e.constant(0, "i64", 1), v["n"])
        e.branch(after)
        e.label(after)

    def load_b(self, b: str, k: Value, column: Value, count: Value | None) -> Value:
        e = self.e
        address = e.offset(b, self.memory, k * self.v["b_k"] + column)
        if count is not None:
            with e.loop(0, count) as loop:
                one = e.load(e.offset(address, self.memory, loop.index), self.memory, 1)
                e.store(one, e.offset(self.buffer, self.memory, loop.index))
            address = self.buffer
        return scalars.from_memory(e, e.load(address, self.memory), self.dtype)

    def load_a(self, line: str, k: Value) -> Value:
        e = self.e
        loaded = e.load(e.offset(line, self.memory, k * self.v["a_k"]), self.memory, 1)
        return e.splat(scalars.from_memory(e, loaded, self.dtype))

    def multiply_add(self, a: Value, b: Value, total: Value) -> Value:
        return self.e.fma(a, b, total) if a.is_float else total + a * b

    def columns(self, lines: list[str], outs: list[str], b: str, column: Value, count: Value | None) -> None:
        e = self.e
        zeros = [e.constant(0, self.register) for _ in lines]
        if self.dtype is bfloat16:
            totals = self.bfloat_chains(lines, b, column, count, zeros)
        else:
            with e.loop(0, self.v["k"], carried=zeros) as loop:
                right = self.load_b(b, loop.index, column, count)
                loop.next(*[self.multiply_add(self.load_a(line, loop.index), right, total)
                            for line, total in zip(lines, loop.values, strict=True)])
            totals = loop.values
        for total, out in zip(totals, outs, strict=True):
            self.store(scalars.round_to(e, total, self.dtype), out, column, count)

    def bfloat_chains(self, lines: list[str], b: str, column: Value, count: Value | None,
                      zeros: list[Value]) -> list[Value]:
        e, k = self.e, self.v["k"]
        with e.loop(0, k, 32, carried=zeros) as blocks:
            last = e.intrinsic("smin", blocks.index + 32, k)
            halves = []
            for parity in (0, 1):
                with e.loop(blocks.index + parity, last, 2, carried=zeros) as loop:
                    right = self.load_b(b, loop.index, column, count)
                    loop.next(*[self.multiply_add(self.load_a(line, loop.index), right, total)
                                for line, total in zip(lines, loop.values, strict=True)])
                halves.append(loop.values)
            blocks.next(*[total + (even + odd) for total, even, odd in zip(blocks.values, *halves, strict=True)])
        return blocks.values

    def store(self, value: Value, out: str, column: Value, count: Value | None) -> None:
        e = self.e
        address = e.offset(out, self.memory, column)
        stored = scalars.to_memory(e, value, self.dtype)
        if count is None:
            e.store(stored, address)
            return
        e.store(stored, self.buffer)
        with e.loop(0, count) as loop:
            one = e.load(e.offset(self.buffer, self.memory, loop.index), self.memory, 1)
            e.store(one, e.offset(address, self.memory, loop.index))
