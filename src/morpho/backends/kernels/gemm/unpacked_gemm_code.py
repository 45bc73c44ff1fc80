"""The function of an `UnpackedGemmKernel`: every item packs the columns it needs into the scratch of its thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.gemm.gemm_code import SHARE_BITS, GemmCode
from morpho.backends.kernels.gemm.microkernel import Function, places_of_batch, transpose
from morpho.backends.kernels.gemm.tiling import Register
from morpho.backends.kernels.gemm.unpacked_gemm import UNPACKED_GEMM, UnpackedGemmKernel
from morpho.base.machine import Isa


def generate(kernel: UnpackedGemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `UnpackedGemmKernel`."""
    return UnpackedCode(kernel, isa).module(name)


class RightPacker:
    """pack_right(source, k step, n step, count, columns, panel step, target): columns as panels [count][width] that lie
    `panel step` elements apart; the last one is filled with zeros."""

    ARGUMENTS = "ptr %source, i64 %k_step, i64 %n_step, i64 %count, i64 %columns, i64 %panel_step, ptr %target"
    STEPS = 8  # values of k that go through all panels together: whole lines of memory, a few pages at a time

    def __init__(self, kernel: UnpackedGemmKernel, register: Register, isa: Isa) -> None:
        self.right, self.width, self.ragged = kernel.right, register.width, kernel.ragged
        self.function = Function(f"pack_right{register.vectors}", self.ARGUMENTS, 4, isa)
        self.e, self.memory = self.function.e, scalars.memory_type(kernel.dtype)
        self.by_fours = isa.vector_bits > 0 and self.width % 4 == 0
        self.lanes = max(4, register.lanes)
        is_vector = self.lanes > 4 and self.lanes * BITS[self.memory] == isa.vector_bits
        self.steps = (self.lanes, 4, 1) if is_vector else (4, 1)  # values of k that are turned at once

    def write(self) -> str:
        e, columns = self.e, self.function.number("%columns")
        whole = e.instruction("udiv", columns, e.constant(self.width, "i64", 1))
        if self.right == "rows" and self.by_fours:
            with e.loop(0, whole) as panels:
                self.transposed(panels.index)
        else:
            count = self.function.number("%count")
            done = count & -self.STEPS
            with e.loop(0, done, self.STEPS) as loop:
                self.across(loop.index, whole, self.STEPS)
            with e.loop(done, count) as loop:
                self.across(loop.index, whole, 1)
        if self.ragged:
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
                if self.right == "columns" and self.by_fours:
                    e.store(e.load(e.offset(source, self.memory, panels.index * width), self.memory, width), into)
                    continue
                for column in range(width):
                    one = e.load(self.line(source, panels.index * width + column, "%n_step"), self.memory, 1)
                    e.store(one, e.offset(into, self.memory, column))

    def transposed(self, panel: Value) -> None:
        """One whole panel of columns whose k lies side by side: a vector's worth of them at a time, so that few lines
        of memory are read side by side, each once."""
        e, width, count, lanes = self.e, self.width, self.function.number("%count"), self.lanes
        with e.loop(0, width, lanes) as group:
            first = self.line("%source", panel * width + group.index, "%n_step")
            sources = [self.line(first, column, "%n_step") for column in range(lanes)]
            start = e.offset(self.line("%target", panel, "%panel_step"), self.memory, group.index)
            done = e.constant(0, "i64", 1)
            for steps in self.steps:
                whole = count & -steps
                with e.loop(done, whole, steps) as loop:
                    self.turn(sources, e.offset(start, self.memory, loop.index * width), loop.index, steps)
                done = whole

    def turn(self, sources: list[str], target: str, k: Value, steps: int) -> None:
        """Some values of k of a vector's worth of columns."""
        e, width = self.e, self.width
        lines = [e.load(e.offset(source, self.memory, k), self.memory, steps) for source in sources]
        for column in range(0, len(lines), max(4, steps)):
            part = lines[column:column + max(4, steps)]
            turned = part if steps == 1 else transposed(e, part) if steps > 4 else transpose(e, part)
            for number, line in enumerate(turned):
                place = number if steps == 1 else number * width
                e.store(line, e.offset(target, self.memory, place + column))

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
    """The generator's state while it writes one kernel. `panels` are places in a tile here: its whole panels."""

    record = UNPACKED_GEMM
    kernel: UnpackedGemmKernel
    packs: Value  # whether the tile of rows being written packs columns
    group: tuple[Value, Value]  # panels that are packed together

    def __init__(self, kernel: UnpackedGemmKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.vectors = self.register.vectors  # of the panel being written
        self.asks_for_source = kernel.right == "rows" and self.register.prefetches

    def parts(self) -> list[Any]:
        kernel, isa = self.kernel, self.isa
        found: list[Any] = []
        for vectors in kernel.vectors:
            register = replace(self.register, vectors=vectors)
            found += [self.micro_kernel(kernel, h, register, isa, f"micro{h}x{vectors}", skips=self.asks_for_source)
                      for h in self.register.heights]
            found.append(RightPacker(kernel, register, isa))
        return [*found, *self.row_packers()]

    def micro(self, height: int) -> str:
        return f"micro{height}x{self.vectors}"

    def begin(self) -> None:
        self.columns = self.e.offset("%scratch", "i8", self.v["panels_at"])

    def item(self, index: Value) -> None:
        """One tile of columns: its tiles of rows one after the other, the first of which finds nothing packed."""
        e, v, register = self.e, self.v, self.register
        upper = e.instruction("udiv", index, v["column_tiles"])
        batch = e.instruction("udiv", upper, v["row_parts"])
        part = upper - batch * v["row_parts"]
        self.batch_place = places_of_batch(e, batch, v)
        first = (index - upper * v["column_tiles"]) * v["tile_vectors"]
        self.first_column = first * register.lanes
        self.last_column = e.intrinsic("smin", self.first_column + v["tile_vectors"] * register.lanes, v["n"])
        vectors = e.instruction("udiv", self.last_column - self.first_column + (register.lanes - 1),
                                e.constant(register.lanes, "i64", 1))
        self.whole = e.instruction("udiv", vectors, e.constant(register.vectors, "i64", 1))
        self.rest = vectors - self.whole * register.vectors
        panels = e.constant(0, "i64", 1), self.whole
        blocks = e.instruction("udiv", v["k"] + v["depth"] - 1, v["depth"])
        packed = self.packed(upper)
        first_tile, last_tile = (e.instruction("udiv", (part + i) * v["row_tiles"], v["row_parts"]) for i in range(2))
        with e.loop(first_tile, last_tile) as tiles:
            top = tiles.index * v["tile_rows"]
            rows = top, e.intrinsic("smin", top + v["tile_rows"], v["m"])
            self.packs = e.icmp("eq", tiles.index, first_tile)
            with e.loop(0, blocks) as loop:
                place = (tiles.index - first_tile) * blocks + loop.index
                self.block(batch, rows, panels, loop.index, place, packed)
            self.finish(batch, rows, panels)

    def narrow_panels(self, write: Callable[[], None]) -> None:
        """`write()` for what is left of a tile after whole panels, with `vectors` as many as it has."""
        for vectors in self.kernel.vectors:
            if vectors < self.register.vectors:
                self.vectors = vectors
                with self.e.when(self.e.icmp("eq", self.rest, vectors)):
                    write()
        self.vectors = self.register.vectors

    def over_panels(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value],
                    block: tuple[Value, Value], first: Value) -> None:
        """A few panels at a time: packed by the first tile of rows, and used while they are in the cache."""
        e = self.e
        if self.register.vectors in self.kernel.vectors:
            with e.loop(panels[0], panels[1], self.v["group"]) as groups:
                self.group = groups.index, e.intrinsic("smin", groups.index + self.v["group"], panels[1])
                last = e.intrinsic("smin", self.column(self.group[1]), self.last_column)
                self.pack_right(batch, self.group[0], last, block)
                self.source_after(block)
                with e.loop(*self.group) as loop:
                    goal = self.goal(batch, rows, self.column(loop.index), loop.index, block) if self.stores else None
                    self.one_panel(rows, self.panel(batch, loop.index, *block), loop.index, block[1], first, goal)

        def narrow() -> None:
            self.group = panels[1], panels[1]
            self.pack_right(batch, panels[1], self.last_column, block)
            self.source_after(block)
            self.one_panel(rows, self.panel(batch, panels[1], *block), panels[1], block[1], first)

        self.narrow_panels(narrow)

    def pack_right(self, batch: Value, panel: Value, last: Value, block: tuple[Value, Value]) -> None:
        """A block of k of the columns from a panel on."""
        e, v, (start, depth) = self.e, self.v, block
        with e.when(self.packs):
            first = self.column(panel)
            line = e.offset(self.b, self.memory, self.batch_place("b") + start * v["b_k"] + first * v["b_n"])
            e.line(f"call void @pack_right{self.vectors}(ptr {line}, i64 {v['b_k'].name}, i64 {v['b_n'].name}, "
                   f"i64 {depth.name}, i64 {(last - first).name}, i64 {v['panel_step'].name}, "
                   f"ptr {self.panel(batch, panel, start, depth)})")

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        """Where a packed panel lies: those of a group one after the other, or of all where they are kept."""
        kept, vectors = self.v["kept"], self.vectors * self.register.lanes
        place = (number - self.group[0] * (1 - kept)) * self.v["panel_step"] + start * kept * vectors
        return self.e.offset(self.columns, self.memory, place)

    def column(self, panel: Value) -> Value:
        return self.first_column + panel * self.register.width

    def prefetch_panel(self, panel: str, number: Value, rows: Value) -> None:
        """While panels are packed, those that are packed after them, as they lie: memory works while registers do."""
        super().prefetch_panel(panel, number, rows)
        self.place_in_group = number - self.group[0]

    def source_after(self, block: tuple[Value, Value]) -> None:
        """Find what is packed after this group: the columns behind it, or the first ones at the next values of k."""
        e, v, (start, depth) = self.e, self.v, block
        column = e.intrinsic("smin", self.column(self.group[1]), self.last_column)
        more = e.icmp("slt", column, self.last_column)
        column = e.select(more, column, self.first_column)
        start = e.select(more, start, start + depth)
        self.asks = self.packs & e.icmp("slt", start, v["k"])
        self.next_source = e.offset(self.b, self.memory,
                                    self.batch_place("b") + start * v["b_k"] + column * v["b_n"])

    def prefetch_arguments(self, row: Value, depth: Value) -> str:
        if not self.asks_for_source:
            return super().prefetch_arguments(row, depth)
        e, v, size = self.e, self.v, BITS[self.memory] // 8
        part = (self.share * row).shift_right(SHARE_BITS + size.bit_length() - 1)
        column = self.place_in_group * self.register.width + part
        source = e.offset(self.next_source, self.memory, column * v["b_n"])
        panel = e.offset(self.next_panel, "i8", (self.share * row * depth).shift_right(SHARE_BITS))
        along = (self.share * (self.register.heights[0] * self.values_per_step)).shift_right(SHARE_BITS)
        place = "%" + e.fresh("ahead")
        e.line(f"{place} = select i1 {self.asks.name}, ptr {source}, ptr {panel}")
        hop = e.select(self.asks, v["b_k"] * size, along)
        skip = e.select(self.asks, v["b_n"] * size, along)
        return f", ptr {place}, i64 {hop.name}, i64 {skip.name}"

    def panel_after(self, panel: str, number: Value) -> str:
        """After the last panel comes the first one: what lies behind it is another thread's."""
        e, after = self.e, "%" + self.e.fresh("after")
        end = e.select(e.icmp("ne", self.v["kept"], 0), self.whole, self.group[1])
        more = e.icmp("slt", number + 1, end)
        following = e.offset(panel, self.memory, self.v["panel_step"] * self.register.panels_ahead)
        e.line(f"{after} = select i1 {more.name}, ptr {following}, ptr {self.columns}")
        return after

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        self.epilogue_over_columns(batch, rows, (self.first_column, self.last_column))
