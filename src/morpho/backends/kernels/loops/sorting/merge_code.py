"""The function of a `MergeSortKernel`."""

from __future__ import annotations

from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops.sorting.keys import Keys
from morpho.backends.kernels.loops.sorting.merge import AT_ONCE, MOST_BLOCK, SMALL, MergeSortKernel
from morpho.backends.kernels.loops.sorting.network import all_merged, merged, sorted_square, sorted_vector
from morpho.backends.kernels.loops.sorting.quick_code import SLOTS, Quicksort, compresses
from morpho.backends.kernels.loops.sorting.zeros import Zeros
from morpho.base.machine import Isa


def generate(kernel: MergeSortKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `MergeSortKernel`."""
    return MergeSortCode(kernel, isa).module(name)


class MergeSortCode:
    def __init__(self, kernel: MergeSortKernel, isa: Isa) -> None:
        self.kernel = kernel
        self.lanes = min(max(isa.vector_bits // 8 // kernel.dtype.itemsize, 4), 16)
        self.e = Emitter(self.lanes, isa.native_half)
        self.keys = Keys(self.e, kernel.dtype, kernel.descending, signed=True)
        self.element = self.keys.element
        self.quick = compresses(isa.llvm_features) and isa.vector_bits == 512
        squares = max(1, 16 // self.lanes) if self.lanes > 4 else 2
        self.block = squares * self.lanes * self.lanes
        assert self.block <= MOST_BLOCK and self.block % (AT_ONCE * self.lanes) == 0

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        bases = [e.load_pointer("%buffers", n) for n in range(2)]
        v = kernel.record.load(e)
        extents, *strides = (kernel.record.loaded(field, v) for field in ("extents", "source", "target"))
        self.length = v["length"]
        whole = self.length + (2 * MOST_BLOCK)
        self.memory = ["%scratch", e.offset("%scratch", self.element, whole)]
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            index, at = rows.index, [e.constant(0, "i64", 1)] * 2
            for axis in reversed(range(kernel.outer_rank)):
                quotient = e.instruction("udiv", index, extents[axis])
                coordinate = index - quotient * extents[axis]
                at = [p + coordinate * s[axis] for p, s in zip(at, strides, strict=True)]
                index = quotient
            self.steps = [s[kernel.outer_rank] for s in strides]
            self.lines = [e.offset(base, self.element, p) for base, p in zip(bases, at, strict=True)]
            self.line()
        e.line("ret i32 0")
        frame = "".join(f"  %{name} = alloca ptr, align 8\n" for name in ("from", "to")) + (SLOTS if self.quick else "")
        return (defined(f"i32 @{name}({SIGNATURE}) nounwind", frame, e.text()) + "\n".join(sorted(e.declarations))
                + "\n")

    # -- a line -------------------------------------------------------------------------------------------------------
    def line(self) -> None:
        e = self.e
        if self.quick and self.kernel.unit[1]:  # where the results are to lie, so that nothing is copied
            self.memory[0] = self.lines[1]
        e.line(f"store ptr {self.memory[0]}, ptr %from, align 8")
        e.line(f"store ptr {self.memory[1]}, ptr %to, align 8")
        if self.quick:
            self.fill(1)
            Quicksort(e, self.element, self.memory[0], self.block).run(self.length)
            self.write()
            return
        for small in e.both(e.icmp("sle", self.length, SMALL * self.lanes)):
            self.fill(SMALL * self.lanes if small else self.block)
            if small:
                self.few()
            else:
                self.blocks()
                self.merges()
        self.write()

    def at(self, line: str, index: Value | int) -> str:
        return self.e.offset(line, self.element, index)

    def fill(self, block: int) -> None:
        """Keys, and behind them the largest one up to a whole block."""
        e, (source, _), (step, _) = self.e, self.lines, self.steps
        start: Value | int = 0
        if self.kernel.unit[0]:
            start = self.length & -self.lanes
            with e.loop(0, start, self.lanes) as loop:
                bits = e.load(self.at(source, loop.index), self.element)
                e.store(self.keys.of(bits), self.at(self.memory[0], loop.index))
        with e.loop(start, self.length) as loop:
            bits = e.load(self.at(source, loop.index * step), self.element, 1)
            e.store(self.keys.of(bits), self.at(self.memory[0], loop.index))
        if block == 1:
            return
        self.whole = (self.length + (block - 1)) & -block
        largest = e.constant((1 << (BITS[self.element] - 1)) - 1, self.element)
        with e.loop(self.length, self.whole, self.lanes) as loop:  # a vector more may be written: there is room
            e.store(largest, self.at(self.memory[0], loop.index))

    def few(self) -> None:
        """A short line: a few vectors, each in order, and merged."""
        e = self.e
        places = [self.at(self.memory[0], n * self.lanes) for n in range(SMALL)]
        vectors = [sorted_vector(e, e.load(place, self.element)) for place in places]
        for place, x in zip(places, all_merged(e, vectors), strict=True):
            e.store(x, place)

    def blocks(self) -> None:
        """Every block in order by itself."""
        e = self.e
        with e.loop(0, self.whole, self.block) as loop:
            line = self.at(self.memory[0], loop.index)
            places = [self.at(line, n * self.lanes) for n in range(self.block // self.lanes)]
            vectors = [e.load(place, self.element) for place in places]
            rows = [x for start in range(0, len(vectors), self.lanes)
                    for x in sorted_square(e, vectors[start:start + self.lanes])]
            for place, x in zip(places, all_merged(e, rows), strict=True):
                e.store(x, place)

    def merges(self) -> None:
        """Runs of 1, 2, 4, ... blocks, two by two, from one memory to the other."""
        e = self.e
        head, body, done = (e.fresh(name) for name in ("head", "body", "done"))
        before, run, twice = e.block, Value(e, "%" + e.fresh("r"), "i64", 1), "%" + e.fresh("r")
        e.branch(head)
        e.label(head)
        place = len(e.lines)
        e.branch_if(e.icmp("slt", run, self.whole), body, done)
        e.label(body)
        e.poll_if_long(self.whole)
        source, target = self.pointer("from"), self.pointer("to")
        e.line(f"{twice} = shl i64 {run.name}, 1")
        with e.loop(0, self.whole, Value(e, twice, "i64", 1)) as loop:
            middle = e.intrinsic("smin", loop.index + run, self.whole)
            end = e.intrinsic("smin", middle + run, self.whole)
            for pair in e.both(e.icmp("slt", middle, end)):
                if pair:
                    self.merge(source, target, loop.index, middle, end)
                else:
                    self.copy(source, target, loop.index, end)
        e.line(f"store ptr {target}, ptr %from, align 8")
        e.line(f"store ptr {source}, ptr %to, align 8")
        last = e.block
        e.branch(head)
        e.lines[place:place] = [f"  {run.name} = phi i64 [ {self.block}, %{before} ], [ {twice}, %{last} ]"]
        e.label(done)

    def pointer(self, slot: str) -> str:
        name = "%" + self.e.fresh("p")
        self.e.line(f"{name} = load ptr, ptr %{slot}, align 8")
        return name

    def copy(self, source: str, target: str, start: Value, end: Value) -> None:
        e = self.e
        with e.loop(start, end, self.lanes) as loop:
            e.store(e.load(self.at(source, loop.index), self.element), self.at(target, loop.index))

    def vectors(self, line: str, start: Value) -> list[Value]:
        return [self.e.load(self.at(line, start + n * self.lanes), self.element) for n in range(AT_ONCE)]

    def merge(self, source: str, target: str, start: Value, middle: Value, end: Value) -> None:
        """Two runs side by side. The larger half of each step stays in registers and meets the vectors whose first
        element is the smaller; no branch depends on the elements."""
        e, width = self.e, AT_ONCE * self.lanes
        low = self.vectors(source, start)
        high = self.vectors(source, middle)
        both = merged(e, low, high)
        self.put(both[:AT_ONCE], target, start)
        ahead = [start + width, middle + width, *both[AT_ONCE:]]
        with e.loop(start + width, end - width, width, carried=ahead) as loop:
            left, right, *kept = loop.values
            heads = [e.load(self.at(source, x), self.element, 1) for x in (left, right)]
            first = e.icmp("slt", left, middle) & (e.icmp("sge", right, end) | e.icmp("sle", *heads))
            taken = self.vectors(source, e.select(first, left, right))
            both = merged(e, taken, kept)
            self.put(both[:AT_ONCE], target, loop.index)
            loop.next(e.select(first, left + width, left), e.select(first, right, right + width), *both[AT_ONCE:])
        self.put(loop.values[2:], target, end - width)

    def put(self, vectors: list[Value], line: str, start: Value) -> None:
        for n, x in enumerate(vectors):
            self.e.store(x, self.at(line, start + n * self.lanes))

    def write(self) -> None:
        e, (_, target), (_, step) = self.e, self.lines, self.steps
        found = self.pointer("from")
        zeros = Zeros(e, self.keys, self.lines, self.steps, self.length)
        mixed = zeros.find(found) if self.kernel.dtype.is_float else None  # before keys are no more
        start: Value | int = 0
        if self.kernel.unit[1]:
            start = self.length & -self.lanes
            with e.loop(0, start, self.lanes) as loop:
                key = e.load(self.at(found, loop.index), self.element)
                e.store(self.keys.back(key), self.at(target, loop.index))
        with e.loop(start, self.length) as loop:
            key = e.load(self.at(found, loop.index), self.element, 1)
            e.store(self.keys.back(key), self.at(target, loop.index * step))
        if mixed is not None:
            zeros.put(*mixed)
