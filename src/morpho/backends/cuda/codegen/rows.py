"""Loop kernels with reductions on a grid: softmax, norms, sums along memory, with what comes before and after them.

The tree is the CPU's (docs/numerics.md): element i adds into lane i mod 64 of its block of 4096, lanes fold by halves,
blocks join pairwise; so are the bits. A thread has `lanes` neighbouring lanes of a block (or two that are 32 apart), a
*team* of up to 32 threads has all 64, and folds them by shuffles. Short rows are a team's each; the blocks of a longer
row are shared by the teams of a block of threads, which meet in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.cuda.codegen.grid import WARP, Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.codegen.loop_grid import LoopGrid, side_by_side
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, TREE_LANES, LoopKernel, Pass, Store
from morpho.backends.kernels.loops.reduction_tree import combine, fold, identity, lane_type
from morpho.backends.kernels.loops.values import input_places, kept_place, kept_type, store_chunk, store_kept
from morpho.base.dtypes import bool_
from morpho.program.kernel import Kernel

THREADS = 128  # of a block that has several short rows
MOST_THREADS = 512
ALL_THREADS = 1024  # for few rows whose reductions have the same bits in any order
ORDER_FREE = ("reduce_max", "reduce_min", "reduce_any", "reduce_all")
MOST_JOINED = 256  # blocks of a row that one block of threads joins
KEPT_BYTES = 64 << 10  # shared memory of a block for values that wait between two walks
LONG_UNROLL = 8  # of rows that are read again and again
UNROLL, KEPT_UNROLL = 4, 16  # turns over all lanes that are loaded together; where shared memory allows few rows, more


MANY_KEPT = 8 << 10  # bytes of a row from which on few rows fit


@dataclass(frozen=True)
class RowsKernel(WithoutMaps):
    """A loop kernel with reductions; `columns` of a row are known."""

    loop: LoopKernel
    lanes: int
    columns: int
    places: int
    numbers: int
    few: bool = False  # whether there are so few rows that a thread may have many loads in flight

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Of what a thread reads and writes by wide accesses."""
        return tuple((n, self.lanes * a.dtype.itemsize) for n, a in enumerate(self.loop.accesses)
                     if self.lanes > 1 and side_by_side(a))

    def unaligned(self) -> RowsKernel:
        """A column at a time."""
        return replace(self, lanes=1)

    def kernel(self) -> Kernel:
        return self.loop

    @property
    def ragged(self) -> bool:
        """Whether the last access of a row reads behind its end: rows begin on whole accesses all the same."""
        return self.columns % self.lanes != 0

    @property
    def team(self) -> int:
        """Threads that have all lanes of a tree."""
        return min(TREE_LANES // self.lanes, WARP)

    @property
    def exact(self) -> bool:
        """Whether the order of its reductions changes no bit, so that the tree may have any blocks."""
        return all(i.name in ORDER_FREE or not i.dtype.is_float for i in self.loop.instructions if i.reduces)

    @property
    def most_threads(self) -> int:
        """That share a row."""
        return ALL_THREADS if self.few and self.exact else MOST_THREADS

    @property
    def block_columns(self) -> int:
        """Columns of a block of the tree: those of the contract, or a team's part of few long rows."""
        if not (self.few and self.exact and self.columns > TREE_BLOCK):
            return TREE_BLOCK
        return -(-self.columns // (TREE_LANES * (ALL_THREADS // self.team))) * TREE_LANES

    @property
    def blocks(self) -> int:
        """Blocks of a row's tree."""
        return max(1, -(-self.columns // self.block_columns))

    @property
    def teams(self) -> int:
        """Teams of a row: one, or as many as its tree has blocks."""
        return min(self.blocks, self.most_threads // self.team)

    @property
    def rows_together(self) -> int:
        """Rows of a block of threads."""
        return max(1, THREADS // self.team) if self.blocks == 1 else 1

    @property
    def threads(self) -> int:
        """Of a block; whole warps."""
        return -(-self.team * self.teams * self.rows_together // WARP) * WARP

    @property
    def kept_row_bytes(self) -> int:
        """Shared memory of the kept values of one row."""
        return sum(-(-self.columns * _kept_bytes(self.loop, number) // 16) * 16 for number in self.loop.kept)

    @property
    def shared_bytes(self) -> int:
        """Partial values of every reduction, then the kept values of every row."""
        reductions = sum(i.reduces for i in self.loop.instructions)
        partial = 8 * self.blocks * reductions if self.blocks > 1 else 0
        return -(-partial // 16) * 16 + self.kept_row_bytes * self.rows_together

    @property
    def unrolled(self) -> int:
        """Turns over all lanes that are loaded together; of few short rows as many as there are, up to 16."""
        if self.few and self.blocks == 1:
            turns = max(1, self.columns // TREE_LANES)
            return max(count for count in range(1, KEPT_UNROLL + 1) if turns % count == 0 or count == UNROLL)
        if self.ragged:
            return LONG_UNROLL
        return KEPT_UNROLL if self.kept_row_bytes >= MANY_KEPT else UNROLL

    def launch(self, sizes: Sizes) -> Launch:
        """A block of threads for some rows."""
        return Launch(Geometry(max(1, -(-sizes.rows // self.rows_together)), self.threads, self.shared_bytes))

    def text(self) -> str:
        return RowsCode(self).module("")


def _kept_bytes(kernel: LoopKernel, number: int) -> int:
    return BITS[kept_type(kernel.instructions[number].dtype)] // 8


class Fold(Protocol):
    """The lanes of a team as one value, which all its threads have."""

    def __call__(self, code: RowsCode, name: str, dtype: object, parts: list[Value]) -> Value: ...


class RowsCode(LoopGrid):
    """Generator of the LLVM text of one rows kernel."""

    whole_rows = True  # whether a block of the tree that is the only one begins where the row does

    mine: Value  # the row of a thread among those of its block

    def __init__(self, device: RowsKernel, fold: Fold | None = None) -> None:
        super().__init__(device.loop, device.lanes, device.places, device.numbers)
        self.device, self.fold = device, fold or by_shuffles
        self.each = TREE_LANES // (device.lanes * device.team)  # chunks of a thread in a turn over all lanes
        self.valid: Value | None = None
        self.partials = 0  # reductions whose partial values have a place in shared memory

    def module(self, name: str) -> str:
        """The entry: where the thread stands, then all walks over its row."""
        e, device = self.e, self.device
        self.begin_function()
        thread, rows = e.ask("thread"), e.word(Header.ROWS)
        if device.few:
            self.ask_ahead(thread, device.columns)
        self.begin, self.end = e.constant(0, "i64", 1), e.constant(device.columns, "i64", 1)
        team = thread.shift_right(device.team.bit_length() - 1)
        self.lane = (thread & (device.team - 1)) * self.lanes
        if device.rows_together > 1:
            mine = e.ask("block") * device.rows_together + team
            self.valid = e.icmp("slt", mine, rows)
            row = e.select(self.valid, mine, 0)
            self.first_block, kept_row = e.constant(0, "i64", 1), team
        else:
            row, self.first_block, kept_row = e.ask("block"), team, e.constant(0, "i64", 1)
        self.leader = e.icmp("eq", thread & (device.team - 1) if device.rows_together > 1 else thread, 0)
        if device.shared_bytes or self.kernel.kept:  # rows of no elements keep no bytes
            self.memory = e.shared()
        start = device.shared_bytes - device.kept_row_bytes * device.rows_together
        for number in self.kernel.kept:
            self.kept[number] = e.offset(self.memory, "i8", kept_row * device.kept_row_bytes + start)
            start += -(-device.columns * _kept_bytes(self.kernel, number) // 16) * 16
        self.place_row(self.split(row, self.outer))
        self.row_values(0)
        for step in self.kernel.passes:
            self.prepare_pass(step)
            self.walk(step)
            self.row_values(step.stage + 1)
        with e.when(self.leader if self.valid is None else self.leader & self.valid):
            self.store_rows()
        return self.end_function(f' "nvvm.maxntid"="{device.threads}"')

    # -- one walk ------------------------------------------------------------------------------------------------------
    def walk(self, step: Pass) -> None:
        """A pass over the thread's columns; reductions leave their values among the row's."""
        e, device = self.e, self.device
        reductions = [self.kernel.instructions[number] for number in step.reductions]
        if device.blocks == 1:
            found = self.block(step, self.begin, self.end)
            for number, instruction, value in zip(step.reductions, reductions, found, strict=True):
                self.rows[number] = self.finished(instruction, value)
            return
        places = []
        for _ in reductions:
            places.append(e.offset(self.memory, "i8", 8 * device.blocks * self.partials))
            self.partials += 1
        teams = device.threads // device.team
        uneven = device.team < WARP and device.blocks % teams != 0  # teams of a warp shuffle together: all have a block
        with e.loop(self.first_block, -(-device.blocks // teams) * teams if uneven else device.blocks, teams) as loop:
            first = loop.index * device.block_columns
            first = e.intrinsic("smin", first, self.end) if uneven else first
            found = self.block(step, first, e.intrinsic("smin", first + device.block_columns, self.end))
            writes = e.icmp("eq", self.lane, 0)
            writes = writes & e.icmp("slt", loop.index, device.blocks) if uneven else writes
            for instruction, place, value in zip(reductions, places, found, strict=True):
                with e.when(writes):
                    e.store(value, e.offset(place, lane_type(instruction.dtype), loop.index))
        if reductions:
            e.barrier()
        for number, instruction, place in zip(step.reductions, reductions, places, strict=True):
            element = lane_type(instruction.dtype)
            values = [e.load(e.offset(place, element, n), element, 1) for n in range(device.blocks)]
            self.rows[number] = self.finished(instruction, self.joined(instruction, values))

    def joined(self, instruction: object, values: list[Value]) -> Value:
        """Blocks joined pairwise, as a binary counter carries; what is left over joins latest first."""
        name, dtype = instruction.name.removeprefix("reduce_"), instruction.dtype  # type: ignore[attr-defined]
        stack: list[tuple[int, Value]] = []
        for value in values:
            size = 1
            while stack and stack[-1][0] == size:
                value, size = combine(self.e, name, dtype, stack.pop()[1], value), 2 * size
            stack.append((size, value))
        total = self.e.constant(identity(name, dtype), lane_type(dtype), 1)
        for _, value in reversed(stack):
            total = combine(self.e, name, dtype, value, total)
        return total

    def finished(self, instruction: object, total: Value) -> Value:
        """The accumulated value as a register value of the result's dtype."""
        e, dtype = self.e, instruction.dtype  # type: ignore[attr-defined]
        if dtype is bool_:
            return e.icmp("ne", total, 0)
        sums = instruction.name in ("reduce_sum", "reduce_prod")  # type: ignore[attr-defined]
        return scalars.round_to(e, total, dtype) if sums else total

    def block(self, step: Pass, first: Value, last: Value) -> list[Value]:
        """The columns of one block of the tree that are this thread's; the folded value of every reduction."""
        e, kernel = self.e, self.kernel
        kinds = [(kernel.instructions[n].name.removeprefix("reduce_"), kernel.instructions[n].dtype,
                  kernel.instructions[n].inputs[0]) for n in step.reductions]
        starts = [e.constant(identity(name, dtype), lane_type(dtype), self.lanes)
                  for name, dtype, _ in kinds for _ in range(self.each)]
        apart = TREE_LANES // self.each
        columns = self.device.columns
        even = columns % TREE_LANES == 0  # every turn is whole
        unrolled = self.device.unrolled
        turn = TREE_LANES * unrolled
        whole = first
        if even or self.each == 1:
            whole = (e.constant(columns // turn * turn, "i64", 1) if self.device.blocks == 1 and self.whole_rows else
                     first + ((last - first) & -turn))
        sums = starts
        for begin, end, unroll in ((first, whole, unrolled), (whole, last, 1)):
            if unroll == unrolled and columns < turn:
                continue
            with e.loop(begin + self.lane, end, TREE_LANES * unroll, carried=sums) as loop:
                new, found = list(loop.values), []
                for number in range(unroll):
                    for part in range(self.each):
                        column = loop.index + (number * TREE_LANES + part * apart)
                        found.append((part, column, self.values_at(step, column, end if part else None)))
                for part, column, values in found:
                    some = self.device.ragged and unroll == 1
                    there = e.icmp("slt", e.lane_numbers(), e.splat(end - column)) if some else None
                    if some and step.stores:
                        self.store_some(step, column, values, end)
                    else:
                        self.store_values(step, column, values, end if part and not even else None)
                    for t, (name, dtype, source) in enumerate(kinds):
                        slot, value = t * self.each + part, values[source]
                        value = e.convert("zext", value, "i8") if value.element == "i1" else value
                        joined = combine(e, name, dtype, new[slot], value)
                        if there is not None:
                            joined = e.select(there, joined, new[slot])
                        elif part and not even:
                            joined = e.select(e.icmp("slt", column, end), joined, new[slot])
                        new[slot] = joined
                loop.next(*new)
            sums = loop.values
        return [self.fold(self, name, dtype, sums[t * self.each:(t + 1) * self.each])
                for t, (name, dtype, _) in enumerate(kinds)]

    def values_at(self, step: Pass, column: Value, end: Value | None) -> dict[int, Value]:
        """Every value of the pass at a column; one that is not there is read at the last."""
        if end is not None:
            column = self.e.intrinsic("smin", column, end - 1)
        return self.chunk_values(step, column, None, input_places(self, step, column, None, None))

    def store_values(self, step: Pass, column: Value, values: dict[int, Value], end: Value | None) -> None:
        """Store the values of the columns; threads whose row or column does not exist store nothing."""
        e = self.e
        if not step.keep and not step.stores:
            return
        there = [c for c in (self.valid if step.stores else None, None if end is None else e.icmp("slt", column, end))
                 if c is not None]

        def write() -> None:
            for number in step.keep:
                store_kept(self, values[number], kept_place(self, number, column))
            for store in step.stores:
                self._store(store, values, column)

        if there:
            condition = there[0] if len(there) == 1 else there[0] & there[1]
            with e.when(condition):
                write()
        else:
            write()

    def store_some(self, step: Pass, column: Value, values: dict[int, Value], end: Value) -> None:
        """The columns of an access that are there, of a row that is."""
        e = self.e
        for whole in e.both(e.icmp("sle", column + self.lanes, end)):
            if whole:
                self.store_values(step, column, values, None)
                continue
            for lane in range(self.lanes):
                one = {store.instruction: self._lane(values[store.instruction], lane) for store in step.stores}
                self.store_values(step, column + lane, one, end)

    def _lane(self, value: Value, lane: int) -> Value:
        if value.lanes == 1:
            return value
        return self.e.assign(f"extractelement {value.type} {value.name}, i64 {lane}", value.element, 1)

    def _store(self, store: Store, values: dict[int, Value], column: Value) -> None:
        dtype = self.kernel.instructions[store.instruction].dtype
        store_chunk(self, store.access, values[store.instruction], dtype, column, None, None)


def by_shuffles(code: RowsCode, name: str, dtype: object, parts: list[Value]) -> Value:
    """The lanes of a team as one value, which all its threads have."""
    e = code.e
    value = parts[0] if len(parts) == 1 else combine(e, name, dtype, parts[0], parts[1])  # type: ignore[arg-type]
    mask = code.device.team // 2
    while mask:
        if value.lanes == 1:
            other = e.shuffle_xor(value, mask)
        else:
            other = _shuffled(code, value, mask)
        value = combine(e, name, dtype, value, other)  # type: ignore[arg-type]
        mask //= 2
    return fold(e, name, dtype, [value])  # type: ignore[arg-type]


def _shuffled(code: RowsCode, value: Value, mask: int) -> Value:
    e, text = code.e, "poison"
    for lane in range(value.lanes):
        one = e.assign(f"extractelement {value.type} {value.name}, i64 {lane}", value.element, 1)
        moved = e.shuffle_xor(one, mask)
        text = e.assign(f"insertelement {value.type} {text}, {moved.type} {moved.name}, i64 {lane}", value.element,
                        value.lanes).name
    return Value(e, text, value.element, value.lanes)
