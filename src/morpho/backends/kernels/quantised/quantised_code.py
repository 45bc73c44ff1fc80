"""The function of a `QuantisedGemmKernel`: records become numbers in registers, or a panel at a time in scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value
from morpho.backends.kernels.gemm.gemm import UNROLL, GemmKernel
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import Function, MicroKernel
from morpho.backends.kernels.gemm.packing.row_packers import RowPacker
from morpho.backends.kernels.gemm.tiling import Register
from morpho.backends.kernels.quantised.quantised import REGISTER_ROWS, QuantisedGemmKernel
from morpho.base.dtypes import float16, float32
from morpho.base.machine import Isa
from morpho.ops.neural.float8 import KINDS as FLOAT8
from morpho.ops.neural.quantised import BLOCK, BOOKS, LAYOUTS

# Records come from memory once, and the processor's own prefetching stays too close to them: one row of q4_0 reads 16
# weights in 1.65 ns without, 1.05 with lines asked for so far ahead into the second-level cache (0.97 from there).
AHEAD = 4096
Numbers = Iterator[tuple[int, int, Value]]  # step of k, vector of the panel, weights


def generate(kernel: QuantisedGemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `QuantisedGemmKernel`."""
    return QuantisedCode(kernel, isa).module(name)


class Records:
    """Writes the code that reads one panel's records."""

    def __init__(self, e: Emitter, kind: str, register: Register, isa: Isa, ahead: int = 0) -> None:
        self.e, self.layout, self.register, self.lookups = e, LAYOUTS[kind], register, isa.lookups
        self.ahead = ahead if isa.architecture == "x86_64" else 0  # bytes that lines are asked for ahead
        self.bytes = self.layout.block_bytes * register.width
        # Bytes converted together: 16 make four vectors of 4 by fewer widening steps than four times 4 do.
        self.together = 16 if register.lanes == 4 else register.lanes

    def block(self, base: str, start: Value, carried: list[Value],
              use: Callable[[Value, Numbers, list[Value]], list[Value]]) -> list[Value]:
        """Call `use(k, numbers, carried)` on every `UNROLL` values of k of the block at `start`, in order."""
        e, width = self.e, self.register.width
        record = e.offset(base, "i8", start.shift_right(5) * self.bytes)
        layout = self.layout
        headers = [[self.header(record, h * width + v * self.register.lanes) for v in range(self.register.vectors)]
                   for h in range(layout.groups * layout.headers)]
        codes = e.offset(record, "i8", layout.header_bytes * width)
        span, group = BLOCK * layout.bits // 8, BLOCK // layout.groups
        if self.ahead:
            self.ask(record, layout.header_bytes * width)
        for part in range(BLOCK // span):  # the low halves of all bytes, then the high ones
            for first in range(0, span, min(span, group)):  # values that share their headers
                own = (part * span + first) // group * layout.headers
                with e.loop(first, min(first + group, span), UNROLL, carried=carried) as loop:
                    place = e.offset(codes, "i8", loop.index * width)
                    if self.ahead and not part:
                        self.ask(place, UNROLL * width)
                    numbers = self.numbers(place, headers[own:own + layout.headers], 4 * part)
                    loop.next(*use(start + part * span + loop.index, numbers, list(loop.values)))
                carried = loop.values
        return carried

    def ask(self, place: str, count: int) -> None:
        """Ask for the lines of so many bytes, further on in the stream of records."""
        for at in range(0, count, CACHE_LINE):
            self.e.prefetch(self.e.offset(place, "i8", self.ahead + at), 2)

    def header(self, record: str, index: int) -> Value:
        e = self.e
        if self.layout.wide:
            return e.load(e.offset(record, "float", index), "float")
        return scalars.from_memory(e, e.load(e.offset(record, "half", index), "half"), float16)

    def numbers(self, place: str, headers: list[list[Value]], shift: int) -> Numbers:
        """The weights of `UNROLL` values of k, vector by vector."""
        e, register = self.e, self.register
        for start in range(0, UNROLL * register.width, self.together):
            codes = e.load(e.offset(place, "i8", start), "i8", self.together)
            wide = self.converted(codes, shift)
            for number in range(self.together // register.lanes):
                u, v = divmod(start // register.lanes + number, register.vectors)
                code = self.part(wide, number)
                if self.layout.headers == 1:
                    yield u, v, headers[0][v] * code
                else:
                    yield u, v, e.fma(headers[0][v], code, headers[1][v])

    def converted(self, codes: Value, shift: int) -> Value:
        e = self.e
        if self.layout.float8:
            return scalars.from_float8(e, codes, FLOAT8[self.layout.float8])
        if self.layout.bits == 8:
            return e.convert("sitofp", e.convert("sext", codes, "i32"), "float")
        half = codes.shift_right(4) if shift else codes & 15
        if self.layout.book:
            return scalars.from_book(e, e.convert("zext", half, "i32"), BOOKS[self.layout.book], self.lookups)
        return e.convert("sitofp", e.convert("zext", half, "i32"), "float")

    def part(self, wide: Value, number: int) -> Value:
        lanes = self.register.lanes
        if wide.lanes == lanes:
            return wide
        mask = ", ".join(f"i32 {number * lanes + i}" for i in range(lanes))
        return self.e.assign(f"shufflevector {wide.type} {wide.name}, {wide.type} poison, <{lanes} x i32> <{mask}>",
                             wide.element, lanes)


class QuantisedMicro(MicroKernel):
    """A `MicroKernel` that reads records: for few rows."""

    def __init__(self, kernel: QuantisedGemmKernel, height: int, register: Register, isa: Isa, name: str = "") -> None:
        super().__init__(GemmKernel(float32, kernel.left), height, register, isa, name)
        self.records = Records(self.e, kernel.kind, register, isa, AHEAD)

    def write(self) -> str:
        with self.e.loop(0, self.function.number("%count"), BLOCK, carried=self.start()) as blocks:
            blocks.next(*self.records.block("%b", blocks.index, list(blocks.values), self.add))
        self.store(blocks.values, "%tile")
        return self.function.text()

    def add(self, k: Value, numbers: Numbers, sums: list[Value]) -> list[Value]:
        left = self.left_values(k, UNROLL)
        for u, v, weights in numbers:
            for row in range(self.height):
                place = row * self.register.vectors + v
                sums[place] = self.e.fma(left(u, row), weights, sums[place])
        return sums


class Unpacker:
    """unpack(records, count, target): `count` values of k of one panel as float32."""

    def __init__(self, kind: str, register: Register, isa: Isa) -> None:
        self.function = Function("unpack", "ptr %b, i64 %count, ptr %target", register.lanes, isa)
        self.e, self.register = self.function.e, register
        self.records = Records(self.e, kind, register, isa, AHEAD)

    def write(self) -> str:
        with self.e.loop(0, self.function.number("%count"), BLOCK) as blocks:
            self.records.block("%b", blocks.index, [], self.put)
        return self.function.text()

    def put(self, k: Value, numbers: Numbers, carried: list[Value]) -> list[Value]:
        e, register = self.e, self.register
        line = e.offset("%target", "float", k * register.width)
        for u, v, weights in numbers:
            e.store(weights, e.offset(line, "float", u * register.width + v * register.lanes))
        return carried


class QuantisedCode(GemmCode):
    """State of the generator of quantised kernels."""

    packs_columns = False  # rows are packed one panel at a time
    in_registers = False  # the part being written is for few rows of a number that varies

    kernel: QuantisedGemmKernel

    def __init__(self, kernel: QuantisedGemmKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        if kernel.few:
            self.register = replace(self.register, heights=tuple(h for h in self.register.heights if h <= kernel.few))

    def parts(self) -> list[Any]:
        kernel, register, isa = self.kernel, self.register, self.isa
        packers = [RowPacker(kernel, h, isa) for h in register.heights]
        if kernel.few:
            return [*(QuantisedMicro(kernel, h, register, isa) for h in register.heights), *packers]
        plain = GemmKernel(float32, kernel.left)
        micro = [MicroKernel(plain, h, register, isa) for h in register.heights]
        few = [QuantisedMicro(kernel, h, register, isa, f"few{h}")
               for h in (self.few_heights if kernel.may_be_few else ())]
        return [Unpacker(kernel.kind, register, isa), *micro, *few, *packers]

    @property
    def few_heights(self) -> tuple[int, ...]:
        return tuple(height for height in self.register.heights if height <= REGISTER_ROWS)

    def over_panels(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value],
                    block: tuple[Value, Value], first: Value) -> None:
        """Of a number of rows that is known only when it runs, few are multiplied in registers too: unpacking a panel
        would write and read eight times its bytes."""
        if not self.kernel.may_be_few:
            super().over_panels(batch, rows, panels, block, first)
            return
        whole, few = self.register, self.e.icmp("sle", rows[1] - rows[0], REGISTER_ROWS)
        with self.e.when(few):  # heights that packed these rows are among those
            self.register, self.in_registers = replace(whole, heights=self.few_heights), True
            super().over_panels(batch, rows, panels, block, first)
        self.register, self.in_registers = whole, False
        with self.e.when(few ^ True):
            super().over_panels(batch, rows, panels, block, first)

    def micro(self, height: int) -> str:
        return f"few{height}" if self.in_registers else super().micro(height)

    def prefetch_panel(self, panel: str, number: Value, rows: Value) -> None:
        """Panels are unpacked from one stream of small records, which comes by itself."""
        self.next_panel, self.share = panel, self.e.constant(0, "i64", 1)

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        e, v, width = self.e, self.v, self.register.width
        record = LAYOUTS[self.kernel.kind].block_bytes * width
        place = e.offset(self.b, "i8", (number * v["k"] + start).shift_right(5) * record)
        if self.kernel.few or self.in_registers:
            return place
        target = e.offset("%scratch", "i8", v["sums_at"] - v["depth"] * (4 * width))
        e.line(f"call void @unpack(ptr {place}, i64 {depth.name}, ptr {target})")
        return target
