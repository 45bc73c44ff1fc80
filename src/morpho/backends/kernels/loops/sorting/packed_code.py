"""Indices that sort a line, sorted as numbers of 64 bits: a key in front, its index behind.

Such numbers are sorted in vector registers, without indices to move beside them, and equal keys keep their order. Keys
of 32 bits fit whole. Longer ones are counted from the least of them, and take as many bits as the largest then has;
where those do not fit either, neighbours with the same front are put in order by their whole keys afterwards. Data that
would make that long (many keys that differ in their last bits alone) are left to the radix sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.loops.sorting.quick_code import SLOTS, Quicksort

LANES = 8
BLOCK = 128  # elements that one network sorts at most
SIGN = -(1 << 63)  # vectors are compared as signed numbers
PACKED_SLOTS = SLOTS + "  %moves = alloca i64, align 8\n"


@dataclass(frozen=True)
class PackedSort:
    """Sorts the indices of one line. `key` is the key of an element, `memory` has 8 bytes for each."""

    e: Emitter
    element: str
    key: Callable[[Value], Value]
    memory: str
    length: Value

    @cached_property
    def index_bits(self) -> Value:
        """How many bits an index has; lines of one element do not come here."""
        return 64 - self.leading_zeros(self.length - 1)

    @cached_property
    def mask(self) -> Value:
        return (self.e.constant(1, "i64", 1) << self.index_bits) - 1

    def leading_zeros(self, x: Value) -> Value:
        return self.e.intrinsic("ctlz", x, self.e.constant(False, "i1", 1), suffix="i64")

    def at(self, index: Value) -> str:
        return self.e.offset(self.memory, "i64", index)

    def packed(self, index: Value) -> Value:
        return self.e.load(self.at(index), "i64", 1)

    def index_of(self, packed: Value) -> Value:
        """The index of a sorted number."""
        return packed & (0xFFFFFFFF if self.element == "i32" else self.mask)

    def run(self) -> Value:
        """Whether the indices are in order now."""
        if self.element == "i32":
            self.fill(lambda key: self.e.convert("zext", key, "i64") << 32)
            self.sort()
            return self.e.constant(True, "i1", 1)
        least, shift = self.span()
        self.fill(lambda key: ((key - least) << shift) & (self.mask ^ -1))
        self.sort()
        e = self.e
        e.store(e.constant(0, "i64", 1), "%moves")
        with e.when(e.icmp("slt", shift, self.index_bits)):
            self.put_neighbours_in_order()
        return e.icmp("sle", e.load("%moves", "i64", 1), self.most_moves)

    @property
    def most_moves(self) -> Value:
        """About as long as a pass of the radix sort."""
        return self.length + self.length

    def span(self) -> tuple[Value, Value]:
        """The least key, and how many bits in front are zeros in all keys, counted from it."""
        e, first = self.e, self.key(self.e.constant(0, "i64", 1))
        self.index_bits, self.mask  # noqa: B018 - computed here, before any branch
        with e.loop(1, self.length, carried=[first, first]) as loop:
            key = self.key(loop.index)
            loop.next(e.intrinsic("umin", loop.values[0], key), e.intrinsic("umax", loop.values[1], key))
        least, most = loop.values
        return least, e.intrinsic("umin", self.leading_zeros(most - least), e.constant(63, "i64", 1))

    def fill(self, front: Callable[[Value], Value]) -> None:
        with self.e.loop(0, self.length) as loop:
            self.e.store((front(self.key(loop.index)) | loop.index) ^ SIGN, self.at(loop.index))

    def sort(self) -> None:
        e, before = self.e, self.e.lanes
        e.lanes = LANES
        Quicksort(e, "i64", self.memory, BLOCK).run(self.length)
        e.lanes = before

    def put_neighbours_in_order(self) -> None:
        """By insertion: each number with the front of the one before moves down past those whose keys are larger."""
        e = self.e
        with e.loop(1, self.length) as loop:
            here = self.packed(loop.index)
            with e.when(self.same_front(here, self.packed(loop.index - 1))):
                end = self.place_of(here, loop.index)
                e.store(here, self.at(end))
                e.store(e.load("%moves", "i64", 1) + (loop.index - end), "%moves")

    def same_front(self, a: Value, b: Value) -> Value:
        return self.e.icmp("eq", (a ^ b) & (self.mask ^ -1), 0)

    def place_of(self, here: Value, start: Value) -> Value:
        """Where a number belongs; those after it have moved up."""
        e, key = self.e, self.key(self.index_of(here))
        head, look, compare, move, done = (e.fresh(name) for name in ("head", "look", "compare", "move", "done"))
        before, lower = e.block, "%" + e.fresh("i")
        at = Value(e, "%" + e.fresh("i"), "i64", 1)
        left = self.most_moves - e.load("%moves", "i64", 1)
        least = e.intrinsic("smax", start - left - 1, e.constant(0, "i64", 1))
        e.branch(head)
        e.label(head)
        e.line(f"{at.name} = phi i64 [ {start.name}, %{before} ], [ {lower}, %{move} ]")
        e.branch_if(e.icmp("sgt", at, least), look, done)
        e.label(look)
        e.line(f"{lower} = add i64 {at.name}, -1")
        under = self.packed(Value(e, lower, "i64", 1))
        e.branch_if(self.same_front(under, here), compare, done)
        e.label(compare)
        e.branch_if(e.icmp("ugt", self.key(self.index_of(under)), key), move, done)
        e.label(move)
        e.store(under, self.at(at))
        e.branch(head)
        e.label(done)
        return at
