"""Reductions over few very long rows, in the two steps of the CPU's lowering: a value per block of the tree, then the
blocks of a row together. A team of threads has a block; a block of threads joins those of a row, level by level."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cuda.codegen.grid import WARP, Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes
from morpho.backends.cuda.codegen.rows import KEPT_UNROLL, RowsCode, RowsKernel
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, LoopKernel
from morpho.backends.kernels.loops.reduction_tree import combine, identity, lane_type

JOINING = 1024  # threads that join the blocks of a row
FEW_BLOCKS = 2048  # of a row


@dataclass(frozen=True)
class BlocksKernel(RowsKernel):
    """Kernel whose rows are blocks of the tree: block b of row r is r * blocks + b. `columns` are those of a whole row.
    """

    @property
    def blocks(self) -> int:
        """A team has one block."""
        return 1

    @property
    def rows_together(self) -> int:
        """A warp is a block of threads where there are few, so that all multiprocessors have some."""
        return super().rows_together if self.columns > FEW_BLOCKS * TREE_BLOCK else max(1, WARP // self.team)

    @property
    def unrolled(self) -> int:
        """A thread has nothing to do but to wait for its loads."""
        return KEPT_UNROLL

    def text(self) -> str:
        return blocks_text(self)


def blocks_text(device: RowsKernel) -> str:
    """The kernel of one value per block."""
    code = RowsCode(device)
    code.whole_rows = False
    e, kernel = code.e, code.kernel
    code.begin_function()
    thread = e.ask("thread")
    team = thread.shift_right(device.team.bit_length() - 1)
    code.lane = (thread & (device.team - 1)) * code.lanes
    item = e.ask("block") * device.rows_together + team
    code.valid = e.icmp("slt", item, e.word(Header.ROWS))
    item = e.select(code.valid, item, 0)
    blocks = code.value(kernel.record.at("blocks"))
    row = e.instruction("udiv", item, blocks)
    first = (item - row * blocks) * TREE_BLOCK
    code.end = e.constant(device.columns, "i64", 1)
    step = kernel.passes[0]
    code.place_row(code.split(row, code.outer))
    code.row_values(0)
    code.prepare_pass(step)
    found = code.block(step, first, e.intrinsic("smin", first + TREE_BLOCK, code.end))
    with e.when(e.icmp("eq", code.lane, 0) & code.valid):
        for number, (reduction, value) in enumerate(zip(step.reductions, found, strict=True)):
            element = lane_type(kernel.instructions[reduction].dtype)
            place = e.load_pointer("%buffers", len(kernel.accesses) + number)
            e.store(value, e.offset(place, element, item))
    return code.end_function(f' "nvvm.maxntid"="{device.threads}"')


@dataclass(frozen=True)
class JoinKernel(RowsKernel):
    """Rows as of the whole reduction; the blocks' values are joined where they lie."""

    def launch(self, sizes: Sizes) -> Launch:
        """A block of threads per row."""
        return Launch(Geometry(max(sizes.rows, 1), JOINING))

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def text(self) -> str:
        return join_text(self)


def join_text(device: RowsKernel) -> str:
    """The kernel that joins the blocks of a row."""
    code = RowsCode(device)
    e, kernel = code.e, code.kernel
    code.begin_function()
    thread, row = e.ask("thread"), e.ask("block")
    blocks = code.value(kernel.record.at("blocks"))
    code.place_row(code.split(row, code.outer))
    code.row_values(0)
    reductions = kernel.passes[0].reductions
    places = [e.offset(e.load_pointer("%buffers", len(kernel.accesses) + n),
                       lane_type(kernel.instructions[r].dtype), row * blocks) for n, r in enumerate(reductions)]
    levels = 64 - e.intrinsic("ctlz", blocks - 1, e.constant(False, "i1", 1), suffix="i64")
    with e.loop(0, levels) as level:
        apart = e.instruction("shl", e.constant(1, "i64", 1), level.index)
        pairs = (blocks + (apart * 2 - 1)).shift_right(level.index + 1)
        with e.loop(thread, pairs, JOINING) as loop:
            at = loop.index * (apart * 2)
            with e.when(e.icmp("slt", at + apart, blocks)):
                for r, place in zip(reductions, places, strict=True):
                    _join(code, r, place, at, apart)
        e.barrier()
    for r, place in zip(reductions, places, strict=True):
        instruction = kernel.instructions[r]
        kind, dtype = instruction.name.removeprefix("reduce_"), instruction.dtype
        total = e.load(place, lane_type(dtype), 1)
        none = e.constant(identity(kind, dtype), lane_type(dtype), 1)
        code.rows[r] = code.finished(instruction, combine(e, kind, dtype, total, none))
    code.row_values(1)
    with e.when(e.icmp("eq", thread, 0)):
        code.store_rows()
    return code.end_function(f' "nvvm.maxntid"="{JOINING}"')


def _join(code: RowsCode, reduction: int, place: str, at: object, apart: object) -> None:
    e, instruction = code.e, code.kernel.instructions[reduction]
    element = lane_type(instruction.dtype)
    first = e.offset(place, element, at)  # type: ignore[arg-type]
    second = e.offset(place, element, at + apart)  # type: ignore[operator]
    joined = combine(e, instruction.name.removeprefix("reduce_"), instruction.dtype,
                     e.load(first, element, 1), e.load(second, element, 1))
    e.store(joined, first)


def long_rows(kernel: LoopKernel, lanes: int, columns: int, places: int, numbers: int) -> RowsKernel:
    """The kernel of one of the two steps."""
    made = BlocksKernel if kernel.part == "blocks" else JoinKernel
    return made(kernel, lanes if made is BlocksKernel else 1, columns, places, numbers)
