"""A product whose right operand changes from call to call: every item packs the columns it needs and uses them at once.

A step of its own for packing costs a launch, and leaves half of what it wrote in the cache of another core. Here an
item is a tile of columns with all rows: it packs its columns, a block of k at a time, into its thread's scratch, where
they stay for the tiles of rows that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from morpho.base.dims import Size
from morpho.base.machine import Isa
from morpho.kernels import scalars
from morpho.kernels.emit import Value
from morpho.kernels.gemm import NAMES, Function, GemmKernel, Register, Tiling, transpose
from morpho.kernels.gemm_code import GemmCode
from morpho.kernels.loop_spec import LoopKernel
from morpho.kernels.lower_gemm import Product, layout, rounded
from morpho.kernels.lower_group import Lowered

UNPACKED_NAMES = (*NAMES, "b_k", "b_n", "panels_at")
MOST_ROWS = 64  # per lane: beyond, packing is a small part of the product, and small items keep threads busier
LEAST_COLUMNS = 96  # of a tile: rows are packed anew for each, which fewer columns would not pay for
ENOUGH_COLUMNS = 192  # of a tile, with which every thread gets two
FEW_ROWS_BYTES = 256 << 10  # of a tile's columns, when few rows use them: they stay in the second-level cache


@dataclass(frozen=True)
class UnpackedGemm(GemmKernel):
    """As `GemmKernel`, with B as it lies: `right` is `columns` (n side by side), `rows` (k side by side) or
    `general`."""

    right: str = "general"

    def generate(self, isa: Isa, name: str) -> str:
        return UnpackedCode(self, isa).module(name)


class RightPacker:
    """pack_right(source, k step, n step, count, columns, panel step, target): columns as panels [count][width] that lie
    `panel step` elements apart; the last one is filled with zeros."""

    ARGUMENTS = "ptr %source, i64 %k_step, i64 %n_step, i64 %count, i64 %columns, i64 %panel_step, ptr %target"
    STEPS = 8  # values of k that go through all panels together: whole lines of memory, a few pages at a time

    def __init__(self, kernel: UnpackedGemm, register: Register, isa: Isa) -> None:
        self.right, self.width = kernel.right, register.width
        self.function = Function("pack_right", self.ARGUMENTS, 4, isa)
        self.e, self.memory = self.function.e, scalars.memory_type(kernel.dtype)
        self.vectors = isa.vector_bits > 0 and self.width % 4 == 0

    def write(self) -> str:
        e, columns = self.e, self.function.number("%columns")
        whole = e.instruction("udiv", columns, e.constant(self.width, "i64", 1))
        if self.right == "rows" and self.vectors:
            with e.loop(0, whole) as panels:
                self.turned(panels.index)
        else:
            count = self.function.number("%count")
            done = count & -self.STEPS
            with e.loop(0, done, self.STEPS) as loop:
                self.across(loop.index, whole, self.STEPS)
            with e.loop(done, count) as loop:
                self.across(loop.index, whole, 1)
        with e.when(e.icmp("sgt", columns, whole * self.width)):
            self.part(whole, columns - whole * self.width)
        return self.function.text()

    def line(self, pointer: str, number: Value | int, step: str) -> str:
        return self.e.offset(pointer, self.memory, self.function.number(step) * number)

    def across(self, k: Value, whole: Value, steps: int) -> None:
        """Some values of k through all whole panels."""
        e, width = self.e, self.width
        first = self.line("%source", k, "%k_step")
        sources = [self.line(first, step, "%k_step") for step in range(steps)]
        start = e.offset("%target", self.memory, k * width)
        with e.loop(0, whole) as panels:
            target = self.line(start, panels.index, "%panel_step")
            for step, source in enumerate(sources):
                into = e.offset(target, self.memory, step * width)
                if self.right == "columns" and self.vectors:
                    e.store(e.load(e.offset(source, self.memory, panels.index * width), self.memory, width), into)
                    continue
                for column in range(width):
                    one = e.load(self.line(source, panels.index * width + column, "%n_step"), self.memory, 1)
                    e.store(one, e.offset(into, self.memory, column))

    def turned(self, panel: Value) -> None:
        """One whole panel of columns whose k lies side by side."""
        e, width, count = self.e, self.width, self.function.number("%count")
        first = self.line("%source", panel * width, "%n_step")
        sources = [self.line(first, column, "%n_step") for column in range(width)]
        start = self.line("%target", panel, "%panel_step")
        done = count & -4
        with e.loop(0, done, 4) as loop:
            lines = [e.load(e.offset(source, self.memory, loop.index), self.memory, 4) for source in sources]
            target = e.offset(start, self.memory, loop.index * width)
            for column in range(0, width, 4):
                for number, four in enumerate(transpose(e, lines[column:column + 4])):
                    e.store(four, e.offset(target, self.memory, number * width + column))
        with e.loop(done, count) as loop:
            target = e.offset(start, self.memory, loop.index * width)
            for column, source in enumerate(sources):
                e.store(e.load(e.offset(source, self.memory, loop.index), self.memory, 1),
                        e.offset(target, self.memory, column))

    def part(self, panel: Value, left: Value) -> None:
        """The last columns, then zeros."""
        e, width, zero = self.e, self.width, self.e.constant(0, self.memory, 1)
        first, start = self.line("%source", panel * width, "%n_step"), self.line("%target", panel, "%panel_step")
        with e.loop(0, self.function.number("%count")) as loop:
            source, target = self.line(first, loop.index, "%k_step"), e.offset(start, self.memory, loop.index * width)
            with e.loop(0, left) as columns:
                one = e.load(self.line(source, columns.index, "%n_step"), self.memory, 1)
                e.store(one, e.offset(target, self.memory, columns.index))
            with e.loop(left, width) as columns:
                e.store(zero, e.offset(target, self.memory, columns.index))


class UnpackedCode(GemmCode):
    kernel: UnpackedGemm

    @property
    def names(self) -> tuple[str, ...]:
        return UNPACKED_NAMES

    def parts(self) -> list[Any]:
        return [*super().parts(), RightPacker(self.kernel, self.register, self.isa)]

    def begin(self) -> None:
        self.columns = self.e.offset("%scratch", "i8", self.v["panels_at"])

    def item(self, index: Value) -> None:
        """One tile of columns: its tiles of rows one after the other, the first of which finds nothing packed."""
        e, v = self.e, self.v
        batch = e.instruction("udiv", index, v["column_tiles"])
        self.first_panel = (index - batch * v["column_tiles"]) * v["tile_panels"]
        panels = self.first_panel, e.intrinsic("smin", self.first_panel + v["tile_panels"], self.panels)
        blocks = e.instruction("udiv", v["k"] + v["depth"] - 1, v["depth"])
        with e.loop(0, v["row_tiles"]) as tiles:
            first = tiles.index * v["tile_rows"]
            rows = first, e.intrinsic("smin", first + v["tile_rows"], v["m"])
            with e.loop(0, blocks) as loop:
                with e.when(e.icmp("eq", tiles.index, 0)):
                    self.pack_right(batch, panels, loop.index)
                self.block(batch * v["row_tiles"] + tiles.index, batch, rows, panels, loop.index, blocks)
            self.finish(batch, rows, panels)

    def pack_right(self, batch: Value, panels: tuple[Value, Value], block: Value) -> None:
        """A block of k of all columns of the tile."""
        e, v, width = self.e, self.v, self.register.width
        start, column = block * v["depth"], panels[0] * width
        depth = e.intrinsic("smin", v["depth"], v["k"] - start)
        count = e.intrinsic("smin", panels[1] * width, v["n"]) - column
        source = e.offset(self.b, self.memory, batch * v["b_batch"] + start * v["b_k"] + column * v["b_n"])
        target = e.offset(self.columns, self.memory, start * width)
        e.line(f"call void @pack_right(ptr {source}, i64 {v['b_k'].name}, i64 {v['b_n'].name}, i64 {depth.name}, "
               f"i64 {count.name}, i64 {(v['k'] * width).name}, ptr {target})")

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        place = ((number - self.first_panel) * self.v["k"] + start) * self.register.width
        return self.e.offset(self.columns, self.memory, place)


class UnpackedProduct(Product):
    """A product that packs the right operand itself."""

    packs_right = True

    def kernel(self) -> GemmKernel:
        left = layout(self.a.rows, self.a.columns, ("columns", "rows"))
        return UnpackedGemm(self.dtype, left, layout(self.b.rows, self.b.columns, ("rows", "columns")))

    def tiled(self, tiling: Tiling) -> Tiling:
        """As many tiles of columns for every thread, and all rows in each."""
        found = column_tiles(self, tiling)
        assert found is not None, "asked for products that are worth it only"
        return found

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, scratch_at, end = super().scratch(epilogue)
        columns = self.tiling.tile_panels * self.register.width
        return sums_at, scratch_at, end + rounded(columns * self.k * self.dtype.itemsize)

    def values(self, epilogue: Lowered) -> tuple[Size, ...]:
        """Numbers in the order of `UNPACKED_NAMES`, then the epilogue's own."""
        numbers, b = list(super().values(epilogue)), self.b
        numbers[NAMES.index("b_batch")] = b.batch
        own = b.rows, b.columns, super().scratch(epilogue.kernel)[2]
        return (*numbers[:len(NAMES)], *own, *numbers[len(NAMES):])

    @property
    def items(self) -> Size:
        return self.batch * self.tiling.column_tiles

    @property
    def work_per_item(self) -> Size:
        return self.k * self.m * self.tiling.tile_panels * self.register.width


def column_tiles(product: Product, tiling: Tiling) -> Tiling | None:
    """The same tiles of rows with other tiles of columns; None where the columns are too few for that."""
    sizes = product.m, product.n, product.k, product.batch
    if product.swapped or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    m, _, k, batch = sizes
    if batch > 1 and product.b.batch == 0:  # one matrix for all of them is packed once
        return None
    width, few = product.register.width, tiling.row_tiles == 1 and m <= product.crossovers.one_block_rows
    most = max(4, FEW_ROWS_BYTES // (k * width * product.dtype.itemsize)) if few else 64
    sharers = product.threads if product.threads > 1 and batch < 2 * product.threads else 1
    if sharers > 1 and product.n >= 2 * sharers * ENOUGH_COLUMNS:
        sharers *= 2
    tiles = -(-product.panels // (most * sharers)) * sharers
    panels = -(-product.panels // tiles)
    turned = few and product.b.columns != 1  # with k side by side, columns are packed faster all at once
    narrow = turned or product.panels < sharers or (not few and panels * width < min(LEAST_COLUMNS, product.n))
    if narrow or m > MOST_ROWS * product.register.lanes:
        return None
    stride = panels * width
    stride += product.register.lanes if stride == product.n else 0
    return replace(tiling, tile_panels=panels, column_tiles=-(-product.panels // panels), stride=stride)
