"""Zeros of both signs are equal, and keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.loops.sorting.keys import Keys


@dataclass(frozen=True)
class Zeros:
    """The zeros of a line: `lines` and `steps` are those of the source and the target."""

    e: Emitter
    keys: Keys
    lines: Sequence[str]
    steps: Sequence[Value]
    length: Value

    def put_in_order(self, sorted_keys: str) -> None:
        """Where zeros of both signs are there, they are put in again as they stand in the source. The keys of 0.0 and
        -0.0 are neighbours, so that the others are in their places already."""
        self.put(*self.find(sorted_keys))

    def find(self, sorted_keys: str) -> tuple[Value, Value]:
        """Where the zeros begin, and 1 where they are of both signs, otherwise 0."""
        e = self.e
        least, most = self.keys.zero_range()
        first = self.first_at_least(sorted_keys, least)
        after = self.first_at_least(sorted_keys, most + 1)
        there = e.convert("zext", e.icmp("slt", first, after), "i64")
        with e.loop(0, there, carried=[e.constant(0, "i64", 1)]) as loop:
            ends = [self.load(sorted_keys, at) for at in (first, after - 1)]
            loop.next(e.convert("zext", e.icmp("ne", ends[0], ends[1]), "i64"))
        return first, loop.values[0]

    def put(self, first: Value, are_mixed: Value) -> None:
        """Zeros of both signs as they stand in the source."""
        e = self.e
        with e.when(e.icmp("ne", are_mixed, 0)), e.loop(0, self.length, carried=[first]) as loop:
            bits = self.load(self.lines[0], loop.index * self.steps[0])
            is_zero = e.icmp("eq", bits & self.keys.magnitude, 0)
            at = loop.values[0]
            with e.when(is_zero):
                e.store(bits, e.offset(self.lines[1], self.keys.element, at * self.steps[1]))
            loop.next(at + e.convert("zext", is_zero, "i64"))

    def load(self, line: str, at: Value) -> Value:
        return self.e.load(self.e.offset(line, self.keys.element, at), self.keys.element, 1)

    def first_at_least(self, sorted_keys: str, least: int) -> Value:
        """Where the first key of so much stands among the sorted ones, by halving."""
        e, less = self.e, "slt" if self.keys.signed else "ult"
        with e.loop(0, 64, carried=[e.constant(0, "i64", 1), self.length]) as loop:
            low, high = loop.values
            middle = (low + high).shift_right(1)
            inside = e.icmp("slt", low, high)
            at = e.select(inside, middle, e.constant(0, "i64", 1))
            below = e.icmp(less, self.load(sorted_keys, at), least) & inside
            other = (below ^ True) & inside
            loop.next(e.select(below, middle + 1, low), e.select(other, middle, high))
            loop.step = e.select(inside, e.constant(1, "i64", 1), 64)
        return loop.values[0]
