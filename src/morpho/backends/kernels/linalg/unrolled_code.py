"""The code of kernels whose matrices fit registers: as many matrices at once as a vector has lanes, then one by one."""

from __future__ import annotations

from typing import Any

from morpho.backends.code.emit import BITS, Value, mangled, vector_type
from morpho.backends.code.vector_math import FUNCTIONS
from morpho.backends.kernels.linalg import unrolled
from morpho.backends.kernels.linalg.frame import Frame
from morpho.backends.kernels.linalg.matrix import RANKS, MatrixKernel
from morpho.base.machine import Isa


def generate(kernel: MatrixKernel, isa: Isa, name: str) -> str:
    """The LLVM module of such a kernel."""
    frame = Frame(kernel)
    e = frame.e
    first, last = e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)
    lanes = isa.lanes(kernel.dtype.itemsize) if kernel.batched else 1
    if lanes > 1:
        whole = last - e.instruction("urem", last - first, e.constant(lanes, "i64", 1))
        with e.loop(first, whole, lanes) as loop:
            _Lanes(frame, e.splat(loop.index, lanes) + e.lane_numbers("i64", lanes)).write()
        first = whole
    with e.loop(first, last) as loop:
        _Lanes(frame, loop.index).write()
    return frame.text(name)


class _Lanes:
    """The matrices of these numbers, one per lane: the `Arithmetic` of `unrolled.py`."""

    def __init__(self, frame: Frame, index: Value) -> None:
        self.frame, self.e, self.lanes = frame, frame.e, index.lanes
        self.starts = frame.starts(index)
        self.bad: Value | None = None

    def write(self) -> None:
        kernel = self.frame.kernel
        n = kernel.rows
        right = self.matrix(1, n, kernel.columns) if kernel.inputs == 2 else []
        self.finish(unrolled.run(self, kernel.name, kernel.options, self.matrix(0, n, n), right))

    def finish(self, found: list[Any]) -> None:
        self.leave()
        for operand, result in enumerate(found, self.frame.kernel.inputs):
            if RANKS[self.frame.kernel.name][operand] == 0:
                self.store(result, operand)
                continue
            for i, row in enumerate(result):
                for j, value in enumerate(row):
                    self.store(value, operand, i, j)

    def leave(self) -> None:
        """Leave the function if a matrix cannot be factorised."""
        if self.bad is not None:
            bad = self.bad
            if self.lanes > 1:
                bad = self.e.icmp("ne", self.e.assign(f"bitcast {bad.type} {bad.name} to i{self.lanes}",
                                                      f"i{self.lanes}", 1), 0)
            self.bad = None
            self.frame.fail_if(bad)

    # -- memory --------------------------------------------------------------------------------------------------------
    def matrix(self, operand: int, rows: int, columns: int) -> unrolled.Matrix:
        return [[self.load(operand, i, j) for j in range(columns)] for i in range(rows)]

    def place(self, operand: int, place: tuple[Value | int, ...]) -> str:
        """The address of an element, or of that of every lane."""
        e, frame, total = self.e, self.frame, self.starts[operand]
        for number, index in enumerate(place):
            if isinstance(index, Value) or index:
                total = total + e.splat(frame.strides[operand][frame.kernel.outer_rank + number] * index, self.lanes)
        if self.lanes == 1:
            return e.offset(frame.bases[operand], frame.element, total)
        name = "%" + e.fresh("p")
        e.line(f"{name} = getelementptr {frame.element}, ptr {frame.bases[operand]}, {total.type} {total.name}")
        return name

    def load(self, operand: int, *place: Value | int) -> Value:
        e, element, lanes = self.e, self.frame.element, self.lanes
        address = self.place(operand, place)
        if lanes == 1:
            return e.load(address, element, 1)
        kind, name = vector_type(element, lanes), f"llvm.masked.gather.{mangled(element, lanes)}.v{lanes}p0"
        e.declarations.add(f"declare {kind} @{name}(<{lanes} x ptr>, i32, <{lanes} x i1>, {kind})")
        return e.assign(f"call {kind} @{name}(<{lanes} x ptr> {address}, i32 {BITS[element] // 8}, "
                        f"<{lanes} x i1> splat (i1 true), {kind} poison)", element, lanes)

    def store(self, value: Value, operand: int, *place: Value | int) -> None:
        e, element, lanes = self.e, self.frame.element, self.lanes
        address = self.place(operand, place)
        if lanes == 1:
            e.store(value, address)
            return
        kind, name = vector_type(element, lanes), f"llvm.masked.scatter.{mangled(element, lanes)}.v{lanes}p0"
        e.declarations.add(f"declare void @{name}({kind}, <{lanes} x ptr>, i32, <{lanes} x i1>)")
        e.line(f"call void @{name}({kind} {value.name}, <{lanes} x ptr> {address}, i32 {BITS[element] // 8}, "
               f"<{lanes} x i1> splat (i1 true))")

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def number(self, value: float) -> Value:
        return self.frame.number(value, self.lanes)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.e.fma(a, b, c)

    def multiply(self, a: Value, b: Value) -> Value:
        return a * b

    def divide(self, a: Value, b: Value) -> Value:
        return a / b

    def add(self, a: Value, b: Value) -> Value:
        return a + b

    def negative(self, a: Value) -> Value:
        return -a

    def absolute(self, a: Value) -> Value:
        return self.e.absolute(a)

    def sqrt(self, a: Value) -> Value:
        return self.e.square_root(a)

    def log(self, a: Value) -> Value:
        return FUNCTIONS["log"](self.e, a)

    def greater(self, a: Value, b: Value) -> Value:
        return self.e.fcmp("ogt", a, b)

    def is_zero(self, a: Value) -> Value:
        return self.e.fcmp("oeq", a, 0.0)

    def either(self, a: Value, b: Value) -> Value:
        return a | b

    def unless(self, a: Value, b: Value) -> Value:
        return a & (b ^ True)

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        return self.e.select(mask, a, b)

    def fail_if(self, mask: Value) -> None:
        self.bad = mask if self.bad is None else self.bad | mask

    def fail_unless(self, mask: Value) -> None:
        self.fail_if(mask ^ True)
