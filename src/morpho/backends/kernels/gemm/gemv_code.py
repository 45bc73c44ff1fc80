"""The function of a `GemvKernel`: FMA chains in registers, or in C while B streams by."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.gemm.gemv import FOLLOWED_GEMV, GEMV, GemvKernel
from morpho.backends.kernels.gemm.microkernel import chained, pick, places_of_batch, transpose
from morpho.backends.kernels.gemm.tiling import lanes_of
from morpho.base.machine import Isa

VECTORS = 8  # independent FMA chains, enough to hide the latency of one
STREAMED_ROWS = 8  # rows of B read concurrently, the next 8 prefetched: 768 x 768 185 -> 122 us (notes/gemm.md)
ROWS = 4  # rows of C computed together
TRANSPOSED = 4  # columns x values of k of an in-register transpose
GROUPS = 2  # such blocks side by side; more are more streams than hardware prefetchers follow


def generate(kernel: GemvKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `GemvKernel`."""
    return GemvCode(kernel, isa).module(name)


class GemvCode:
    def __init__(self, kernel: GemvKernel, isa: Isa) -> None:
        self.kernel = kernel
        self.lanes = lanes_of(kernel.dtype, isa)
        self.e = Emitter(self.lanes, isa.native_half)
        self.element = scalars.memory_type(kernel.dtype)
        self.wide = isa.vector_bits >= 512
        self.by_lane = isa.architecture == "aarch64" and self.lanes > 1  # an fma takes one lane of a vector there

    def module(self, name: str) -> str:
        e = self.e
        if self.kernel.follows:
            e.line("%status = alloca i32, align 4")
            e.store(e.constant(0, "i32", 1), "%status")
        a, b, c = (e.load_pointer("%buffers", i) for i in range(3))
        self.v = v = GEMV.load(e)
        if self.kernel.rows_at:  # and one more: a sum of -0.0 becomes 0.0 by it
            rows = e.load(e.load_pointer("%buffers", self.kernel.rows_at), "i64", 1)
            v["k"] = e.intrinsic("smin", v["k"], rows + 1)
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
            batch = e.instruction("udiv", loop.index, v["tiles"])
            begin = (loop.index - batch * v["tiles"]) * v["tile"]
            end = e.intrinsic("smin", begin + v["tile"], v["n"])
            place = places_of_batch(e, batch, v)
            self.a, self.b = e.offset(a, self.element, place("a")), e.offset(b, self.element, place("b"))
            self.c = e.offset(c, self.element, batch * v["m"] * v["n"])
            if self.kernel.way == "streamed":
                self.streamed(begin, end)
            else:
                self.in_chunks(begin, end)
            if self.kernel.follows:
                self.follow(batch, begin, end)
        e.line(f"ret i32 {e.load('%status', 'i32', 1).name if self.kernel.follows else 0}")
        wide = '"prefer-vector-width"="512"' if self.wide else ""
        return defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", e.text()) + "\n".join(sorted(e.declarations)) + "\n"

    def follow(self, batch: Value, begin: Value, end: Value) -> None:
        """Call the loop kernel on the rows of a batch and the columns of a tile."""
        e, first = self.e, batch * self.v["m"]
        address = e.load_pointer(e.offset("%values", "i64", FOLLOWED_GEMV.at("epilogue")))
        places, numbers = e.offset("%buffers", "ptr", 3), e.offset("%values", "i64", len(FOLLOWED_GEMV))
        last = first + self.v["m"]
        found = e.assign(f"call i32 {address}(ptr {places}, ptr {numbers}, i64 {first.name}, i64 {last.name}, "
                         f"i64 {begin.name}, i64 {end.name}, ptr %scratch)", "i32", 1)
        e.store(e.load("%status", "i32", 1) | found, "%status")

    # -- operands; what a loop does not change is written before it, since nothing moves it there later ----------------
    def row_of(self, pointer: str, number: Value, stride: str) -> str:
        return self.e.offset(pointer, self.element, number * self.v[stride])

    def lines_of(self, pointer: str, first: Value, count: int, stride: str) -> list[str]:
        return [self.row_of(pointer, first + i, stride) for i in range(count)]

    def rows_of(self, pointer: str, first: Value, count: int, stride: str) -> list[str]:
        """Rows of the left operand or of the result; the last one again where there are fewer: it is computed twice,
        alike."""
        if count == 1:
            return [self.row_of(pointer, first, stride)]
        numbers = [self.e.intrinsic("smin", first + i, self.v["m"] - 1) for i in range(count)]
        return [self.row_of(pointer, number, stride) for number in numbers]

    def grouped(self) -> Value:
        """How many rows are made in groups: all, but for one that is left over."""
        m = self.v["m"]
        return m - self.e.convert("zext", self.e.icmp("eq", m & (ROWS - 1), 1), "i64")

    def left(self, line: str, k: Value, depth: int) -> list[Value]:
        """`depth` values of a row from k on: one by one, or as vectors where an fma can take a lane of one."""
        e = self.e
        given = [e.load(self.row_of(line, k + j, "a_k"), self.element, 1) for j in range(depth)]
        if not self.by_lane or depth % TRANSPOSED:
            return given
        return [self.gathered(given[j:j + TRANSPOSED]) for j in range(0, depth, TRANSPOSED)]

    def spread(self, left: list[Value], j: int, lanes: int) -> Value:
        """The value number j of `left` in all lanes."""
        if left[0].lanes == 1:
            return self.e.splat(left[j], lanes)
        vector, lane = left[j // TRANSPOSED], j % TRANSPOSED
        return transpose(self.e, [vector])[lane] if lanes == 1 else pick(self.e, vector, vector, [lane] * lanes)

    def gathered(self, given: list[Value]) -> Value:
        """Scalars side by side."""
        e = self.e
        found = Value(e, "poison", self.element, len(given))
        for lane, one in enumerate(given):
            found = e.assign(f"insertelement {found.type} {found.name}, {one.type} {one.name}, i64 {lane}",
                             self.element, found.lanes)
        return found

    # -- sums in the result --------------------------------------------------------------------------------------------
    def streamed(self, begin: Value, end: Value) -> None:
        """A tile of columns, a block of k after the other."""
        e, v = self.e, self.v
        with e.loop(0, v["m"]) as rows:
            self.sweep(rows.index, e.constant(0, "i64", 1), begin, end, 1, 0)
        whole, together = v["k"] & -STREAMED_ROWS, self.grouped()
        with e.loop(0, whole, STREAMED_ROWS) as blocks:
            with e.loop(0, together, ROWS) as rows:
                self.sweep(rows.index, blocks.index, begin, end, ROWS, STREAMED_ROWS)
            with e.loop(together, v["m"]) as rows:
                self.sweep(rows.index, blocks.index, begin, end, 1, STREAMED_ROWS)
        with e.loop(whole, v["k"]) as rest, e.loop(0, v["m"]) as rows:
            self.sweep(rows.index, rest.index, begin, end, 1, 1)

    def sweep(self, row: Value, k: Value, begin: Value, end: Value, rows: int, depth: int) -> None:
        """`depth` steps of the chains of `rows` rows, over all columns of a tile; no step sets them to zero."""
        # A line of the cache, unless that were too many instructions.
        e, line = self.e, max(self.lanes, min(CACHE_LINE // self.kernel.dtype.itemsize, VECTORS * self.lanes))
        left = [self.left(place, k, depth) for place in self.rows_of(self.a, row, rows, "a_m")]
        results, rights = self.rows_of(self.c, row, rows, "n"), self.lines_of(self.b, k, depth, "b_k")
        ahead = self.lines_of(self.b, k + STREAMED_ROWS, STREAMED_ROWS if depth == STREAMED_ROWS else 0, "b_k")
        for width in dict.fromkeys((line, self.lanes, min(TRANSPOSED, self.lanes), 1)):
            stop, lanes = begin + ((end - begin) & -width), min(width, self.lanes)
            with e.loop(begin, stop, width) as loop:
                for place in ahead if width == line else ():
                    self.prefetch(e.offset(place, self.element, loop.index))
                for part in range(0, width, lanes):
                    self.step(results, left, rights, loop.index + part, lanes)
            begin = stop

    def step(self, results: list[str], left: list[list[Value]], rights: list[str], column: Value, lanes: int) -> None:
        e = self.e
        targets = [e.offset(line, self.element, column) for line in results]
        sums = [e.load(target, self.element, lanes) if rights else e.constant(0, self.element, lanes)
                for target in targets]
        for j, line in enumerate(rights):
            right = e.load(e.offset(line, self.element, column), self.element, lanes)
            sums = [chained(e, self.spread(one, j, lanes), right, total)
                    for one, total in zip(left, sums, strict=True)]
        for total, target in zip(sums, targets, strict=True):
            e.store(total, target)

    def prefetch(self, place: str) -> None:
        """A line of the next block of rows: they are too short to be foreseen by the processor."""
        self.e.prefetch(place, 1)

    # -- sums in registers ---------------------------------------------------------------------------------------------
    def in_chunks(self, begin: Value, end: Value) -> None:
        """A tile in chunks of columns of the largest width that fits, the last of which ends at the last column: what
        it shares with the one before is computed twice, alike."""
        e, v, turns = self.e, self.v, self.kernel.way == "rows"
        together = [TRANSPOSED * GROUPS, TRANSPOSED] if self.lanes > 1 else []
        if not turns:  # of short integers parts of a vector too
            together = [self.lanes * VECTORS, *(self.lanes >> i for i in range(5) if self.lanes >> i >= TRANSPOSED)]
        widths = list(dict.fromkeys((*together, 1)))
        done = e.fresh("done")
        for width in widths:
            fits, narrower = e.fresh("fits"), e.fresh("narrower")
            e.branch_if(e.icmp("sge", end - begin, width), fits, narrower)
            e.label(fits)
            with e.loop(begin, end, width) as loop:
                column = e.intrinsic("smin", loop.index, end - width)
                several = self.grouped() if turns and width > 1 else e.constant(0, "i64", 1)
                if turns and width > 1:
                    with e.loop(0, several, ROWS) as rows:
                        self.transposed(rows.index, column, width // TRANSPOSED, ROWS)
                with e.loop(several, v["m"]) as rows:
                    if turns and width > 1:
                        self.transposed(rows.index, column, width // TRANSPOSED, 1)
                    else:
                        self.chains(rows.index, column, min(width, self.lanes), max(1, width // self.lanes))
            e.branch(done)
            e.label(narrower)
        e.branch(done)
        e.label(done)

    def chains(self, row: Value, column: Value, lanes: int, vectors: int) -> None:
        """Vectors of columns that lie side by side, or one column."""
        e, left, right = self.e, self.row_of(self.a, row, "a_m"), self.row_of(self.b, column, "b_n")
        zeros = [e.constant(0, self.element, lanes)] * vectors
        with e.loop(0, self.v["k"], carried=zeros) as loop:
            spread, line = e.splat(self.left(left, loop.index, 1)[0], lanes), self.row_of(right, loop.index, "b_k")
            given = [e.load(e.offset(line, self.element, i * lanes), self.element, lanes) for i in range(vectors)]
            loop.next(*[chained(e, spread, b, total) for b, total in zip(given, loop.values, strict=True)])
        self.store(loop.values, self.row_of(self.c, row, "n"), column)

    def transposed(self, row: Value, column: Value, groups: int, rows: int) -> None:
        """Groups of four columns, four values of k at a time, then the rest one by one."""
        e, k = self.e, self.v["k"]
        lefts = self.rows_of(self.a, row, rows, "a_m")
        rights = self.lines_of(self.b, column, groups * TRANSPOSED, "b_n")
        whole = k & -TRANSPOSED
        zeros = [e.constant(0, self.element, TRANSPOSED)] * (groups * rows)
        with e.loop(0, whole, TRANSPOSED, carried=zeros) as loop:
            left = [self.left(line, loop.index, TRANSPOSED) for line in lefts]
            lines = [e.load(e.offset(line, self.element, loop.index), self.element, TRANSPOSED) for line in rights]
            totals = list(loop.values)
            for group in range(groups):
                for j, right in enumerate(transpose(e, lines[group * TRANSPOSED:(group + 1) * TRANSPOSED])):
                    for i in range(rows):
                        number = i * groups + group
                        totals[number] = chained(e, self.spread(left[i], j, TRANSPOSED), right, totals[number])
            loop.next(*totals)
        with e.loop(whole, k, carried=loop.values) as rest:
            spread = [e.splat(self.left(line, rest.index, 1)[0], TRANSPOSED) for line in lefts]
            ones = [e.load(e.offset(line, self.element, rest.index), self.element, 1) for line in rights]
            given = [self.gathered(ones[group * TRANSPOSED:(group + 1) * TRANSPOSED]) for group in range(groups)]
            rest.next(*[chained(e, spread[i // groups], given[i % groups], total)
                        for i, total in enumerate(rest.values)])
        for i, line in enumerate(self.rows_of(self.c, row, rows, "n")):
            self.store(rest.values[i * groups:(i + 1) * groups], line, column)

    def store(self, totals: list[Value], line: str, column: Value) -> None:
        e, target = self.e, self.e.offset(line, self.element, column)
        for number, total in enumerate(totals):
            e.store(total, e.offset(target, self.element, number * total.lanes))
