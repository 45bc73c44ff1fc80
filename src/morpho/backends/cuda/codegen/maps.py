"""Elementwise kernels on a grid: a thread takes one wide access of columns, the next thread the next ones."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cpu.loops.loop_spec import LoopKernel
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.codegen.loop_grid import LoopGrid, lanes_of, side_by_side
from morpho.backends.cuda.driver.interface import Geometry
from morpho.program.kernel import Kernel

THREADS = 256
MOST_BLOCKS = (1 << 31) - 1


@dataclass(frozen=True)
class MapKernel(WithoutMaps):
    """A loop kernel without reductions."""

    loop: LoopKernel
    places: int
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Any address will do."""
        return ()

    def unaligned(self) -> MapKernel:
        """Itself."""
        return self

    def kernel(self) -> Kernel:
        """The kernel of the program."""
        return self.loop

    def launch(self, sizes: Sizes) -> Launch:
        """A thread for each wide access."""
        pieces = -(-sizes.columns // lanes_of(self.loop))
        items = max(sizes.rows * pieces, 1)
        threads = min(THREADS, -(-items // 32) * 32)
        return Launch(Geometry(min(-(-items // threads), MOST_BLOCKS), threads), pieces)

    def text(self) -> str:
        """Its LLVM text."""
        return MapCode(self.loop, lanes_of(self.loop), self.places, self.numbers).module("")


class MapCode(LoopGrid):
    """Writes one."""

    def module(self, name: str) -> str:
        """The entry: rows and pieces of them by the thread's number."""
        e = self.e
        self.begin_function()
        rows, columns, pieces = e.word(Header.ROWS), e.word(Header.COLUMNS), e.word(Header.PIECES)
        self.begin, self.end = e.constant(0, "i64", 1), columns
        thread = e.ask("block") * e.ask("threads") + e.ask("thread")
        with e.loop(thread, rows * pieces, e.ask("blocks") * e.ask("threads")) as loop:
            row = e.instruction("udiv", loop.index, pieces)
            column = (loop.index - row * pieces) * self.lanes
            self.place_row(self.split(row, self.outer))
            self.row_values(0)
            self.columns_at(column)
        return self.end_function(' "nvvm.maxntid"="256"')

    def columns_at(self, column: Value) -> None:
        """The thread's columns: at once where they are all there and aligned, else one by one."""
        e, wide = self.e, self.lanes
        for step in self.kernel.passes:
            if wide == 1:
                self.prepare_pass(step)
                self.chunk(step, column, None)
                continue
            end = e.intrinsic("smin", column + wide, self.end)
            rows = dict(self.rows)
            for whole in e.both(self.fits(column)):
                self.lanes = e.lanes = wide if whole else 1
                self.temporaries, self.rows = {}, dict(rows)
                self.prepare_pass(step)
                if whole:
                    self.chunk(step, column, None)
                else:
                    with e.loop(column, end) as loop:
                        self.chunk(step, loop.index, None)
            self.lanes = e.lanes = wide
        with e.when(e.icmp("eq", column, 0)):
            self.store_rows()

    def fits(self, column: Value) -> Value:
        """Whether all columns of a thread are there, and every operand's are aligned."""
        e = self.e
        inside = e.icmp("sle", column + self.lanes, self.end)
        low = e.constant(0, "i64", 1)
        for number, access in enumerate(self.kernel.accesses):
            if side_by_side(access):
                place = e.offset(self.pointers[number], scalars.memory_type(access.dtype), column)
                address = e.assign(f"ptrtoint ptr {place} to i64", "i64", 1)
                low = low | (address & (self.lanes * access.dtype.itemsize - 1))
        return inside & e.icmp("eq", low, 0)
