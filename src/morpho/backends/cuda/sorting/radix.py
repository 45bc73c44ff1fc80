"""A stable sort of one line by the whole grid, four bits of the keys a pass, the lowest first.

A pass is three launches: every tile of the line counts its digits; one block turns the counts of all tiles into places;
every tile moves its elements there, in order. Counts are integers, and an element's place depends on nothing else, so
the order is the one that a stable sort has, run after run. The CPU's sorts have the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, OwnKernel, Sizes
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.loops.sorting.keys import INFINITY, QUIET, Keys
from morpho.base.dtypes import DType

THREADS, ITEMS = 256, 8  # elements of a thread lie side by side, so that their order is its own
TILE = THREADS * ITEMS
DIGITS, DIGIT_BITS = 16, 4
OF_THREAD = DIGITS * THREADS // THREADS  # counts that a thread adds up, of all digits and threads


def tiles(length: int) -> int:
    """Blocks of a line."""
    return max(1, -(-length // TILE))


@dataclass(frozen=True)
class SortPart(OwnKernel):
    """Base of the launches of a sort. Numbers: length, strides of the source and of the
    target, and the lowest bit of the digit."""

    role = "scan"


@dataclass(frozen=True)
class CountDigits(SortPart):
    """How many keys of each tile have each digit. Buffers: the line (or keys), counts[digit, tile]."""

    dtype: DType
    descending: bool
    first: bool  # whether it reads the line itself and not keys

    def launch(self, sizes: Sizes) -> Launch:
        """A block for a tile."""
        return Launch(Geometry(tiles(sizes.values[0]), THREADS, 4 * DIGITS))

    def text(self) -> str:
        """Shared counters, added to by atomics of integers."""
        code = _Code(self.dtype, self.descending, 2)
        e, shared = code.e, code.e.shared()
        with e.when(e.icmp("slt", code.thread, DIGITS)):
            e.store(e.constant(0, "i32", 1), e.offset(shared, "i32", code.thread))
        e.barrier()
        for at, there in code.mine():
            with e.when(there):
                digit = code.digit(code.key(code.buffers[0], at, self.first))
                e.line(f'atomicrmw add ptr {e.offset(shared, "i32", digit)}, i32 1 monotonic')
        e.barrier()
        with e.when(e.icmp("slt", code.thread, DIGITS)):
            place = code.thread * code.tiles + code.block
            e.store(e.load(e.offset(shared, "i32", code.thread), "i32", 1), e.offset(code.buffers[1], "i32", place))
        return code.module(2)


@dataclass(frozen=True)
class ScanCounts(SortPart):
    """The sum of all counts before each, by one block. Buffers: counts, places."""

    def launch(self, sizes: Sizes) -> Launch:
        """One block."""
        return Launch(Geometry(1, THREADS, 4 * THREADS))

    def text(self) -> str:
        """Rounds of as many counts as the block has room for; what was before them is carried."""
        code = _Code(None, False, 2)
        e = code.e
        count = code.tiles * DIGITS
        with e.loop(0, count, THREADS * OF_THREAD, carried=[e.constant(0, "i32", 1)]) as loop:
            first = loop.index + code.thread * OF_THREAD
            read = []
            for number in range(OF_THREAD):
                at = first + number
                inside = e.icmp("slt", at, count)
                value = e.load(e.offset(code.buffers[0], "i32", e.select(inside, at, 0)), "i32", 1)
                read.append((at, inside, e.select(inside, value, 0)))
            own = read[0][2]
            for _, _, value in read[1:]:
                own = own + value
            before, total = code.before(own, e.shared())
            running = before + loop.values[0]
            for at, inside, value in read:
                with e.when(inside):
                    e.store(running, e.offset(code.buffers[1], "i32", at))
                running = running + value
            loop.next(loop.values[0] + total)
        return code.module(2)


@dataclass(frozen=True)
class PlaceElements(SortPart):
    """Every element to its place. Buffers: the line, keys, order (both of the pass before), places; then keys and order
    of this pass, or, in the last one, the result: the order, or the line in that order."""

    dtype: DType
    descending: bool
    first: bool
    last: bool
    order: DType
    values: bool  # whether the last pass writes the line itself
    result: DType

    def launch(self, sizes: Sizes) -> Launch:
        """A block for a tile."""
        return Launch(Geometry(tiles(sizes.values[0]), THREADS, 4 * (DIGITS * THREADS + THREADS)))

    def text(self) -> str:
        """Counts of every digit and thread, summed over the threads before."""
        code = _Code(self.dtype, self.descending, 6)
        e, shared = code.e, code.e.shared()
        counted = e.constant(0, "i64", 1)  # four bits for each digit
        keys = []
        for at, there in code.mine():
            key = code.key(code.buffers[0 if self.first else 1], e.select(there, at, 0), self.first)
            digit = code.digit(key)
            keys.append((at, there, key, digit))
            one = e.instruction("shl", e.constant(1, "i64", 1), digit * DIGIT_BITS)
            counted = counted + e.select(there, one, 0)
        for number in range(DIGITS):
            count = counted.shift_right(number * DIGIT_BITS) & 15
            e.store(e.convert("trunc", count, "i32"), e.offset(shared, "i32", code.thread + number * THREADS))
        e.barrier()
        mine = [e.load(e.offset(shared, "i32", code.thread * OF_THREAD + n), "i32", 1) for n in range(OF_THREAD)]
        own = mine[0]
        for value in mine[1:]:
            own = own + value
        running, _ = code.before(own, e.offset(shared, "i32", DIGITS * THREADS))
        for number, value in enumerate(mine):
            e.store(running, e.offset(shared, "i32", code.thread * OF_THREAD + number))
            running = running + value
        e.barrier()
        seen = e.constant(0, "i64", 1)
        for at, there, key, digit in keys:
            line = digit * THREADS
            start, here = (e.load(e.offset(shared, "i32", place), "i32", 1) for place in (line, line + code.thread))
            base = e.load(e.offset(code.buffers[3], "i32", digit * code.tiles + code.block), "i32", 1)
            earlier = e.convert("trunc", e.instruction("lshr", seen, digit * DIGIT_BITS) & 15, "i32")
            place = e.convert("zext", base + (here - start) + earlier, "i64")
            seen = seen + e.instruction("shl", e.constant(1, "i64", 1), digit * DIGIT_BITS)
            with e.when(there):
                self.put(code, at, key, place)
        return code.module(6)

    def put(self, code: _Code, at: Value, key: Value, place: Value) -> None:
        """One element."""
        e, kind = code.e, scalars.memory_type(self.order)
        number = e.convert("trunc", at, kind) if kind != "i64" else at
        if not self.first:
            number = e.load(e.offset(code.buffers[2], kind, at), kind, 1)
        if not self.last:
            e.store(key, e.offset(code.buffers[4], key.element, place))
            e.store(number, e.offset(code.buffers[5], kind, place))
            return
        target = place * code.target
        if self.values:
            source = e.convert("zext", number, "i64") * code.source
            e.store(code.told(source), e.offset(code.buffers[4], code.kind, target))
        else:
            wide = scalars.memory_type(self.result)
            e.store(e.convert("zext", number, wide) if wide != kind else number,
                    e.offset(code.buffers[4], wide, target))


class _Code:
    """A launch of a sort being written."""

    def __init__(self, dtype: DType | None, descending: bool, places: int) -> None:
        self.e = e = GridEmitter()
        first = int(Header.SIZE)
        self.buffers = [e.address(first + number) for number in range(places)]
        self.length, self.source, self.target, self.shift = (e.word(first + places + number) for number in range(4))
        self.thread, self.block = e.ask("thread"), e.ask("block")
        self.tiles = (self.length + (TILE - 1)).shift_right(TILE.bit_length() - 1)
        self.dtype, self.keys = dtype, None if dtype is None else Keys(e, dtype, descending, canonical=True)
        self.kind = f"i{8 * dtype.itemsize}" if dtype is not None else ""

    def mine(self) -> list[tuple[Value, Value]]:
        """The places of the thread's elements, and whether there is one."""
        first = self.block * TILE + self.thread * ITEMS
        return [(first + number, self.e.icmp("slt", first + number, self.length)) for number in range(ITEMS)]

    def key(self, pointer: str, at: Value, first: bool) -> Value:
        """The key of an element, from the line or as it was kept."""
        if not first:
            return self.e.load(self.e.offset(pointer, self.kind, at), self.kind, 1)
        assert self.keys is not None
        return self.keys.of(self.e.load(self.e.offset(pointer, self.kind, at * self.source), self.kind, 1))

    def told(self, at: Value) -> Value:
        """The bits of an element of the line; there is one NaN."""
        assert self.dtype is not None
        e = self.e
        bits = e.load(e.offset(self.buffers[0], self.kind, at), self.kind, 1)
        if not self.dtype.is_float:
            return bits
        nan = e.icmp("ugt", bits & ((1 << (BITS[self.kind] - 1)) - 1), INFINITY[self.dtype])
        return e.select(nan, QUIET[self.dtype], bits)

    def digit(self, key: Value) -> Value:
        """Four bits of a key, as an index."""
        e = self.e
        wide = e.convert("zext", key, "i64") if key.element != "i64" else key
        return e.instruction("lshr", wide, self.shift) & (DIGITS - 1)

    def before(self, own: Value, room: str) -> tuple[Value, Value]:
        """The sum of the numbers of all threads before this one, and of all; `room` has a word for each."""
        e, total, step = self.e, own, 1
        place = e.offset(room, "i32", self.thread)
        while step < THREADS:
            e.store(total, place)
            e.barrier()
            has = e.icmp("sge", self.thread, step)
            other = e.load(e.offset(room, "i32", e.select(has, self.thread - step, 0)), "i32", 1)
            total = total + e.select(has, other, 0)
            e.barrier()
            step *= 2
        e.store(total, place)
        e.barrier()
        everything = e.load(e.offset(room, "i32", THREADS - 1), "i32", 1)
        e.barrier()
        return total - own, everything

    def module(self, places: int) -> str:
        """The whole text."""
        words = int(Header.SIZE) + places + 4
        return entry("kernel_main", words, self.e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + self.e.outside()

