"""The function of a `ScatterLoop` that several threads share.

Where all indices ascend, as those of the rows of a sparse matrix, a share is a run of columns that begins where an
index changes: every thread looks through the indices for one that descends, in vectors, and finds one soon or none.
Otherwise many threads have a range of the targets each: of a block of columns those whose index points into it are
listed, without a branch that could be guessed wrong, then put in their places. Of few threads the first does it all:
the list costs them what the others save (notes/).
"""

from __future__ import annotations

from itertools import groupby

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import Value, vector_type
from morpho.backends.kernels.loops.loop_spec import Pass
from morpho.backends.kernels.loops.sequential.scatter_code import place_of_share
from morpho.backends.kernels.loops.sequential.scatter_loop import Scatter, ScatterLoop
from morpho.backends.kernels.loops.sequential.scatter_loop_code import ScatterLoopCode, State
from morpho.backends.kernels.loops.values import widened
from morpho.base.machine import Isa

BLOCK = 1024  # columns that are looked through at a time: their list stays in the first-level cache
LANES = 16  # indices that are looked at together


def generate(kernel: ScatterLoop, isa: Isa, name: str) -> str:
    """The LLVM module of a `ScatterLoop`."""
    return (ScatterRangeCode if kernel.divides else ScatterLoopCode)(kernel, isa).module(name)


class ScatterRangeCode(ScatterLoopCode):
    """The rows given to the function are shares of one line of columns."""

    def __init__(self, kernel: ScatterLoop, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.masks = isa.masks
        self.indices = sorted({scatter.indices for scatter in kernel.scatters})

    def walk_rows(self, first: Value, last: Value) -> None:
        """The only row of the loop."""
        e, record = self.e, self.loop.record
        self.given, self.zero = (first, last), e.constant(0, "i64", 1)
        self.columns, self.shares_of_all = (self.number(record.at(field)) for field in ("columns", "shares"))
        super().walk_rows(self.zero, self.zero + 1)

    # -- a run of columns ----------------------------------------------------------------------------------------------
    def map_pass(self, step: Pass) -> None:
        """All columns where one thread has all shares; else those of its own."""
        e, (first, last) = self.e, self.given
        bounds = self.allocate("i64", 2)
        places = [e.offset(bounds, "i64", number) for number in range(2)]
        for alone in e.both(e.icmp("eq", last - first, self.shares_of_all)):
            found = (self.zero, self.columns) if alone else self.own_columns(step)
            for place, column in zip(places, found, strict=True):
                e.store(column, place)
        self.begin, self.end = (e.load(place, "i64", 1) for place in places)
        super().map_pass(step)

    def own_columns(self, step: Pass) -> tuple[Value, Value]:
        """Where the shares of this call begin and end. Where indices do not ascend they are all of the first share, or
        none where ranges have been done instead."""
        e, (first, last) = self.e, self.given
        ascending = self.ascending(step)
        if self.loop.divides == "ranges":
            with e.when(ascending ^ 1):
                self.ranges = {self.size_at(scatter): self.limits(scatter, first, last) for scatter in self.scatters}
                self.range_pass(step)
            done = self.columns
        else:
            done = e.select(e.icmp("eq", first, 0), self.zero, self.columns)
        begin, end = (self.cut(step, share) for share in (first, last))
        return e.select(ascending, begin, done), e.select(ascending, end, self.columns)

    def ascending(self, step: Pass) -> Value:
        """Whether no index is less than the one before it."""
        e, found = self.e, self.e.constant(True, "i1", 1)
        for number in self.indices:
            column = e.select(found, self.zero + 1, self.columns)  # no further look where another one descends
            found = found & e.icmp("sge", self.first_descent(step, number, column), self.columns)
        return found

    def first_descent(self, step: Pass, number: int, start: Value) -> Value:
        """The first column from `start` on whose index is less than the one before it."""
        e = self.e
        if self.masks and self.in_vectors(number):
            start = e.first_without(start, self.columns - (LANES - 1), lambda column: self.in_order(
                self.vector_at(number, column - 1), self.vector_at(number, column)), LANES)
        return e.first_without(start, self.columns, lambda column: self.in_order(
            self.index_at(step, number, column - 1), self.index_at(step, number, column)))

    def in_order(self, before: Value, after: Value) -> Value:
        return self.e.all_lanes(self.e.icmp("sle", before, after))

    def cut(self, step: Pass, share: Value) -> Value:
        """Where a share begins: at a place where all indices change."""
        e = self.e
        start = e.instruction("udiv", self.columns * share, self.shares_of_all)
        start = e.select(e.icmp("eq", start, 0), self.columns, start)  # nothing is before the first
        found = e.first_without(start, self.columns, lambda column: self.is_inside(step, column))
        return e.select(e.icmp("eq", share, 0), self.zero, found)

    def is_inside(self, step: Pass, column: Value) -> Value:
        """Whether a column has an index that the one before it has, too."""
        found = self.e.constant(False, "i1", 1)
        for number in self.indices:
            before, here = (self.index_at(step, number, place) for place in (column - 1, column))
            found = found | self.e.icmp("eq", before, here)
        return found

    def index_at(self, step: Pass, number: int, column: Value) -> Value:
        """The index of one column."""
        values = self.begin_column(step, column)
        self.compute(sorted(self.below([number]) & set(step.needed)))
        return widened(self, values[number], self.kernel.instructions[number].dtype)

    def vector_at(self, number: int, column: Value) -> Value:
        """Values of `LANES` columns."""
        self.e.lanes = LANES
        found = widened(self, self.vector_of(number, column, {}), self.kernel.instructions[number].dtype)
        self.e.lanes = 1
        return found

    # -- a range of targets --------------------------------------------------------------------------------------------
    def size_at(self, scatter: Scatter) -> int:
        """Which of the sizes a target has."""
        return self.loop.sizes[self.number_of(scatter.target)]

    def limits(self, scatter: Scatter, first: Value, last: Value) -> tuple[Value, Value]:
        """The first place of a target that is in the shares of this call, and how many there are."""
        low, high = (place_of_share(self.e, share, self.shares_of_all, self.size_of(scatter.target))
                     for share in (first, last))
        return low, high - low

    def range_pass(self, step: Pass) -> None:
        """Blocks of columns: for scatters with the same indices, the columns that are theirs to do, and those."""
        e = self.e
        together = [list(same) for _, same in groupby(sorted(self.scatters, key=self.key_of), key=self.key_of)]
        self.listed = self.temporary_list()
        with e.loop(0, self.columns, BLOCK, carried=self.state()) as blocks:
            stop = e.intrinsic("smin", blocks.index + BLOCK, self.columns)
            state = blocks.values
            for same in together:
                count = self.list_columns(step, same[0], blocks.index, stop)
                with e.loop(0, count, carried=state) as chosen:
                    place = e.load(e.offset(self.listed, "i32", chosen.index), "i32", 1)
                    column = blocks.index + e.convert("zext", place, "i64")
                    chosen.next(*self.put_column(step, same, column, chosen.values))
                state = chosen.values
            blocks.next(*state)
        self.keep(blocks.values)

    def key_of(self, scatter: Scatter) -> tuple[int, int]:
        """Scatters with the same one are to do the same columns."""
        return scatter.indices, self.size_at(scatter)

    def temporary_list(self) -> str:
        """Room for the columns of a block, and for a vector behind them."""
        if "listed" not in self.temporaries:
            self.temporaries["listed"] = self.allocate("i32", BLOCK + LANES)
        return self.temporaries["listed"]

    def put_column(self, step: Pass, same: list[Scatter], column: Value, before: State) -> State:
        """The values of a column to their places, which are inside their axes; the state after that."""
        e, state = self.e, list(before)
        values = self.begin_column(step, column)
        self.known_inside = {self.key_of(same[0])}
        self.compute(sorted(self.below([scatter.indices for scatter in same]) & set(step.needed)))
        places = {scatter: self.place(scatter, values[scatter.indices]) for scatter in same}
        wanted = self.below([scatter.value for scatter in same]) & set(step.needed)
        self.compute(number for number in sorted(wanted) if number not in self.loop.unusual)
        for scatter, place in places.items():
            if scatter.mode == "set":
                e.store(scalars.to_memory(e, values[scatter.value], self.dtype_of(scatter)), place.name)
        combining = [(n, s, places[s], values[s.value]) for n, s in enumerate(self.combining) if s in places]
        if combining:
            self.combine(combining, state)
        return state

    # -- whose columns -------------------------------------------------------------------------------------------------
    def list_columns(self, step: Pass, scatter: Scatter, start: Value, stop: Value) -> Value:
        """List the columns from `start` on, counted from there, whose index is in the range; how many there are. An
        index outside the axis ends the call."""
        e, zero = self.e, self.e.constant(0, "i64", 1)
        count, wrong, middle = zero, zero, start
        if self.masks and self.in_vectors(scatter.indices):
            middle = start + ((stop - start) & -LANES)
            with e.loop(start, middle, LANES, carried=[count, wrong]) as loop:
                loop.next(*self.list_vector(scatter, loop.index, loop.index - start, *loop.values))
            count, wrong = loop.values
        with e.loop(middle, stop, carried=[count, wrong]) as loop:
            found, outside = loop.values
            index = self.index_at(step, scatter.indices, loop.index)
            inside, bad = self.tested(scatter, index)
            e.store(e.convert("trunc", loop.index - start, "i32"), e.offset(self.listed, "i32", found))
            loop.next(found + e.convert("zext", inside, "i64"), outside | e.convert("zext", bad, "i64"))
        count, wrong = loop.values
        self.leave_unless(e.icmp("eq", wrong, 0))
        return count

    def tested(self, scatter: Scatter, index: Value) -> tuple[Value, Value]:
        """Whether indices point into the range, and whether out of the axis."""
        e = self.e
        low, width = (e.splat(number, index.lanes) for number in self.ranges[self.size_at(scatter)])
        outside = e.icmp("uge", index, e.splat(self.size_of(scatter.target), index.lanes))
        return e.icmp("ult", index - low, width), outside

    def in_vectors(self, number: int) -> bool:
        """Whether indices can be computed several at a time: from what lies side by side."""
        parts, accesses = self.kernel.instructions, self.kernel.accesses
        return all((one.name == "load" and accesses[one.access].pattern == "unit") or
                   one.name not in ("load", "gather", "index", "pick") or not one.full
                   for one in (parts[part] for part in self.below([number])))

    def list_vector(self, scatter: Scatter, column: Value, place: Value, count: Value, wrong: Value) -> list[Value]:
        """`LANES` columns at once: the numbers of those in the range are pressed together."""
        e = self.e
        index = self.vector_at(scatter.indices, column)
        e.lanes = LANES
        inside, bad = self.tested(scatter, index)
        numbers = e.splat(e.convert("trunc", place, "i32")) + e.lane_numbers("i32")
        kind, name = vector_type("i32", LANES), f"llvm.x86.avx512.mask.compress.v{LANES}i32"
        e.declarations.add(f"declare {kind} @{name}({kind}, {kind}, <{LANES} x i1>)")
        # A whole vector is stored: the instruction that presses them together into memory takes 40 cycles.
        pressed = e.assign(f"call {kind} @{name}({kind} {numbers.name}, {kind} poison, <{LANES} x i1> {inside.name})",
                           "i32", LANES)
        e.store(pressed, e.offset(self.listed, "i32", count))
        e.lanes = 1
        found, outside = (e.convert("zext", e.assign(f"bitcast <{LANES} x i1> {mask.name} to i{LANES}", f"i{LANES}", 1),
                                    "i64") for mask in (inside, bad))
        return [count + e.intrinsic("ctpop", found), wrong | outside]

    def vector_of(self, number: int, column: Value, known: dict[int, Value]) -> Value:
        """An instruction's values at `LANES` columns."""
        e, one = self.e, self.kernel.instructions[number]
        if number not in known:
            if number in self.splats:
                known[number] = e.splat(self.splats[number], LANES)
            elif one.name == "constant":
                known[number] = self.constant(one, LANES)
            elif not one.full:
                known[number] = e.splat(self.row_operand(number), LANES)
            elif one.name == "load":
                element = scalars.memory_type(one.dtype)
                place = e.offset(self.pointers[one.access], element, column)
                known[number] = scalars.from_memory(e, e.load(place, element, LANES), one.dtype)
            else:
                arguments = [self.vector_of(part, column, known) for part in one.inputs]
                source = self.kernel.instructions[one.inputs[-1]].dtype
                known[number] = elementwise.emit(e, one.name, arguments, source, one.dtype)
        return known[number]
