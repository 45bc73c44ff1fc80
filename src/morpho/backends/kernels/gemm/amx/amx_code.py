"""The functions of `AmxGemmKernel` and `AmxPackKernel`: tile registers 0-3 hold sums, 4-5 rows, 6-7 columns."""

from __future__ import annotations

from typing import Any

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.gemm.amx.amx import LINE_BYTES, REGISTER, SIDE, AmxGemmKernel, AmxPackKernel
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import PREFETCH_ARGUMENTS, Function
from morpho.backends.kernels.gemm.packing.pack_code import PanelCode
from morpho.base.machine import Isa

TILE_BYTES = SIDE * LINE_BYTES
PREFETCHED_LINES = 8  # cache lines of the next panel prefetched per tile of k: as many as 128 rows need
ELEMENTS = {2: "i16", 4: "i8"}  # by the size of a group
# Palette 1; from byte 16 on the bytes of a line of each of eight tiles, from byte 48 on their lines.
SHAPES = bytes([1] + [0] * 15 + [LINE_BYTES, 0] * 8 + [0] * 16 + [SIDE] * 8 + [0] * 8)


def generate(kernel: AmxGemmKernel | AmxPackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel on matrix units."""
    if isinstance(kernel, AmxPackKernel):
        return AmxPackCode(kernel, isa).module(name)
    return AmxCode(kernel, isa).module(name)


def call(e: Emitter, name: str, *arguments: str) -> None:
    """A tile instruction; numbers of registers as `i8 0`."""
    types = ", ".join(argument.split()[0] for argument in arguments)
    e.declarations.add(f"declare void @llvm.x86.{name}({types})")
    e.line(f"call void @llvm.x86.{name}({', '.join(arguments)})")


def configure(e: Emitter, wanted: bytes = SHAPES) -> None:
    """Whole tiles in all registers, or others."""
    shapes = "".join(f"\\{byte:02x}" for byte in wanted)
    e.declarations.add(f'@tile_shapes = private unnamed_addr constant [64 x i8] c"{shapes}", align 64')
    call(e, "ldtilecfg", "ptr @tile_shapes")


def release(e: Emitter) -> None:
    """The registers are free again: a thread that has none in use is switched faster."""
    call(e, "tilerelease")


def joined(e: Emitter, parts: list[Value]) -> Value:
    """Vectors of small integers as groups of 32 bits, the first lowest."""
    total = e.convert("zext", parts[0], "i32")
    for number, part in enumerate(parts[1:], 1):
        total = total | e.convert("zext", part, "i32") << (32 // len(parts) * number)
    return total


def tiles_of(count: Value, group: int) -> Value:
    """Tiles along k."""
    block = SIDE * group
    return (count + (block - 1)).shift_right(block.bit_length() - 1)


class AmxMicroKernel:
    """microN(rows, step, columns, half, tiles, sums, stride, first): N rows x 32 columns over tiles of k."""

    ARGUMENTS = ("ptr %a, i64 %step, ptr %b, i64 %half, i64 %tiles, ptr %sums, i64 %stride, i1 %first"
                 + PREFETCH_ARGUMENTS)

    def __init__(self, kernel: AmxGemmKernel, height: int, isa: Isa) -> None:
        self.function = Function(f"micro{height}", self.ARGUMENTS, 1, isa)
        self.e, self.downwards = self.function.e, height // SIDE
        words = {True: "s", False: "u"}
        self.multiply = "tdpbf16ps" if kernel.group == 2 else (
            f"tdpb{words[kernel.left_signed]}{words[kernel.right_signed]}d")

    def write(self) -> str:
        e, number = self.e, self.function.number
        for first in e.both(e.argument("%first", "i1", 1), ("zero", "read", "ready")):
            for tile in range(2 * self.downwards) if first else ():
                call(e, "tilezero", f"i8 {tile}")
            if not first:
                self.move_sums("tileloadd64")
        with e.loop(0, number("%tiles")) as loop:
            place = loop.index * TILE_BYTES
            for half in range(2):
                self.load(6 + half, e.offset("%b", "i8", number("%half") * half + place))
            for part in range(PREFETCHED_LINES):
                along = (loop.index * PREFETCHED_LINES + part) * number("%hop")
                e.prefetch(e.offset("%ahead", "i8", along.shift_right(PREFETCHED_LINES.bit_length() - 1)), 2)
            for row in range(self.downwards):
                self.load(4 + row, e.offset("%a", "i8", number("%step") * row + place))
                for half in range(2):
                    call(e, self.multiply, f"i8 {2 * row + half}", f"i8 {4 + row}", f"i8 {6 + half}")
        self.move_sums("tilestored64")
        return self.function.text()

    def load(self, tile: int, place: str) -> None:
        call(self.e, "tileloadd64", f"i8 {tile}", f"ptr {place}", f"i64 {LINE_BYTES}")

    def move_sums(self, name: str) -> None:
        e, stride = self.e, self.function.number("%stride")
        for row in range(self.downwards):
            for half in range(2):
                place = e.offset(e.offset("%sums", "i8", stride * (SIDE * row)), "i8", half * LINE_BYTES)
                call(e, name, f"i8 {2 * row + half}", f"ptr {place}", f"i64 {stride.name}")


class TileRowPacker:
    """pack_tiles(source, row step, k step, count, rows, target): up to 16 rows as tiles, zeros where nothing is."""

    ARGUMENTS = "ptr %source, i64 %row_step, i64 %k_step, i64 %count, i64 %rows, ptr %target"

    def __init__(self, kernel: AmxGemmKernel, isa: Isa) -> None:
        self.left, self.group = kernel.left, kernel.group
        self.memory, self.bytes, self.block = ELEMENTS[kernel.group], 4 // kernel.group, SIDE * kernel.group
        self.function = Function("pack_tiles", self.ARGUMENTS, 1, isa)
        self.e = self.function.e

    def write(self) -> str:
        e, number = self.e, self.function.number
        count, rows = number("%count"), number("%rows")
        whole = count & -self.block
        with (e.when(e.icmp("slt", rows, SIDE) | e.icmp("ne", whole, count)),
              e.loop(0, tiles_of(count, self.group) * TILE_BYTES, LINE_BYTES) as loop):
            e.store(e.constant(0, "i32", SIDE), e.offset("%target", "i8", loop.index), 4)
        if self.left == "rows":
            with e.loop(0, rows) as loop:
                self.row(loop.index, whole)
        else:
            done = e.constant(0, "i64", 1)
            if self.left == "columns":
                done = e.select(e.icmp("eq", rows, SIDE), whole, done)
                with e.loop(0, done, self.block) as loop:
                    self.transposed_tile(loop.index)
            with e.loop(done, count) as down, e.loop(0, rows) as loop:
                self.one(loop.index, down.index)
        return self.function.text()

    def place(self, row: Value, k: Value) -> str:
        """Where an element goes."""
        start = k & -self.block
        return self.e.offset("%target", "i8", start * (SIDE * self.bytes) + row * LINE_BYTES
                             + (k - start) * self.bytes)

    def source(self, row: Value | int, k: Value) -> str:
        step = 1 if self.left == "rows" else self.function.number("%k_step")
        along = row if self.left == "columns" else self.function.number("%row_step") * row
        return self.e.offset("%source", self.memory, k * step + along)

    def one(self, row: Value, k: Value) -> None:
        e = self.e
        e.store(e.load(self.source(row, k), self.memory, 1), self.place(row, k))

    def row(self, row: Value, whole: Value) -> None:
        e = self.e
        with e.loop(0, whole, self.block) as loop:
            e.store(e.load(self.source(row, loop.index), self.memory, self.block), self.place(row, loop.index))
        with e.loop(whole, self.function.number("%count")) as loop:
            self.one(row, loop.index)

    def transposed_tile(self, k: Value) -> None:
        """16 rows that lie side by side: groups of k are joined, then transposed."""
        e = self.e
        lines = [joined(e, [e.load(self.source(0, k + (g * self.group + j)), self.memory, SIDE)
                            for j in range(self.group)]) for g in range(SIDE)]
        target = e.offset("%target", "i8", k * (SIDE * self.bytes))
        for number, line in enumerate(transposed(e, lines)):
            e.store(line, e.offset(target, "i8", number * LINE_BYTES))


class AmxCode(GemmCode):
    """State of the generator of amx kernels."""

    packs_columns = False  # by tiles
    kernel: AmxGemmKernel

    def __init__(self, kernel: AmxGemmKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.register, self.memory = REGISTER, ELEMENTS[kernel.group]
        self.item_bytes = 4 // kernel.group
        self.values_per_step = SIDE * kernel.group

    def parts(self) -> list[Any]:
        return [*(AmxMicroKernel(self.kernel, height, self.isa) for height in REGISTER.heights),
                TileRowPacker(self.kernel, self.isa)]

    def begin(self) -> None:
        configure(self.e)

    def end(self) -> None:
        release(self.e)

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        e, v = self.e, self.v
        first = e.offset(self.b, "i8", self.right(batch) * self.item_bytes)
        return e.offset(first, "i8", (number * 2 * tiles_of(v["k"], self.kernel.group)
                                      + tiles_of(start, self.kernel.group)) * TILE_BYTES)

    def packed_rows(self, row: Value, depth: Value) -> str:
        return self.e.offset(self.rows_at, "i8", row * self.v["depth"] * self.item_bytes)

    def pack_rows(self, source: str, rows: tuple[Value, Value], depth: Value) -> None:
        e, v, count = self.e, self.v, rows[1] - rows[0]
        with e.loop(0, count, SIDE) as loop:
            line = e.offset(source, self.memory, loop.index * v["a_m"])
            some = e.intrinsic("smin", count - loop.index, e.constant(SIDE, "i64", 1))
            e.line(f"call void @pack_tiles(ptr {line}, i64 {v['a_m'].name}, i64 {v['a_k'].name}, i64 {depth.name}, "
                   f"i64 {some.name}, ptr {self.packed_rows(loop.index, depth)})")

    def over_rows(self, rows: tuple[Value, Value], write) -> None:  # type: ignore[no-untyped-def]
        """Two tiles of rows at a time; the last ones are filled up."""
        e, (two, one) = self.e, REGISTER.heights
        count = rows[1] - rows[0]
        whole = (count + (one - 1)) & -two  # one tile is left where that does
        with e.loop(0, whole, two) as loop:
            write(two, loop.index)
        with e.when(e.icmp("slt", whole, count)):
            write(one, whole)

    def multiply(self, height: int, row: Value, panel: str, depth: Value, target: str, first: Value) -> None:
        e, v = self.e, self.v
        step = v["depth"] * TILE_BYTES
        step = step.shift_right((SIDE * self.kernel.group).bit_length() - 1)  # a row of tiles
        half, tiles = tiles_of(v["k"], self.kernel.group) * TILE_BYTES, tiles_of(depth, self.kernel.group)
        stride = v["stride"] * 4
        sums = e.offset(target, self.element, row * v["stride"])
        e.line(f"call void @micro{height}(ptr {self.packed_rows(row, depth)}, i64 {step.name}, ptr {panel}, "
               f"i64 {half.name}, i64 {tiles.name}, ptr {sums}, i64 {stride.name}, i1 {first.name}"
               f"{self.prefetch_arguments(row, depth)})")


class AmxPackCode(PanelCode):
    """State of the generator of amx kernels."""

    def __init__(self, kernel: AmxPackKernel, isa: Isa) -> None:
        super().__init__(SIDE, ELEMENTS[kernel.group], isa)
        self.right, self.group = kernel.right, kernel.group

    def panel(self, number: Value, left: Value) -> None:
        e, block, tiles = self.e, SIDE * self.group, tiles_of(self.v["k"], self.group)
        self.target = e.offset(self.target, "i8", number * tiles * TILE_BYTES)
        count = e.intrinsic("smin", left, e.constant(SIDE, "i64", 1))
        with e.when(e.icmp("sgt", count, 0)):
            done = e.constant(0, "i64", 1)
            if self.right != "general":
                whole = self.v["k"].shift_right(block.bit_length() - 1)
                done = e.select(e.icmp("eq", count, SIDE), whole, done)
                with e.loop(0, done) as loop:
                    self.whole_tile(loop.index * block, e.offset(self.target, "i8", loop.index * TILE_BYTES))
            with e.loop(done, tiles) as loop:
                self.part_tile(loop.index * block, e.offset(self.target, "i8", loop.index * TILE_BYTES), count)

    def place(self, k: Value, column: Value | int) -> str:
        return self.e.offset(self.source, self.memory, k * self.v["b_k"] + self.v["b_n"] * column)

    def whole_tile(self, k: Value, target: str) -> None:
        e, group = self.e, self.group
        if self.right == "rows":  # a column's groups lie side by side
            lines = transposed(e, [e.load(self.place(k, c), "i32", SIDE, 4 // group) for c in range(SIDE)])
        else:
            lines = [joined(e, [e.load(self.place(k + (g * group + j), 0), self.memory, SIDE) for j in range(group)])
                     for g in range(SIDE)]
        for number, line in enumerate(lines):
            e.store(line, e.offset(target, "i8", number * LINE_BYTES))

    def part_tile(self, k: Value, target: str, count: Value) -> None:
        """Element by element, zeros past the last value of k and the last column."""
        e, bits = self.e, self.group.bit_length() - 1
        with e.loop(0, TILE_BYTES, LINE_BYTES) as loop:
            e.store(e.constant(0, "i32", SIDE), e.offset(target, "i8", loop.index))
        left = e.intrinsic("smin", self.v["k"] - k, e.constant(SIDE * self.group, "i64", 1))
        with e.loop(0, left) as down, e.loop(0, count) as columns:
            place = (down.index.shift_right(bits) * SIDE + columns.index) * self.group + (down.index & (self.group - 1))
            e.store(e.load(self.place(k + down.index, columns.index), self.memory, 1),
                    e.offset(target, self.memory, place))
