"""Parts of the kernels of rows: where a thread stands, its part of a row, and the four chains of a sum.

A row is a *team* of threads. Where there are few columns, each of the four chains of a sum (docs/numerics.md) has a
thread of its own, and they meet by shuffles; where there are many, a thread has columns, and all four chains of each in
registers. Either way a sum has the CPU's bits, whatever the grid looks like, and nothing is added by atomics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import ISA, Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.ops.sparse.pattern import CHAINS
from morpho.program.kernel import Kernel

THREADS = 128
UNROLL = 4  # elements of a chain whose loads are in flight together


@dataclass(frozen=True)
class Team:
    """The threads of a row: `width` columns side by side, `each` of them a thread's (that far apart), and, where
    `split`, a thread for each chain of a sum."""

    width: int = 1
    each: int = 1
    split: bool = True

    @property
    def threads(self) -> int:
        """Of a team."""
        return self.width * (CHAINS if self.split else 1)

    @property
    def columns(self) -> int:
        """Of a team."""
        return self.width * self.each

    @property
    def said(self) -> str:
        """For people, and the tuner's files.

        >>> Team(8, 1, True).said, Team(32, 4, False).said
        ('8 columns, chains apart', '32 x 4 columns')
        """
        return f"{self.width} columns, chains apart" if self.split else f"{self.width} x {self.each} columns"


@dataclass(frozen=True)
class RowTeams(WithoutMaps, ABC):
    """A kernel whose rows are teams; `places` and `numbers` count its operands and values."""

    body: Kernel
    team: Team
    places: int
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> RowTeams:
        return self

    def kernel(self) -> Kernel:
        return self.body

    @abstractmethod
    def text(self) -> str:
        ...

    def items(self, sizes: Sizes) -> tuple[int, int]:
        """Rows, and columns of each."""
        names = self.body.record.names  # type: ignore[attr-defined]
        return sizes.values[names.index("rows")], sizes.values[names.index("columns")] if "columns" in names else 1

    def launch(self, sizes: Sizes) -> Launch:
        """Blocks of rows, for one block of columns after another, so that these stay in the cache."""
        rows, columns = self.items(sizes)
        blocks = max(1, -(-rows * self.team.threads // THREADS))
        return Launch(Geometry(blocks * max(1, -(-columns // self.team.columns)), THREADS), extra=blocks)


class GridRows(SparseCode):
    """A kernel of rows being written for a grid."""

    e: GridEmitter
    device: RowTeams

    def on_grid(self, device: RowTeams) -> None:
        """Write for a thread from here on."""
        self.isa, self.e, self.device = ISA, GridEmitter(), device
        e, first = self.e, int(Header.SIZE)
        self.zero, self.one = e.constant(0, "i64", 1), e.constant(1, "i64", 1)
        e.line("%fault = alloca i32, align 4")
        e.line(f"%buffers = getelementptr i64, ptr %p, i64 {first}")
        e.line(f"%values = getelementptr i64, ptr %p, i64 {first + device.places}")
        self.begin()

    def place(self, rows: Value, columns: Value | None) -> None:
        """The thread's row (`here`: whether it is one), its first column and its chain."""
        e, team = self.e, self.device.team
        thread, block = e.ask("thread"), e.ask("block")
        if columns is None:
            row_block, first = block, self.zero
        else:
            narrow = [e.convert("trunc", x, "i32") for x in (block, e.word(Header.EXTRA))]
            turn = e.convert("zext", e.instruction("udiv", *narrow), "i64")
            row_block, first = block - turn * e.word(Header.EXTRA), turn * team.columns
        row = row_block * (THREADS // team.threads) + thread.shift_right(team.threads.bit_length() - 1)
        self.here = e.icmp("slt", row, rows)
        self.mine = e.select(self.here, row, self.zero)
        lane = thread & (team.threads - 1)
        self.column = first + (lane & (team.width - 1))
        self.chain = lane.shift_right(team.width.bit_length() - 1)

    def part(self, start: Value, end: Value, empty: Value, loads: Callable[[Value], list[Value]],
             more: Callable[[Value, list[Value]], Value]) -> Value:
        """One chain, `loads` of several elements before the first of them is added; then all four of the row, which
        every thread of the team gets."""
        e, team = self.e, self.device.team
        with e.loop(start + self.chain, end - CHAINS * (UNROLL - 1), CHAINS * UNROLL, carried=[empty]) as loop:
            read = [loads(loop.index + CHAINS * number) for number in range(UNROLL)]
            total = loop.values[0]
            for values in read:
                total = more(total, values)
            loop.next(total)
        with e.loop(loop.index, end, CHAINS, carried=[loop.values[0]]) as rest:
            rest.next(more(rest.values[0], loads(rest.index)))
        return self.joined(rest.values[0], team.width)

    def joined(self, total: Value, width: int) -> Value:
        """(c0 + c2) + (c1 + c3)."""
        total = self.plus(total, self.e.shuffle_xor(total, 2 * width))
        return self.plus(total, self.e.shuffle_xor(total, width))

    def plus(self, a: Value, b: Value) -> Value:
        """The sum of two chains."""
        return a + b

    def written(self) -> str:
        """The whole text."""
        e, device = self.e, self.device
        e.report(e.load("%fault", "i32", 1))
        words = int(Header.SIZE) + device.places + device.numbers
        return entry("kernel_main", words, e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()
