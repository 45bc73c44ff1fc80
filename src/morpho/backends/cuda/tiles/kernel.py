"""A kernel over tiles on a grid: a block of 128 threads for a program, its tiles in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from morpho.backends.code.emit import BITS, Value
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.tiles.code import TileCode
from morpho.backends.kernels.tiles.device import ROW_PARTIALS, Buffer, Chunk, sides
from morpho.backends.kernels.tiles.spec import TileKernel
from morpho.ops.tiles import ir
from morpho.program.kernel import Kernel

THREADS = 128
MOST_SHARED = 200 << 10  # bytes of a block: what needs more has its tiles in global memory
MOST_BLOCKS = (1 << 31) - 1
Combine = Callable[[Value, Value], Value]


class GpuDevice:
    """One thread of a block: chunks are dealt to threads, tiles lie in memory that they share."""

    syncscope = 'syncscope("device") '
    padding = 4  # neighbouring rows begin in different banks of shared memory

    def __init__(self) -> None:
        self.e = GridEmitter()
        self.thread = self.e.ask("thread")
        self.scratch = "%tiles"

    def lanes(self, shape: ir.Tile, widest: int, plain: bool) -> int:
        return 4 if plain and widest <= 4 and sides(shape)[1] % 4 == 0 else 1

    def align(self, buffer: Buffer, lanes: int) -> int | None:
        return None if lanes == 1 or buffer.pitch % lanes else lanes * max(1, BITS[buffer.element] // 8)

    def aligned(self, pointer: str, lanes: int, element: str) -> tuple[Value | None, int | None]:
        nbytes = lanes * max(1, BITS[element] // 8)
        address = self.e.assign(f"ptrtoint ptr {pointer} to i64", "i64", 1)
        return self.e.icmp("eq", address & (nbytes - 1), 0), nbytes

    @contextmanager
    def chunks(self, rows: int, columns: int, lanes: int) -> Iterator[tuple[Value, Value]]:
        e, across = self.e, -(-columns // lanes)
        with e.loop(self.thread, rows * across, THREADS) as loop:
            if rows == 1:
                row, place = e.constant(0, "i64", 1), loop.index
            else:
                row = e.instruction("udiv", loop.index, e.constant(across, "i64", 1))
                place = loop.index - row * across
            yield row, place if lanes == 1 else place * lanes
            loop.next()

    @contextmanager
    def each(self, count: int) -> Iterator[Value]:
        with self.e.loop(self.thread, count, THREADS) as loop:
            yield loop.index
            loop.next()

    @contextmanager
    def once(self) -> Iterator[None]:
        with self.e.when(self.e.icmp("eq", self.thread, 0)):
            yield

    def barrier(self) -> None:
        self.e.barrier()

    def report(self, status: Value) -> None:
        self.e.report(status)

    def joined(self, code: TileCode, sums: Buffer, count: int, combine: Combine) -> Value:
        """Each warp adds all partial sums: halves in registers, then by shuffles."""
        e, lane = self.e, self.thread & (WARP - 1)
        least = min(count, WARP)
        place = lane & (least - 1)
        parts = [e.load(code.address(sums, 0, place + start if start else place), sums.element, 1)
                 for start in range(0, count, least)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [combine(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        return self.shuffled(parts[0], least // 2, combine)

    def shuffled(self, x: Value, distance: int, combine: Combine) -> Value:
        while distance:
            x = combine(x, self.e.shuffle_xor(x, distance))
            distance //= 2
        return x

    def rows(self, code: TileCode, tile: ir.Value, op: str, target: Buffer) -> None:
        """A warp for each row."""
        e, (rows, columns) = self.e, sides(tile.shape)
        combine, first = code.combine(op, tile.dtype), code.neutral(op, tile.dtype, 1)
        mapping = (rows, columns, 2, "warps")
        outer, code.tees = code.tees, {}
        accesses = code.plan(tile, tile.shape, mapping)
        code.before_loop([*accesses, (target.offset, target.end, True, None)])
        lane = self.thread & (WARP - 1)
        with e.loop(self.thread.shift_right(5), rows, THREADS // WARP) as over:
            with e.loop(lane, columns, WARP, carried=[first]) as along:
                chunk = Chunk(over.index, along.index, 1)
                along.next(combine(along.values[0], code.tile(tile, chunk, chunk.row, chunk.column, 1)))
            total = self.shuffled(along.values[0], ROW_PARTIALS // 2, combine)
            with e.when(e.icmp("eq", lane, 0)):
                code.write(target, total, 0, over.index)
            over.next()
        code.buffers.update(code.tees)
        code.tees = outer

    def units(self, shape: ir.Tile) -> tuple[int, int]:
        rows, columns = shape
        lanes = 4 if columns > 1 else 1
        if rows % 8 == 0 and rows // 8 * -(-columns // lanes) >= THREADS:
            return 8, lanes
        return next(n for n in (4, 3, 2, 1) if rows % n == 0), lanes


@lru_cache(maxsize=64)
def written(kernel: TileKernel) -> tuple[str, int]:
    """The LLVM text of a kernel, and bytes of tiles of a program."""
    device = GpuDevice()
    e, code = device.e, TileCode(kernel, device)
    code.operands = e.offset("%p", "i64", int(Header.SIZE))
    places = len(kernel.program.arrays)
    code.numbers = e.offset("%p", "i64", int(Header.SIZE) + places)
    mark = len(e.lines)
    with e.loop(e.ask("block"), e.word(Header.ROWS), e.ask("blocks")) as programs:
        code.write_program(programs.index)
        code.pending.append((0, 1, True, None))  # the next program has other tiles in the same memory
        code.settle()
        programs.next()
    tiles: list[str] = []
    lines, e.lines = e.lines, tiles
    if code.most <= MOST_SHARED:
        e.line(f"%tiles = getelementptr i8, ptr {e.shared()}, i64 0")
    else:
        own = e.ask("block") * (e.word(Header.SCRATCH_STRIDE) * THREADS)
        e.line(f"%tiles = getelementptr i8, ptr {e.address(Header.SCRATCH)}, i64 {own.name}")
    e.lines = [*lines[:mark], *tiles, *lines[mark:]]
    main = entry("kernel_main", int(Header.SIZE) + places + len(kernel.record), e.text(), " nounwind")
    return main + e.outside(), code.most


@dataclass(frozen=True)
class TileGrid(WithoutMaps):
    """A kernel over tiles for a GPU."""

    body: TileKernel

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> TileGrid:
        return self

    def kernel(self) -> Kernel:
        return self.body

    def launch(self, sizes: Sizes) -> Launch:
        nbytes = written(self.body)[1]
        if nbytes <= MOST_SHARED:
            return Launch(Geometry(max(1, min(sizes.rows, MOST_BLOCKS)), THREADS, nbytes))
        blocks = max(1, min(sizes.rows, 2 * sizes.multiprocessors))
        return Launch(Geometry(blocks, THREADS), scratch_stride=-(-nbytes // (64 * THREADS)) * 64)

    def text(self) -> str:
        return written(self.body)[0]
