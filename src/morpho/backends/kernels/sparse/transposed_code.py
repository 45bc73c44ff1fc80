"""The function of a `TransposedSpmmKernel`: rows ascending, each adds its multiples to the rows it points to."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.sparse.kernels import WIDTH, TransposedSpmmKernel
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.base.machine import Isa


def generate(kernel: TransposedSpmmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `TransposedSpmmKernel`."""
    return _Code(kernel, isa).module(name)


class _Code(SparseCode):
    def __init__(self, kernel: TransposedSpmmKernel, isa: Isa) -> None:
        super().__init__(isa, max(1, isa.vector_bits // 8 // kernel.wide.itemsize))
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        indices, indptr, data, dense, result = (e.load_pointer("%buffers", n) for n in range(5))
        v = kernel.record.load(e)
        count = e.select(e.icmp("sgt", v["size"], 0), v["count"], self.zero)
        limit = self.limit(v["size"], kernel.index)
        first = e.argument("%row0", "i64", 1) * WIDTH
        last = self.smaller(e.argument("%row1", "i64", 1) * WIDTH, v["columns"])
        kinds = scalars.memory_type(kernel.dtype), scalars.memory_type(kernel.wide)
        with e.loop(0, v["rows"]) as rows:
            start, end = self.span(indptr, kernel.pointer, rows.index, count)
            source = e.offset(dense, kinds[0], rows.index * v["stride"])
            with e.loop(start, end, carried=[e.constant(0, limit.element, 1)]) as loop:
                index, worst = self.index(indices, kernel.index, loop.index, limit, loop.values[0])
                value = self.number(data, kernel.dtype, loop.index)
                self.add(value, source, e.offset(result, kinds[1], index * v["columns"]), first, last)
                loop.next(worst)
            self.fail_above(loop.values[0], limit)
        return self.text(name)

    def add(self, value: Value, source: str, target: str, first: Value, last: Value) -> None:
        """A multiple of some columns of a row to a row of the result."""
        e = self.e
        most = first + ((last - first) & -e.lanes)
        for begin, end, lanes in ((first, most, e.lanes), (most, last, 1)):
            factor = e.splat(value, lanes)
            with e.loop(begin, end, lanes) as loop:
                there = self.number(source, self.kernel.dtype, loop.index, lanes)
                total = self.number(target, self.kernel.wide, loop.index, lanes)
                new = e.fma(factor, there, total) if total.is_float else total + factor * there
                self.put(new, target, self.kernel.wide, loop.index)
            if e.lanes == 1:
                return
