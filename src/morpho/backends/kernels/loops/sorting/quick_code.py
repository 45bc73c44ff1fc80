"""Quicksort in vector registers, where the machine puts the chosen lanes of a vector side by side (AVX-512).

A part is divided in place: some vectors of both its ends wait in registers, so that there is room to write what is
below the pivot at the front and the rest at the back. Short parts are sorted by a network. The shorter half of a part
is sorted first, so that few wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.backends.code.emit import BITS, Emitter, Value, mangled
from morpho.backends.kernels.loops.sorting.network import all_merged, sorted_square, sorted_vector

WAITING = 72  # parts that wait at most: each is at least twice as long as the next
AT_ONCE = 8  # vectors read from one end before it is seen which end has less room: that takes as long as three of them
MIXING = 0x9E3779B97F4A7C15  # an odd number whose products look random
SLOTS = "".join(f"  %{name} = alloca {kind}, align {align}\n" for name, kind, align in (
    ("waiting", f"[{2 * WAITING} x i64]", 8), ("few", "[64 x i64]", 64), ("parts", "i64", 8), ("middle", "i64", 8)))


def compresses(features: str) -> bool:
    """Whether an instruction set has what this needs."""
    return "+avx512vl" in features


def _orders() -> str:
    """For each mask of eight lanes: the numbers of those that are chosen, then the others."""
    rows = [sorted(range(8), key=lambda lane: not mask >> lane & 1) for mask in range(256)]
    texts = (f"<8 x i8> <{', '.join(f'i8 {lane}' for lane in row)}>" for row in rows)
    return f"@orders = internal constant [256 x <8 x i8>] [{', '.join(texts)}], align 64"


@dataclass(frozen=True)
class Quicksort:
    """Sorts keys in place."""

    e: Emitter
    element: str
    keys: str
    block: int  # elements that one network sorts at most; longer parts have `AT_ONCE` vectors at both ends

    @property
    def lanes(self) -> int:
        return self.e.lanes

    def at(self, index: Value | int) -> str:
        return self.e.offset(self.keys, self.element, index)

    def run(self, length: Value) -> None:
        """Parts from the stack until none waits; `%parts` of them do."""
        e = self.e
        assert self.block >= 2 * AT_ONCE * self.lanes
        self.push(e.constant(0, "i64", 1), e.constant(0, "i64", 1), length)
        head, body, done = (e.fresh(name) for name in ("head", "body", "done"))
        e.line("store i64 1, ptr %parts, align 8")
        e.branch(head)
        e.label(head)
        count = e.load("%parts", "i64", 1)
        e.branch_if(e.icmp("sgt", count, 0), body, done)
        e.label(body)
        here = count - 1
        e.store(here, "%parts")
        start, end = (e.load(e.offset("%waiting", "i64", here * 2 + n), "i64", 1) for n in range(2))
        for short in e.both(e.icmp("sle", end - start, self.block)):
            if short:
                self.short(self.at(start), end - start)
            else:
                self.divide(start, end)
        e.branch(head)
        e.label(done)

    def push(self, number: Value, start: Value, end: Value) -> None:
        for n, value in enumerate((start, end)):
            self.e.store(value, self.e.offset("%waiting", "i64", number * 2 + n))

    # -- parts --------------------------------------------------------------------------------------------------------
    def divide(self, start: Value, end: Value) -> None:
        """A part in two, both pushed. Where nothing is below the pivot, what equals it is split off instead; where that
        is all, the part is done."""
        e = self.e
        e.poll_if_long(end - start)
        pivot = self.pivot(start, end)
        one = e.constant(1, self.element, 1)
        most = (1 << (BITS[self.element] - 1)) - 1
        first = self.split(start, end, pivot)
        e.store(first, "%middle")
        with e.when(e.icmp("eq", first, start)):
            for largest in e.both(e.icmp("eq", pivot, most)):
                again = end if largest else self.split(start, end, pivot + one)
                e.store(again, "%middle")
        middle = e.load("%middle", "i64", 1)
        with e.when(e.icmp("ne", middle, end)):
            count = e.load("%parts", "i64", 1)
            left_first = e.icmp("sgt", middle - start, end - middle)
            self.push(count, e.select(left_first, start, middle), e.select(left_first, middle, end))
            self.push(count + 1, e.select(left_first, middle, start), e.select(left_first, end, middle))
            e.store(count + 2, "%parts")

    def pivot(self, start: Value, end: Value) -> Value:
        """The middle one of as many as a vector holds, taken evenly, from a place that the data cannot foresee."""
        e = self.e
        step = e.instruction("udiv", end - start, e.constant(self.lanes, "i64", 1))
        mixed = ((start + end * 3) * (MIXING - (1 << 64))).shift_right(32)
        place = start + (mixed * step).shift_right(32)
        for lane in range(self.lanes):
            e.store(e.load(self.at(place), self.element, 1), e.offset("%few", self.element, lane))
            place = place + step
        few = sorted_vector(e, e.load("%few", self.element))
        return e.assign(f"extractelement {few.type} {few.name}, i64 {self.lanes // 2}", self.element, 1)

    def split(self, start: Value, end: Value, pivot: Value) -> Value:
        """Keys below the pivot to the front of the part, the others to its back; where the two meet."""
        e, limit, piece = self.e, self.e.splat(pivot), AT_ONCE * self.lanes
        waiting = [e.load(self.at(place + n * self.lanes), self.element) for place in (start, end - piece)
                   for n in range(AT_ONCE)]
        ends = [start, end, start + piece, end - piece]  # where is written next, and what is not read yet
        for size in (piece, self.lanes):
            pieces = e.instruction("udiv", ends[3] - ends[2], e.constant(size, "i64", 1))
            with e.loop(0, pieces, carried=ends) as loop:
                front, back, left, right = loop.values
                from_right = e.icmp("slt", back - right, left - front)
                place = e.select(from_right, right - size, left)
                read = [e.select(from_right, left, left + size), e.select(from_right, right - size, right)]
                for x in [e.load(self.at(place + n), self.element) for n in range(0, size, self.lanes)]:
                    front, back = self.put(x, e.icmp("slt", x, limit), None, front, back)
                loop.next(front, back, *read)
            ends = loop.values
        front, back, left, right = ends
        rest = self.first(right - left)
        x = e.load_some(self.at(left), self.element, rest)
        front, back = self.put(x, e.icmp("slt", x, limit) & rest, rest, front, back)
        for x in waiting:
            front, back = self.put(x, e.icmp("slt", x, limit), None, front, back)
        return front

    def put(self, x: Value, low: Value, valid: Value | None, front: Value, back: Value) -> list[Value]:
        e = self.e
        if valid is None and self.lanes == 8:
            return self.put_both(x, low, front, back)
        high = low ^ e.constant(True, "i1")
        high = high if valid is None else high & valid
        count = self.counted(low)
        rest = e.constant(self.lanes, "i64", 1) - count if valid is None else self.counted(high)
        below, above = self.compressed(x, low), self.compressed(x, high)
        if valid is None:  # a whole vector: there is room for one at both ends
            e.store(below, self.at(front))
        else:
            e.store_some(below, self.at(front), self.first(count))
        back = back - rest
        e.store_some(above, self.at(back), self.first(rest))
        return [front + count, back]

    def put_both(self, x: Value, low: Value, front: Value, back: Value) -> list[Value]:
        """Eight lanes by one shuffle, those below the pivot first, stored whole at both ends: there is room for one at
        each, and where it is the same room the two stores are the same."""
        e = self.e
        e.declarations.add(_orders())
        bits = e.assign(f"bitcast {low.type} {low.name} to i8", "i8", 1)
        row = e.load(e.offset("@orders", "i64", e.assign(f"zext i8 {bits.name} to i64", "i64", 1)), "i8", 8)
        wide = e.assign(f"zext {row.type} {row.name} to <8 x i64>", "i64", 8)
        name = "llvm.x86.avx512.permvar.di.512"
        e.declarations.add(f"declare <8 x i64> @{name}(<8 x i64>, <8 x i64>)")
        divided = e.assign(f"call <8 x i64> @{name}(<8 x i64> {x.name}, <8 x i64> {wide.name})", "i64", 8)
        e.store(divided, self.at(front))
        e.store(divided, self.at(back - 8))
        count = self.counted(low)
        return [front + count, back - 8 + count]

    def first(self, count: Value) -> Value:
        """The mask of so many lanes, made of bits: one instruction of the unit that shuffles instead of two."""
        e, kind = self.e, f"i{self.lanes}"
        bits = (e.constant(1, "i64", 1) << count) - 1
        narrow = e.assign(f"trunc i64 {bits.name} to {kind}", kind, 1)
        return e.assign(f"bitcast {kind} {narrow.name} to <{self.lanes} x i1>", "i1", self.lanes)

    def counted(self, mask: Value) -> Value:
        """How many lanes a mask has."""
        e, kind = self.e, f"i{mask.lanes}"
        bits = e.assign(f"bitcast {mask.type} {mask.name} to {kind}", kind, 1)
        e.declarations.add(f"declare {kind} @llvm.ctpop.{kind}({kind})")
        found = e.assign(f"call {kind} @llvm.ctpop.{kind}({kind} {bits.name})", kind, 1)
        return e.assign(f"zext {kind} {found.name} to i64", "i64", 1)

    def compressed(self, x: Value, mask: Value) -> Value:
        """The lanes of a mask side by side, in a register: into memory the instruction takes ten times as long."""
        name = f"llvm.x86.avx512.mask.compress.{mangled(x.element, x.lanes)}"
        self.e.declarations.add(f"declare {x.type} @{name}({x.type}, {x.type}, {mask.type})")
        return self.e.assign(f"call {x.type} @{name}({x.type} {x.name}, {x.type} zeroinitializer, "
                             f"{mask.type} {mask.name})", x.element, x.lanes)

    # -- short parts --------------------------------------------------------------------------------------------------
    def short(self, part: str, count: Value) -> None:
        """Up to a block, by the smallest network that holds it."""
        most = self.block // self.lanes
        sizes = [n for n in (1, 4, 8) if n < most]
        self.by_size(part, count, [*sizes, most])

    def by_size(self, part: str, count: Value, sizes: Sequence[int]) -> None:
        if len(sizes) == 1:
            self.network(part, count, sizes[0])
            return
        for holds in self.e.both(self.e.icmp("sle", count, sizes[0] * self.lanes)):
            if holds:
                self.network(part, count, sizes[0])
            else:
                self.by_size(part, count, sizes[1:])

    def network(self, part: str, count: Value, vectors: int) -> None:
        e, lanes = self.e, self.lanes
        largest = e.constant((1 << (BITS[self.element] - 1)) - 1, self.element)
        places = [e.offset(part, self.element, n * lanes) for n in range(vectors)]
        masks, rows = [], []
        for n, place in enumerate(places):
            left = e.intrinsic("smax", count - n * lanes, e.constant(0, "i64", 1))
            masks.append(e.first_lanes(left))
            rows.append(e.select(masks[-1], e.load_some(place, self.element, masks[-1]), largest))
        if vectors % lanes == 0:
            rows = [x for start in range(0, vectors, lanes) for x in sorted_square(e, rows[start:start + lanes])]
        else:
            rows = [sorted_vector(e, x) for x in rows]
        for place, x, mask in zip(places, all_merged(e, rows), masks, strict=True):
            e.store_some(x, place, mask)
