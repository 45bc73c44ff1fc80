"""The function of a `ScatterKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.elementwise import emit
from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.backends.cpu.codegen.kernel_abi import FAULT_INDEX, SIGNATURE
from morpho.backends.cpu.loops.sequential.scatter import INDEX, PIECE, TARGET, VALUE, ScatterKernel
from morpho.base.dtypes import DType, bool_, int64
from morpho.base.machine import Isa


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
        with e.loop(e.instruction("udiv", first, self.pieces), self.line_after(last)) as loop:
            start = loop.index * self.pieces
            begin = e.intrinsic("smax", first - start, e.constant(0, "i64", 1)) * PIECE
            end = e.intrinsic("smin", (last - start) * PIECE, self.columns)
            self.line(loop.index, begin, end)
        e.line(f"ret i32 {e.load('%fault', 'i32', 1).name}")
        head = f"define i32 @{name}({SIGNATURE}) nounwind {{\nentry:\n  %fault = alloca i32, align 4\n"
        return head + e.text() + "\n}\n" + "\n".join(sorted(e.declarations)) + "\n"

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
        with e.loop(0, self.count) as loop:
            body(*(e.offset(lines[n], self.memory[n], loop.index * along[n]) for n in (INDEX, VALUE)))

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


def combined(e: Emitter, mode: str, dtype: DType, old: Value, new: Value) -> Value:
    """Two values that meet: their sum, product, larger or smaller one; NaN wins."""
    if dtype is bool_:
        return old | new if mode in ("add", "max") else old & new
    if mode in ("max", "min"):
        return emit(e, "maximum" if mode == "max" else "minimum", [old, new], dtype, dtype)
    return old + new if mode == "add" else old * new
