"""The function of a `ScatterLoop`: one column after the other, each value to its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.kernels.loops.loop_code import LoopCode
from morpho.backends.kernels.loops.loop_spec import Instruction, Pass
from morpho.backends.kernels.loops.sequential.scatter_code import combined
from morpho.backends.kernels.loops.sequential.scatter_loop import Scatter, ScatterLoop
from morpho.backends.kernels.loops.values import input_places, widened
from morpho.base.dtypes import DType
from morpho.base.machine import Isa

State = list[Value]
TOGETHER = 4  # values that one turn of the loop over a chunk puts in their places


class ScatterLoopCode(LoopCode):
    """A loop kernel that scatters where others store.

    Of every scatter that combines, the place it was at last and the sum of that place go from turn to turn in registers
    (`State`); between rows, and before the end of a row, they lie on the stack.
    """

    def __init__(self, kernel: ScatterLoop, isa: Isa) -> None:
        super().__init__(kernel.loop, replace(isa, vector_bits=0))
        self.loop, self.scatters = kernel, kernel.scatters
        looked_up = {kernel.wraps.get(one.inputs[0], one.inputs[0]) for one in kernel.loop.instructions
                     if one.name == "gather"}
        self.targets = {scatter.target for scatter in kernel.scatters}
        self.shares = bool(looked_up & {scatter.indices for scatter in kernel.scatters})
        self.combining = [scatter for scatter in self.scatters if scatter.mode != "set"]

    def memory(self, scatter: Scatter) -> str:
        """The type of a target's elements in memory; values have the same."""
        return scalars.memory_type(self.dtype_of(scatter))

    def dtype_of(self, scatter: Scatter) -> DType:
        return self.kernel.accesses[scatter.target].dtype

    # -- the state -----------------------------------------------------------------------------------------------------
    def walk_rows(self, first: Value, last: Value) -> None:
        """All rows; the last sums go to their places at the end."""
        e = self.e
        self.held = {}
        for scatter in self.combining:
            kind = scalars.register_type(self.dtype_of(scatter))
            nowhere = self.allocate(self.memory(scatter), 1)
            self.held[scatter] = (self.allocate("ptr", 1), self.allocate(kind, 1))
            e.line(f"store ptr {nowhere}, ptr {self.held[scatter][0]}, align 8")
            e.store(e.constant(0, kind, 1), self.held[scatter][1])
        super().walk_rows(first, last)
        state = self.state()
        for scatter, place, total in zip(self.combining, state[::2], state[1::2], strict=True):
            self.put_away(scatter, place, total)

    def state(self) -> State:
        """Place and sum of every scatter that combines, from the stack."""
        e, found = self.e, []
        for scatter in self.combining:
            place, total = self.held[scatter]
            found += [Value(e, e.load_pointer(place), "ptr", 1),
                      e.load(total, scalars.register_type(self.dtype_of(scatter)), 1)]
        return found

    def keep(self, state: State) -> None:
        """And back onto it."""
        for scatter, place, total in zip(self.combining, state[::2], state[1::2], strict=True):
            self.e.store(place, self.held[scatter][0], align=8)
            self.e.store(total, self.held[scatter][1])

    def put_away(self, scatter: Scatter, place: Value, total: Value) -> None:
        """The sum in its place."""
        self.e.store(scalars.to_memory(self.e, total, self.dtype_of(scatter)), place.name)

    # -- one column after the other ------------------------------------------------------------------------------------
    def map_pass(self, step: Pass) -> None:
        """Some columns a turn, then the rest of the row."""
        e = self.e
        whole = self.begin + ((self.end - self.begin) & -TOGETHER)
        with e.loop(self.begin, whole, TOGETHER, carried=self.state()) as loop:
            state = loop.values
            for ahead in range(TOGETHER):
                state = self.scatter_column(step, loop.index + ahead if ahead else loop.index, state)
            loop.next(*state)
        with e.loop(whole, self.end, carried=loop.values) as rest:
            rest.next(*self.scatter_column(step, rest.index, rest.values))
        self.keep(rest.values)

    def scatter_column(self, step: Pass, column: Value, state: State) -> State:
        """The indices and values of a column, and each value to its place; the state after that."""
        e, state = self.e, list(state)
        values = self.begin_column(step, column)
        if not self.shares:
            self.compute(step.needed)
        # Indices first: one that is inside an axis need not be checked again where an element is looked up by it.
        self.compute(sorted(self.below([scatter.indices for scatter in self.scatters]) & set(step.needed)))
        places = {scatter: self.place(scatter, values[scatter.indices]) for scatter in self.scatters}
        self.compute(number for number in step.needed if number not in self.loop.unusual)
        for scatter, place in places.items():
            if scatter.mode == "set":
                e.store(scalars.to_memory(e, values[scatter.value], self.dtype_of(scatter)), place.name)
        for index in dict.fromkeys(scatter.indices for scatter in self.combining):
            self.combine([(n, s, places[s], values[s.value]) for n, s in enumerate(self.combining)
                          if s.indices == index], state)
        return state

    def begin_column(self, step: Pass, column: Value) -> dict[int, Value]:
        """The values of a column, those of its row so far; `compute` adds to them."""
        inputs = input_places(self, step, column, None, None)
        values: dict[int, Value] = dict(self.splats)

        def compute(numbers: Iterable[int]) -> None:
            for number in numbers:
                if number not in values:
                    values[number] = self.full_value(step, number, values, column, None, inputs)

        self.known_inside: set[tuple[int, int]] = set()
        self.compute = compute
        return values

    def below(self, wanted: list[int]) -> set[int]:
        """The instructions that some values are made of."""
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            number = stack.pop()
            if number not in found:
                found.add(number)
                stack += self.kernel.instructions[number].inputs
        return found

    def place(self, scatter: Scatter, index: Value) -> Value:
        """Where an index points to."""
        e = self.e
        at = self.reach(scatter.target, scatter.indices, index)
        return Value(e, e.offset(self.bases[scatter.target], self.memory(scatter), at), "ptr", 1)

    def number_of(self, access: int) -> int:
        """Of an access among those that are looked up."""
        return self.kernel.gathered.index(access)

    def size_of(self, access: int) -> Value:
        """The length of the axis that an access is indexed along."""
        return self.number(self.kernel.record.at("gathers") + 2 * self.loop.sizes[self.number_of(access)])

    def reach(self, access: int, number: int, index: Value) -> Value:
        """How far the index of an instruction points; one outside its axis ends the call."""
        wide = widened(self, index, self.kernel.instructions[number].dtype)
        known = number, self.loop.sizes[self.number_of(access)]
        if known not in self.known_inside:
            self.known_inside.add(known)
            self.leave_unless(self.e.icmp("ult", wide, self.size_of(access)))
        return self.along(access, wide)

    def along(self, access: int, wide: Value) -> Value:
        """An index as a distance in elements. Without the multiplication by 1 lookups that share no index with a
        scatter were slower by a tenth (notes/)."""
        number = self.number_of(access)
        if self.loop.units[number] and (self.shares or access in self.targets):
            return wide
        return wide * self.number(self.kernel.record.at("gathers") + 2 * number + 1)

    def leave_unless(self, inside: Value) -> None:
        with self.e.leave_if(inside, False):
            self.e.line(f"ret i32 {FAULT_INDEX}")

    def reach_wrapped(self, access: int, number: int, plain: int, values: dict[int, Value]) -> Value:
        """As `reach`, for an index that may count from the end: it does not where it was found inside the axis."""
        if (plain, self.loop.sizes[self.number_of(access)]) in self.known_inside:
            return self.along(access, widened(self, values[plain], self.kernel.instructions[plain].dtype))
        self.compute(sorted(self.below([number]) & self.loop.unusual))
        return self.reach(access, number, values[number])

    def gather_chunk(self, number: int, values: dict[int, Value], column: Value, count: Value | None) -> Value:
        """An element that is looked up."""
        instruction = self.kernel.instructions[number]
        access, which = instruction.access, instruction.inputs[0]
        if which in self.loop.unusual:
            at = self.reach_wrapped(access, which, self.loop.wraps[which], values)
        else:
            at = self.reach(access, which, values[which])
        if self.kernel.accesses[access].pattern == "none":
            return self.from_index(at, instruction.dtype)
        return self.element(access, at + self.inner_offset(access, column), instruction.dtype)

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        """An element of an operand, wherever it lies."""
        access = instruction.access
        return self.element(access, self.inner_offset(access, column), instruction.dtype)

    def element(self, access: int, at: Value, dtype: DType) -> Value:
        e, element = self.e, scalars.memory_type(dtype)
        return scalars.from_memory(e, e.load(e.offset(self.pointers[access], element, at), element, 1), dtype)

    def combine(self, same: list[tuple[int, Scatter, Value, Value]], state: State) -> None:
        """Values of scatters with the same index (number, scatter, place, value) to the sums of their places: those in
        registers or, at another index, the ones that lie there."""
        e = self.e
        here, other, join = e.block, e.fresh("other"), e.fresh("join")
        e.branch_if(e.icmp("ne", same[0][2], state[2 * same[0][0]]), other, join)
        e.label(other)
        found = []
        for number, scatter, place, _ in same:
            self.put_away(scatter, *state[2 * number:2 * number + 2])
            held = e.load(place.name, self.memory(scatter), 1)
            found.append(scalars.from_memory(e, held, self.dtype_of(scatter)))
        there = e.block
        e.branch(join)
        e.label(join)
        old = [e.assign(f"phi {new.type} [ {state[2 * number + 1].name}, %{here} ], [ {new.name}, %{there} ]",
                        new.element, 1) for (number, *_), new in zip(same, found, strict=True)]
        for (number, scatter, place, value), total in zip(same, old, strict=True):
            state[2 * number] = place
            state[2 * number + 1] = combined(e, scatter.mode, self.dtype_of(scatter), total, value)
