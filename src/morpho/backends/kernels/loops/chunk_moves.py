"""Chunks of columns between memory and registers.

A full chunk is loaded straight from memory, the rest of a row by a mask where the machine has them; without, that rest,
and operands that are not side by side, pass through a small buffer on the stack, so that the arithmetic exists once for
any length and any stride.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.kernels.loops.loop_spec import Instruction, Pass
from morpho.backends.kernels.loops.pairs import PARTS, PairMoves, picked
from morpho.base.dtypes import DType, bool_, int32


def kept_type(dtype: DType) -> str:
    """The type that a value has in scratch."""
    return "i8" if dtype is bool_ else scalars.register_type(dtype)


class ChunkMoves(PairMoves):
    """Loads, positions, stores and values that are kept, a chunk at a time."""

    # -- loads ---------------------------------------------------------------------------------------------------------
    def input_places(self, step: Pass, column: Value, count: Value | None, partial: Value | None) -> dict[int, str]:
        """Where each side-by-side operand is read from: memory, or a copy on the stack when the chunk is short."""
        e, accesses, numbers = self.e, self.kernel.accesses, self.side_by_side(step)
        types = {n: scalars.memory_type(accesses[n].dtype) for n in numbers}
        direct = {n: e.offset(self.pointers[n], types[n], column) for n in numbers}
        self.lanes_left = e.first_lanes(count) if self.isa.masks and count is not None and partial is None else None
        if count is None or not numbers or self.lanes_left is not None:
            return direct
        copies = {n: self.temporary(f"load{n}", types[n], self.isa.masks) for n in numbers}
        moves = [(direct[n], copies[n], types[n]) for n in numbers]
        if partial is None:
            self.take_in(moves, count)
            return copies
        before = e.block
        then, join = e.fresh("short"), e.fresh("join")
        e.branch_if(partial, then, join)
        e.label(then)
        self.take_in(moves, count)
        after = e.block
        e.branch(join)
        e.label(join)
        chosen = {}
        for n in numbers:
            chosen[n] = "%" + e.fresh("p")
            e.line(f"{chosen[n]} = phi ptr [ {direct[n]}, %{before} ], [ {copies[n]}, %{after} ]")
        return chosen

    def side_by_side(self, step: Pass) -> list[int]:
        """The accesses of a pass whose elements lie side by side along the columns."""
        loads = [self.kernel.instructions[n] for n in step.needed if n not in step.kept]
        found = {i.access for i in loads if i.name == "load"}
        return sorted(access for access in found if self.kernel.accesses[access].pattern == "unit")

    def take_in(self, moves: list[tuple[str, str, str]], count: Value) -> None:
        """The first `count` elements of operands to chunks on the stack (source, target, element)."""
        if not self.isa.masks:
            self.copy_all(moves, count)
            return
        mask = self.e.first_lanes(count)
        for source, target, element in moves:
            self.e.store(self.e.load_some(source, f"i{BITS[element]}", mask), target)

    def copy_all(self, moves: list[tuple[str, str, str]], count: Value) -> None:
        """The first `count` elements of several sources to their targets (source, target, element), in one loop: each
        block of instructions costs LLVM time of its own."""
        e = self.e
        with e.loop(0, count) as loop:
            for source, target, element in moves:
                value = e.load(e.offset(source, element, loop.index), element, 1)
                e.store(value, e.offset(target, element, loop.index))

    def copy(self, source: str, source_step: Value | int, target: str, target_step: Value | int, element: str,
             count: Value | int) -> None:
        """A plain element loop; only ends of rows and strided operands come here."""
        e = self.e
        with e.loop(0, count) as loop:
            origin = loop.index if source_step == 1 else loop.index * source_step
            place = loop.index if target_step == 1 else loop.index * target_step
            e.store(e.load(e.offset(source, element, origin), element, 1), e.offset(target, element, place))

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        e, number = self.e, instruction.access
        access = self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        if access.pattern == "unit" and count is not None and self.lanes_left is not None:  # no copy on the stack
            bits = e.load_some(places[number], f"i{BITS[element]}", self.lanes_left)
            return scalars.from_memory(e, e.from_bits(bits, element), access.dtype)
        if access.pattern == "unit":
            return scalars.from_memory(e, e.load(places[number], element), access.dtype)
        if access.pattern == "reversed" and count is None and self.lanes > 1:
            last = e.offset(self.pointers[number], element, self.inner_offset(number, column + (self.lanes - 1)))
            backwards = picked(e, e.load(last, element), range(self.lanes - 1, -1, -1))
            return scalars.from_memory(e, backwards, access.dtype)
        if access.pattern in PARTS and self.lanes > 1:
            return self.load_part(number, column, count)
        buffer = self.temporary(f"load{number}", element)
        after = self.together(number, column, count, lambda place: e.store(e.load(place, element), buffer))
        length = self.lanes if count is None else count
        with e.loop(0, length) as loop:
            address = e.offset(self.pointers[number], element, self.inner_offset(number, column + loop.index))
            e.store(e.load(address, element, 1), e.offset(buffer, element, loop.index))
        if after:
            e.branch(after)
            e.label(after)
        return scalars.from_memory(e, e.load(buffer, element), access.dtype)

    def together(self, number: int, column: Value, count: Value | None, move: Callable[[str], None]) -> str:
        """Move a whole chunk of an operand with several inner axes at once if it lies on one line of the last one. What
        is written next moves its elements one by one; the label to go on at after that, "" where only that is there."""
        e, access = self.e, self.kernel.accesses[number]
        if access.pattern != "general" or self.lanes == 1 or count is not None:
            return ""
        at_once, apart, after = e.fresh("together"), e.fresh("apart"), e.fresh("after")
        coordinates, strides = self.split(column, self.inner), self.strides[number][self.kernel.outer_rank:]
        fits = e.icmp("sle", coordinates[-1] + self.lanes, self.inner[-1]) & e.icmp("eq", strides[-1], 1)
        e.branch_if(fits, at_once, apart)
        e.label(at_once)
        move(e.offset(self.pointers[number], scalars.memory_type(access.dtype), self.dot(coordinates, strides)))
        e.branch(after)
        e.label(apart)
        return after

    def index_chunk(self, instruction: Instruction, column: Value, count: Value | None) -> Value:
        """Positions as values: a line where the pattern allows it, else element by element."""
        e, number = self.e, instruction.access
        pattern = self.kernel.accesses[number].pattern
        start = self.positions[number]
        if pattern == "general":
            buffer = self.temporary(f"index{number}", "i64")
            with e.loop(0, self.lanes) as loop:
                position = start + self.inner_offset(number, column + loop.index)
                e.store(position, e.offset(buffer, "i64", loop.index))
            return self.from_index(e.load(buffer, "i64"), instruction.dtype)
        if pattern == "zero":
            return self.from_index(e.splat(start), instruction.dtype)
        stride = e.constant(1, "i64", 1) if pattern == "unit" else self.strides[number][-1]
        first = start + column * stride
        if instruction.dtype is int32:  # whole vectors of four bytes: what is above them is cut off anyway
            first, stride = (e.convert("trunc", value, "i32") for value in (first, stride))
            return e.splat(first) + e.lane_numbers("i32") * e.splat(stride)
        return self.from_index(e.splat(first) + e.lane_numbers() * e.splat(stride), instruction.dtype)

    def store_chunk(self, access: int, value: Value, dtype: DType, column: Value, count: Value | None,
                    partial: Value | None) -> None:
        e = self.e
        element = scalars.memory_type(dtype)
        stored = scalars.to_memory(e, value, dtype)
        pattern = self.kernel.accesses[access].pattern
        address = e.offset(self.pointers[access], element, self.inner_offset(access, column))
        if pattern == "unit" and count is None:
            e.store(stored, address)
            return
        if pattern == "unit" and count is not None and self.isa.masks:
            e.store_some(e.bits(stored), address, e.first_lanes(count))
            return
        buffer = self.temporary(f"store{access}", element, True)
        if pattern == "unit" and partial is not None and count is not None:
            short, whole, after = e.fresh("short"), e.fresh("whole"), e.fresh("after")
            e.branch_if(partial, short, whole)
            e.label(whole)
            e.store(stored, address)
            e.branch(after)
            e.label(short)
            e.store(stored, buffer)
            self.copy(buffer, 1, address, 1, element, count)
            e.branch(after)
            e.label(after)
            return
        e.store(stored, buffer)
        if pattern == "general":  # several inner axes: each element has a place of its own
            after = self.together(access, column, count, lambda place: e.store(stored, place))
            with e.loop(0, self.lanes if count is None else count) as loop:
                place = self.inner_offset(access, column + loop.index)
                one = e.load(e.offset(buffer, element, loop.index), element, 1)
                e.store(one, e.offset(self.pointers[access], element, place))
            if after:
                e.branch(after)
                e.label(after)
            return
        step: Value | int = 1 if pattern == "unit" else self.strides[access][-1]
        self.copy(buffer, 1, address, step, element, self.lanes if count is None else count)

    def kept_type(self, number: int) -> str:
        return kept_type(self.kernel.instructions[number].dtype)

    def store_kept(self, value: Value, place: str) -> None:
        self.e.store(self.e.convert("zext", value, "i8") if value.element == "i1" else value, place)

    def kept_place(self, number: int, column: Value) -> str:
        return self.e.offset(self.kept[number], self.kept_type(number), column)

    def load_kept(self, number: int, column: Value) -> Value:
        e = self.e
        value = e.load(self.kept_place(number, column), self.kept_type(number))
        return e.icmp("ne", value, 0) if self.kernel.instructions[number].dtype is bool_ else value
