"""Products of bfloat16 and float16 by warpgroups (Hopper): `wgmma`, fed by the copy engine (TMA).

A block has tiles of C one after another. The first warpgroup has the copy engine bring slices of 64 values of k into
stages of shared memory; the others, 64 rows each, multiply what is there and keep their part of the tile in registers.
Two barriers of a stage say that it is full and that it is empty. Lines of a slice are 128 bytes, eight chunks whose
order is changed by the line's number: the swizzle that the copy engine writes and `wgmma` reads. Where a block has
several tiles, warps of their own write the sums (`handover.py`), so that the tensor cores need not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.tensor_map import MAP_WORDS, TensorMap
from morpho.backends.cuda.gemm.epilogue import PRODUCT_NUMBERS, TAILS_BYTES, Epilogue, EpilogueCode, wanted_tails
from morpho.backends.cuda.gemm.half.handover import Handover, room_bytes
from morpho.backends.cuda.gemm.half.tile_store import LINES_BYTES, TileStore
from morpho.base.dtypes import DType, bfloat16, float16
from morpho.program.kernel import Kernel

DEPTH = 64  # values of k of a slice: a line of 128 bytes
BLOCK = 64  # rows of a warpgroup, and columns of a part whose lines run along n or m
PART_BYTES = 2 * BLOCK * DEPTH
GROUP = 128  # threads of a warpgroup
ROW_TILES = 16  # tiles of rows that follow each other before the next columns: they share what is in the L2 cache
SHARED_BYTES, HANDED_BYTES = 208 << 10, 226 << 10  # of stages alone; with the room for sums that are handed over
MOST_STAGES = 8
LOADER_REGISTERS, WORKER_REGISTERS = 40, 232
MOST_HELPED = 192  # columns of a tile whose sums leave registers for another warpgroup of helpers


@dataclass(frozen=True)
class WgmmaGemm:
    """`tile`: rows and columns of a block."""

    product: Kernel
    dtype: DType
    result: DType
    left: str
    right: str
    tile: tuple[int, int]
    wide: bool  # whether rows of C are whole chunks of 16 bytes
    numbers: int
    places: int = 3
    epilogue: Epilogue | None = None  # its operands are those behind the first two; there is no C then
    handed: bool = False  # whether warps of their own write the sums, of a half float

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """The copy engine reads chunks, and so do stores and what follows."""
        if self.epilogue is None:
            return ((0, 16), (1, 16), (2, 16)) if self.wide else ((0, 16), (1, 16))
        return ((0, 16), (1, 16), *self.epilogue.alignments)

    def unaligned(self) -> WgmmaGemm:
        return self

    def kernel(self) -> Kernel:
        return self.product

    @property
    def workers(self) -> int:
        """Warpgroups that multiply."""
        return self.tile[0] // BLOCK

    @property
    def threads(self) -> int:
        return self.others + GROUP * self.workers

    @property
    def others(self) -> int:
        """Threads before those that multiply: one of them loads, and where sums are handed over, warps write."""
        return 2 * GROUP if self.handed and self.tile[1] <= MOST_HELPED else GROUP

    @property
    def helpers(self) -> int:
        """Threads that write sums that are handed over: all of those but the first warp."""
        return self.others - WARP

    @property
    def stage_bytes(self) -> int:
        """Both slices."""
        return 2 * DEPTH * (self.tile[0] + self.tile[1])

    @property
    def stages(self) -> int:
        """Slices in flight."""
        room = HANDED_BYTES - self.handed_bytes if self.handed else SHARED_BYTES
        return min(MOST_STAGES, room // (self.stage_bytes + 16))

    @property
    def handed_bytes(self) -> int:
        """Shared memory of sums on their way, and of a table for what follows."""
        looks = self.epilogue is not None and wanted_tails(self.epilogue.loop)
        return room_bytes(*self.tile) + (TAILS_BYTES if looks else 0)

    @property
    def staged(self) -> bool:
        """Whether rows of a half float that begin anywhere go through shared memory."""
        return not self.wide and self.result in (bfloat16, float16) and self.tile[1] >= BLOCK

    @property
    def lines_at(self) -> int:
        """Where the room for them begins, behind the stages and their barriers."""
        return self.stages * self.stage_bytes + 16 * self.stages

    @property
    def first_map(self) -> int:
        """The word where the first operand's map begins."""
        return -(-(int(Header.SIZE) + self.places + self.numbers) // 8) * 8

    @property
    def words(self) -> int:
        """Of a launch, with two maps."""
        return self.first_map + 2 * MAP_WORDS

    def launch(self, sizes: Sizes) -> Launch:
        """A block per multiprocessor, or one per tile where there are fewer."""
        m, n = sizes.values[:2]
        tiles = -(-m // self.tile[0]) * -(-n // self.tile[1]) * sizes.values[9]
        blocks = max(1, min(tiles, sizes.multiprocessors))
        behind = 4 * self.workers * LINES_BYTES if self.staged else 0
        behind = self.handed_bytes if self.handed else behind
        return Launch(Geometry(blocks, self.threads, self.lines_at + behind))

    def maps(self, values: tuple[int, ...]) -> tuple[TensorMap, ...]:
        """Descriptors of both operands for the copy engine: sizes along memory first, and the box of one copy."""
        m, n, k, a_m, a_k, b_k, b_n = values[:7]
        batch, a_batch, b_batch = values[9], values[13], values[17]
        kind = "bfloat16" if self.dtype is bfloat16 else "float16"

        def made(operand: int, size: int, step: int, along: int, steps: int, k_first: bool, rows: int) -> TensorMap:
            dims = (k, size, batch) if k_first else (size, k, batch)
            line = step if k_first else along
            box = (DEPTH, min(rows, 256), 1) if k_first else (BLOCK, DEPTH, 1)
            strides = (2 * line, 2 * (steps or line * dims[1]))
            return TensorMap(operand, self.first_map + operand * MAP_WORDS, kind, dims, strides, box)

        return (made(0, m, a_m, a_k, a_batch, self.left == "k", self.tile[0]),
                made(1, n, b_n, b_k, b_batch, self.right == "k", self.tile[1]))

    def text(self) -> str:
        return WgmmaCode(self).module()


class WgmmaCode:
    """Generator of the LLVM text of one wgmma kernel."""

    def __init__(self, kernel: WgmmaGemm) -> None:
        self.kernel = kernel
        self.after = None if kernel.epilogue is None else EpilogueCode(
            kernel.epilogue, kernel.places, kernel.numbers - PRODUCT_NUMBERS, PRODUCT_NUMBERS)
        self.e: GridEmitter = GridEmitter() if self.after is None else self.after.e
        self.rows, self.columns = kernel.tile
        kind = "bf16" if kernel.dtype is bfloat16 else "f16"
        turned = f"{int(kernel.left != 'k')}{int(kernel.right != 'k')}"
        self.multiplies = f"wgmma_{kind}_{self.columns}_{turned}"

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        first = int(Header.SIZE)
        numbers = [e.word(first + kernel.places + n) for n in range(PRODUCT_NUMBERS)]
        self.m, self.n, self.k = numbers[:3]
        self.batch, self.c_step = numbers[9], numbers[21]
        if self.after is not None:
            self.after.begin_function()
        target = e.address(first + 2) if self.after is None else "null"
        made = Handover if kernel.handed else TileStore
        self.store = made(e, kernel, target, self.m, self.n, numbers[7], numbers[8], self.after)
        self.slices = (self.k + (DEPTH - 1)).shift_right(6)
        self.tiles_m, self.tiles_n = (e.instruction("udiv", size + (part - 1), self.number(part))
                                      for size, part in ((self.m, self.rows), (self.n, self.columns)))
        self.thread = e.ask("thread")
        self.barriers = kernel.stages * kernel.stage_bytes
        with e.when(e.icmp("eq", self.thread, 0)):
            for stage in range(kernel.stages):
                self.call("mbarrier_init", self.number(self.barriers + 16 * stage), 1)
                self.call("mbarrier_init", self.number(self.barriers + 16 * stage + 8), kernel.workers)
            if isinstance(self.store, Handover):
                self.store.begin(kernel.lines_at)
            e.line("call void @gpu.mbarrier_ready(ptr %ctx)")
        if kernel.handed and self.after is not None and self.after.looks_up:
            place = e.offset(e.shared(), "i8", kernel.lines_at + room_bytes(*kernel.tile))
            self.after.fill_tails(place, self.thread, kernel.threads)
        e.barrier()
        for multiplies in e.both(e.icmp("sge", self.thread, kernel.others)):
            if multiplies:
                self.multiply_tiles()
            elif kernel.handed:
                for loads in e.both(e.icmp("slt", self.thread, WARP)):
                    self.load_tiles() if loads else self.each_tile(self.write_tile)
            else:
                e.line(f"call void @gpu.registers_down_{LOADER_REGISTERS}(ptr %ctx)")
                self.load_tiles()
        attributes = f' nounwind "nvvm.maxntid"="{kernel.threads}" "nvvm.minctasm"="1"'
        body = e.text()
        if self.after is not None:
            body = "\n".join([*self.after.head(body), body])
        return entry("kernel_main", kernel.words, body, attributes) + e.outside()

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def number(self, value: int) -> Value:
        """A constant."""
        return self.e.constant(value, "i64", 1)

    def call(self, name: str, *values: Value | int) -> None:
        """A function of the grid with 32-bit numbers."""
        e = self.e
        given = ", ".join(f"i32 {value if isinstance(value, int) else e.convert('trunc', value, 'i32').name}"
                          for value in values)
        e.line(f"call void @gpu.{name}(ptr %ctx, {given})")

    def each_tile(self, work: object) -> None:
        """This block's tiles: rows first within groups of `ROW_TILES`, then columns, groups, batches."""
        e = self.e
        per_matrix = self.tiles_m * self.tiles_n
        zero = self.number(0)  # the stage and its phase, and whether this is an even or an odd tile of the block
        with e.loop(e.ask("block"), per_matrix * self.batch, e.ask("blocks"), carried=[zero] * 3) as loop:
            matrix = e.instruction("udiv", loop.index, per_matrix)
            rest = loop.index - matrix * per_matrix
            group = e.instruction("udiv", rest, self.tiles_n * ROW_TILES)
            inside = rest - group * (self.tiles_n * ROW_TILES)
            high = e.intrinsic("smin", self.tiles_m - group * ROW_TILES, self.number(ROW_TILES))
            column = e.instruction("udiv", inside, high)
            row = group * ROW_TILES + (inside - column * high)
            self.turn = loop.values[2]
            found = work(row * self.rows, column * self.columns, matrix, *loop.values[:2])  # type: ignore[operator]
            loop.next(*found, loop.values[2] ^ 1)

    def following(self, stage: Value, phase: Value) -> tuple[Value, Value]:
        """The next stage, and its phase."""
        e = self.e
        last = e.icmp("eq", stage, self.kernel.stages - 1)
        return e.select(last, self.number(0), stage + 1), e.select(last, phase ^ 1, phase)

    # -- the warpgroup that loads --------------------------------------------------------------------------------------
    def load_tiles(self) -> None:
        """One thread has the copy engine bring all slices of the block's tiles."""
        with self.e.when(self.e.icmp("eq", self.thread, 0)):
            self.each_tile(self.load_tile)

    def load_tile(self, row: Value, column: Value, matrix: Value, stage: Value, phase: Value) -> tuple[Value, Value]:
        """All slices of a tile, each when its stage is empty."""
        e, kernel = self.e, self.kernel
        with e.loop(0, self.slices, carried=[stage, phase]) as loop:
            stage, phase = loop.values
            full = stage * 16 + self.barriers
            self.call("mbarrier_wait", full + 8, phase ^ 1)
            self.call("mbarrier_expect", full, kernel.stage_bytes)
            place, depth = stage * kernel.stage_bytes, loop.index * DEPTH
            self.load(0, place, row, depth, matrix, full, self.rows, kernel.left == "k")
            self.load(1, place + 2 * DEPTH * self.rows, column, depth, matrix, full, self.columns, kernel.right == "k")
            loop.next(*self.following(stage, phase))
        return loop.values[0], loop.values[1]

    def load(self, operand: int, place: Value, start: Value, depth: Value, matrix: Value, full: Value, count: int,
             k_first: bool) -> None:
        """A slice of an operand: one box along k, or one for each 64 rows or columns."""
        e, table = self.e, self.kernel.first_map + operand * MAP_WORDS
        parts = 1 if k_first else count // BLOCK
        for part in range(parts):
            outer = start + part * BLOCK
            first, second = (depth, outer) if k_first else (outer, depth)
            given = ", ".join(f"i32 {e.convert('trunc', value, 'i32').name}"
                              for value in (place + part * PART_BYTES, full, first, second, matrix))
            e.line(f"call void @gpu.tma_load_3(ptr %ctx, i32 {8 * table}, {given})")

    # -- the warpgroups that multiply ----------------------------------------------------------------------------------
    def multiply_tiles(self) -> None:
        """All tiles of the block, 64 rows of each."""
        if not self.kernel.handed:
            self.e.line(f"call void @gpu.registers_up_{WORKER_REGISTERS}(ptr %ctx)")
        self.worker = (self.thread - self.kernel.others).shift_right(7)
        self.each_tile(self.multiply_tile)

    def multiply_tile(self, row: Value, column: Value, matrix: Value, stage: Value,
                      phase: Value) -> tuple[Value, Value]:
        """All slices of a tile into registers, then to memory."""
        e, kernel = self.e, self.kernel
        zero, count = e.constant(0.0, "float", 1), self.columns // 2
        first = e.icmp("eq", self.thread & (GROUP - 1), 0)
        with e.loop(0, self.slices, carried=[zero] * count + [stage, phase]) as loop:
            *sums, stage, phase = loop.values
            full = stage * 16 + self.barriers
            self.call("mbarrier_wait", full, phase)
            place = stage * kernel.stage_bytes
            sums = self.multiply(place + self.worker * PART_BYTES, place + 2 * DEPTH * self.rows, sums)
            with e.when(first):
                self.call("mbarrier_arrive", full + 8)
            loop.next(*sums, *self.following(stage, phase))
        *sums, stage, phase = loop.values
        if isinstance(self.store, Handover):
            self.store.give(self.worker, sums, self.thread & (GROUP - 1), self.turn)
        else:
            self.store.tile(row + self.worker * BLOCK, column, matrix, matrix * self.c_step, sums,
                            self.thread & (GROUP - 1))
        return stage, phase

    def write_tile(self, row: Value, column: Value, matrix: Value, stage: Value, phase: Value) -> tuple[Value, Value]:
        """Write a tile that was handed over, by the helper warps."""
        assert isinstance(self.store, Handover)
        self.store.take(row, column, matrix, matrix * self.c_step, self.thread - WARP, self.turn)
        return stage, phase

    def multiply(self, left: Value, right: Value, sums: list[Value]) -> list[Value]:
        """64 values of k: four instructions, and their end."""
        e, kind = self.e, "{ " + ", ".join(["float"] * len(sums)) + " }"
        places = ", ".join(f"i32 {e.convert('trunc', at, 'i32').name}" for at in (left, right))
        name = "%" + e.fresh("d")
        e.line(f"{name} = call {kind} @gpu.{self.multiplies}(ptr %ctx, {places}, "
               + ", ".join(f"float {x.name}" for x in sums) + ")")
        return [e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(len(sums))]
