"""Reductions over columns of memory (bias gradients, sums over a batch): neighbouring threads have neighbouring
columns, so that accesses of a warp are whole sectors of memory; groups of threads have the 64 lanes of the tree.

The lanes meet in shared memory and fold by halves, blocks join pairwise: the CPU's tree, and its bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes
from morpho.backends.cuda.codegen.rows import RowsCode, RowsKernel
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, TREE_LANES, LoopKernel, Pass
from morpho.backends.kernels.loops.reduction_tree import fold, lane_type

FEWEST = 128  # columns of a row from which on the lanes have work
WIDTHS = (16, 8)  # rows of a block of threads, and where that leaves multiprocessors idle
ENOUGH = 132  # blocks of threads
MOST_BLOCKS = 64  # of a row's tree


class Unkept(LoopKernel):
    """A loop kernel that keeps nothing between walks: its rows are too long for a block's shared memory."""

    def worth_keeping(self, number: int, kept: set[int]) -> bool:
        """Nothing is."""
        return False


def unkept(kernel: LoopKernel) -> LoopKernel:
    """The same kernel, which computes values again instead of keeping them."""
    return Unkept(**{name: getattr(kernel, name) for name in kernel.__dataclass_fields__})


@dataclass(frozen=True)
class ColumnsKernel(RowsKernel):
    """`width` rows of the loop, which lie side by side, and all 64 lanes of each are a block of threads."""

    width: int = WIDTHS[0]

    def unaligned(self) -> ColumnsKernel:
        """Itself: it reads element by element."""
        return self

    @property
    def team(self) -> int:
        """The lanes of a tree, one thread each."""
        return TREE_LANES

    @property
    def teams(self) -> int:
        """Blocks of the tree come one after another."""
        return 1

    @property
    def rows_together(self) -> int:
        return self.width

    @property
    def threads(self) -> int:
        return TREE_LANES * self.width

    @property
    def shared_bytes(self) -> int:
        """The lanes of one reduction of all rows, their folded values, and the blocks of every reduction."""
        reductions = sum(i.reduces for i in self.loop.instructions)
        return 8 * self.width * (TREE_LANES + 1 + self.blocks * reductions)

    def launch(self, sizes: Sizes) -> Launch:
        """A block for some rows."""
        return Launch(Geometry(max(1, -(-sizes.rows // self.width)), self.threads, self.shared_bytes))

    def text(self) -> str:
        return columns_text(self)


def columns_text(device: ColumnsKernel) -> str:
    code = RowsCode(device, in_memory)
    e = code.e
    code.each = 1
    code.begin_function()
    thread, rows = e.ask("thread"), e.word(Header.ROWS)
    code.begin, code.end = e.constant(0, "i64", 1), e.constant(device.columns, "i64", 1)
    code.lane, code.mine = thread.shift_right(device.width.bit_length() - 1), thread & (device.width - 1)
    row = e.ask("block") * device.width + code.mine
    code.valid = e.icmp("slt", row, rows)
    code.memory = e.shared()
    code.place_row(code.split(e.select(code.valid, row, 0), code.outer))
    code.row_values(0)
    code.leader = e.icmp("eq", code.lane, 0)
    for step in code.kernel.passes:
        code.prepare_pass(step)
        walk(code, device, step)
        code.row_values(step.stage + 1)
    with e.when(code.leader & code.valid):
        code.store_rows()
    return code.end_function(f' "nvvm.maxntid"="{device.threads}"')


def walk(code: RowsCode, device: ColumnsKernel, step: Pass) -> None:
    """A pass over all blocks of the tree; their values wait in shared memory."""
    e = code.e
    reductions = [code.kernel.instructions[number] for number in step.reductions]
    first = code.partials
    code.partials += len(reductions)

    def place(number: int, block: Value | int) -> str:
        at = (code.mine * device.blocks + block) * 8
        start = 8 * device.width * (TREE_LANES + 1 + device.blocks * (first + number))
        return e.offset(code.memory, "i8", at + start)

    with e.loop(0, device.blocks) as loop:
        start = loop.index * TREE_BLOCK
        found = code.block(step, start, e.intrinsic("smin", start + TREE_BLOCK, code.end))
        with e.when(code.leader):
            for number, value in enumerate(found):
                e.store(value, place(number, loop.index))
    if reductions:
        e.barrier()
    for number, (which, instruction) in enumerate(zip(step.reductions, reductions, strict=True)):
        element = lane_type(instruction.dtype)
        values = [e.load(place(number, block), element, 1) for block in range(device.blocks)]
        code.rows[which] = code.finished(instruction, code.joined(instruction, values))


def in_memory(code: RowsCode, name: str, dtype: object, parts: list[Value]) -> Value:
    """The lanes of a row meet in shared memory; all threads of the row get their value."""
    assert isinstance(code.device, ColumnsKernel)
    e, element, width = code.e, lane_type(dtype), code.device.width  # type: ignore[arg-type]
    e.store(parts[0], e.offset(code.memory, "i8", (code.lane * width + code.mine) * 8))
    e.barrier()
    result = e.offset(code.memory, "i8", (code.mine + width * TREE_LANES) * 8)
    with e.when(code.leader):
        lanes = [e.load(e.offset(code.memory, "i8", (code.mine + width * lane) * 8), element, 1)
                 for lane in range(TREE_LANES)]
        e.store(fold(e, name, dtype, lanes), result)  # type: ignore[arg-type]
    e.barrier()
    return e.load(result, element, 1)


def columns_kernel(kernel: LoopKernel, rows: int, columns: int, places: int, numbers: int) -> ColumnsKernel | None:
    """The kernel of rows that lie side by side; None where they are too short or too long for it."""
    width = next((n for n in WIDTHS if rows >= n * ENOUGH), WIDTHS[-1])
    found = ColumnsKernel(unkept(kernel), 1, columns, places, numbers, width=width)
    return found if columns >= FEWEST and found.blocks <= MOST_BLOCKS else None


def without_keeping(found: RowsKernel) -> RowsKernel:
    """The kernel of rows that are too long to wait in shared memory: every walk reads them again."""
    return replace(found, loop=unkept(found.loop))
