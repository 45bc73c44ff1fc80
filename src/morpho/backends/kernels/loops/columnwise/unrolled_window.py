"""Loop kernels that reduce small windows of a known size: lanes run along the rows, and the window is fully unrolled,
so that its reduction tree stays in registers.

A window of at most 64 elements fills one lane each: the tree of docs/numerics.md is then the fold by halves alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.loops.columnwise.columnwise import ColumnwiseCode
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, Pass, constant_value
from morpho.backends.kernels.loops.reduction_tree import combine, identity, lane_type
from morpho.backends.kernels.loops.values import kept_element
from morpho.base.dtypes import bool_


@dataclass(frozen=True, slots=True)
class Guard:
    """A border: the size of what is there, the position of the stretch's first row, steps along rows and columns."""

    size: Value
    start: Value
    across: Value
    inner: list[Value]


LEAST_LANES = 4  # of a chunk of rows


class UnrolledWindowCode(ColumnwiseCode):
    """As `ColumnwiseCode`, with the columns unrolled and no partial values in scratch."""

    def _lay_out_scratch(self) -> None:
        rows = [n for n, i in enumerate(self.kernel.instructions) if not i.full and i.name != "constant"]
        self.arrays = {number: self.array(1) for number in rows}

    # -- rows ----------------------------------------------------------------------------------------------------------
    def each_chunk(self, body: Callable[[], None]) -> None:
        """Whole chunks, the last one over some rows of the one before. A stretch too short for one goes by chunks of
        half the lanes, or a quarter of them; fewer rows than that one by one."""
        e, most, above = self.e, self.lanes, None
        while self.lanes >= LEAST_LANES:
            fits = e.icmp("sge", self.stretch, self.lanes)
            chosen = fits if above is None else fits & e.icmp("slt", self.stretch, above)
            self.whole_chunks(e.constant(0, "i64", 1), e.select(chosen, self.stretch, 0), body)
            above = self.lanes
            self.lanes = e.lanes = self.lanes // 2
        self.lanes = e.lanes = most
        left = self.stretch if above is None else e.select(e.icmp("slt", self.stretch, above), self.stretch, 0)
        self.one_by_one(left, body)

    def whole_chunks(self, first: Value, last: Value, body: Callable[[], None]) -> None:
        """Write `body` for chunks that cover rows from `first` to `last`, which are none or enough for one."""
        e = self.e
        with e.loop(first, last, self.lanes) as loop:
            self.set_chunk(e.intrinsic("smin", loop.index, last - self.lanes), e.constant(self.lanes, "i64", 1), None)
            body()

    def one_by_one(self, count: Value, body: Callable[[], None], row: Callable[[Value], Value] | None = None) -> None:
        """Write `body` for single rows: the first `count`, or those that `row` says."""
        e, lanes = self.e, self.lanes
        self.lanes = e.lanes = 1
        with e.loop(0, count) as loop:
            self.set_chunk(loop.index if row is None else row(loop.index), e.constant(1, "i64", 1), None)
            body()
        self.lanes = e.lanes = lanes

    def place_row(self, coordinates: list[Value], offsets: list[Value] | None = None) -> None:
        """Also where every border lies from the first row of the stretch, and what stands outside."""
        super().place_row(coordinates, offsets)
        self.looks = False  # whether loads look at borders: only where a window may cross one
        e, kernel = self.e, self.kernel
        self.guards: dict[int, list[Guard]] = {}
        self.fills: dict[int, str] = {}
        for number, access in enumerate(kernel.accesses):
            self.guards[number] = []
            for order in range(access.guards):
                at = kernel.guards_at(number) + order * (2 + kernel.outer_rank + kernel.inner_rank)
                strides = [self.value(at + 2 + d) for d in range(kernel.outer_rank + kernel.inner_rank)]
                start = self.value(at + 1) + self.dot(coordinates, strides[:kernel.outer_rank])
                self.guards[number].append(Guard(self.value(at), start, strides[kernel.outer_rank - 1],
                                                 strides[kernel.outer_rank:]))
            if access.guards:
                self.fills[number] = self.allocate(scalars.memory_type(access.dtype), 1)
                fill = e.constant(constant_value(access.fill, access.dtype), scalars.register_type(access.dtype), 1)
                e.store(scalars.to_memory(e, fill, access.dtype), self.fills[number])

    # -- windows -------------------------------------------------------------------------------------------------------
    def column_pass(self, step: Pass) -> None:
        """Rows whose windows lie inside all borders go by in chunks; those before and behind one by one, looking."""
        e = self.e
        guards = [guard for found in self.guards.values() for guard in found]
        if not guards:
            self.each_chunk(lambda: self.window(step))
            return
        first, last = self.rows_inside(guards) if self.lanes > 1 else (self.stretch, self.stretch)
        self.whole_chunks(first, last, lambda: self.window(step))
        self.looks = True
        self.one_by_one(first + self.stretch - last, lambda: self.window(step),
                        lambda i: e.select(e.icmp("slt", i, first), i, i - first + last))
        self.looks = False

    def position(self, guard: Guard, place: tuple[int, ...], row: Value | int) -> Value:
        """Where an element of the window of a row lies along the axis of a border."""
        start = guard.start + guard.across * row
        return start + self.dot([self.e.constant(p, "i64", 1) for p in place], guard.inner)

    def rows_inside(self, guards: list[Guard]) -> tuple[Value, Value]:
        """The first row of the stretch whose window lies inside all borders, and the one behind the last; both the end
        of the stretch when they are too few for a chunk."""
        e = self.e
        nothing, one = e.constant(0, "i64", 1), e.constant(1, "i64", 1)
        first, last = nothing, self.stretch
        corner = tuple(extent - 1 for extent in self.kernel.short)
        for guard in guards:
            low, high = self.position(guard, (0,) * len(corner), 0), self.position(guard, corner, 0)
            step = e.intrinsic("smax", guard.across, one)
            missing, left = e.intrinsic("smax", 0 - low, nothing), e.intrinsic("smax", guard.size - high, nothing)
            moves = e.icmp("ne", guard.across, 0)  # a border that no row comes nearer to is crossed by all or none
            every = e.select(e.icmp("sge", low, 0) & e.icmp("slt", high, guard.size), self.stretch, 0)
            first = e.intrinsic("smax", first, e.select(moves, e.instruction("udiv", missing + step - 1, step), 0))
            last = e.intrinsic("smin", last, e.select(moves, e.instruction("udiv", left + step - 1, step), every))
        enough = e.icmp("sge", last - first, self.lanes)
        return e.select(enough, first, self.stretch), e.select(enough, last, self.stretch)

    def window(self, step: Pass) -> None:
        """Every element of the windows of a chunk of rows, then the trees."""
        e, kernel = self.e, self.kernel
        found: dict[int, list[Value]] = {number: [] for number in step.reductions}
        for self.place in itertools.product(*(range(extent) for extent in kernel.short)):
            lines = {n: self.line(n, self.place) for n, access in enumerate(kernel.accesses) if access.kind == "load"}
            values: dict[int, Value] = {}
            for number in step.needed:
                values[number] = self.column_value(step, number, values, self.begin, lines, self.begin)
            for number, elements in found.items():
                elements.append(self.operand(kernel.instructions[number].inputs[0], values))
        for number, elements in found.items():
            total = self.total(number, elements)
            e.store(total, e.offset(self.arrays[number], kept_element(self, number), self.at))

    def line(self, number: int, place: tuple[int, ...]) -> str:
        """Where an operand's element of the window lies for the first row."""
        strides = self.strides[number][self.kernel.outer_rank:]
        offset = self.e.constant(0, "i64", 1)
        for position, stride in zip(place, strides, strict=True):
            offset = offset + stride * position
        return self.e.offset(self.pointers[number], scalars.memory_type(self.kernel.accesses[number].dtype), offset)

    def total(self, number: int, elements: list[Value]) -> Value:
        """Lanes fold by halves; each starts at the identity, and so does the total."""
        e, instruction = self.e, self.kernel.instructions[number]
        name, dtype = instruction.name.removeprefix("reduce_"), instruction.dtype
        start = e.constant(identity(name, dtype), lane_type(dtype))
        lanes = [combine(e, name, dtype, start, e.convert("zext", x, "i8") if x.element == "i1" else x)
                 for x in elements]
        half = TREE_LANES // 2
        while half:
            for high in range(half, len(lanes)):
                lanes[high - half] = combine(e, name, dtype, lanes[high - half], lanes[high])
            lanes = lanes[:half]
            half //= 2
        total = combine(e, name, dtype, lanes[0], start)
        if dtype is bool_:
            return e.convert("zext", e.icmp("ne", total, 0), "i8")
        return scalars.round_to(e, total, dtype) if name in ("sum", "prod") else total

    # -- memory --------------------------------------------------------------------------------------------------------
    def load_across(self, number: int, pointer: str) -> Value:
        """As ever, but for two cases: a row that may lie outside a border, and every second element."""
        if self.looks and self.guards[number]:
            return self.load_looking(number, pointer)
        if self.lanes > 1 and self.kernel.accesses[number].across == "second":
            return self.load_second(number, pointer)
        return super().load_across(number, pointer)

    def load_looking(self, number: int, pointer: str) -> Value:
        """The element of one row, or what stands outside the borders."""
        e = self.e
        there = e.constant(True, "i1", 1)
        for guard in self.guards[number]:
            there = there & e.icmp("ult", self.position(guard, self.place, self.at), guard.size)
        chosen, here = "%" + e.fresh("p"), self.chunk_pointer(number, pointer)
        e.line(f"{chosen} = select i1 {there.name}, ptr {here}, ptr {self.fills[number]}")
        dtype = self.kernel.accesses[number].dtype
        return scalars.from_memory(e, e.load(chosen, scalars.memory_type(dtype), 1), dtype)

    def load_second(self, number: int, pointer: str) -> Value:
        """Every second element, by two loads that stay inside what is needed."""
        e, dtype = self.e, self.kernel.accesses[number].dtype
        element = scalars.memory_type(dtype)
        pointer = self.chunk_pointer(number, pointer)
        low, high = e.load(pointer, element), e.load(e.offset(pointer, element, self.lanes - 1), element)
        chosen = ", ".join(f"i32 {i}" for i in (*range(0, self.lanes, 2), *range(self.lanes + 1, 2 * self.lanes, 2)))
        both = e.assign(f"shufflevector {low.type} {low.name}, {high.type} {high.name}, "
                        f"<{self.lanes} x i32> <{chosen}>", element, self.lanes)
        return scalars.from_memory(e, both, dtype)
