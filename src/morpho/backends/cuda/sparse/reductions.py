"""Sums and extremes of rows, and products sampled at a pattern, on a grid."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.kernels import ISA, Sizes
from morpho.backends.cuda.sparse.walk import GridRows, RowTeams, Team
from morpho.backends.kernels.sparse.kernels import RowReduceKernel, SddmmKernel
from morpho.ops.sparse.pattern import nothing
from morpho.ops.sparse.rows import PLUS
from morpho.program.program import Step


@dataclass(frozen=True)
class ReduceTeams(RowTeams):
    """`RowReduceKernel` on a grid: four threads for a row."""

    def text(self) -> str:
        return _Reduce(self).module()


class _Reduce(GridRows):
    def __init__(self, device: ReduceTeams) -> None:
        super().__init__(ISA)
        assert isinstance(device.body, RowReduceKernel)
        self.kernel = device.body
        self.on_grid(device)

    def plus(self, a: Value, b: Value) -> Value:
        compute, how = self.kernel.dtype.compute, self.kernel.how
        return a + b if how == "sum" else emit(self.e, PLUS[how], [a, b], compute, compute)

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        values, indptr, result = (e.load_pointer("%buffers", n) for n in range(3))
        v = kernel.record.load(e)
        self.place(v["rows"], None)
        start = self.smaller(self.larger(self.whole(indptr, kernel.pointer, self.mine), self.zero), v["count"])
        end = self.smaller(self.larger(self.whole(indptr, kernel.pointer, self.mine + 1), start), v["count"])
        empty = e.constant(nothing(PLUS[kernel.how], kernel.dtype), scalars.register_type(kernel.dtype), 1)
        total = self.part(start, e.select(self.here, end, start), empty,
                          lambda at: [self.number(values, kernel.dtype, at)],
                          lambda total, read: self.plus(total, read[0]))
        with e.when(self.here & e.icmp("eq", self.chain, 0)):
            self.put(total, result, kernel.dtype, self.mine)
        return self.written()


@dataclass(frozen=True)
class SddmmTeams(RowTeams):
    """`SddmmKernel` on a grid: four threads for every stored element, whose row is searched for."""

    def items(self, sizes: Sizes) -> tuple[int, int]:
        """Elements."""
        names = self.body.record.names  # type: ignore[attr-defined]
        return sizes.values[names.index("count")], 1

    def text(self) -> str:
        return _Sddmm(self).module()


class _Sddmm(GridRows):
    def __init__(self, device: SddmmTeams) -> None:
        super().__init__(ISA)
        assert isinstance(device.body, SddmmKernel)
        self.kernel = device.body
        self.on_grid(device)

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        right, indices, indptr, left, result = (e.load_pointer("%buffers", n) for n in range(5))
        v = kernel.record.load(e)
        self.place(v["count"], None)
        at, memory = self.mine, scalars.memory_type(kernel.dtype)
        row = self.larger(self.row_of(indptr, v["rows"], at), self.zero)
        inside = e.icmp("sle", self.whole(indptr, kernel.pointer, row), at)
        inside = inside & e.icmp("slt", at, self.whole(indptr, kernel.pointer, row + 1))
        inside = inside & self.here & e.icmp("sgt", v["size"], 0)
        behind = e.icmp("sge", at, self.whole(indptr, kernel.pointer, v["rows"]))  # nobody's: nothing is written
        self.fail_if(self.here & (inside ^ 1) & (behind ^ 1))
        limit = self.limit(v["size"], kernel.index)
        index, worst = self.index(indices, kernel.index, at, limit, e.constant(0, limit.element, 1))
        self.fail_if(inside & e.icmp("ugt", worst, limit))
        lines = [e.offset(left, memory, row * v["left"]), e.offset(right, memory, index * v["right"])]

        def more(total: Value, read: list[Value]) -> Value:
            return e.fma(read[0], read[1], total) if total.is_float else total + read[0] * read[1]

        total = self.part(self.zero, e.select(inside, v["columns"], self.zero),
                          e.constant(0, scalars.register_type(kernel.dtype), 1),
                          lambda k: [self.number(line, kernel.dtype, k) for line in lines], more)
        with e.when(inside & e.icmp("eq", self.chain, 0)):
            self.put(total, result, kernel.dtype, at)
        return self.written()

    def row_of(self, indptr: str, rows: Value, at: Value) -> Value:
        """The last row that begins at or before an element; those behind it that are empty are the same place."""
        e = self.e
        with e.loop(0, 64, carried=[self.zero, rows]) as loop:
            low, high = loop.values
            more = e.icmp("slt", low, high)
            middle = (low + high).shift_right(1)
            before = e.icmp("sle", self.whole(indptr, self.kernel.pointer, middle), at) & more
            loop.next(e.select(before, middle + 1, low), e.select(before, high, middle))
            loop.step = e.select(more, self.one, 64)
        return loop.values[0] - 1


def reduce_teams(step: Step) -> ReduceTeams:
    """The grid of a reduction over rows."""
    return ReduceTeams(step.kernel, Team(), len(step.views), len(step.values))


def sddmm_teams(step: Step) -> SddmmTeams:
    """The grid of a sampled product."""
    return SddmmTeams(step.kernel, Team(), len(step.views), len(step.values))
