"""The function of a `RadixSortKernel`."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops.sorting.keys import Keys
from morpho.backends.kernels.loops.sorting.packed_code import PACKED_SLOTS, PackedSort
from morpho.backends.kernels.loops.sorting.quick_code import compresses
from morpho.backends.kernels.loops.sorting.radix import DIGITS, SHORT, RadixSortKernel
from morpho.backends.kernels.loops.sorting.zeros import Zeros
from morpho.base.machine import Isa


def generate(kernel: RadixSortKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `RadixSortKernel`."""
    return SortCode(kernel, isa).module(name)


class SortCode:
    """One line after the other: read as keys, sorted in scratch, written back."""

    def __init__(self, kernel: RadixSortKernel, isa: Isa) -> None:
        self.kernel, self.e = kernel, Emitter(1)
        self.keys = Keys(self.e, kernel.dtype, kernel.descending, canonical=kernel.indices)
        self.element = self.keys.element
        self.counter = "i64" if kernel.wide else "i32"
        in_registers = compresses(isa.llvm_features) and isa.vector_bits == 512
        self.packs = kernel.indices and not kernel.wide and kernel.dtype.itemsize >= 4 and in_registers

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        bases = [e.load_pointer("%buffers", n) for n in range(2)]
        v = kernel.record.load(e)
        extents, *strides = (kernel.record.loaded(field, v) for field in ("extents", "source", "target"))
        self.length = v["length"]
        self.places()
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            index, at = rows.index, [e.constant(0, "i64", 1)] * 2
            for axis in reversed(range(kernel.outer_rank)):
                quotient = e.instruction("udiv", index, extents[axis])
                coordinate = index - quotient * extents[axis]
                at = [p + coordinate * s[axis] for p, s in zip(at, strides, strict=True)]
                index = quotient
            self.steps = [s[kernel.outer_rank] for s in strides]
            kinds = (self.element, "i64" if kernel.indices else self.element)
            self.lines = [e.offset(base, kind, p) for base, kind, p in zip(bases, kinds, at, strict=True)]
            self.line()
        e.line("ret i32 0")
        slots = "".join(f"  %{slot} = alloca ptr, align 8\n" for slot in ("keys", "other", "numbers", "others"))
        slots += PACKED_SLOTS if self.packs else ""
        return defined(f"i32 @{name}({SIGNATURE}) nounwind", slots, e.text()) + "\n".join(sorted(e.declarations)) + "\n"

    # -- scratch ------------------------------------------------------------------------------------------------------
    def places(self) -> None:
        """Counts, then indices twice, then keys twice."""
        e, kernel = self.e, self.kernel
        at = e.offset("%scratch", "i8", kernel.scratch_bytes)
        self.memory = []
        for element, there in ((self.counter, kernel.indices), (self.element, True)):
            for _ in range(2):
                self.memory.append(at)
                at = e.offset(at, element, self.length) if there else at

    def store_pointer(self, pointer: str, slot: str) -> None:
        self.e.line(f"store ptr {pointer}, ptr %{slot}, align 8")

    def count_at(self, number: int, digit: Value) -> str:
        return self.e.offset("%scratch", self.counter, digit + number * DIGITS)

    def counted(self, x: Value) -> Value:
        """An index as a counter."""
        return x if self.counter == "i64" else self.e.convert("trunc", x, "i32")

    def widened(self, x: Value) -> Value:
        return x if self.counter == "i64" else self.e.convert("zext", x, "i64")

    # -- a line -------------------------------------------------------------------------------------------------------
    def line(self) -> None:
        e = self.e
        for slot, pointer in zip(("numbers", "others", "keys", "other"), self.memory, strict=True):
            self.store_pointer(pointer, slot)
        for holds in e.both(e.icmp("sle", self.length, SHORT)):
            if holds:
                self.fill(counts=False)
                self.by_insertion()
                self.write()
            elif self.packs:
                self.by_packing()
            else:
                self.by_radix()

    def by_radix(self) -> None:
        self.clear()
        self.fill(counts=True)
        for number in range(self.kernel.passes):
            self.pass_over(number)
        self.write()

    def by_packing(self) -> None:
        """Keys and indices in one number each, where the data allow that."""
        e = self.e
        packed = PackedSort(e, self.element, self.key_at, self.memory[0], self.length)
        in_order = packed.run()
        for done in e.both(in_order):
            if done:
                with e.loop(0, self.length) as loop:
                    index = packed.index_of(packed.packed(loop.index))
                    e.store(index, e.offset(self.lines[1], "i64", loop.index * self.steps[1]))
            elif self.element == "i64":
                self.by_radix()

    def key_at(self, index: Value) -> Value:
        """The key of an element of the line."""
        at = self.e.offset(self.lines[0], self.element, index * self.steps[0])
        return self.keys.of(self.e.load(at, self.element, 1))

    def clear(self) -> None:
        e = self.e
        total = self.kernel.scratch_bytes
        e.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        e.line(f"call void @llvm.memset.p0.i64(ptr align 8 %scratch, i8 0, i64 {total}, i1 false)")

    def fill(self, counts: bool) -> None:
        """The keys of the line, its indices, and how often each digit occurs."""
        e, (numbers, _, keys, _) = self.e, self.memory
        with e.loop(0, self.length) as loop:
            key = self.key_at(loop.index)
            e.store(key, e.offset(keys, self.element, loop.index))
            if self.kernel.indices:
                e.store(self.counted(loop.index), e.offset(numbers, self.counter, loop.index))
            for number in range(self.kernel.passes if counts else 0):
                at = self.count_at(number, self.keys.digit(key, number))
                e.store(e.load(at, self.counter, 1) + 1, at)

    def by_insertion(self) -> None:
        """Every key moves down past the larger ones before it."""
        e, (numbers, _, keys, _) = self.e, self.memory
        with e.loop(1, self.length) as loop:
            key = e.load(e.offset(keys, self.element, loop.index), self.element, 1)
            number = e.load(e.offset(numbers, self.counter, loop.index), self.counter,
                            1) if self.kernel.indices else None
            head, move, done = (e.fresh(name) for name in ("head", "move", "done"))
            before, at, lower = e.block, Value(e, "%" + e.fresh("i"), "i64", 1), "%" + e.fresh("i")
            e.branch(head)
            e.label(head)
            e.line(f"{at.name} = phi i64 [ {loop.index.name}, %{before} ], [ {lower}, %{move} ]")
            look = e.fresh("look")
            e.branch_if(e.icmp("sgt", at, 0), look, done)
            e.label(look)
            e.line(f"{lower} = add i64 {at.name}, -1")
            under = Value(e, lower, "i64", 1)
            other = e.load(e.offset(keys, self.element, under), self.element, 1)
            e.branch_if(e.icmp("ugt", other, key), move, done)
            e.label(move)
            e.store(other, e.offset(keys, self.element, at))
            if number is not None:
                e.store(e.load(e.offset(numbers, self.counter, under), self.counter, 1),
                        e.offset(numbers, self.counter, at))
            e.branch(head)
            e.label(done)
            e.store(key, e.offset(keys, self.element, at))
            if number is not None:
                e.store(number, e.offset(numbers, self.counter, at))

    def pass_over(self, number: int) -> None:
        """Keys in the order of one of their bytes, from the lowest on; nothing to do where all have the same."""
        e = self.e
        e.poll_if_long(self.length)
        keys = self.pointer("keys")
        first = self.keys.digit(e.load(keys, self.element, 1), number)
        count = self.widened(e.load(self.count_at(number, first), self.counter, 1))
        with e.when(e.icmp("ne", count, self.length)):
            with e.loop(0, DIGITS, carried=[e.constant(0, self.counter, 1)]) as loop:
                at = self.count_at(number, loop.index)
                here = e.load(at, self.counter, 1)
                e.store(loop.values[0], at)
                loop.next(loop.values[0] + here)
            other = self.pointer("other")
            numbers, others = (self.pointer(slot) if self.kernel.indices else "" for slot in ("numbers", "others"))
            with e.loop(0, self.length) as loop:
                key = e.load(e.offset(keys, self.element, loop.index), self.element, 1)
                at = self.count_at(number, self.keys.digit(key, number))
                place = e.load(at, self.counter, 1)
                e.store(place + 1, at)
                to = self.widened(place)
                e.store(key, e.offset(other, self.element, to))
                if self.kernel.indices:
                    e.store(e.load(e.offset(numbers, self.counter, loop.index), self.counter, 1),
                            e.offset(others, self.counter, to))
            self.store_pointer(other, "keys")
            self.store_pointer(keys, "other")
            if self.kernel.indices:
                self.store_pointer(others, "numbers")
                self.store_pointer(numbers, "others")

    def pointer(self, slot: str) -> str:
        name = "%" + self.e.fresh("p")
        self.e.line(f"{name} = load ptr, ptr %{slot}, align 8")
        return name

    def write(self) -> None:
        e = self.e
        source, step = self.pointer("numbers" if self.kernel.indices else "keys"), self.steps[1]
        with e.loop(0, self.length) as loop:
            if self.kernel.indices:
                found = self.widened(e.load(e.offset(source, self.counter, loop.index), self.counter, 1))
                e.store(found, e.offset(self.lines[1], "i64", loop.index * step))
            else:
                key = e.load(e.offset(source, self.element, loop.index), self.element, 1)
                e.store(self.keys.back(key), e.offset(self.lines[1], self.element, loop.index * step))
        if self.kernel.dtype.is_float and not self.kernel.indices:
            Zeros(e, self.keys, self.lines, self.steps, self.length).put_in_order(source)
