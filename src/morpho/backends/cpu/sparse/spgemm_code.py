"""The function of a `SpgemmKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cpu.sparse.kernels import SpgemmKernel
from morpho.backends.cpu.sparse.row_walk import SparseCode
from morpho.base.machine import Isa


def generate(kernel: SpgemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `SpgemmKernel`."""
    return _Code(kernel, isa).module(name)


class _Code(SparseCode):
    def __init__(self, kernel: SpgemmKernel, isa: Isa) -> None:
        super().__init__(isa, 1)
        self.kernel = kernel

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        buffers = [e.load_pointer("%buffers", n) for n in range(5 if kernel.dtype is None else 9)]
        self.starts, self.left, self.indptr, self.right, *self.others = buffers
        self.v = v = kernel.record.load(e)
        self.words = (v["columns"] + 63).shift_right(6)
        self.tops = (self.words + 63).shift_right(6)
        self.bits, self.top = "%scratch", e.offset("%scratch", "i64", self.words)
        self.sums = e.offset(self.top, "i64", self.tops)
        with e.loop(0, self.words + self.tops) as loop:
            e.store(self.zero, e.offset(self.bits, "i64", loop.index))
        self.counts = (e.select(e.icmp("sgt", v["inner"], 0), v["left_count"], self.zero),
                       e.select(e.icmp("sgt", v["columns"], 0), v["right_count"], self.zero))
        self.limits = self.limit(v["inner"], kernel.index[0]), self.limit(v["columns"], kernel.index[1])
        with self.piece_rows(self.indptr, kernel.pointer[0], v, v["left_count"]) as row:
            self.meet(row)
            if kernel.dtype is None:
                self.count(row)
            else:
                self.write(row)
        return self.text(name)

    def meet(self, row: Value) -> None:
        """Every term of a row: its column is marked, and added to."""
        e, kernel = self.e, self.kernel
        start, end = self.span(self.indptr, kernel.pointer[0], row, self.counts[0])
        nothing = [e.constant(0, limit.element, 1) for limit in self.limits]
        with e.loop(start, end, carried=nothing) as outer:
            inner, worst = self.index(self.left, kernel.index[0], outer.index, self.limits[0], outer.values[0])
            value = None if kernel.dtype is None else self.number(self.others[0], kernel.dtype, outer.index)
            first, last = self.span(self.starts, kernel.pointer[1], inner, self.counts[1])
            with e.loop(first, last, carried=[outer.values[1]]) as terms:
                column, other = self.index(self.right, kernel.index[1], terms.index, self.limits[1], terms.values[0])
                there = None if kernel.dtype is None else self.number(self.others[1], kernel.dtype, terms.index)
                self.mark(column, value, there)
                terms.next(other)
            outer.next(worst, terms.values[0])
        for worst, limit in zip(outer.values, self.limits, strict=True):
            self.fail_above(worst, limit)

    def mark(self, column: Value, value: Value | None, there: Value | None) -> None:
        e = self.e
        word = column.shift_right(6)
        place, bit = e.offset(self.bits, "i64", word), self.one << (column & 63)
        old = e.load(place, "i64", 1)
        if value is not None and there is not None:
            at = e.offset(self.sums, value.element, column)
            before = e.select(e.icmp("ne", old & bit, 0), e.load(at, value.element, 1),
                              e.constant(0, value.element, 1))
            e.store(e.fma(value, there, before) if value.is_float else before + value * there, at)
        with e.when(e.icmp("eq", old, 0)):
            high = e.offset(self.top, "i64", word.shift_right(6))
            e.store(e.load(high, "i64", 1) | (self.one << (word & 63)), high)
        e.store(old | bit, place)

    def marked(self, carried: list[Value], body: Callable[[Value, Value, list[Value]], list[Value]]) -> list[Value]:
        """`body(number, word, carried)` for every word of marks that is not empty, ascending; clears all."""
        e = self.e
        with e.loop(0, self.tops, carried=carried) as tops:
            place = e.offset(self.top, "i64", tops.index)
            high = e.load(place, "i64", 1)
            e.store(self.zero, place)
            with e.loop(0, self.ones(high), carried=[high, *tops.values]) as loop:
                rest, *values = loop.values
                number = (tops.index << 6) + self.lowest(rest)
                own = e.offset(self.bits, "i64", number)
                word = e.load(own, "i64", 1)
                e.store(self.zero, own)
                loop.next(rest & (rest - 1), *body(number, word, values))
            tops.next(*loop.values[1:])
        return tops.values

    def ones(self, word: Value) -> Value:
        return self.e.intrinsic("ctpop", word)

    def lowest(self, word: Value) -> Value:
        return self.e.intrinsic("cttz", word, self.e.constant(True, "i1", 1))

    def count(self, row: Value) -> None:
        (total,) = self.marked([self.zero], lambda number, word, values: [values[0] + self.ones(word)])
        self.e.store(total, self.e.offset(self.others[0], "i64", row))

    def write(self, row: Value) -> None:
        """Columns and sums in order; what does not fit is a fault."""
        e, kernel = self.e, self.kernel
        assert kernel.dtype is not None
        kind, element = scalars.memory_type(kernel.index[0]), scalars.register_type(kernel.dtype)
        start, end = self.span(self.others[2], kernel.pointer[2], row, self.v["count"])

        def word(number: Value, marks: Value, values: list[Value]) -> list[Value]:
            with e.loop(0, self.ones(marks), carried=[marks, values[0]]) as loop:
                rest, place = loop.values
                column = (number << 6) + self.lowest(rest)
                with e.when(e.icmp("slt", place, end)):
                    e.store(e.convert("trunc", column, kind) if kind != "i64" else column,
                            e.offset(self.others[3], kind, place))
                    assert kernel.dtype is not None
                    self.put(e.load(e.offset(self.sums, element, column), element, 1), self.others[4], kernel.dtype,
                             place)
                loop.next(rest & (rest - 1), place + 1)
            return [loop.values[1]]

        (after,) = self.marked([start], word)
        self.fail_if(e.icmp("ne", after, end))
