"""Scatter: values put or added at indices along one axis, every output element in the order of its indices.

Threads divide the lines that lie across the indexed axis, never the indices: a line walks all its indices in order, so
the sum at each place is one chain and the bits do not depend on the number of threads. Half floats add in float32: the
target is then a float32 copy of the base, and is rounded once when all is added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.base.dims import Size, product
from morpho.base.dtypes import DType, bool_, int64
from morpho.base.machine import Isa
from morpho.program.view import Place

PIECE = 64  # columns that one item of work holds at least, where there are as many
INDEX, VALUE, TARGET = range(3)  # the operands, in the order of their places and strides


@dataclass(frozen=True)
class ScatterKernel:
    """target[.., index[.., n, c], c] = or += value[.., n, c], n ascending.

    Called over pieces of columns: item i is columns PIECE (i mod pieces).. of line i div pieces. Numbers: the extents
    of the outer axes, the count of indices, of columns, of pieces, the size of the indexed axis; then for each operand
    its outer strides, its stride along the indexed axis and along the columns.
    """

    mode: str  # set or add
    dtype: DType  # of the values
    target: DType  # of the memory they go to: float32 where half floats are added
    index: DType
    outer_rank: int
    shared: bool  # one index for all columns
    unit: bool  # values and target lie side by side along the columns

    scratch_bytes_per_column = 0
    scratch_bytes = 0
    flops = 2
    may_fault = True

    def generate(self, isa: Isa, name: str) -> str:
        return _Code(self, isa).module(name)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel and what to call it with."""

    kernel: ScatterKernel
    values: tuple[Size, ...]
    items: Size
    work: Size  # of one item


def lower_scatter(places: tuple[Place, Place, Place], axis: int, mode: str) -> Lowered:
    """The kernel for index, value and target: the columns run along the axis in which most lies side by side."""
    others = [d for d in range(len(places[TARGET].shape)) if d != axis]
    columns = _column_axis(places, others)
    outer = [d for d in others if d != columns]
    shape = places[VALUE].shape
    width: Size = 1 if columns is None else shape[columns]
    pieces = -(-width // PIECE) if isinstance(width, int) else width  # an unknown width has at most so many
    strides = [[p.strides[d] for d in outer] + [p.strides[axis], 0 if columns is None else p.strides[columns]]
               for p in places]
    kernel = ScatterKernel(mode, places[VALUE].dtype, places[TARGET].dtype, places[INDEX].dtype, len(outer),
                           shared=strides[INDEX][-1] == 0,
                           unit=strides[VALUE][-1] == 1 and strides[TARGET][-1] == 1)
    values = (*(shape[d] for d in outer), shape[axis], width, pieces, places[TARGET].shape[axis],
              *(stride for one in strides for stride in one))
    work = shape[axis] * (min(width, PIECE) if isinstance(width, int) else PIECE)
    return Lowered(kernel, values, product(tuple(shape[d] for d in outer)) * pieces, work)


def _column_axis(places: tuple[Place, Place, Place], others: list[int]) -> int | None:
    """An axis whose elements share their index, best one along which the target lies side by side."""
    if not others:
        return None
    return max(others, key=lambda d: (places[TARGET].strides[d] == 1, places[INDEX].strides[d] == 0, d))


class _Code:
    def __init__(self, kernel: ScatterKernel, isa: Isa) -> None:
        self.kernel = kernel
        whole = isa.vector_bits // 8 // max(kernel.target.itemsize, kernel.dtype.compute.itemsize)
        self.lanes = max(1, whole) if kernel.shared and kernel.unit else 1
        self.e = Emitter(self.lanes, isa.native_half)
        self.memory = (scalars.memory_type(kernel.index), scalars.memory_type(kernel.dtype),
                       scalars.memory_type(kernel.target))

    def module(self, name: str) -> str:
        from morpho.backends.cpu.loops.loop_base import SIGNATURE

        e, rank = self.e, self.kernel.outer_rank
        v = [e.load(e.offset("%values", "i64", i), "i64", 1) for i in range(rank + 4 + 3 * (rank + 2))]
        self.extents, (self.count, self.columns, self.pieces, self.size) = v[:rank], v[rank:rank + 4]
        self.pieces = e.intrinsic("smax", self.pieces, e.constant(1, "i64", 1))  # no columns: nothing to divide by
        self.strides = [v[rank + 4 + n * (rank + 2):rank + 4 + (n + 1) * (rank + 2)] for n in range(3)]
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
        along = [s[rank] for s in self.strides]
        with e.loop(0, self.count) as loop:
            index, value = (e.offset(lines[n], self.memory[n], loop.index * along[n]) for n in (INDEX, VALUE))
            if self.kernel.shared:
                self.at_index(index, lines[TARGET], lambda target: self.all_columns(value, target, begin, end))
            else:
                with e.loop(begin, end) as columns:
                    at = columns.index
                    self.at_index(self.column(INDEX, index, at), lines[TARGET],
                                  lambda target: self.one_column(value, target, at))

    def column(self, operand: int, pointer: str, number: Value) -> str:
        stride = self.strides[operand][self.kernel.outer_rank + 1]
        return self.e.offset(pointer, self.memory[operand], number * stride)

    def at_index(self, index: str, target: str, body: Callable[[str], None]) -> None:
        """Run `body` on the target's line at an index that lies inside the axis; another one is a fault."""
        from morpho.backends.cpu.loops.loop_base import FAULT_INDEX

        e = self.e
        number = scalars.cast(e, e.load(index, self.memory[INDEX], 1), self.kernel.index, int64)
        inside = e.icmp("ult", number, self.size)
        old = e.load("%fault", "i32", 1)
        e.store(e.select(inside, old, FAULT_INDEX), "%fault")
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
        if kernel.mode == "add":
            old = scalars.from_memory(e, e.load(target, self.memory[TARGET], lanes), kernel.target)
            new = scalars.from_memory(e, new, kernel.dtype)
            total = old | new if kernel.dtype is bool_ else old + new
            new = scalars.to_memory(e, total, kernel.target)
        e.store(new, target)
