"""Products with activations in 8 bits (docs/numerics.md, rule 6): rows to records, and records times panels of weights.

A block of 32 values is one `mma.sync` of int8, whose sums are exact; then each result is one chain over blocks, as on
the CPU: the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, OwnKernel, Sizes
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.quantised.rounded import PRODUCT, ROW
from morpho.backends.kernels.quantised.rounded_code import MAGIC
from morpho.base.dtypes import float16
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.ops.neural.rounded import LEAST, RECORD, WIDTH

WARPS = 4
THREADS = WARP * WARPS
WAVES = 16  # blocks of a multiprocessor in a grid, at most
ROWS = 16  # of a warp
FOUR = "{ i32, i32, i32, i32 }"


@dataclass(frozen=True)
class RoundRows(OwnKernel):
    """Rows of float32 as records of 40 bytes: a warp a block of 32 values."""

    flops = 4

    def launch(self, sizes: Sizes) -> Launch:
        """Warps take blocks in turn."""
        count = -(-sizes.rows * sizes.values[0] // WARPS)
        return Launch(Geometry(max(1, min(count, WAVES * sizes.multiprocessors)), THREADS, 0))

    def text(self) -> str:
        e, first = GridEmitter(), int(Header.SIZE)
        source, target = e.address(first), e.address(first + 1)
        blocks, stride = e.word(first + 2), e.word(first + 3)
        thread = e.ask("thread")
        lane, warp = thread & (WARP - 1), thread.shift_right(5)
        count = e.word(Header.ROWS) * blocks
        with e.loop(e.ask("block") * WARPS + warp, count, e.ask("blocks") * WARPS) as loop:
            row = e.instruction("udiv", loop.index, blocks)
            at = row * stride + (loop.index - row * blocks) * BLOCK + lane
            record = e.offset(target, "i8", loop.index * RECORD)
            self.block(e, e.load(e.offset(source, "float", at), "float", 1), record, lane)
        return entry("kernel_main", first + 2 + len(ROW), e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') \
            + e.outside()

    def block(self, e: GridEmitter, value: Value, record: str, lane: Value) -> None:
        """A value a lane."""
        bits = e.bits(value) & 0x7FFFFFFF  # larger numbers are larger, infinities larger still, and NaN the largest
        for mask in (16, 8, 4, 2, 1):
            bits = e.intrinsic("umax", bits, e.shuffle_xor(bits, mask))
        most, zero = e.from_bits(bits, "float"), e.constant(0.0, "float", 1)
        tiny = e.fcmp("olt", most, LEAST)
        inverse = e.select(tiny, zero, e.constant(127.0, "float", 1) / most)
        scale = e.select(tiny, zero, most / 127.0 + (most - most))
        whole = (value * inverse + MAGIC) - MAGIC
        code = e.convert("fptosi", e.select(e.is_nan(whole), 0.0, whole), "i32")
        e.store(e.convert("trunc", code, "i8"), e.offset(record, "i8", lane + 8))
        total = code
        for mask in (16, 8, 4, 2, 1):
            total = total + e.shuffle_xor(total, mask)
        with e.when(e.icmp("eq", lane, 0)):
            e.store(scale, record, align=4)
            e.store(total, e.offset(record, "i32", 1), align=4)


@dataclass(frozen=True)
class RoundedDots(OwnKernel):
    """Records times panels of layout `kind`: a warp has 16 rows and a panel of 16 outputs."""

    kind: str

    role = "gemm"
    flops = 2

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Records and panels are read by words."""
        return (0, 4), (1, 4)

    def launch(self, sizes: Sizes) -> Launch:
        """Tiles of rows, then panels, four a block."""
        rows, _, n = sizes.values[:3]
        count = -(-rows // ROWS) * -(-n // (WIDTH * WARPS))
        return Launch(Geometry(max(count, 1), THREADS, 0))

    def text(self) -> str:
        return DotsCode(self.kind).module()


class DotsCode:
    """Generator of the LLVM text of one dots kernel."""

    def __init__(self, kind: str) -> None:
        self.layout, self.e = LAYOUTS[kind], GridEmitter()

    def module(self) -> str:
        e, first = self.e, int(Header.SIZE)
        records, panels, target = (e.address(first + n) for n in range(3))
        rows, blocks, n, row_bytes, stride = (e.word(first + 3 + number) for number in range(len(PRODUCT)))
        thread = e.ask("thread")
        lane, warp = thread & (WARP - 1), thread.shift_right(5)
        self.group, self.pair = lane.shift_right(2), lane & 3
        across = e.instruction("udiv", n + (WIDTH * WARPS - 1), e.constant(WIDTH * WARPS, "i64", 1))
        block = e.ask("block")
        down = e.instruction("udiv", block, across)
        panel, row = (block - down * across) * WARPS + warp, down * ROWS + self.group
        there = e.icmp("slt", panel * WIDTH, n)
        nbytes = WIDTH * self.layout.block_bytes
        weights = e.offset(panels, "i8", e.select(there, panel, 0) * blocks * nbytes)
        lines = [e.offset(records, "i8", e.select(e.icmp("slt", at, rows), at, 0) * row_bytes)
                 for at in (row, row + 8)]
        with e.loop(0, blocks, carried=[e.constant(0.0, "float", 1)] * 8) as loop:
            left = [e.offset(line, "i8", loop.index * RECORD) for line in lines]
            loop.next(*self.block(left, e.offset(weights, "i8", loop.index * nbytes), list(loop.values)))
        for number, value in enumerate(loop.values):
            tile, place = divmod(number, 4)
            at, column = row + 8 * (place // 2), panel * WIDTH + self.pair * 2 + (8 * tile + place % 2)
            with e.when(e.icmp("slt", at, rows) & e.icmp("slt", column, n)):
                e.store(value, e.offset(target, "float", at * stride + column))
        words = first + 3 + len(PRODUCT)
        return entry("kernel_main", words, e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()

    def block(self, lines: list[str], record: str, sums: list[Value]) -> list[Value]:
        """The sums of 16 rows and 16 outputs with one more block."""
        e = self.e
        a = [e.load(e.offset(line, "i8", self.pair * 4 + (8 + 16 * half)), "i32", 1, align=4)
             for half in range(2) for line in lines]
        scales = [e.load(line, "float", 1, align=4) for line in lines]
        totals = [e.convert("sitofp", e.load(e.offset(line, "i32", 1), "i32", 1, align=4), "float") for line in lines]
        for tile in range(2):
            dots = self.dots(a, self.codes(record, tile))
            for place in range(4):
                at, row = 4 * tile + place, place // 2
                column = self.pair * 2 + (8 * tile + place % 2)
                sums[at] = e.fma(scales[row] * self.header(record, column),
                                 e.convert("sitofp", dots[place], "float"), sums[at])
                if self.layout.headers == 2:
                    sums[at] = e.fma(scales[row] * self.header(record, column + WIDTH), totals[row], sums[at])
        return sums

    def header(self, record: str, index: Value) -> Value:
        """A scale or a least value."""
        e = self.e
        return scalars.from_memory(e, e.load(e.offset(record, "half", index), "half", 1), float16)

    def codes(self, record: str, tile: int) -> list[Value]:
        """Codes of eight outputs as the right operand's fragment: four values of k, and the four 16 further on."""
        e = self.e
        start = e.offset(record, "i8", 2 * self.layout.headers * WIDTH)

        def word(further: int) -> Value:
            at = (self.pair + further) * WIDTH + self.group + 8 * tile
            return e.load(e.offset(start, "i32", at), "i32", 1, align=4)

        if self.layout.bits == 8:  # stored with 128 added
            return [word(further) ^ -0x7F7F7F80 for further in (0, 4)]
        both = word(0)
        halves = [both & 0x0F0F0F0F, both.shift_right(4) & 0x0F0F0F0F]
        return [self.less_eight(half) for half in halves] if self.layout.book else halves

    @staticmethod
    def less_eight(codes: Value) -> Value:
        """Four codes of 0 to 15, each in a byte, less 8: bit 3 turned over is the sign, and is repeated above."""
        turned = codes ^ 0x08080808
        return turned | (turned & 0x08080808) * 0x1E

    def dots(self, a: list[Value], b: list[Value]) -> list[Value]:
        """Exact sums of products."""
        e, name = self.e, "%" + self.e.fresh("d")
        given = ", ".join([*(f"i32 {x.name}" for x in (*a, *b)), *["i32 0"] * 4])
        e.line(f"{name} = call {FOUR} @gpu.mma_s8_s8(ptr %ctx, {given})")
        return [e.assign(f"extractvalue {FOUR} {name}, {n}", "i32", 1) for n in range(4)]
