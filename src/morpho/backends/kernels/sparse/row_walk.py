"""Parts of the generators: row starts that stay inside their arrays, pieces of the merge path, checked indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.code.kernel_abi import FAULT_INDEX, SIGNATURE
from morpho.base.dtypes import DType
from morpho.base.machine import Isa


class SparseCode:
    """A function over the rows of a pattern being written."""

    def __init__(self, isa: Isa, lanes: int = 1) -> None:
        self.isa, self.e = isa, Emitter(lanes, isa.native_half)
        self.zero, self.one = self.e.constant(0, "i64", 1), self.e.constant(1, "i64", 1)

    def begin(self) -> None:
        self.e.store(self.e.constant(0, "i32", 1), "%fault")

    def text(self, name: str) -> str:
        e = self.e
        e.line(f"ret i32 {e.load('%fault', 'i32', 1).name}")
        wide = '"prefer-vector-width"="512"' if self.isa.vector_bits >= 512 else ""
        frame = "  %fault = alloca i32, align 4\n"
        text = defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", frame, e.text())
        return text + "\n".join(sorted(e.declarations)) + "\n"

    def fail_if(self, condition: Value, code: int = FAULT_INDEX) -> None:
        e = self.e
        with e.when(condition):
            e.store(e.load("%fault", "i32", 1) | code, "%fault")

    # -- numbers -------------------------------------------------------------------------------------------------------
    def whole(self, pointer: str, dtype: DType, at: Value | int) -> Value:
        """An int32 or int64 of memory as an i64."""
        kind = scalars.memory_type(dtype)
        return self.e.convert("sext", self.e.load(self.e.offset(pointer, kind, at), kind, 1), "i64")

    def number(self, pointer: str, dtype: DType, at: Value | int, lanes: int = 1) -> Value:
        """An element, as registers hold it."""
        kind = scalars.memory_type(dtype)
        return scalars.from_memory(self.e, self.e.load(self.e.offset(pointer, kind, at), kind, lanes), dtype)

    def put(self, value: Value, pointer: str, dtype: DType, at: Value | int) -> None:
        e, kind = self.e, scalars.memory_type(dtype)
        e.store(scalars.to_memory(e, scalars.round_to(e, value, dtype), dtype), e.offset(pointer, kind, at))

    def smaller(self, a: Value, b: Value) -> Value:
        return self.e.intrinsic("smin", a, b)

    def larger(self, a: Value, b: Value) -> Value:
        return self.e.intrinsic("smax", a, b)

    # -- rows ----------------------------------------------------------------------------------------------------------
    def span(self, indptr: str, dtype: DType, row: Value, count: Value) -> tuple[Value, Value]:
        """First and last element of a row. Starts that do not lie in the array, or fall, are a fault and cut off."""
        start, end = self.whole(indptr, dtype, row), self.whole(indptr, dtype, row + 1)
        first = self.smaller(self.larger(start, self.zero), count)
        last = self.smaller(self.larger(end, first), count)
        self.fail_if(self.e.icmp("ne", first, start) | self.e.icmp("ne", last, end))
        return first, last

    @contextmanager
    def piece_rows(self, indptr: str, dtype: DType, v: dict[str, Value], count: Value) -> Iterator[Value]:
        """The rows that begin in the pieces of this call."""
        e = self.e
        with e.loop(*self.piece_ends(indptr, dtype, v, count)) as loop:
            yield loop.index

    def piece_ends(self, indptr: str, dtype: DType, v: dict[str, Value], count: Value) -> tuple[Value, Value]:
        """The first row of the pieces of this call, and the one after the last."""
        first, last = (self.row_at(indptr, dtype, v["rows"], count, self.e.argument(name, "i64", 1) * v["piece"])
                       for name in ("%row0", "%row1"))
        return first, last

    def row_at(self, indptr: str, dtype: DType, rows: Value, count: Value, place: Value) -> Value:
        """How many rows begin before a place of the merge path: row r begins at r + indptr[r]. A start that lies
        outside the elements counts as their end, so that every row belongs to a piece."""
        e = self.e
        with e.loop(0, 64, carried=[self.zero, rows]) as loop:
            low, high = loop.values
            more = e.icmp("slt", low, high)
            middle = (low + high).shift_right(1)
            begins = middle + self.smaller(self.larger(self.whole(indptr, dtype, middle), self.zero), count)
            before = e.icmp("slt", begins, place) & more
            loop.next(e.select(before, middle + 1, low), e.select(before, high, middle))
            loop.step = e.select(more, self.one, 64)
        return loop.values[0]

    # -- indices -------------------------------------------------------------------------------------------------------
    def limit(self, size: Value, dtype: DType) -> Value:
        """The largest index that is right, as the indices are stored; what is negative is larger, without a sign."""
        e, kind = self.e, scalars.memory_type(dtype)
        most = (1 << (BITS[kind] - 1)) - 1
        last = self.smaller(size - 1, e.constant(most, "i64", 1))
        return e.convert("trunc", last, kind) if kind != "i64" else last

    def index(self, pointer: str, dtype: DType, at: Value, limit: Value, worst: Value,
              read: Value | None = None) -> tuple[Value, Value]:
        """An index as an i64, made to fit, and the largest one so far."""
        e, kind = self.e, scalars.memory_type(dtype)
        found = e.load(e.offset(pointer, kind, at), kind, limit.lanes) if read is None else read
        worst = e.intrinsic("umax", worst, found)
        fitting = e.intrinsic("umin", found, limit)
        return e.convert("zext", fitting, "i64"), worst

    def fail_above(self, worst: Value, limit: Value) -> None:
        self.fail_if(self.e.icmp("ugt", worst, limit))

    def maybe(self, condition: Value, values: Sequence[Value], more: Callable[[list[Value]], list[Value]]
              ) -> list[Value]:
        """Values of `more` where a condition holds, else the values themselves."""
        return self.e.changed_if(condition, values, lambda: more(list(values)))


def half(e: Emitter, x: Value, high: bool) -> Value:
    """The lower or upper two of four lanes."""
    first = 2 if high else 0
    mask = f"<2 x i32> <i32 {first}, i32 {first + 1}>"
    return e.assign(f"shufflevector {x.type} {x.name}, {x.type} poison, {mask}", x.element, 2)


def lane(e: Emitter, x: Value, number: int) -> Value:
    """One lane."""
    return e.assign(f"extractelement {x.type} {x.name}, i64 {number}", x.element, 1)


def together(e: Emitter, x: Value, plus: Callable[[Value, Value], Value]) -> Value:
    """(c0 + c2) + (c1 + c3) of four chains."""
    two = plus(half(e, x, False), half(e, x, True))
    return plus(lane(e, two, 0), lane(e, two, 1))
