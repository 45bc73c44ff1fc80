"""The function of a `SpgemmKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.kernels.sparse.kernels import RANKS, SpgemmKernel
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.base.machine import Isa

AHEAD = 8  # elements of A between a prefetch and its use
BLOCK = 4  # registers of columns that are ranked at a time
LONGEST = 16  # registers of columns that are ranked, not read from marks: up to there that is faster


def generate(kernel: SpgemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `SpgemmKernel`."""
    return _Code(kernel, isa).module(name)


class _Code(SparseCode):
    def __init__(self, kernel: SpgemmKernel, isa: Isa) -> None:
        super().__init__(isa, 1)
        self.kernel = kernel
        self.kind = scalars.memory_type(kernel.index[1])  # of the list
        self.wide = max(1, isa.vector_bits // 8 // kernel.index[1].itemsize)
        self.most = LONGEST * self.wide  # columns that are put in order by rank

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        buffers = [e.load_pointer("%buffers", n) for n in range(5 if kernel.dtype is None else 9)]
        self.starts, self.left, self.indptr, self.right, *self.others = buffers
        self.v = v = kernel.record.load(e)
        self.words = (v["columns"] + 63).shift_right(6)
        self.tops = (self.words + 63).shift_right(6)
        self.word = 8 if kernel.dtype is not None and BITS[scalars.register_type(kernel.dtype)] == 64 else 4
        stamps = v["columns"] * (self.word * (1 if kernel.dtype is None else 2))  # bytes
        stamps = (stamps + 7).shift_right(3)
        self.bits = e.offset("%scratch", "i64", stamps)
        self.top = e.offset(self.bits, "i64", self.words)
        self.ranks = e.offset(self.top, "i64", self.tops)
        self.list = e.offset(self.ranks, "i64", RANKS)
        with e.loop(0, stamps + self.words + self.tops) as loop:
            e.store(self.zero, e.offset("%scratch", "i64", loop.index))
        self.counts = (e.select(e.icmp("sgt", v["inner"], 0), v["left_count"], self.zero),
                       e.select(e.icmp("sgt", v["columns"], 0), v["right_count"], self.zero))
        self.limits = self.limit(v["inner"], kernel.index[0]), self.limit(v["columns"], kernel.index[1])
        with self.piece_rows(self.indptr, kernel.pointer[0], v, v["left_count"]) as row:
            self.stamp = e.convert("trunc", row + 1, f"i{8 * self.word}")  # of all columns met in this row
            length = self.meet(row)
            if kernel.dtype is None:
                e.store(length, e.offset(self.others[0], "i64", row))
            else:
                self.write(row, length)
        return self.text(name)

    def entry(self, column: Value) -> str:
        """The last row in which a column was met; where numbers are computed, its sum lies behind it, on the same line
        of the cache."""
        if self.kernel.dtype is None:
            return self.e.offset("%scratch", "i32", column)
        return self.e.offset("%scratch", "i8", column * (2 * self.word))

    def sum_of(self, entry: str) -> str:
        return self.e.offset(entry, "i8", self.word)

    def meet(self, row: Value) -> Value:
        """Every term of a row is added to the sum of its column; a column met for the first time joins the list, whose
        length this is. Without branches: whether a column is new cannot be predicted."""
        e, kernel = self.e, self.kernel
        start, end = self.span(self.indptr, kernel.pointer[0], row, self.counts[0])
        nothing = [e.constant(0, limit.element, 1) for limit in self.limits]
        with e.loop(start, end, carried=[*nothing, self.zero]) as outer:
            inner, worst = self.index(self.left, kernel.index[0], outer.index, self.limits[0], outer.values[0])
            value = None if kernel.dtype is None else self.number(self.others[0], kernel.dtype, outer.index)
            self.ask_ahead(outer.index)
            first, last = self.span(self.starts, kernel.pointer[1], inner, self.counts[1])
            with e.loop(first, last, carried=outer.values[1:]) as terms:
                column, other = self.index(self.right, kernel.index[1], terms.index, self.limits[1], terms.values[0])
                there = None if kernel.dtype is None else self.number(self.others[1], kernel.dtype, terms.index)
                terms.next(other, self.mark(column, value, there, terms.values[1]))
            outer.next(worst, *terms.values)
        for worst, limit in zip(outer.values[:2], self.limits, strict=True):
            self.fail_above(worst, limit)
        return outer.values[2]

    def ask_ahead(self, at: Value) -> None:
        """Prefetch the row of B that an element of A soon to come looks up: it may lie anywhere."""
        e, kernel = self.e, self.kernel
        later = self.smaller(at + AHEAD, self.v["left_count"] - 1)
        inner, _ = self.index(self.left, kernel.index[0], later, self.limits[0], self.limits[0])
        start = self.whole(self.starts, kernel.pointer[1], inner)
        e.prefetch(e.offset(self.right, self.kind, start), 1)
        if kernel.dtype is not None:
            e.prefetch(e.offset(self.others[1], scalars.memory_type(kernel.dtype), start), 1)

    def mark(self, column: Value, value: Value | None, there: Value | None, length: Value) -> Value:
        """One term; the length of the list after it."""
        e = self.e
        place = self.entry(column)
        fresh = e.icmp("ne", e.load(place, self.stamp.element, 1), self.stamp)
        e.store(self.stamp, place)
        if value is not None and there is not None:
            at = self.sum_of(place)
            before = e.select(fresh, e.constant(0, value.element, 1), e.load(at, value.element, 1))
            e.store(e.fma(value, there, before) if value.is_float else before + value * there, at)
            e.store(e.convert("trunc", column, self.kind), e.offset(self.list, self.kind, length))
        return length + e.convert("zext", fresh, "i64")

    def listed(self, number: Value) -> Value:
        """A column of the list."""
        return self.whole(self.list, self.kernel.index[1], number)

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

    def write(self, row: Value, length: Value) -> None:
        """Columns and sums in order; a list that is not as long as the row is a fault."""
        e, kernel = self.e, self.kernel
        start, end = self.span(self.others[2], kernel.pointer[2], row, self.v["count"])
        fits, short = e.icmp("eq", length, end - start), e.icmp("sle", length, self.most)
        self.fail_if(fits ^ True)
        with e.when(fits & short):
            self.rank(length)
            with e.loop(0, length) as loop:
                rank = self.whole(self.ranks, kernel.index[1], loop.index)
                self.element(self.listed(loop.index), start + rank)
        with e.when(fits & (short ^ True)):
            self.by_marks(start, length)

    def rank(self, length: Value) -> None:
        """How many columns of the list are smaller, for each of a short one: as many comparisons as its square, but
        without a branch that could be mispredicted, and a register of columns at a time."""
        e = self.e
        for few in e.both(e.icmp("sle", length, self.wide)):
            with e.loop(0, length, step=(1 if few else BLOCK) * self.wide) as block:
                self.rank_block(block.index, length, 1 if few else BLOCK)

    def rank_block(self, start: Value, length: Value, registers: int) -> None:
        """Rank some registers of columns."""
        e, lanes = self.e, self.wide
        mine = [e.load(e.offset(self.list, self.kind, start + n * lanes), self.kind, lanes) for n in range(registers)]
        with e.loop(0, length, carried=[e.constant(0, self.kind, lanes)] * registers) as loop:
            other = e.splat(e.load(e.offset(self.list, self.kind, loop.index), self.kind, 1), lanes)
            loop.next(*[rank + e.convert("zext", e.icmp("slt", other, own), self.kind)
                        for rank, own in zip(loop.values, mine, strict=True)])
        for n, rank in enumerate(loop.values):
            e.store(rank, e.offset(self.ranks, self.kind, start + n * lanes))

    def by_marks(self, start: Value, length: Value) -> None:
        """The columns of a long list in order, by a bitmap; its words that are not empty are marked themselves."""
        e = self.e
        with e.loop(0, length) as loop:
            column = self.listed(loop.index)
            word = column.shift_right(6)
            own = e.offset(self.bits, "i64", word)
            e.store(e.load(own, "i64", 1) | (self.one << (column & 63)), own)
            high = e.offset(self.top, "i64", word.shift_right(6))
            e.store(e.load(high, "i64", 1) | (self.one << (word & 63)), high)

        def word_of(number: Value, marks: Value, values: list[Value]) -> list[Value]:
            with e.loop(0, self.ones(marks), carried=[marks, values[0]]) as loop:
                rest, place = loop.values
                self.element((number << 6) + self.lowest(rest), place)
                loop.next(rest & (rest - 1), place + 1)
            return [loop.values[1]]

        self.marked([start], word_of)

    def element(self, column: Value, place: Value) -> None:
        """A column and its sum."""
        e, kernel = self.e, self.kernel
        assert kernel.dtype is not None
        kind, element = scalars.memory_type(kernel.index[0]), scalars.register_type(kernel.dtype)
        e.store(e.convert("trunc", column, kind), e.offset(self.others[3], kind, place))
        self.put(e.load(self.sum_of(self.entry(column)), element, 1), self.others[4], kernel.dtype, place)
