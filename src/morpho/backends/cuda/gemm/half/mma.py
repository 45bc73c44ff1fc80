"""Products of bfloat16 and float16 on tensor cores by warps: `mma.sync`, fed by `cp.async` and `ldmatrix` (Ampere on).

A block has a tile of C, its warps parts of it in registers. Slices of 64 values of k come into one of several stages of
shared memory while earlier ones are multiplied. Lines of a slice are chunks of 16 bytes, whose order is changed by the
line's number (a swizzle), so that the eight lines of a fragment lie in different banks.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.gemm.epilogue import PRODUCT_NUMBERS, Epilogue, EpilogueCode
from morpho.backends.cuda.gemm.half.tile_store import TileStore
from morpho.backends.cuda.gemm.simt import Frame, SimtGemm
from morpho.base.dtypes import DType, bfloat16
from morpho.program.kernel import Kernel

DEPTH = 64  # values of k of a slice
CHUNK = 8  # elements of 16 bytes
ROWS, COLUMNS, STEP = 16, 16, 16  # of C and of k that a warp multiplies at a time (two instructions wide)


@dataclass(frozen=True)
class MmaGemm(WithoutMaps):
    """`tile`: rows and columns of a block, then of a warp."""

    product: Kernel
    dtype: DType
    result: DType
    left: str
    right: str
    tile: tuple[int, int, int, int]
    stages: int
    numbers: int
    simple: SimtGemm | None  # for operands that do not lie on 16 bytes; without, they are copied first
    places: int = 3
    epilogue: Epilogue | None = None  # as in `wgmma.py`

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks are read whole."""
        return ((0, 16), (1, 16)) if self.epilogue is None else ((0, 16), (1, 16), *self.epilogue.alignments)

    def unaligned(self) -> SimtGemm | MmaGemm:
        """On the arithmetic units; itself with what follows: operands that do not lie on 16 bytes are copied first."""
        return self if self.simple is None or self.epilogue is not None else self.simple

    def kernel(self) -> Kernel:
        return self.product

    @property
    def threads(self) -> int:
        return WARP * (self.tile[0] // self.tile[2]) * (self.tile[1] // self.tile[3])

    @property
    def stage_bytes(self) -> int:
        """Both slices."""
        return 2 * DEPTH * (self.tile[0] + self.tile[1])

    def launch(self, sizes: Sizes) -> Launch:
        """A block per tile."""
        m, n = sizes.values[:2]
        batch = 1
        for count in sizes.values[9:13]:
            batch *= count
        tiles = -(-m // self.tile[0]) * -(-n // self.tile[1]) * batch
        return Launch(Geometry(max(tiles, 1), self.threads, self.stages * self.stage_bytes))

    def text(self) -> str:
        return MmaCode(self).module()


class MmaCode:
    """Generator of the LLVM text of one mma kernel."""

    def __init__(self, kernel: MmaGemm) -> None:
        self.kernel = kernel
        self.after = None if kernel.epilogue is None else EpilogueCode(
            kernel.epilogue, kernel.places, kernel.numbers - PRODUCT_NUMBERS, PRODUCT_NUMBERS)
        self.e: GridEmitter = GridEmitter() if self.after is None else self.after.e
        self.rows, self.columns, self.high, self.wide = kernel.tile
        self.mma = "mma_bf16" if kernel.dtype is bfloat16 else "mma_f16"
        self.sum = "float"  # what is summed in

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        self.frame = frame = Frame(e, kernel.dtype, kernel.result, self.rows, self.columns, kernel.places)
        if self.after is not None:
            self.after.begin_function()
        self.thread = e.ask("thread")
        self.lane = self.thread & (WARP - 1)
        warp = self.thread.shift_right(5)
        across = self.columns // self.wide
        self.warp_row = warp.shift_right(across.bit_length() - 1) * self.high
        self.warp_column = (warp & (across - 1)) * self.wide
        slices = (frame.k + (DEPTH - 1)).shift_right(DEPTH.bit_length() - 1)
        for stage in range(kernel.stages - 1):
            self.fetch(e.constant(stage * DEPTH, "i64", 1), e.constant(stage * kernel.stage_bytes, "i64", 1))
        sums = self.main_loop(slices)
        if self.after is None:
            self.store(sums)
        else:
            self.follow(sums, self.after)
        words = int(Header.SIZE) + kernel.places + kernel.numbers
        attributes = f' nounwind "nvvm.maxntid"="{kernel.threads}" "nvvm.minctasm"="1"'
        body = e.text()
        if self.after is not None:
            body = "\n".join([*self.after.head(body), body])
        return entry("kernel_main", words, body, attributes) + e.outside()

    def main_loop(self, slices: Value) -> list[Value]:
        """Multiply slice by slice; the one that comes `stages - 1` later is fetched meanwhile."""
        e, kernel = self.e, self.kernel
        count = (self.high // ROWS) * (self.wide // 8) * 4
        zero = e.constant(0.0 if self.sum == "float" else 0, self.sum, 1)
        end = kernel.stages * kernel.stage_bytes
        first, ahead = e.constant(0, "i64", 1), e.constant((kernel.stages - 1) * kernel.stage_bytes, "i64", 1)
        with e.loop(0, slices, carried=[zero] * count + [first, ahead]) as loop:
            *sums, here, there = loop.values
            e.line(f"call void @gpu.cp_wait_{kernel.stages - 2}(ptr %ctx)")
            e.barrier()
            self.fetch((loop.index + (kernel.stages - 1)) * DEPTH, there)
            for step in range(DEPTH // STEP):
                sums = self.multiply(step, here, sums)
            following = [e.select(e.icmp("eq", at + kernel.stage_bytes, end), e.constant(0, "i64", 1),
                                  at + kernel.stage_bytes) for at in (here, there)]
            loop.next(*sums, *following)
        return loop.values[:count]

    # -- global to shared ----------------------------------------------------------------------------------------------
    def fetch(self, depth: Value, stage: Value) -> None:
        """Queue the slices from `depth` on into a stage; what is not there is zero."""
        e, f, kernel = self.e, self.frame, self.kernel
        self.fetch_one(f.a, f.row, f.m, f.a_m, f.a_k, depth, stage, self.rows, kernel.left == "k")
        self.fetch_one(f.b, f.column, f.n, f.b_n, f.b_k, depth, stage + 2 * DEPTH * self.rows, self.columns,
                       kernel.right == "k")
        e.line("call void @gpu.cp_commit(ptr %ctx)")

    def fetch_one(self, source: str, start: Value, size: Value, step: Value, along: Value, depth: Value, stage: Value,
                  count: int, k_first: bool) -> None:
        """A slice of one operand, chunk by chunk."""
        e = self.e
        chunks = (DEPTH if k_first else count) // CHUNK  # of a line
        for number in range(count * DEPTH // CHUNK // self.kernel.threads):
            place = self.thread + number * self.kernel.threads
            line, chunk = place.shift_right(chunks.bit_length() - 1), place & (chunks - 1)
            outer, k = (start + line, depth + chunk * CHUNK) if k_first else (start + chunk * CHUNK, depth + line)
            inside = e.icmp("slt", outer, size) & e.icmp("slt", k, self.frame.k)
            offset = e.select(inside, outer * step + k * along, 0)
            target = stage + self.swizzled(line, chunk, chunks)
            bytes_ = e.select(inside, e.constant(16, "i32", 1), e.constant(0, "i32", 1))
            at = e.convert("trunc", target, "i32")
            e.line(f"call void @gpu.cp_async(ptr %ctx, i32 {at.name}, ptr {e.offset(source, 'i16', offset)}, "
                   f"i32 {bytes_.name})")

    def swizzled(self, line: Value, chunk: Value, chunks: int) -> Value:
        """Where a chunk of a line lies, in bytes."""
        return (line * chunks + (chunk ^ (line & 7))) * 16

    # -- shared to registers -------------------------------------------------------------------------------------------
    def fragment(self, base: Value, line: Value, chunk: Value, chunks: int, turned: bool) -> list[str]:
        """Four matrices of 8 x 8, whose lines the lanes point at."""
        e = self.e
        at = e.convert("trunc", base + self.swizzled(line, chunk, chunks), "i32")
        name = "%" + e.fresh("f")
        kind = "{ i32, i32, i32, i32 }"
        e.line(f"{name} = call {kind} @gpu.ldmatrix{'_trans' if turned else ''}(ptr %ctx, i32 {at.name})")
        return [e.assign(f"extractvalue {kind} {name}, {n}", "i32", 1).name for n in range(4)]

    def left_fragment(self, step: int, stage: Value, row: int) -> list[str]:
        """16 rows of A and 16 values of k."""
        lane = self.lane
        if self.kernel.left == "k":
            line = self.warp_row + (lane & 15) + row
            return self.fragment(stage, line, lane.shift_right(4) + 2 * step, DEPTH // CHUNK, False)
        line = (lane & 7) + (lane.shift_right(4) << 3) + STEP * step
        chunk = self.warp_row.shift_right(3) + (lane.shift_right(3) & 1) + row // CHUNK
        return self.fragment(stage, line, chunk, self.rows // CHUNK, True)

    def right_fragment(self, step: int, stage: Value, column: int) -> list[str]:
        """16 values of k and 16 columns of B."""
        lane, base = self.lane, stage + 2 * DEPTH * self.rows
        if self.kernel.right == "n":
            line = (lane & 15) + STEP * step
            chunk = self.warp_column.shift_right(3) + lane.shift_right(4) + column // CHUNK
            return self.fragment(base, line, chunk, self.columns // CHUNK, True)
        line = self.warp_column + (lane & 7) + (lane.shift_right(4) << 3) + column
        return self.fragment(base, line, (lane.shift_right(3) & 1) + 2 * step, DEPTH // CHUNK, False)

    def multiply(self, step: int, stage: Value, sums: list[Value]) -> list[Value]:
        """16 values of k for the warp's part of the tile."""
        left = [self.left_fragment(step, stage, row) for row in range(0, self.high, ROWS)]
        right = [self.right_fragment(step, stage, column) for column in range(0, self.wide, COLUMNS)]
        sums = list(sums)
        for i, a in enumerate(left):
            for j in range(self.wide // 8):
                b = right[j // 2][2 * (j % 2):2 * (j % 2) + 2]
                at = 4 * (i * (self.wide // 8) + j)
                sums[at:at + 4] = self.instruction(a, b, sums[at:at + 4])
        return sums

    def instruction(self, a: list[str], b: list[str], c: list[Value]) -> list[Value]:
        """C + A B for 16 x 8 results."""
        e, kind = self.e, "{ " + ", ".join([self.sum] * 4) + " }"
        given = ", ".join([*(f"i32 {x}" for x in (*a, *b)), *(f"{self.sum} {x.name}" for x in c)])
        name = "%" + e.fresh("d")
        e.line(f"{name} = call {kind} @gpu.{self.mma}(ptr %ctx, {given})")
        return [e.assign(f"extractvalue {kind} {name}, {n}", self.sum, 1) for n in range(4)]

    # -- registers to global -------------------------------------------------------------------------------------------
    def follow(self, sums: list[Value], after: EpilogueCode) -> None:
        """The warp's part of the tile with what follows the product: lanes lie as those of a warpgroup."""
        e, f, each = self.e, self.frame, self.wide // 2
        end = TileStore(e, self.kernel, "null", f.m, f.n, f.c_m, f.c_n, after)
        end.lane = self.lane
        for i in range(self.high // ROWS):
            for half in range(2):
                row = f.row + self.warp_row + self.lane.shift_right(2) + (i * ROWS + 8 * half)
                end.followed(row, f.column + self.warp_column, f.matrix, e.icmp("slt", row, f.m),
                             sums[i * each:(i + 1) * each], half)

    def store(self, sums: list[Value]) -> None:
        """The warp's part of the tile, rounded once. A lane has pairs of neighbours."""
        e, frame = self.e, self.frame
        group, pair = self.lane.shift_right(2), (self.lane & 3) * 2
        for i in range(self.high // ROWS):
            for half in range(2):
                row = frame.row + self.warp_row + group + (i * ROWS + 8 * half)
                with e.when(e.icmp("slt", row, frame.m)):
                    for j in range(self.wide // 8):
                        at = 4 * (i * (self.wide // 8) + j) + 2 * half
                        self.store_pair(row, frame.column + self.warp_column + pair + 8 * j, sums[at:at + 2])

    def store_pair(self, row: Value, column: Value, values: list[Value]) -> None:
        """Two neighbours of a row."""
        e, frame, result = self.e, self.frame, self.kernel.result
        kind = scalars.memory_type(result)
        for n, value in enumerate(values):
            rounded = scalars.to_memory(e, scalars.round_to(e, value, result), result)
            with e.when(e.icmp("slt", column + n, frame.n)):
                e.store(rounded, e.offset(frame.c, kind, row * frame.c_m + (column + n) * frame.c_n))


class ReadAhead(MmaCode):
    """Products whose right operand is not copied as it lies: elements of a later slice are on their way in registers
    while one is multiplied, and are put into shared memory behind it."""

    @abstractmethod
    def read(self, depth: Value) -> list[Value]:
        """The right operand's slice from `depth` on, as this thread reads it."""

    @abstractmethod
    def put(self, values: list[Value], stage: Value) -> None:
        """Put the values read into a stage, behind the left operand's slice."""

    def fetch(self, depth: Value, stage: Value) -> None:
        """Both slices at once, before the first product."""
        self.put(self.asked(depth, stage), stage)

    def asked(self, depth: Value, stage: Value) -> list[Value]:
        """The left operand's slice is queued, the right one's is read."""
        f = self.frame
        self.fetch_one(f.a, f.row, f.m, f.a_m, f.a_k, depth, stage, self.rows, True)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")
        return self.read(depth)

    def main_loop(self, slices: Value) -> list[Value]:
        """Multiply slice by slice; elements of a later one are asked for before, and put away after."""
        e, kernel = self.e, self.kernel
        count = (self.high // ROWS) * (self.wide // 8) * 4
        zero = e.constant(0.0, "float", 1)
        end = kernel.stages * kernel.stage_bytes
        first, ahead = e.constant(0, "i64", 1), e.constant((kernel.stages - 1) * kernel.stage_bytes, "i64", 1)
        with e.loop(0, slices, carried=[zero] * count + [first, ahead]) as loop:
            *sums, here, there = loop.values
            e.line(f"call void @gpu.cp_wait_{kernel.stages - 2}(ptr %ctx)")
            e.barrier()
            values = self.asked((loop.index + (kernel.stages - 1)) * DEPTH, there)
            for step in range(DEPTH // STEP):
                sums = self.multiply(step, here, sums)
            self.put(values, there)
            following = [e.select(e.icmp("eq", at + kernel.stage_bytes, end), e.constant(0, "i64", 1),
                                  at + kernel.stage_bytes) for at in (here, there)]
            loop.next(*sums, *following)
        return loop.values[:count]
