"""Quicksort in vector registers, where the machine writes the chosen lanes of a vector side by side (AVX-512).

Every part goes from one memory to the other: what is below the pivot to its front, the rest to its back. Short parts
are sorted by a network, and end in the first memory. The shorter half of a part is sorted first, so that few wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.backends.cpu.codegen.emit import BITS, Emitter, Value, mangled
from morpho.backends.cpu.loops.sorting.network import all_merged, sorted_square, sorted_vector

WAITING = 72  # parts that wait at most: each is at least twice as long as the next
SLOTS = (f"  %waiting = alloca [{3 * WAITING} x i64], align 8\n  %few = alloca [64 x i64], align 64\n"
         "  %parts = alloca i64, align 8\n  %middle = alloca i64, align 8\n")


def compresses(features: str) -> bool:
    """Whether an instruction set has what this needs."""
    return "+avx512vl" in features


@dataclass(frozen=True)
class Quicksort:
    """Sorts the first `length` keys of the first memory in place, with the second as scratch."""

    e: Emitter
    element: str
    memory: Sequence[str]
    block: int  # elements that one network sorts at most

    @property
    def lanes(self) -> int:
        return self.e.lanes

    def at(self, line: str, index: Value | int) -> str:
        return self.e.offset(line, self.element, index)

    def run(self, length: Value) -> None:
        """Parts from the stack until none waits; `count` of them do."""
        e = self.e
        zero = e.constant(0, "i64", 1)
        self.push(zero, zero, length, zero)
        head, body, done = (e.fresh(name) for name in ("head", "body", "done"))
        e.line("store i64 1, ptr %parts, align 8")
        e.branch(head)
        e.label(head)
        count = e.load("%parts", "i64", 1)
        e.branch_if(e.icmp("sgt", count, 0), body, done)
        e.label(body)
        here = count - 1
        e.store(here, "%parts")
        start, end, side = (e.load(e.offset("%waiting", "i64", here * 3 + n), "i64", 1) for n in range(3))
        second = e.icmp("ne", side, 0)
        source = self.chosen(second, 1)
        target = self.chosen(second, 0)
        for short in e.both(e.icmp("sle", end - start, self.block)):
            if short:
                self.short(self.at(source, start), self.at(self.memory[0], start), end - start)
            else:
                self.divide(source, target, start, end, side)
        e.branch(head)
        e.label(done)

    def chosen(self, second: Value, where_true: int) -> str:
        e, name = self.e, "%" + self.e.fresh("p")
        yes, no = self.memory[where_true], self.memory[1 - where_true]
        e.line(f"{name} = select i1 {second.name}, ptr {yes}, ptr {no}")
        return name

    def push(self, number: Value, start: Value, end: Value, side: Value) -> None:
        for n, value in enumerate((start, end, side)):
            self.e.store(value, self.e.offset("%waiting", "i64", number * 3 + n))

    # -- parts --------------------------------------------------------------------------------------------------------
    def divide(self, source: str, target: str, start: Value, end: Value, side: Value) -> None:
        """A part in two, both pushed. Where nothing is below the pivot, what equals it is split off instead; where that
        is all, the part is done."""
        e = self.e
        pivot = self.pivot(source, start, end)
        one = e.constant(1, self.element, 1)
        most = (1 << (BITS[self.element] - 1)) - 1
        first = self.split(source, target, start, end, pivot)
        e.store(first, "%middle")
        with e.when(e.icmp("eq", first, start)):
            for largest in e.both(e.icmp("eq", pivot, most)):
                again = end if largest else self.split(source, target, start, end, pivot + one)
                e.store(again, "%middle")
        middle = e.load("%middle", "i64", 1)
        for equal in e.both(e.icmp("eq", middle, end)):
            if equal:
                self.copied(self.at(source, start), self.at(self.memory[0], start), end - start)
            else:
                other = e.constant(1, "i64", 1) - side
                count = e.load("%parts", "i64", 1)
                left_first = e.icmp("sgt", middle - start, end - middle)
                ends = [(start, middle), (middle, end)]
                (low, cut), (again, high) = ends
                self.push(count, e.select(left_first, low, again), e.select(left_first, cut, high), other)
                self.push(count + 1, e.select(left_first, again, low), e.select(left_first, high, cut), other)
                e.store(count + 2, "%parts")

    def pivot(self, source: str, start: Value, end: Value) -> Value:
        """The middle one of as many as a vector holds, taken evenly."""
        e = self.e
        step = e.instruction("udiv", end - start, e.constant(self.lanes, "i64", 1))
        place = start + step.shift_right(1)
        for lane in range(self.lanes):
            e.store(e.load(self.at(source, place), self.element, 1), self.at("%few", lane))
            place = place + step
        few = sorted_vector(e, e.load("%few", self.element))
        return e.assign(f"extractelement {few.type} {few.name}, i64 {self.lanes // 2}", self.element, 1)

    def split(self, source: str, target: str, start: Value, end: Value, pivot: Value) -> Value:
        """Keys below the pivot to the front of the target's part, the others to its back; where the two meet."""
        e, limit = self.e, self.e.splat(pivot)
        whole = start + ((end - start) & -self.lanes)
        with e.loop(start, whole, self.lanes, carried=[start, end]) as loop:
            x = e.load(self.at(source, loop.index), self.element)
            loop.next(*self.put(target, x, e.icmp("slt", x, limit), None, *loop.values))
        front, back = loop.values
        rest = e.first_lanes(end - whole)
        x = e.load_some(self.at(source, whole), self.element, rest)
        front, _ = self.put(target, x, e.icmp("slt", x, limit) & rest, rest, front, back)
        return front

    def put(self, target: str, x: Value, low: Value, valid: Value | None, front: Value, back: Value) -> list[Value]:
        e = self.e
        high = low ^ e.constant(True, "i1")
        high = high if valid is None else high & valid
        count = self.counted(low)
        rest = e.constant(self.lanes, "i64", 1) - count if valid is None else self.counted(high)
        below, above = self.compressed(x, low), self.compressed(x, high)
        if valid is None:  # a whole vector: between front and back there is room for as much
            e.store(below, self.at(target, front))
        else:
            e.store_some(below, self.at(target, front), e.first_lanes(count))
        back = back - rest
        e.store_some(above, self.at(target, back), e.first_lanes(rest))
        return [front + count, back]

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

    def copied(self, source: str, target: str, count: Value) -> None:
        e = self.e
        e.declarations.add("declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
        size = count * (BITS[self.element] // 8)
        e.line(f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {source}, i64 {size.name}, i1 false)")

    # -- short parts --------------------------------------------------------------------------------------------------
    def short(self, source: str, target: str, count: Value) -> None:
        """Up to a block, by the smallest network that holds it."""
        most = self.block // self.lanes
        sizes = [n for n in (1, 4, 8) if n < most]
        self.by_size(source, target, count, [*sizes, most])

    def by_size(self, source: str, target: str, count: Value, sizes: Sequence[int]) -> None:
        if len(sizes) == 1:
            self.network(source, target, count, sizes[0])
            return
        for holds in self.e.both(self.e.icmp("sle", count, sizes[0] * self.lanes)):
            if holds:
                self.network(source, target, count, sizes[0])
            else:
                self.by_size(source, target, count, sizes[1:])

    def network(self, source: str, target: str, count: Value, vectors: int) -> None:
        e, lanes = self.e, self.lanes
        largest = e.constant((1 << (BITS[self.element] - 1)) - 1, self.element)
        masks, rows = [], []
        for n in range(vectors):
            left = e.intrinsic("smax", count - n * lanes, e.constant(0, "i64", 1))
            masks.append(e.first_lanes(left))
            rows.append(e.select(masks[-1], e.load_some(self.at(source, n * lanes), self.element, masks[-1]), largest))
        if vectors % lanes == 0:
            rows = [x for start in range(0, vectors, lanes) for x in sorted_square(e, rows[start:start + lanes])]
        else:
            rows = [sorted_vector(e, x) for x in rows]
        for n, (x, mask) in enumerate(zip(all_merged(e, rows), masks, strict=True)):
            e.store_some(x, self.at(target, n * lanes), mask)

