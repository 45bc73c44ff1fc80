"""The functions of a `TriangularKernel` and an `IncompleteKernel`: rows depend on each other and go one by one."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import FAULT_INDEFINITE, FAULT_SINGULAR
from morpho.backends.kernels.sparse.kernels import WIDTH, IncompleteKernel, TriangularKernel
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.base.machine import Isa


def generate(kernel: TriangularKernel | IncompleteKernel, isa: Isa, name: str) -> str:
    """The LLVM module of either."""
    code = _Solve(kernel, isa) if isinstance(kernel, TriangularKernel) else _Factors(kernel, isa)
    return code.module(name)


class _Solve(SparseCode):
    def __init__(self, kernel: TriangularKernel, isa: Isa) -> None:
        super().__init__(isa, 1)
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        self.indices, indptr, self.data, self.x = (e.load_pointer("%buffers", n) for n in range(4))
        self.v = v = kernel.record.load(e)
        self.last = self.limit(v["rows"], kernel.index)
        self.columns = (e.argument("%row0", "i64", 1) * WIDTH,
                        self.smaller(e.argument("%row1", "i64", 1) * WIDTH, v["columns"]))
        with e.loop(0, v["rows"]) as loop:
            row = v["rows"] - 1 - loop.index if kernel.upper != kernel.turned else loop.index
            start, end = self.span(indptr, kernel.pointer, row, v["count"])
            pivot = self.pivot(row, start, end)
            if kernel.turned:
                self.spread(row, start, end, pivot)
            else:
                self.gather(row, start, end, pivot)
        return self.text(name)

    def pivot(self, row: Value, start: Value, end: Value) -> Value:
        """The number on the diagonal of a row; none, or zero, is a fault."""
        e, kernel = self.e, self.kernel
        zero = e.constant(0, scalars.register_type(kernel.dtype), 1)
        with e.loop(start, end, carried=[zero, e.constant(0, self.last.element, 1)]) as loop:
            column, worst = self.index(self.indices, kernel.index, loop.index, self.last, loop.values[1])
            value = self.number(self.data, kernel.dtype, loop.index)
            loop.next(e.select(e.icmp("eq", column, row), value, loop.values[0]), worst)
        self.fail_above(loop.values[1], self.last)
        if not kernel.unit:
            self.fail_if(e.fcmp("oeq", loop.values[0], 0.0), FAULT_SINGULAR)
        return loop.values[0]

    def inside(self, at: Value, row: Value) -> tuple[Value, Value]:
        """The column of an element, and whether it is one of the triangle."""
        column, _ = self.index(self.indices, self.kernel.index, at, self.last, self.last)
        return column, self.e.icmp("sgt" if self.kernel.upper else "slt", column, row)

    def place(self, row: Value, column: Value) -> str:
        kind = scalars.memory_type(self.kernel.dtype)
        return self.e.offset(self.x, kind, row * self.v["columns"] + column)

    def gather(self, row: Value, start: Value, end: Value, pivot: Value) -> None:
        """x of a row: what is on the right less the products with those that are known."""
        e, dtype = self.e, self.kernel.dtype
        kind = scalars.memory_type(dtype)
        with e.loop(*self.columns) as columns:
            own = self.place(row, columns.index)
            with e.loop(start, end, carried=[e.load(own, kind, 1)]) as loop:
                column, inside = self.inside(loop.index, row)
                there = e.load(self.place(column, columns.index), kind, 1)
                less = e.fma(-self.number(self.data, dtype, loop.index), there, loop.values[0])
                loop.next(e.select(inside, less, loop.values[0]))
            found = loop.values[0]
            e.store(found if self.kernel.unit else found / pivot, own)

    def spread(self, row: Value, start: Value, end: Value, pivot: Value) -> None:
        """x of a row of the transpose, which is taken off all that are still to be solved."""
        e, dtype = self.e, self.kernel.dtype
        kind = scalars.memory_type(dtype)
        with e.loop(*self.columns) as columns:
            own = self.place(row, columns.index)
            found = e.load(own, kind, 1)
            found = found if self.kernel.unit else found / pivot
            e.store(found, own)
            with e.loop(start, end) as loop:
                column, inside = self.inside(loop.index, row)
                with e.when(inside):
                    place = self.place(column, columns.index)
                    less = e.fma(-self.number(self.data, dtype, loop.index), found, e.load(place, kind, 1))
                    e.store(less, place)


class _Factors(SparseCode):
    """Scratch: for every column where it lies in the row, counted from one, and for every row its diagonal."""

    def __init__(self, kernel: IncompleteKernel, isa: Isa) -> None:
        super().__init__(isa, 1)
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        self.indices, self.indptr, self.data = (e.load_pointer("%buffers", n) for n in range(3))
        self.v = v = kernel.record.load(e)
        self.last = self.limit(v["rows"], kernel.index)
        self.places, self.diagonal = "%scratch", e.offset("%scratch", "i64", v["rows"])
        with e.loop(0, v["rows"] * 2) as loop:
            e.store(self.zero, e.offset(self.places, "i64", loop.index))
        with e.loop(0, v["rows"]) as rows:
            start, end = self.span(self.indptr, kernel.pointer, rows.index, v["count"])
            self.note(start, end, True)
            with e.loop(start, end) as loop:
                if kernel.how == "lu":
                    self.eliminate(rows.index, loop.index)
                else:
                    self.subtract(rows.index, loop.index, start)
            own = e.load(e.offset(self.places, "i64", rows.index), "i64", 1)
            e.store(own, e.offset(self.diagonal, "i64", rows.index))
            self.check(own)
            self.note(start, end, False)
        return self.text(name)

    def column(self, at: Value) -> Value:
        return self.index(self.indices, self.kernel.index, at, self.last, self.last)[0]

    def note(self, start: Value, end: Value, there: bool) -> None:
        """Where the columns of a row lie, or that they do not any more."""
        e = self.e
        with e.loop(start, end, carried=[e.constant(0, self.last.element, 1)]) as loop:
            column, worst = self.index(self.indices, self.kernel.index, loop.index, self.last, loop.values[0])
            e.store(loop.index + 1 if there else self.zero, e.offset(self.places, "i64", column))
            loop.next(worst)
        self.fail_above(loop.values[0], self.last)

    def value(self, at: Value) -> Value:
        return self.number(self.data, self.kernel.dtype, at)

    def store(self, value: Value, at: Value) -> None:
        self.put(value, self.data, self.kernel.dtype, at)

    def check(self, own: Value) -> None:
        """A row without a diagonal, or with a zero or negative one."""
        e, lu = self.e, self.kernel.how == "lu"
        code = FAULT_SINGULAR if lu else FAULT_INDEFINITE
        self.fail_if(e.icmp("eq", own, 0), code)
        with e.when(e.icmp("ne", own, 0)):
            self.fail_if(e.fcmp("oeq" if lu else "ule", self.value(own - 1), 0.0), code)

    def eliminate(self, row: Value, at: Value) -> None:
        """One element of L, whose multiple of a row above is taken off this one."""
        e = self.e
        column = self.column(at)
        pivot = e.load(e.offset(self.diagonal, "i64", column), "i64", 1)
        with e.when(e.icmp("slt", column, row) & e.icmp("ne", pivot, 0)):
            factor = self.value(at) / self.value(pivot - 1)
            self.store(factor, at)
            _, end = self.span(self.indptr, self.kernel.pointer, column, self.v["count"])
            with e.loop(pivot, end) as loop:
                place = e.load(e.offset(self.places, "i64", self.column(loop.index)), "i64", 1)
                with e.when(e.icmp("ne", place, 0)):
                    self.store(e.fma(-factor, self.value(loop.index), self.value(place - 1)), place - 1)

    def subtract(self, row: Value, at: Value, start: Value) -> None:
        """One element of L: what is left after the products of the two rows, divided or its root taken."""
        e = self.e
        column = self.column(at)
        same = e.icmp("eq", column, row)
        first, _ = self.span(self.indptr, self.kernel.pointer, column, self.v["count"])
        pivot = e.load(e.offset(self.diagonal, "i64", column), "i64", 1)
        pivot = e.select(e.icmp("eq", pivot, 0), first + 1, pivot)  # of a row that failed: nothing is read outside
        last = e.select(same, at, pivot - 1)
        with e.loop(e.select(same, start, first), last, carried=[self.value(at)]) as loop:
            place = e.load(e.offset(self.places, "i64", self.column(loop.index)), "i64", 1)
            known = e.icmp("ne", place, 0)
            other = self.value(e.select(known, place - 1, at))
            less = e.fma(-other, self.value(loop.index), loop.values[0])
            loop.next(e.select(known, less, loop.values[0]))
        left = loop.values[0]
        self.store(e.select(same, e.square_root(left), left / self.value(self.smaller(last, self.v["count"] - 1))), at)
