"""Packing of the left operand inside a product: rows of a tile as panels, in the type of the sums."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.gemm.microkernel import Function, pick, sum_type, transpose
from morpho.base.machine import Isa


class RowPacker:
    """packN(source, m step, k step, count, target): N rows of the left operand as [k][N], in the type of the sums."""

    ARGUMENTS = "ptr %source, i64 %row_step, i64 %k_step, i64 %count, ptr %target"

    def __init__(self, kernel: GemmKernel, height: int, isa: Isa) -> None:
        self.dtype, self.height, self.left = kernel.dtype, height, kernel.left
        self.function = Function(f"pack{height}", self.ARGUMENTS, 4, isa)
        self.e, self.vectors = self.function.e, isa.vector_bits > 0
        self.memory, self.element = scalars.memory_type(kernel.dtype), sum_type(kernel.dtype)
        self.by_eights = isa.vector_bits >= 8 * BITS[self.element]  # two 4 x 4 transposes at once

    def write(self) -> str:
        e, count = self.e, self.function.number("%count")
        done = e.constant(0, "i64", 1)
        if self.left == "rows" and self.vectors:
            done = count & -4
            with e.loop(0, done, 4) as loop:
                self.four(loop.index)
        with e.loop(done, count) as loop:
            if self.left == "columns" and self.vectors and self.height > 1:
                source = e.offset("%source", self.memory, loop.index * self.function.number("%k_step"))
                line = scalars.from_memory(e, e.load(source, self.memory, self.height), self.dtype)
                e.store(line, e.offset("%target", self.element, loop.index * self.height))
            else:
                self.one(loop.index)
        return self.function.text()

    def source(self, row: int, k: Value) -> str:
        step = 1 if self.left == "rows" else self.function.number("%k_step")
        line = self.e.offset("%source", self.memory, self.function.number("%row_step") * row)
        return self.e.offset(line, self.memory, k * step)

    def one(self, k: Value) -> None:
        e = self.e
        for row in range(self.height):
            value = scalars.from_memory(e, e.load(self.source(row, k), self.memory, 1), self.dtype)
            e.store(value, e.offset("%target", self.element, k * self.height + row))

    def four(self, k: Value) -> None:
        """Four values of k of every row, transposed so that rows lie side by side."""
        e, height = self.e, self.height
        lines = [scalars.from_memory(e, e.load(self.source(row, k), self.memory, 4), self.dtype)
                 for row in range(height)]
        target = e.offset("%target", self.element, k * height)
        if height == 1:
            e.store(lines[0], target)
            return
        if height == 8 and self.by_eights:
            lines = [pick(e, lines[row], lines[row + 4], range(8)) for row in range(4)]
            for number, column in enumerate(transpose(e, lines)):
                e.store(column, e.offset(target, self.element, number * height))
            return
        group = min(4, height)
        for start in range(0, height, group):
            for number, column in enumerate(transpose(e, lines[start:start + group])):
                e.store(column, e.offset(target, self.element, number * height + start))


class ColumnPacker:
    """pack_columns(source, k step, count, rows, target): rows that lie side by side, all panels of the largest height.

    A few values of k at a time through all panels: down one panel alone, every step is another page of memory, and
    each line of memory is fetched once for every panel it holds a part of.
    """

    ARGUMENTS = "ptr %source, i64 %k_step, i64 %count, i64 %rows, ptr %target"
    STEPS = 8  # values of k: their lines stay in the first-level cache while the panels go by

    def __init__(self, kernel: GemmKernel, height: int, isa: Isa) -> None:
        self.dtype, self.height = kernel.dtype, height
        self.function = Function("pack_columns", self.ARGUMENTS, height, isa)
        self.e = self.function.e
        self.memory, self.element = scalars.memory_type(kernel.dtype), sum_type(kernel.dtype)

    def write(self) -> str:
        e, count = self.e, self.function.number("%count")
        whole = count & -self.STEPS
        with e.loop(0, whole, self.STEPS) as loop:
            self.panels(loop.index, self.STEPS)
        with e.loop(whole, count) as loop:
            self.panels(loop.index, 1)
        return self.function.text()

    def panels(self, k: Value, steps: int) -> None:
        e, count, k_step = self.e, self.function.number("%count"), self.function.number("%k_step")
        with e.loop(0, self.function.number("%rows"), self.height) as rows:
            source = e.offset("%source", self.memory, k * k_step + rows.index)
            target = e.offset("%target", self.element, rows.index * count + k * self.height)
            for step in range(steps):
                line = e.load(e.offset(source, self.memory, k_step * step), self.memory, self.height)
                e.store(scalars.from_memory(e, line, self.dtype),
                        e.offset(target, self.element, step * self.height))
