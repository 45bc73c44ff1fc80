"""The function of an `UnpackedGemmKernel`: every item packs the columns it needs into the scratch of its thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cpu.gemm.gemm_code import GemmCode
from morpho.backends.cpu.gemm.microkernel import Function, places_of_batch, transpose
from morpho.backends.cpu.gemm.tiling import Register
from morpho.backends.cpu.gemm.unpacked_gemm import UNPACKED_GEMM, UnpackedGemmKernel
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
    """The generator's state while it writes one kernel. `panels` are places in a tile here: its whole panels."""

    record = UNPACKED_GEMM
    kernel: UnpackedGemmKernel

    def __init__(self, kernel: UnpackedGemmKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.vectors = self.register.vectors  # of the panel being written

    def parts(self) -> list[Any]:
        kernel, isa = self.kernel, self.isa
        found: list[Any] = []
        for vectors in kernel.vectors:
            register = replace(self.register, vectors=vectors)
            found += [self.micro_kernel(kernel, h, register, isa, f"micro{h}x{vectors}")
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
            with e.loop(0, blocks) as loop:
                with e.when(e.icmp("eq", tiles.index, first_tile)):
                    self.pack_right(batch, panels, loop.index)
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

    def pack_right(self, batch: Value, panels: tuple[Value, Value], block: Value) -> None:
        """A block of k of all columns of the tile."""
        e, v, register = self.e, self.v, self.register
        start = block * v["depth"]
        depth = e.intrinsic("smin", v["depth"], v["k"] - start)
        source = e.offset(self.b, self.memory, self.batch_place("b") + start * v["b_k"])

        def pack(first: Value, last: Value, panel: str) -> None:
            line = e.offset(source, self.memory, first * v["b_n"])
            step = v["k"] * (self.vectors * register.lanes)
            e.line(f"call void @pack_right{self.vectors}(ptr {line}, i64 {v['b_k'].name}, i64 {v['b_n'].name}, "
                   f"i64 {depth.name}, i64 {(last - first).name}, i64 {step.name}, ptr {panel})")

        edge = e.intrinsic("smin", self.first_column + panels[1] * register.width, self.last_column)
        if register.vectors in self.kernel.vectors:
            pack(self.first_column, edge, self.panel(batch, panels[0], start, depth))
        self.narrow_panels(lambda: pack(edge, self.last_column, self.panel(batch, panels[1], start, depth)))

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        register = self.register
        place = number * self.v["k"] * register.width + start * (self.vectors * register.lanes)
        return self.e.offset(self.columns, self.memory, place)

    def over_panels(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value],
                    block: tuple[Value, Value], first: Value) -> None:
        if self.register.vectors in self.kernel.vectors:
            super().over_panels(batch, rows, panels, block, first)
        self.narrow_panels(lambda: self.one_panel(rows, self.panel(batch, panels[1], *block), panels[1], block[1],
                                                  first))

    def column(self, panel: Value) -> Value:
        return self.first_column + panel * self.register.width

    def panel_after(self, panel: str, number: Value) -> str:
        """After the last panel comes the first one: what lies behind it is another thread's."""
        e, after = self.e, "%" + self.e.fresh("after")
        more = e.icmp("slt", number + 1, self.whole)
        e.line(f"{after} = select i1 {more.name}, ptr {super().panel_after(panel, number)}, ptr {self.columns}")
        return after

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        self.epilogue_over_columns(batch, rows, (self.first_column, self.last_column))
