"""Elementwise kernels on a grid: a thread takes one wide access of columns, the next thread the next ones."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.codegen.loop_grid import LoopGrid, lanes_of, side_by_side
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.loop_spec import LoopKernel, Pass
from morpho.backends.kernels.loops.values import input_places, write_chunk
from morpho.base.dims import Size
from morpho.program.kernel import Kernel

THREADS = 256
TURNS = {4: 1024, 2: 256}  # accesses of a thread, where there are so many blocks of such threads
LONG_BODY = 8  # operations for each element from which on that pays
NEAR_BYTES = 512  # of a table in shared memory; every warp has one of its own
NEAR = frozenset({"gelu", "gelu_slope"})  # operations with such a table
MOST_BLOCKS = (1 << 31) - 1


@dataclass(frozen=True)
class MapKernel(WithoutMaps):
    """A loop kernel without reductions."""

    loop: LoopKernel
    places: int
    numbers: int
    turns: int = 1  # accesses of a thread: rows are whole blocks of threads that take so many

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> MapKernel:
        return self

    def kernel(self) -> Kernel:
        return self.loop

    def launch(self, sizes: Sizes) -> Launch:
        """A thread for each wide access."""
        pieces = -(-sizes.columns // lanes_of(self.loop))
        items = max(sizes.rows * pieces, 1)
        threads = min(THREADS, -(-items // 32) * 32)
        items //= self.turns
        tables = NEAR & {instruction.name for instruction in self.loop.instructions}
        shared = len(tables) * NEAR_BYTES * (THREADS // WARP)
        return Launch(Geometry(min(-(-items // threads), MOST_BLOCKS), threads, shared), pieces)

    def text(self) -> str:
        code = MapCode(self.loop, lanes_of(self.loop), self.places, self.numbers, near=True)
        code.turns = self.turns
        return code.module("")


def turns_of(kernel: LoopKernel, rows: Size, columns: Size) -> int:
    """How many accesses a thread takes: several where there are many and much is computed, so that the thread's place
    and the tables it needs cost little beside that."""
    lanes = lanes_of(kernel)
    if lanes == 1 or not isinstance(rows, int) or not isinstance(columns, int) or len(kernel.passes) != 1:
        return 1
    if kernel.flops < LONG_BODY or kernel.may_fault or not all(store.full for store in kernel.stores):
        return 1
    blocks = {turns: turns * THREADS * lanes for turns in TURNS}
    return next((turns for turns, block in blocks.items()
                 if columns % block == 0 and rows * columns >= block * TURNS[turns]), 1)


class MapCode(LoopGrid):
    """Generator of the LLVM text of one map kernel."""

    turns = 1

    def __init__(self, kernel: LoopKernel, lanes: int, places: int, numbers: int, near: bool = False) -> None:
        super().__init__(kernel, lanes, places, numbers)
        self.near: list[str] = []  # tables of numbers in shared memory: lanes read different ones at once there
        if near:
            self.e.near_table = self.near_table

    def near_table(self, name: str, numbers: tuple[float, ...]) -> str:
        """Where a warp's copy of a table lies."""
        table = self.e.table_in_memory(name, numbers)
        self.near += [] if table in self.near else [table]
        return f"%near{self.near.index(table)}"

    def head_lines(self) -> list[str]:
        """Also, every lane brings 16 bytes of each table that is near."""
        lines = super().head_lines()
        if not self.near:
            return lines
        lines += ["  %near.thread = call i64 @gpu.thread(ptr %ctx)", "  %near.lane = and i64 %near.thread, 31",
                  "  %near.warp = lshr i64 %near.thread, 5", f"  %near.at = mul i64 %near.warp, {NEAR_BYTES}",
                  "  %near.shared = call ptr @gpu.shared(ptr %ctx)",
                  "  %near.first = getelementptr i8, ptr %near.shared, i64 %near.at"]
        for number, table in enumerate(self.near):
            offset = number * NEAR_BYTES * (THREADS // WARP)
            lines += [f"  %near.from{number} = getelementptr <4 x float>, ptr {table}, i64 %near.lane",
                      f"  %near.four{number} = load <4 x float>, ptr %near.from{number}, align 16",
                      f"  %near{number} = getelementptr i8, ptr %near.first, i64 {offset}",
                      f"  %near.to{number} = getelementptr <4 x float>, ptr %near{number}, i64 %near.lane",
                      f"  store <4 x float> %near.four{number}, ptr %near.to{number}, align 16"]
        return [*lines, "  call void @gpu.warp_barrier(ptr %ctx)"]

    def module(self, name: str) -> str:
        """The entry: rows and pieces of them by the thread's number."""
        e = self.e
        self.begin_function()
        rows, columns, pieces = e.word(Header.ROWS), e.word(Header.COLUMNS), e.word(Header.PIECES)
        self.begin, self.end = e.constant(0, "i64", 1), columns
        if self.turns > 1:
            self.blocks_of_rows(rows, pieces)
            return self.end_function(' "nvvm.maxntid"="256"')
        thread = e.ask("block") * e.ask("threads") + e.ask("thread")
        with e.loop(thread, rows * pieces, e.ask("blocks") * e.ask("threads")) as loop:
            row = e.instruction("udiv", loop.index, pieces)
            column = (loop.index - row * pieces) * self.lanes
            self.place_row(self.split(row, self.outer))
            self.row_values(0)
            self.columns_at(column)
        return self.end_function(' "nvvm.maxntid"="256"')

    def blocks_of_rows(self, rows: Value, pieces: Value) -> None:
        """Each block has neighbouring accesses of one row, a thread every so many of them."""
        e, step, wide = self.e, self.kernel.passes[0], self.lanes
        apart = THREADS * wide
        count = e.instruction("udiv", rows * pieces, e.constant(self.turns * THREADS, "i64", 1))
        with e.loop(e.ask("block"), count, e.ask("blocks")) as loop:
            first = loop.index * (self.turns * THREADS)
            row = e.instruction("udiv", first, pieces)
            column = (first - row * pieces + e.ask("thread")) * wide
            self.place_row(self.split(row, self.outer))
            self.row_values(0)
            before = dict(self.rows)
            for whole in e.both(self.fits(column)):
                self.lanes = e.lanes = wide if whole else 1
                self.temporaries, self.rows = {}, dict(before)
                self.prepare_pass(step)
                if whole:
                    self.all_turns(step, [column + turn * apart for turn in range(self.turns)])
                    continue
                with e.loop(0, self.turns) as turn, e.loop(column + turn.index * apart, column + turn.index * apart
                                                           + wide) as one:
                    write_chunk(self, step, one.index, None)
            self.lanes = e.lanes = wide

    def all_turns(self, step: Pass, columns: list[Value]) -> None:
        """All operands first, then what is computed of them."""
        shared, loaded = dict(self.splats), []
        for column in columns:
            self.splats = dict(shared)
            self.ask_first(step, column, None, input_places(self, step, column, None, None))
            loaded.append(self.splats)
        for column, self.splats in zip(columns, loaded, strict=True):
            write_chunk(self, step, column, None)

    def columns_at(self, column: Value) -> None:
        """The thread's columns: at once where they are all there and aligned, else one by one."""
        e, wide = self.e, self.lanes
        for step in self.kernel.passes:
            if wide == 1:
                self.prepare_pass(step)
                write_chunk(self, step, column, None)
                continue
            end = e.intrinsic("smin", column + wide, self.end)
            rows = dict(self.rows)
            for whole in e.both(self.fits(column)):
                self.lanes = e.lanes = wide if whole else 1
                self.temporaries, self.rows = {}, dict(rows)
                self.prepare_pass(step)
                if whole:
                    write_chunk(self, step, column, None)
                else:
                    with e.loop(column, end) as loop:
                        write_chunk(self, step, loop.index, None)
            self.lanes = e.lanes = wide
        with e.when(e.icmp("eq", column, 0)):
            self.store_rows()

    def chunk_values(self, step: Pass, column: Value, count: Value | None, places: dict[int, str]) -> dict[int, Value]:
        """All operands are asked for before anything is computed: between two of them there may be branches."""
        self.ask_first(step, column, count, places)
        return super().chunk_values(step, column, count, places)

    def ask_first(self, step: Pass, column: Value, count: Value | None, places: dict[int, str]) -> None:
        """The operands of a chunk, among the values that are there before it."""
        for number in step.needed:
            named = self.kernel.instructions[number].name
            if named == "load" and number not in self.splats and number not in step.kept:
                self.splats[number] = self.full_value(step, number, {}, column, count, places)

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
