"""The grid of several maps of one loop: a block finds its member in a table of first blocks, then works as a map's."""

from __future__ import annotations

from dataclasses import dataclass, field

from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.codegen.loop_grid import lanes_of
from morpho.backends.cuda.codegen.maps import THREADS, MapCode
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.grouped.step import MOST_WORDS, OWN, TABLE, GroupSpec
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.program.kernel import Kernel
from morpho.program.program import Step

NOWHERE = (1 << 62) - 1  # the first block of a member that is not there


@dataclass(frozen=True)
class GroupedMaps(WithoutMaps):
    """Blocks of all members, one after another."""

    group: GroupSpec = field(compare=False)  # its text knows nothing of how many members there are
    loop: LoopKernel
    places: int
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> GroupedMaps:
        return self

    def kernel(self) -> Kernel:
        return self.group

    def launch(self, sizes: Sizes) -> Launch:
        """A thread for each wide access of each member."""
        count = self.group.count
        last = TABLE + (count - 1) * (OWN + self.numbers)
        rows, _, pieces = sizes.values[last:last + OWN]
        return Launch(Geometry(sizes.values[count - 1] + -(-rows * pieces // THREADS), THREADS), extra=count)

    def text(self) -> str:
        return grouped_text(self)


@dataclass(frozen=True)
class GroupKernel(GroupSpec):
    """A `GroupSpec` that knows its grid."""

    def device_kernel(self, step: Step) -> GroupedMaps:
        return GroupedMaps(self, self.loop, self.places, self.numbers)


def blocks_of(kernel: GroupSpec, rows: int, columns: int) -> tuple[int, int]:
    """Pieces of a row of a member, and its blocks."""
    pieces = -(-columns // lanes_of(kernel.loop))
    return pieces, -(-rows * pieces // THREADS)


def grouped_text(grid: GroupedMaps) -> str:
    """The entry: the member, then rows and pieces of them by the thread's number."""
    code = MapCode(grid.loop, lanes_of(grid.loop), grid.places, grid.numbers)
    e = code.e
    code.begin_function()
    rows, columns, pieces = (e.load(e.offset("%own", "i64", n), "i64", 1, align=8) for n in range(OWN))
    code.begin, code.end = e.constant(0, "i64", 1), columns
    thread = e.argument("%first.thread", "i64", 1) + e.ask("thread")
    with e.when(e.icmp("slt", thread, rows * pieces)):
        row = e.instruction("udiv", thread, pieces)
        code.place_row(code.split(row, code.outer))
        code.row_values(0)
        code.columns_at((thread - row * pieces) * code.lanes)
    words = int(Header.SIZE) + MOST_WORDS  # as many as a launch may have, whatever it needs
    return code.end_function(' "nvvm.maxntid"="256"', head_lines(grid), words)


def head_lines(grid: GroupedMaps) -> list[str]:
    """A binary search for the last member whose first block is not behind this one; its operands and numbers."""
    first = int(Header.SIZE)
    lines = [f"  %count.at = getelementptr i64, ptr %p, i64 {int(Header.EXTRA)}",
             "  %count.members = load i64, ptr %count.at, align 8",
             f"  %places.all = mul i64 %count.members, {grid.places}",
             f"  %table.at = add i64 %places.all, {first}",
             "  %table = getelementptr i64, ptr %p, i64 %table.at",
             "  %block.here = call i64 @gpu.block(ptr %ctx)", "  %member.0 = add i64 0, 0"]
    step, now = TABLE // 2, 0
    while step:
        new = now + 1
        lines += [f"  %next.{new} = add i64 %member.{now}, {step}",
                  f"  %at.{new} = getelementptr i64, ptr %table, i64 %next.{new}",
                  f"  %start.{new} = load i64, ptr %at.{new}, align 8",
                  f"  %behind.{new} = icmp sle i64 %start.{new}, %block.here",
                  f"  %member.{new} = select i1 %behind.{new}, i64 %next.{new}, i64 %member.{now}"]
        step, now = step // 2, new
    return [*lines, f"  %at.own = getelementptr i64, ptr %table, i64 %member.{now}",
            "  %start.own = load i64, ptr %at.own, align 8", "  %nth.block = sub i64 %block.here, %start.own",
            f"  %first.thread = mul i64 %nth.block, {THREADS}",
            f"  %places.at = mul i64 %member.{now}, {grid.places}",
            f"  %places.first = add i64 %places.at, {first}",
            "  %buffers = getelementptr i64, ptr %p, i64 %places.first",
            f"  %own.at = mul i64 %member.{now}, {OWN + grid.numbers}",
            f"  %own.first = add i64 %own.at, {TABLE}",
            "  %own = getelementptr i64, ptr %table, i64 %own.first",
            f"  %values = getelementptr i64, ptr %own, i64 {OWN}"]
