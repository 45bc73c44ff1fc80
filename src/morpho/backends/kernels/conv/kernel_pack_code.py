"""The function of a `KernelPackKernel`: panels of kernels whose axes have strides of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from morpho.backends.code.emit import Value
from morpho.backends.kernels.conv.kernel_pack import KERNEL_PACK, KernelPackKernel
from morpho.backends.kernels.gemm.packing.pack_code import PackCode
from morpho.base.machine import Isa


def generate(kernel: KernelPackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `KernelPackKernel`."""
    return KernelPackCode(kernel, isa).module(name)


class KernelPackCode(PackCode):
    """As `PackCode`, by channels, rows and columns of a kernel."""

    record = KERNEL_PACK

    @contextmanager
    def rows(self) -> Iterator[tuple[Value, str]]:
        """For every value of k: how far it lies from the first one, and its line of the panel."""
        e, v = self.e, self.v
        rows, columns = v["kernel_rows"], v["kernel_columns"]
        channels = e.instruction("udiv", v["k"], e.intrinsic("smax", rows * columns, e.constant(1, "i64", 1)))
        with e.loop(0, channels) as channel, e.loop(0, rows) as row, e.loop(0, columns) as column:
            number = (channel.index * rows + row.index) * columns + column.index
            yield (channel.index * v["b_channel"] + row.index * v["b_row"] + column.index * v["b_k"],
                   e.offset(self.target, self.memory, number * self.width))

    def whole_panel(self) -> None:
        with self.rows() as (row, target):
            for column in range(self.width):
                self.move(row, column, self.e.offset(target, self.memory, column))

    def part_panel(self, left: Value) -> None:
        e = self.e
        with self.rows() as (row, target):
            with e.loop(0, left) as columns:
                self.move(row, columns.index, self.e.offset(target, self.memory, columns.index))
            with e.loop(left, self.width) as columns:
                e.store(e.constant(0, self.memory, 1), self.e.offset(target, self.memory, columns.index))

    def move(self, row: Value, column: Value | int, target: str) -> None:
        e = self.e
        e.store(e.load(e.offset(self.source, self.memory, row + self.v["b_n"] * column), self.memory, 1), target)
