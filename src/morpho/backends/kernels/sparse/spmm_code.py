"""The function of a `SpmmKernel`: each row is four chains, in scalars for one column, in vectors for several."""

from __future__ import annotations

from functools import partial

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import Value
from morpho.backends.kernels.sparse.kernels import FOLLOWED_SPMM, SpmmKernel
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.base.dtypes import bool_
from morpho.base.machine import Isa
from morpho.ops.sparse.pattern import CHAINS, SEMIRINGS, nothing

BLOCK = 32  # rows whose indices are checked together
AHEAD = 512  # elements between a prefetch and its use


def generate(kernel: SpmmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `SpmmKernel`."""
    return SpmmCode(kernel, isa).module(name)


class SpmmCode(SparseCode):
    """A product being written."""

    def __init__(self, kernel: SpmmKernel, isa: Isa) -> None:
        compute = kernel.dtype.compute.itemsize
        lanes = 1 if kernel.single else max(1, isa.vector_bits // 8 // compute)
        super().__init__(isa, lanes)
        self.kernel, self.rule = kernel, SEMIRINGS[kernel.semiring]
        self.vectors = 4 if isa.vector_bits >= 512 else 2  # of columns that are summed at a time: CHAINS x as many
        self.register = scalars.register_type(kernel.dtype)

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.begin()
        self.dense, self.indices, self.indptr, self.data, self.result = (e.load_pointer("%buffers", n)
                                                                         for n in range(5))
        self.v = v = kernel.record.load(e)
        self.count = e.select(e.icmp("sgt", v["size"], 0), v["count"], self.zero)  # of nothing nothing is looked up
        self.last = self.limit(v["size"], kernel.index)
        first, after = self.piece_ends(self.indptr, kernel.pointer, v, v["count"])
        with e.loop(first, after, BLOCK) as blocks:
            last = self.smaller(blocks.index + BLOCK, after)
            fine = self.checked_block(blocks.index, last)
            with e.loop(blocks.index, e.select(fine, last, blocks.index)) as loop:
                start, end = (self.whole(self.indptr, kernel.pointer, at) for at in (loop.index, loop.index + 1))
                self.row(loop.index, start, end)
        if kernel.follows:
            with e.when(e.icmp("slt", first, after)):
                self.follow(first, after)
        return self.text(name)

    def follow(self, first: Value, after: Value) -> None:
        """The epilogue on the rows that are there now: its rows, or its columns where the result is a vector."""
        e, v = self.e, self.v
        address = e.load_pointer(e.offset("%values", "i64", FOLLOWED_SPMM.at("epilogue")))
        places, numbers = e.offset("%buffers", "ptr", 5), e.offset("%values", "i64", len(FOLLOWED_SPMM))
        by_rows = e.icmp("ne", v["by_rows"], 0)
        rows = e.select(by_rows, first, self.zero), e.select(by_rows, after, self.one)
        columns = e.select(by_rows, self.zero, first), e.select(by_rows, v["columns"], after)
        given = ", ".join(f"i64 {x.name}" for x in (*rows, *columns))
        found = e.assign(f"call i32 {address}(ptr {places}, ptr {numbers}, {given}, ptr %scratch)", "i32", 1)
        e.store(e.load("%fault", "i32", 1) | found, "%fault")

    def row(self, row: Value, start: Value, end: Value) -> None:
        if self.kernel.single:  # four scalar chains: the gather of a vector takes longer than as many loads
            self.chunk(row, start, end, self.zero, 1)
        else:
            self.columns(row, start, end)

    # -- indices -------------------------------------------------------------------------------------------------------
    def checked_block(self, first: Value, after: Value) -> Value:
        """Whether the starts of some rows rise inside the array, and their indices lie inside the axis. Checked apart,
        many at a time, they cost the sums nothing."""
        e, kernel = self.e, self.kernel
        begin, end = (self.whole(self.indptr, kernel.pointer, at) for at in (first, after))
        fine = self.rising(first, after) & e.icmp("sge", begin, 0) & e.icmp("sle", end, self.count)
        kind = scalars.memory_type(kernel.index)
        stop = e.select(fine, end, begin)  # what lies outside the array is not looked at
        lanes = max(1, self.isa.vector_bits // 8 // kernel.index.itemsize)
        most = begin + ((stop - begin) & -lanes)
        with e.loop(begin, most, lanes, carried=[e.constant(0, kind, lanes)]) as loop:
            read = e.load(e.offset(self.indices, kind, loop.index), kind, lanes)
            if kernel.single:  # nothing but these two streams keeps a product with a vector busy
                e.prefetch(e.offset(self.indices, kind, loop.index + AHEAD), 1)
                e.prefetch(e.offset(self.data, scalars.memory_type(kernel.dtype), loop.index + AHEAD), 1)
            loop.next(e.intrinsic("umax", loop.values[0], read))
        fine = fine & e.all_lanes(e.icmp("ule", loop.values[0], e.splat(self.last, lanes)))
        with e.loop(most, stop, carried=[e.constant(0, kind, 1)]) as loop:
            read = e.load(e.offset(self.indices, kind, loop.index), kind, 1)
            loop.next(e.intrinsic("umax", loop.values[0], read))
        fine = fine & e.icmp("ule", loop.values[0], self.last)
        self.fail_if(fine ^ 1)
        return fine

    def rising(self, first: Value, after: Value) -> Value:
        """Whether no row ends before it begins."""
        e, kind = self.e, scalars.memory_type(self.kernel.pointer)
        lanes = max(1, self.isa.vector_bits // 8 // self.kernel.pointer.itemsize)
        most = first + ((after - first) & -lanes)
        fine = e.constant(True, "i1", 1)
        for start, stop, width in ((first, most, lanes), (most, after, 1)):
            with e.loop(start, stop, width, carried=[e.constant(True, "i1", width)]) as loop:
                here, then = (e.load(e.offset(self.indptr, kind, at), kind, width) for at in (loop.index,
                                                                                               loop.index + 1))
                loop.next(loop.values[0] & e.icmp("sle", here, then))
            fine = fine & e.all_lanes(loop.values[0])
            if lanes == 1:
                break
        return fine

    def looked_at(self, at: Value) -> Value:
        """An index that was checked."""
        kind = scalars.memory_type(self.kernel.index)
        return self.e.convert("zext", self.e.load(self.e.offset(self.indices, kind, at), kind, 1), "i64")

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def plus(self, a: Value, b: Value) -> Value:
        if self.rule.plus == "add":
            return a + b
        if self.kernel.dtype is bool_:
            return a | b
        return emit(self.e, self.rule.plus, [a, b], self.kernel.dtype.compute, self.kernel.dtype.compute)

    def with_term(self, total: Value, value: Value, there: Value) -> Value:
        """One more term of a chain."""
        if self.rule == SEMIRINGS["plus_times"]:
            return self.e.fma(value, there, total) if total.is_float else total + value * there
        if self.kernel.dtype is bool_:
            return total | (value & there)
        if self.rule.times in ("add", "mul"):
            term = value + there if self.rule.times == "add" else value * there
        else:
            term = emit(self.e, self.rule.times, [value, there], self.kernel.dtype.compute, self.kernel.dtype.compute)
        return self.plus(total, term)

    def empty(self, lanes: int) -> Value:
        return self.e.constant(nothing(self.rule.plus, self.kernel.dtype), self.register, lanes)

    # -- several columns -----------------------------------------------------------------------------------------------
    def columns(self, row: Value, start: Value, end: Value) -> None:
        """A row against all columns: as many vectors at a time as registers hold sums for, then one, then a part."""
        e, width = self.e, self.v["columns"]
        lanes, block = e.lanes, e.lanes * self.vectors
        line = row * width
        whole = width & -block
        with e.loop(0, whole, block) as loop:
            self.chunk(line, start, end, loop.index, self.vectors)
        single = width & -lanes
        with e.loop(whole, single, lanes) as loop:
            self.chunk(line, start, end, loop.index, 1)
        if lanes > 1:
            with e.when(e.icmp("slt", single, width)):
                self.chunk(line, start, end, single, 1, e.first_lanes(width - single))

    def chunk(self, line: Value, start: Value, end: Value, column: Value, vectors: int, on: Value | None = None
              ) -> None:
        """All stored elements of a row against some columns."""
        e, kernel = self.e, self.kernel
        memory = scalars.memory_type(kernel.dtype)
        first = e.offset(self.dense, memory, column)

        def term(at: Value, sums: list[Value]) -> list[Value]:
            index = self.looked_at(at)
            value = e.splat(self.number(self.data, kernel.dtype, at))
            there = e.offset(first, memory, index * self.v["stride"] if kernel.strided else index)
            found = []
            for number, total in enumerate(sums):
                place = e.offset(there, memory, number * e.lanes)
                read = e.load(place, memory) if on is None else e.load_some(place, memory, on)
                found.append(self.with_term(total, value, scalars.from_memory(e, read, kernel.dtype)))
            return found

        most = start + ((end - start) & -CHAINS)
        with e.loop(start, most, CHAINS, carried=[self.empty(e.lanes)] * (CHAINS * vectors)) as loop:
            found: list[Value] = []
            for chain in range(CHAINS):
                found += term(loop.index + chain, loop.values[chain * vectors:(chain + 1) * vectors])
            loop.next(*found)
        sums = loop.values
        for chain in range(CHAINS - 1):
            at, own = most + chain, slice(chain * vectors, (chain + 1) * vectors)
            sums[own] = self.maybe(e.icmp("slt", at, end), sums[own], partial(term, at))
        for number in range(vectors):
            c = [sums[chain * vectors + number] for chain in range(CHAINS)]
            total = self.plus(self.plus(c[0], c[2]), self.plus(c[1], c[3]))
            stored = scalars.to_memory(e, scalars.round_to(e, total, kernel.dtype), kernel.dtype)
            place = e.offset(self.result, memory, line + column + number * e.lanes)
            if on is None:
                e.store(stored, place)
            else:
                e.store_some(stored, place, on)
