"""Products of few rows of half floats: a block has 16 or 64 columns of the weights, all of whose slices it asks for at
once, and multiplies them as they come. Time is that of reading the weights.

Weights are the left operand of `mma.sync` and the rows its right one, eight at a time. Sums go over 16 values of k at a
time, ascending, as in the kernels for many rows: a row has the same bits in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.gemm.epilogue import PRODUCT_NUMBERS, Epilogue, EpilogueCode
from morpho.backends.cuda.gemm.half.fragments import CHUNK, Fragments
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

MOST_ROWS = 16
THREADS = 128
STAGE_WEIGHTS = 4096  # of a slice: 256 values of k for 16 columns, 64 for 64
NARROW, WIDE = 16, 64  # columns of a block
MANY_COLUMNS = 8192  # from which on blocks are wide
SHARED_BYTES = 200 << 10
MOST_STAGES = {NARROW: 16, WIDE: 6}  # several wide blocks share a multiprocessor
STEP = 16


@dataclass(frozen=True)
class FewRowsGemm(WithoutMaps):
    """`rows` of 8 or 16, `columns` of a block, `depth`: the values of k."""

    product: Kernel
    dtype: DType
    result: DType
    right: str
    rows: int
    columns: int
    depth: int
    numbers: int
    places: int = 3
    epilogue: Epilogue | None = None  # as in `wgmma.py`
    still: bool = False  # whether no kernel of the program writes the weights: they are asked for before the others end
    single: bool = False  # one row: in shared memory it is one line, all others of a fragment are zeros

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks are read whole."""
        if self.epilogue is None:
            return (0, 16), (1, 16)
        return ((0, 16), (1, 16), *self.epilogue.alignments)

    def unaligned(self) -> FewRowsGemm:
        return self

    def kernel(self) -> Kernel:
        return self.product

    @property
    def slice_depth(self) -> int:
        """Values of k of a slice."""
        return STAGE_WEIGHTS // self.columns

    @property
    def slices(self) -> int:
        """Of all k."""
        return -(-self.depth // self.slice_depth)

    @property
    def weights_bytes(self) -> int:
        """Of the weights of a slice."""
        return 2 * self.slice_depth * self.columns

    @property
    def stage_bytes(self) -> int:
        """Weights of a slice, and its rows where there are several."""
        return self.weights_bytes + (0 if self.single else 2 * self.slice_depth * self.rows)

    @property
    def row_bytes(self) -> int:
        """Of a single row and of the zeros behind it."""
        return 2 * self.slices * self.slice_depth + 16 if self.single else 0

    @property
    def stages(self) -> int:
        """Slices in flight, and one more."""
        room = SHARED_BYTES - self.sums_bytes - self.row_bytes
        most = min(MOST_STAGES[self.columns], room // self.stage_bytes)
        return max(2, min(self.slices + 1, most))

    @property
    def sums_bytes(self) -> int:
        """Of the sums on their way to what follows."""
        return 4 * self.rows * self.columns

    def launch(self, sizes: Sizes) -> Launch:
        """A block for some columns."""
        blocks = -(-sizes.values[1] // self.columns)
        return Launch(Geometry(max(blocks, 1), THREADS, self.sums_at + self.sums_bytes))

    @property
    def sums_at(self) -> int:
        """Where sums lie in shared memory: behind the slices, and the single row."""
        return self.stages * self.stage_bytes + self.row_bytes

    def text(self) -> str:
        return FewRowsCode(self).module()


class FewRowsCode:
    """Generator of the LLVM text of one few rows kernel."""

    def __init__(self, kernel: FewRowsGemm) -> None:
        self.kernel = kernel
        self.after = None if kernel.epilogue is None else EpilogueCode(
            kernel.epilogue, kernel.places, kernel.numbers - PRODUCT_NUMBERS, PRODUCT_NUMBERS)
        self.e: GridEmitter = GridEmitter() if self.after is None else self.after.e
        self.parts = Fragments(self.e, kernel.dtype)
        self.depth = kernel.slice_depth

    def module(self) -> str:
        e, kernel, first = self.e, self.kernel, int(Header.SIZE)
        self.begin()
        ahead = [(e.constant(number * self.depth, "i64", 1), e.constant(number * kernel.stage_bytes, "i64", 1))
                 for number in range(kernel.stages - 1)]
        self.ask_for_slices(ahead)
        if kernel.columns == WIDE:
            self.store_sums(self.main_loop(True))
        else:  # one warp has all columns; the others would only read the same memory at the same time
            for works in e.both(e.icmp("slt", self.thread, WARP)):
                sums = self.main_loop(works)
                if works:
                    self.store_sums(sums)
        self.finish()
        words = first + kernel.places + kernel.numbers
        body = e.text()
        if self.after is not None:
            body = "\n".join([*self.after.head(body), body])
        return entry("kernel_main", words, body, f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()

    def begin(self) -> None:
        """The numbers, and where the thread stands."""
        e, kernel, first = self.e, self.kernel, int(Header.SIZE)
        numbers = [e.word(first + kernel.places + n) for n in range(9)]
        self.m, self.n, _, self.a_m, self.a_k, self.b_k, self.b_n, self.c_m, self.c_n = numbers
        self.a, self.b = e.address(first), e.address(first + 1)
        if self.after is not None:
            self.after.begin_function()
        self.thread = e.ask("thread")
        self.lane, warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        self.own = warp * NARROW if kernel.columns == WIDE else e.constant(0, "i64", 1)
        self.column = e.ask("block") * kernel.columns

    def ask_for_slices(self, ahead: list[tuple[Value, Value]]) -> None:
        """Ask for the first slices: those of weights that no kernel of the program writes before the ones ahead end."""
        e, kernel = self.e, self.kernel
        e.line("call void @gpu.grid_early(ptr %ctx)")
        self.ask_for_others()
        if not kernel.still:
            e.line("call void @gpu.grid_wait(ptr %ctx)")
        for depth, stage in ahead:
            self.fetch_weights(depth, stage)
            e.line("call void @gpu.cp_commit(ptr %ctx)")
        if kernel.still:
            e.line("call void @gpu.grid_wait(ptr %ctx)")
        if kernel.single:
            self.copy_row()
        else:
            self.copy_rows(ahead)

    def ask_for_others(self) -> None:
        """Have the block's columns of what follows, such as a bias, come to the cache."""
        if self.after is None:
            return
        e = self.e
        with e.when(e.icmp("eq", self.thread, 0)):
            for number, access in enumerate(self.after.kernel.accesses):
                if number not in self.after.own and access.kind == "load" and access.pattern == "unit":
                    e.ask_for(e.offset(self.after.bases[number], scalars.memory_type(access.dtype), self.column))

    # -- global to shared ----------------------------------------------------------------------------------------------
    def fetch(self, depth: Value, stage: Value) -> None:
        """Ask for the slices of both operands; what is not there is zero."""
        kernel = self.kernel
        self.fetch_weights(depth, stage)
        if kernel.single:
            self.e.line("call void @gpu.cp_commit(ptr %ctx)")
            return
        self.fetch_one(self.a, self.e.constant(0, "i64", 1), self.m, self.a_m, self.a_k, depth,
                       stage + kernel.weights_bytes, kernel.rows, True)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def fetch_weights(self, depth: Value, stage: Value) -> None:
        """The slice of the weights."""
        kernel = self.kernel
        self.fetch_one(self.b, self.column, self.n, self.b_n, self.b_k, depth, stage, kernel.columns,
                       kernel.right == "k")

    def copy_row(self) -> None:
        """The single row, and zeros behind it."""
        e, kernel = self.e, self.kernel
        start, total, found = kernel.stages * kernel.stage_bytes, kernel.row_bytes // 16, []
        for number in range(-(-total // THREADS)):
            chunk = self.thread + number * THREADS
            inside = e.icmp("slt", chunk * CHUNK, kernel.depth)
            value = e.load(e.offset(self.a, "i16", e.select(inside, chunk * CHUNK, 0)), "i32", 4, align=16)
            kept = e.assign(f"select i1 {inside.name}, <4 x i32> {value.name}, <4 x i32> zeroinitializer", "i32", 4)
            found.append((chunk, kept))
        for chunk, kept in found:
            with e.when(e.icmp("slt", chunk, total)):
                e.store(kept, e.offset(e.shared(), "i8", chunk * 16 + start), align=16)

    def copy_rows(self, ahead: list[tuple[Value, Value]]) -> None:
        """The rows of the first slices, by loads: the weights' groups are then waited for one by one."""
        e, kernel = self.e, self.kernel
        chunks, total = self.depth // CHUNK, kernel.rows * self.depth // CHUNK
        found = []
        for depth, stage in ahead:
            for number in range(-(-total // THREADS)):
                place = self.thread + number * THREADS
                line, chunk = place.shift_right(chunks.bit_length() - 1), place & (chunks - 1)
                k = depth + chunk * CHUNK
                inside = e.icmp("slt", line, self.m) & e.icmp("slt", k, kernel.depth)
                offset = e.select(inside, line * self.a_m + k * self.a_k, 0)
                value = e.load(e.offset(self.a, "i16", offset), "i32", 4, align=16)
                kept = e.assign(f"select i1 {inside.name}, <4 x i32> {value.name}, <4 x i32> zeroinitializer", "i32", 4)
                target = stage + kernel.weights_bytes + self.swizzled(line, chunk, chunks)
                found.append((place, kept, target))
        for place, kept, target in found:
            with e.when(e.icmp("slt", place, total)):
                e.store(kept, e.offset(e.shared(), "i8", target), align=16)

    def fetch_one(self, source: str, start: Value, size: Value, step: Value, along: Value, depth: Value, stage: Value,
                  count: int, k_first: bool) -> None:
        """`count` rows or columns of a slice, chunk by chunk."""
        e = self.e
        chunks = (self.depth if k_first else count) // CHUNK  # of a line
        total = count * self.depth // CHUNK
        for number in range(-(-total // THREADS)):
            place = self.thread + number * THREADS
            line, chunk = place.shift_right(chunks.bit_length() - 1), place & (chunks - 1)
            outer, k = (start + line, depth + chunk * CHUNK) if k_first else (start + chunk * CHUNK, depth + line)
            inside = e.icmp("slt", outer, size) & e.icmp("slt", k, self.kernel.depth)
            offset = e.select(inside, outer * step + k * along, 0)
            target = stage + self.swizzled(line, chunk, chunks)
            if total % THREADS:
                with e.when(e.icmp("slt", place, total)):
                    self.parts.fetch(e.offset(source, "i16", offset), inside, target, True)
            else:
                self.parts.fetch(e.offset(source, "i16", offset), inside, target, True)

    def swizzled(self, line: Value, chunk: Value, chunks: int) -> Value:
        """Where a chunk of a line lies: eight lines of a fragment are in different banks."""
        turn = line.shift_right(2) & 1 if chunks == 2 else line & 7
        return (line * chunks + (chunk ^ turn)) * 16

    # -- the sums ------------------------------------------------------------------------------------------------------
    def main_loop(self, works: bool) -> list[Value]:
        """Multiply slice by slice; the one that comes `stages - 1` later is asked for meanwhile, if there is one. Warps
        that do not work only ask."""
        e, kernel = self.e, self.kernel
        count = kernel.rows // 8 * 4
        end = kernel.stages * kernel.stage_bytes
        first, ahead = e.constant(0, "i64", 1), e.constant((kernel.stages - 1) * kernel.stage_bytes, "i64", 1)
        zero = e.constant(0.0, "float", 1)
        with e.loop(0, kernel.slices, carried=[zero] * count + [first, ahead]) as loop:
            *sums, here, there = loop.values
            e.line(f"call void @gpu.cp_wait_{kernel.stages - 2}(ptr %ctx)")
            e.barrier()
            if kernel.stages - 1 < kernel.slices:
                self.fetch((loop.index + (kernel.stages - 1)) * self.depth, there)
            else:
                e.line("call void @gpu.cp_commit(ptr %ctx)")
            self.first = loop.index * (2 * self.depth) + kernel.stages * kernel.stage_bytes  # of a single row
            for step in range(self.depth // STEP if works else 0):
                sums = self.multiply(step, here, sums)
            following = [e.select(e.icmp("eq", at + kernel.stage_bytes, end), e.constant(0, "i64", 1),
                                  at + kernel.stage_bytes) for at in (here, there)]
            loop.next(*sums, *following)
        return loop.values[:count]

    def multiply(self, step: int, stage: Value, sums: list[Value]) -> list[Value]:
        """16 values of k for the warp's 16 columns and all rows."""
        weights = self.weights(step, stage)
        if self.kernel.rows == 8 and step % 2 == 0:
            self.pair = self.given(step, stage)  # of two steps
        both = self.pair if self.kernel.rows == 8 else self.given(step, stage)
        found = list(sums)
        for tile in range(self.kernel.rows // 8):
            half = step % 2 if self.kernel.rows == 8 else tile
            found[4 * tile:4 * tile + 4] = self.parts.multiply(weights, both[2 * half:2 * half + 2],
                                                               sums[4 * tile:4 * tile + 4])
        return found

    def weights(self, step: int, stage: Value) -> list[str]:
        """16 columns and 16 values of k."""
        lane = self.lane
        if self.kernel.right == "k":
            line, chunk = self.own + (lane & 15), lane.shift_right(4) + 2 * step
            return self.parts.read(stage + self.swizzled(line, chunk, self.depth // CHUNK), False)
        line = (lane & 7) + (lane.shift_right(4) << 3) + STEP * step
        chunk = self.own.shift_right(3) + (lane.shift_right(3) & 1)
        return self.parts.read(stage + self.swizzled(line, chunk, self.kernel.columns // CHUNK), True)

    def given(self, step: int, stage: Value) -> list[str]:
        """Eight rows and 32 values of k, or 16 rows and 16 values."""
        lane, base = self.lane, stage + self.kernel.weights_bytes
        if self.kernel.single:
            zeros = self.kernel.sums_at - 16
            mine = self.first + (lane.shift_right(3) + 2 * step) * 16
            return self.parts.read(self.e.select(self.e.icmp("eq", lane & 7, 0), mine, zeros), False)
        if self.kernel.rows == 8:
            line, chunk = lane & 7, lane.shift_right(3) + 2 * step
        else:
            line, chunk = (lane & 7) + (lane.shift_right(4) << 3), (lane.shift_right(3) & 1) + 2 * step
        return self.parts.read(base + self.swizzled(line, chunk, self.depth // CHUNK), False)

    # -- the end -------------------------------------------------------------------------------------------------------
    def store_sums(self, sums: list[Value]) -> None:
        """The sums of a warp to shared memory."""
        e, kernel = self.e, self.kernel
        room = e.offset(e.shared(), "i8", kernel.sums_at)
        group, pair = self.lane.shift_right(2), (self.lane & 3) * 2
        for number, value in enumerate(sums):
            row = pair + (8 * (number // 4) + number % 2)
            column = self.own + group + 8 * ((number % 4) // 2)
            e.store(value, e.offset(room, "float", row * kernel.columns + column), align=4)

    def finish(self) -> None:
        """The sums to threads that have eight columns of a row each, and what follows."""
        e, kernel = self.e, self.kernel
        room = e.offset(e.shared(), "i8", kernel.sums_at)
        e.barrier()
        across = kernel.columns // CHUNK
        row, start = self.thread.shift_right(across.bit_length() - 1), (self.thread & (across - 1)) * CHUNK
        column = self.column + start
        inside = e.icmp("slt", row, self.m) & e.icmp("slt", column, self.n)
        mine = e.select(inside, row, 0)
        place = e.offset(room, "float", mine * kernel.columns + start)
        eight = [e.load(e.offset(place, "float", n), "float", 1, align=4) for n in range(CHUNK)]
        if self.after is not None:
            self.after.begin_row(mine)
            with e.when(inside):
                self.after.columns_at(column, eight)
            return
        kind, target = scalars.memory_type(kernel.result), e.address(int(Header.SIZE) + 2)
        with e.when(inside):
            for number, value in enumerate(eight):
                rounded = scalars.to_memory(e, scalars.round_to(e, value, kernel.result), kernel.result)
                with e.when(e.icmp("slt", column + number, self.n)):
                    e.store(rounded, e.offset(target, kind, row * self.c_m + (column + number) * self.c_n))
