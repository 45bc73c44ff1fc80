"""Parts of the code of all matrix kernels: the operands of a matrix of the batch, and matrices in scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.linalg.matrix import FAULTS, LANES, RANKS, MatrixKernel, pitch

Index = Value | int


def word(e: Emitter, value: Index) -> Value:
    """A number of 64 bits."""
    return value if isinstance(value, Value) else e.constant(value, "i64", 1)


class Frame:
    """The function of a kernel being written, and the operands of the matrix whose code is."""

    def __init__(self, kernel: MatrixKernel) -> None:
        self.kernel, self.e = kernel, Emitter(1)
        self.element = kernel.dtype.llvm
        e = self.e
        self.bases = [e.load_pointer("%buffers", n) for n in range(len(RANKS[kernel.name]))]
        numbers = kernel.record.load(e)
        self.count = numbers["count"]
        self.extents = kernel.record.loaded("extents", numbers)
        self.strides = [kernel.record.loaded(f"operand{n}", numbers) for n in range(len(self.bases))]
        self.pointers = list(self.bases)
        self.used = 0  # bytes of scratch

    def text(self, name: str) -> str:
        """The finished module."""
        self.e.line("ret i32 0")
        text = defined(f"i32 @{name}({SIGNATURE}) nounwind", self.e.text())
        return text + "\n".join(sorted(self.e.declarations)) + "\n"

    def starts(self, index: Value) -> list[Value]:
        """Where the matrices of this number of the batch begin, in elements, in every operand. A vector of numbers
        gives a vector of places."""
        e, lanes = self.e, index.lanes
        places = [e.constant(0, "i64", lanes) for _ in self.bases]
        outer = self.kernel.outer_rank
        for axis in reversed(range(outer)):
            extent = e.splat(self.extents[axis], lanes)
            quotient = e.instruction("udiv", index, extent) if axis else e.constant(0, "i64", lanes)
            coordinate = index - quotient * extent if axis else index
            places = [place + coordinate * e.splat(strides[axis], lanes)
                      for place, strides in zip(places, self.strides, strict=True)]
            index = quotient
        return places

    def begin(self, index: Value) -> None:
        """The matrix of this number of the batch is meant from here on."""
        self.pointers = [self.e.offset(base, self.element_of(n), start)
                         for n, (base, start) in enumerate(zip(self.bases, self.starts(index), strict=True))]

    def element_of(self, operand: int) -> str:
        """The type of an operand's elements: row numbers are whole."""
        return "i64" if (self.kernel.name, operand) == ("lu", 1) else self.element

    def at(self, operand: int, *place: Index) -> str:
        """The address of an element of the matrix."""
        e, outer = self.e, self.kernel.outer_rank
        total = e.constant(0, "i64", 1)
        for number, index in enumerate(place):
            total = total + word(e, index) * self.strides[operand][outer + number]
        return e.offset(self.pointers[operand], self.element_of(operand), total)

    def load(self, operand: int, *place: Index) -> Value:
        return self.e.load(self.at(operand, *place), self.element_of(operand), 1)

    def store(self, value: Value, operand: int, *place: Index) -> None:
        self.e.store(value, self.at(operand, *place))

    def number(self, value: float, lanes: int = 1) -> Value:
        return self.e.constant(value, self.element, lanes)

    def fail_if(self, bad: Value) -> None:
        """Leave with the fault of the operation."""
        with self.e.leave_if(bad):
            self.e.line(f"ret i32 {FAULTS[self.kernel.name]}")

    def panel(self, rows: int, columns: int, element: str = "") -> Panel:
        """A matrix in scratch memory."""
        start = self.used
        self.used += rows * pitch(columns) * 8
        assert self.used <= self.kernel.scratch_bytes, "more scratch memory than the kernel asks for"
        return Panel(self.e, self.e.offset("%scratch", "i8", start), pitch(columns), element or self.element)


class Panel:
    """Rows of whole vectors in scratch memory; what lies behind the columns is anything."""

    def __init__(self, e: Emitter, pointer: str, width: int, element: str) -> None:
        self.e, self.pointer, self.width, self.element = e, pointer, width, element

    def at(self, row: Index, column: Index = 0) -> str:
        e = self.e
        return e.offset(self.pointer, self.element, word(e, row) * self.width + column)

    def get(self, row: Index, column: Index = 0) -> Value:
        return self.e.load(self.at(row, column), self.element, 1)

    def put(self, value: Value, row: Index, column: Index = 0) -> None:
        self.e.store(value, self.at(row, column))

    def row(self, row: Index) -> list[Value]:
        """All vectors of a row."""
        start = self.at(row)
        return [self.e.load(self.e.offset(start, self.element, first), self.element, LANES)
                for first in range(0, self.width, LANES)]

    def put_row(self, vectors: Sequence[Value], row: Index) -> None:
        start = self.at(row)
        for number, vector in enumerate(vectors):
            self.e.store(vector, self.e.offset(start, self.element, LANES * number))

    def clear(self, rows: int) -> None:
        """Zeros everywhere."""
        zeros = [self.e.constant(0.0, self.element, LANES)] * (self.width // LANES)
        with self.e.loop(0, rows) as loop:
            self.put_row(zeros, loop.index)

    def identity(self, rows: int, columns: int) -> None:
        """Ones on the diagonal."""
        self.clear(rows)
        with self.e.loop(0, min(rows, columns)) as loop:
            self.put(self.e.constant(1.0, self.element, 1), loop.index, loop.index)

    def exchange(self, one: Index, other: Index) -> None:
        """Two rows change places."""
        first, second = self.row(one), self.row(other)
        self.put_row(first, other)
        self.put_row(second, one)

    def columns_after(self, column: Value) -> list[Value]:
        """For every vector of a row a mask of the columns behind this one."""
        e, found = self.e, []
        for first in range(0, self.width, LANES):
            numbers = Value(e, "<" + ", ".join(f"i64 {first + i}" for i in range(LANES)) + ">", "i64", LANES)
            found.append(e.icmp("sgt", numbers, e.splat(column, LANES)))
        return found


def add_multiple(e: Emitter, factor: Value, source: Sequence[Value], target: Sequence[Value]) -> list[Value]:
    """target + factor * source, each element rounded once."""
    wide = e.splat(factor, LANES)
    return [e.fma(wide, s, t) for s, t in zip(source, target, strict=True)]


def masked(e: Emitter, masks: Sequence[Value], new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    return [e.select(m, n, o) for m, n, o in zip(masks, new, old, strict=True)]


def copy_in(frame: Frame, panel: Panel, operand: int, rows: int, columns: int, turned: bool = False) -> None:
    """An operand's matrix, or its transpose, into scratch memory."""
    e = frame.e
    panel.clear(columns if turned else rows)
    with e.loop(0, rows) as i, e.loop(0, columns) as j:
        place = (j.index, i.index) if turned else (i.index, j.index)
        panel.put(frame.load(operand, i.index, j.index), *place)


def copy_out(frame: Frame, panel: Panel, operand: int, rows: int, columns: int, turned: bool = False) -> None:
    """From scratch memory, as it lies or turned, into an operand of rows x columns."""
    with frame.e.loop(0, rows) as i, frame.e.loop(0, columns) as j:
        place = (j.index, i.index) if turned else (i.index, j.index)
        frame.store(panel.get(*place), operand, i.index, j.index)
