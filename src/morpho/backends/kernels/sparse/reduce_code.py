"""The functions of a `RowReduceKernel` and of a `SddmmKernel`: four chains in the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import Value
from morpho.backends.kernels.sparse.kernels import RowReduceKernel, SddmmKernel
from morpho.backends.kernels.sparse.row_walk import SparseCode, together
from morpho.base.machine import Isa
from morpho.ops.sparse.pattern import CHAINS, nothing
from morpho.ops.sparse.rows import PLUS


def generate(kernel: RowReduceKernel | SddmmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of either."""
    code = _Sddmm(kernel, isa) if isinstance(kernel, SddmmKernel) else _Reduce(kernel, isa)
    return code.module(name)


class _Chains(SparseCode):
    """A line of numbers as four chains."""

    def line(self, start: Value, end: Value, empty: Value,
             more: Callable[[Value, Value, Value | None], Value]) -> Value:
        """`more(total, place, lanes)` adds four numbers from a place on, or those of some lanes."""
        e = self.e
        most = start + ((end - start) & -CHAINS)
        with e.loop(start, most, CHAINS, carried=[empty]) as loop:
            loop.next(more(loop.values[0], loop.index, None))

        def rest(values: list[Value]) -> list[Value]:
            on = e.first_lanes(end - most)
            return [e.select(on, more(values[0], most, on), values[0])]

        return self.maybe(e.icmp("slt", most, end), loop.values, rest)[0]


class _Reduce(_Chains):
    def __init__(self, kernel: RowReduceKernel, isa: Isa) -> None:
        super().__init__(isa, CHAINS)
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        values, indptr, result = (e.load_pointer("%buffers", n) for n in range(3))
        v = kernel.record.load(e)
        memory = scalars.memory_type(kernel.dtype)
        compute = kernel.dtype.compute

        def plus(a: Value, b: Value) -> Value:
            return a + b if kernel.how == "sum" else emit(e, PLUS[kernel.how], [a, b], compute, compute)

        def more(total: Value, at: Value, on: Value | None) -> Value:
            place = e.offset(values, memory, at)
            read = e.load(place, memory) if on is None else e.load_some(place, memory, on)
            return plus(total, scalars.from_memory(e, read, kernel.dtype))

        with self.piece_rows(indptr, kernel.pointer, v, v["count"]) as row:
            start = self.smaller(self.larger(self.whole(indptr, kernel.pointer, row), self.zero), v["count"])
            end = self.smaller(self.larger(self.whole(indptr, kernel.pointer, row + 1), start), v["count"])
            empty = e.constant(nothing(PLUS[kernel.how], kernel.dtype), scalars.register_type(kernel.dtype))
            self.put(together(e, self.line(start, end, empty, more), plus), result, kernel.dtype, row)
        return self.text(name)


class _Sddmm(_Chains):
    def __init__(self, kernel: SddmmKernel, isa: Isa) -> None:
        super().__init__(isa, CHAINS)
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        right, indices, indptr, left, result = (e.load_pointer("%buffers", n) for n in range(5))
        v = kernel.record.load(e)
        count = e.select(e.icmp("sgt", v["size"], 0), v["count"], self.zero)
        limit, memory = self.limit(v["size"], kernel.index), scalars.memory_type(kernel.dtype)
        empty = e.constant(0, scalars.register_type(kernel.dtype))

        def product(lines: tuple[str, str]) -> Callable[[Value, Value, Value | None], Value]:
            def more(total: Value, at: Value, on: Value | None) -> Value:
                places = [e.offset(line, memory, at) for line in lines]
                read = [e.load(p, memory) if on is None else e.load_some(p, memory, on) for p in places]
                a, b = (scalars.from_memory(e, x, kernel.dtype) for x in read)
                return e.fma(a, b, total) if total.is_float else total + a * b

            return more

        with self.piece_rows(indptr, kernel.pointer, v, v["count"]) as row:
            start, end = self.span(indptr, kernel.pointer, row, count)
            own = e.offset(left, memory, row * v["left"])
            with e.loop(start, end, carried=[e.constant(0, limit.element, 1)]) as loop:
                index, worst = self.index(indices, kernel.index, loop.index, limit, loop.values[0])
                other = e.offset(right, memory, index * v["right"])
                total = self.line(self.zero, v["columns"], empty, product((own, other)))
                self.put(together(e, total, lambda a, b: a + b), result, kernel.dtype, loop.index)
                loop.next(worst)
            self.fail_above(loop.values[0], limit)
        return self.text(name)
