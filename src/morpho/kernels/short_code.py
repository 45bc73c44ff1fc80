"""Loop kernels that reduce small windows of a known size: lanes run along the rows, and a window's elements are written
out one after the other, so that its tree stays in registers.

A window of at most 64 elements fills one lane each: the tree of docs/numerics.md is then the fold by halves alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from morpho.base.dtypes import bool_
from morpho.kernels import scalars
from morpho.kernels.emit import Value
from morpho.kernels.loop_spec import LANES, Pass, constant_value
from morpho.kernels.reductions import combine, identity, lane_type
from morpho.kernels.transposed_code import TransposedCode


@dataclass(frozen=True, slots=True)
class Guard:
    """A border: the size of what is there, the position of the stretch's first row, steps along rows and columns."""

    size: Value
    start: Value
    across: Value
    inner: list[Value]


class ShortCode(TransposedCode):
    """As `TransposedCode`, with the columns unrolled and no partial values in scratch."""

    def _lay_out_scratch(self) -> None:
        rows = [n for n, i in enumerate(self.kernel.instructions) if not i.full and i.name != "constant"]
        self.arrays = {number: self.array(1) for number in rows}

    def each_chunk(self, body: Callable[[], None]) -> None:
        """Whole chunks only, the last one over some rows of the one before; short stretches as one short chunk."""
        e, lanes = self.e, self.lanes
        if lanes == 1:
            super().each_chunk(body)
            return
        long, short, after = e.fresh("long"), e.fresh("short"), e.fresh("after")
        e.branch_if(e.icmp("sge", self.stretch, lanes), long, short)
        e.label(long)
        with e.loop(0, self.stretch, lanes) as loop:
            self.set_chunk(e.intrinsic("smin", loop.index, self.stretch - lanes), e.constant(lanes, "i64", 1), None)
            body()
        e.branch(after)
        e.label(short)
        self.set_chunk(e.constant(0, "i64", 1), self.stretch, e.constant(True, "i1", 1))
        body()
        e.branch(after)
        e.label(after)

    def place_row(self, index: Value) -> None:
        """Also where every border lies from the first row of the stretch."""
        super().place_row(index)
        kernel, coordinates = self.kernel, self.split(index, self.outer)
        self.guards: dict[int, list[Guard]] = {}
        for number, access in enumerate(kernel.accesses):
            self.guards[number] = []
            for order in range(access.guards):
                at = kernel.guards_at(number) + order * (2 + kernel.outer_rank + kernel.inner_rank)
                strides = [self.value(at + 2 + d) for d in range(kernel.outer_rank + kernel.inner_rank)]
                start = self.value(at + 1) + self.dot(coordinates, strides[:kernel.outer_rank])
                self.guards[number].append(Guard(self.value(at), start, strides[kernel.outer_rank - 1],
                                                 strides[kernel.outer_rank:]))

    def column_pass(self, step: Pass) -> None:
        self.each_chunk(lambda: self.windows(step))

    def windows(self, step: Pass) -> None:
        """The windows of a chunk of rows; where all of them lie inside the borders, without looking at those."""
        e = self.e
        guards = [guard for found in self.guards.values() for guard in found]
        self.looks = bool(guards)
        if not guards:
            self.window(step)
            return
        last = tuple(extent - 1 for extent in self.kernel.short)
        inside, border, after = e.fresh("inside"), e.fresh("border"), e.fresh("after")
        e.branch_if(self.all_within(guards, (0,) * len(last), last), inside, border)
        for label, self.looks in ((inside, False), (border, True)):
            e.label(label)
            self.rows = {}
            self.window(step)
            e.branch(after)
        e.label(after)
        self.rows = {}

    def position(self, guard: Guard, place: tuple[int, ...]) -> Value:
        """Where an element of the window of the chunk's first row lies."""
        start = guard.start + guard.across * self.at
        return start + self.dot([self.e.constant(p, "i64", 1) for p in place], guard.inner)

    def all_within(self, guards: list[Guard], low: tuple[int, ...], high: tuple[int, ...]) -> Value:
        """Whether all rows of the chunk lie inside these borders with their elements from `low` to `high`."""
        e = self.e
        found = e.constant(True, "i1", 1)
        for guard in guards:
            end = self.position(guard, high) + guard.across * (self.count - 1)
            found = found & e.icmp("sge", self.position(guard, low), 0) & e.icmp("slt", end, guard.size)
        return found

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
            e.store(total, e.offset(self.arrays[number], self.element(number), self.at))

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
        half = LANES // 2
        while half:
            for high in range(half, len(lanes)):
                lanes[high - half] = combine(e, name, dtype, lanes[high - half], lanes[high])
            lanes = lanes[:half]
            half //= 2
        total = combine(e, name, dtype, lanes[0], start)
        if dtype is bool_:
            return e.convert("zext", e.icmp("ne", total, 0), "i8")
        return scalars.round_to(e, total, dtype) if name in ("sum", "prod") else total

    def load_across(self, number: int, pointer: str) -> Value:
        """A chunk that lies inside its borders as ever; else what is there, among the value that stands outside."""
        e, access = self.e, self.kernel.accesses[number]
        guards = self.guards[number]
        if not guards or not self.looks:
            return self.load_inside(number, pointer)
        inside, border, after = e.fresh("inside"), e.fresh("border"), e.fresh("after")
        e.branch_if(self.all_within(guards, self.place, self.place), inside, border)
        e.label(inside)
        whole = self.load_inside(number, pointer)
        from_inside = e.block
        e.branch(after)
        e.label(border)
        first, last = self.within(guards)
        element = scalars.memory_type(access.dtype)
        buffer = self.temporary(f"border{number}", element)
        fill = e.constant(constant_value(access.fill, access.dtype), scalars.register_type(access.dtype))
        e.store(scalars.to_memory(e, fill, access.dtype), buffer)
        source = e.offset(self.chunk_pointer(number, pointer), element, first * self.across(number))
        self.copy(source, self.across(number), e.offset(buffer, element, first), 1, element, last - first)
        part = scalars.from_memory(e, e.load(buffer, element), access.dtype)
        from_border = e.block
        e.branch(after)
        e.label(after)
        return e.assign(f"phi {whole.type} [ {whole.name}, %{from_inside} ], [ {part.name}, %{from_border} ]",
                        whole.element, whole.lanes)

    def within(self, guards: list[Guard]) -> tuple[Value, Value]:
        """The rows of the chunk whose element lies inside all borders: from the first one to before the last."""
        e = self.e
        nothing, one = e.constant(0, "i64", 1), e.constant(1, "i64", 1)
        first, last = nothing, self.count
        for guard in guards:
            position, step = self.position(guard, self.place), e.intrinsic("smax", guard.across, one)
            missing = e.intrinsic("smax", 0 - position, nothing)
            left = e.intrinsic("smax", guard.size - position, nothing)
            moves = e.icmp("ne", guard.across, 0)  # a border that no row comes nearer to is crossed by all or none
            every = e.select(e.icmp("ult", position, guard.size), self.count, 0)
            first = e.intrinsic("smax", first, e.select(moves, e.instruction("udiv", missing + step - 1, step), 0))
            last = e.intrinsic("smin", last, e.select(moves, e.instruction("udiv", left + step - 1, step), every))
        first = e.intrinsic("smin", first, self.count)
        return first, e.intrinsic("smax", first, last)

    def load_inside(self, number: int, pointer: str) -> Value:
        """Every second element, by two loads that stay inside what is needed; others as ever."""
        e, access = self.e, self.kernel.accesses[number]
        if access.across != "second" or self.lanes == 1:
            return super().load_across(number, pointer)
        element = scalars.memory_type(access.dtype)
        pointer = self.chunk_pointer(number, pointer)
        if self.partial is not None:
            buffer = self.temporary(f"load{number}", element)
            self.copy(pointer, self.across(number), buffer, 1, element, self.count)
            return scalars.from_memory(e, e.load(buffer, element), access.dtype)
        low, high = e.load(pointer, element), e.load(e.offset(pointer, element, self.lanes - 1), element)
        chosen = ", ".join(f"i32 {i}" for i in (*range(0, self.lanes, 2), *range(self.lanes + 1, 2 * self.lanes, 2)))
        both = e.assign(f"shufflevector {low.type} {low.name}, {high.type} {high.name}, "
                        f"<{self.lanes} x i32> <{chosen}>", element, self.lanes)
        return scalars.from_memory(e, both, access.dtype)
