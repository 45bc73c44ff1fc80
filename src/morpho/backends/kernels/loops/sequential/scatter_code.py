"""The function of a `ScatterKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import FAULT_INDEX, SIGNATURE
from morpho.backends.kernels.loops.sequential.scatter import INDEX, PIECE, TARGET, VALUE, ScatterKernel
from morpho.base.dtypes import DType, bool_, int64
from morpho.base.machine import Isa

APART = 16  # elements: one line of the cache, or two
BLOCK = 1024  # indices that are looked through at a time: the list of those to do stays in the first-level cache


def generate(kernel: ScatterKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `ScatterKernel`."""
    return ScatterCode(kernel, isa).module(name)


class ScatterCode:
    def __init__(self, kernel: ScatterKernel, isa: Isa) -> None:
        self.kernel = kernel
        whole = isa.vector_bits // 8 // max(kernel.target.itemsize, kernel.dtype.compute.itemsize)
        self.lanes = max(1, whole) if kernel.shared and kernel.unit else 1
        self.e = Emitter(self.lanes, isa.native_half)
        self.memory = (scalars.memory_type(kernel.index), scalars.memory_type(kernel.dtype),
                       scalars.memory_type(kernel.target))

    def module(self, name: str) -> str:
        e = self.e
        record = self.kernel.record
        v = record.load(e)
        self.extents, *self.strides = (record.loaded(field, v) for field in ("extents", "index", "value", "target"))
        self.count, self.columns, self.size = (v[name] for name in ("count", "columns", "size"))
        self.pieces = e.intrinsic("smax", v["pieces"], e.constant(1, "i64", 1))  # no columns: nothing to divide by
        self.bases = [e.load_pointer("%buffers", n) for n in range(3)]
        e.store(e.constant(0, "i32", 1), "%fault")
        first, last = e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)
        if self.kernel.divides:
            self.low, self.width = self.range_of(first, last)
            self.line(e.constant(0, "i64", 1), e.constant(0, "i64", 1), self.columns)
            return self.function(name)
        with e.loop(e.instruction("udiv", first, self.pieces), self.line_after(last)) as loop:
            start = loop.index * self.pieces
            begin = e.intrinsic("smax", first - start, e.constant(0, "i64", 1)) * PIECE
            end = e.intrinsic("smin", (last - start) * PIECE, self.columns)
            self.line(loop.index, begin, end)
        return self.function(name)

    def function(self, name: str) -> str:
        """The finished text of a function."""
        e, memory = self.e, "  %fault = alloca i32, align 4\n"
        e.line(f"ret i32 {e.load('%fault', 'i32', 1).name}")
        if self.kernel.divides:
            memory += f"  %listed = alloca [{BLOCK} x i32], align 64\n"
        text = defined(f"i32 @{name}({SIGNATURE}) nounwind", memory, e.text())
        return text + "\n".join(sorted(e.declarations)) + "\n"

    def range_of(self, first: Value, last: Value) -> tuple[Value, Value]:
        """The first place of some shares, and how many places they have."""
        low, high = (place_of_share(self.e, share, self.pieces, self.size) for share in (first, last))
        return low, high - low

    def line_after(self, last: Value) -> Value:
        return self.e.instruction("udiv", last + self.pieces - 1, self.pieces)

    def line(self, number: Value, begin: Value, end: Value) -> None:
        """Columns begin..end of one line, all indices in order."""
        e, rank = self.e, self.kernel.outer_rank
        places = [e.constant(0, "i64", 1)] * 3
        for axis in reversed(range(rank)):
            quotient = e.instruction("udiv", number, self.extents[axis])
            coordinate = number - quotient * self.extents[axis]
            places = [p + coordinate * s[axis] for p, s in zip(places, self.strides, strict=True)]
            number = quotient
        lines = [e.offset(base, kind, p) for base, kind, p in zip(self.bases, self.memory, places, strict=True)]
        if not self.kernel.shared:
            self.each_index(lines, lambda index, value: self.own_indices(index, value, lines[TARGET], begin, end))
            return
        alone = e.icmp("eq", end - begin, 1)  # single numbers, as in a histogram: no loop over their columns
        with e.when(alone):
            self.each_index(lines, lambda index, value: self.at_index(
                index, lines[TARGET], lambda target: self.one_column(value, target, begin)))
        with e.when(alone ^ 1):
            self.each_index(lines, lambda index, value: self.at_index(
                index, lines[TARGET], lambda target: self.all_columns(value, target, begin, end)))

    def each_index(self, lines: list[str], body: Callable[[str, str], None]) -> None:
        """Run `body` on the addresses of every index and of its values, in order."""
        e, along = self.e, [s[self.kernel.outer_rank] for s in self.strides]

        def at(number: Value) -> None:
            body(*(e.offset(lines[n], self.memory[n], number * along[n]) for n in (INDEX, VALUE)))

        for alone in e.both(e.icmp("eq", self.width, self.size)) if self.kernel.divides else (True,):
            if alone:
                with e.loop(0, self.count) as loop:
                    at(loop.index)
                continue
            with e.loop(0, self.count, BLOCK) as blocks:
                stop = e.intrinsic("smin", blocks.index + BLOCK, self.count)
                with e.loop(0, self.list_own(lines[INDEX], along[INDEX], blocks.index, stop)) as loop:
                    number = e.load(e.offset("%listed", "i32", loop.index), "i32", 1)
                    at(blocks.index + e.convert("zext", number, "i64"))

    def list_own(self, line: str, along: Value, start: Value, stop: Value) -> Value:
        """List the indices from `start` on that point into the range of this call, without a branch that could be
        guessed wrong; how many there are. One outside the axis is in every list, to be found there."""
        e = self.e
        with e.loop(start, stop, carried=[e.constant(0, "i64", 1)]) as loop:
            place = e.offset(line, self.memory[INDEX], loop.index * along)
            index = scalars.cast(e, e.load(place, self.memory[INDEX], 1), self.kernel.index, int64)
            own = e.icmp("ult", index - self.low, self.width) | e.icmp("uge", index, self.size)
            e.store(e.convert("trunc", loop.index - start, "i32"), e.offset("%listed", "i32", loop.values[0]))
            loop.next(loop.values[0] + e.convert("zext", own, "i64"))
        return loop.values[0]

    def own_indices(self, index: str, value: str, target: str, begin: Value, end: Value) -> None:
        """Columns with an index each."""
        with self.e.loop(begin, end) as columns:
            at = columns.index
            self.at_index(self.column(INDEX, index, at), target, lambda place: self.one_column(value, place, at))

    def column(self, operand: int, pointer: str, number: Value) -> str:
        stride = self.strides[operand][self.kernel.outer_rank + 1]
        return self.e.offset(pointer, self.memory[operand], number * stride)

    def at_index(self, index: str, target: str, body: Callable[[str], None]) -> None:
        """Run `body` on the target's line at an index that lies inside the axis; another one is a fault."""
        e = self.e
        number = scalars.cast(e, e.load(index, self.memory[INDEX], 1), self.kernel.index, int64)
        inside = e.icmp("ult", number, self.size)
        with e.when(e.icmp("uge", number, self.size)):  # hardly ever: a store in every turn would be waited for
            e.store(e.constant(FAULT_INDEX, "i32", 1), "%fault")
        with e.when(inside):
            body(e.offset(target, self.memory[TARGET], number * self.strides[TARGET][self.kernel.outer_rank]))

    def all_columns(self, value: str, target: str, begin: Value, end: Value) -> None:
        e, start = self.e, begin
        if self.lanes > 1:
            start = begin + ((end - begin) & -self.lanes)
            with e.loop(begin, start, self.lanes) as loop:
                self.combine(e.offset(value, self.memory[VALUE], loop.index),
                             e.offset(target, self.memory[TARGET], loop.index), self.lanes)
        with e.loop(start, end) as loop:
            self.one_column(value, target, loop.index)

    def one_column(self, value: str, target: str, number: Value) -> None:
        self.combine(self.column(VALUE, value, number), self.column(TARGET, target, number), 1)

    def combine(self, value: str, target: str, lanes: int) -> None:
        e, kernel = self.e, self.kernel
        new = e.load(value, self.memory[VALUE], lanes)
        if kernel.mode != "set":
            old = scalars.from_memory(e, e.load(target, self.memory[TARGET], lanes), kernel.target)
            new = scalars.from_memory(e, new, kernel.dtype)
            new = scalars.to_memory(e, combined(e, kernel.mode, kernel.target, old, new), kernel.target)
        e.store(new, target)


def place_of_share(e: Emitter, share: Value, shares: Value, size: Value) -> Value:
    """Where a share of the places of a target begins: at a multiple of `APART`, so that no two threads write elements
    of one line of the cache."""
    place = e.instruction("udiv", size * share, shares) & -APART
    return e.select(e.icmp("eq", share, shares), size, place)


def combined(e: Emitter, mode: str, dtype: DType, old: Value, new: Value) -> Value:
    """Two values that meet: their sum, product, larger or smaller one; NaN wins."""
    if dtype is bool_:
        return old | new if mode in ("add", "max") else old & new
    if mode in ("max", "min"):
        return emit(e, "maximum" if mode == "max" else "minimum", [old, new], dtype, dtype)
    return old + new if mode == "add" else old * new
