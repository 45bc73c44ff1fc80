"""Kernels over tiles on a CPU: chunks are vectors, one thread runs a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.tiles.code import TileCode
from morpho.backends.kernels.tiles.device import (
    ROW_PARTIALS,
    Buffer,
    Chunk,
    is_matrix,
    sides,
)
from morpho.backends.kernels.tiles.spec import TileKernel
from morpho.base.machine import Isa
from morpho.ops.tiles import ir


class CpuDevice:
    """A thread of the CPU: chunks are vectors, in order."""

    syncscope, padding = "", 0

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.e = Emitter(1, isa.native_half, destructive_fma=isa.architecture == "aarch64", lookups=isa.lookups,
                         architecture=isa.architecture)
        self.scratch = "%scratch"

    def lanes(self, shape: ir.Tile, widest: int, plain: bool) -> int:
        _, columns = sides(shape)
        most = ROW_PARTIALS if is_matrix(shape) else 64
        return max(1, min(2 * self.isa.lanes(widest), most, 1 << (columns - 1).bit_length()))

    @contextmanager
    def chunks(self, rows: int, columns: int, lanes: int) -> Iterator[tuple[Value, Value]]:
        e = self.e
        if rows == 1:
            with e.loop(0, columns, lanes) as inner:
                yield e.constant(0, "i64", 1), inner.index
                inner.next()
            return
        with e.loop(0, rows) as outer:
            with e.loop(0, columns, lanes) as inner:
                yield outer.index, inner.index
                inner.next()
            outer.next()

    @contextmanager
    def each(self, count: int) -> Iterator[Value]:
        with self.e.loop(0, count) as loop:
            yield loop.index
            loop.next()

    @contextmanager
    def once(self) -> Iterator[None]:
        yield

    def barrier(self) -> None:
        pass

    def report(self, status: Value) -> None:
        self.e.store(self.e.load("%status", "i32", 1) | status, "%status")

    def align(self, buffer: Buffer, lanes: int) -> int | None:
        return None

    def aligned(self, pointer: str, lanes: int, element: str) -> tuple[Value | None, int | None]:
        return None, None

    def joined(self, code: TileCode, sums: Buffer, count: int, combine: Callable[[Value, Value], Value]) -> Value:
        lanes = min(count, 32)
        parts = [self.e.load(code.address(sums, 0, at), sums.element, lanes) for at in range(0, count, lanes)]
        return halved(self.e, parts, combine)

    def rows(self, code: TileCode, tile: ir.Value, op: str, target: Buffer) -> None:
        e, (rows, columns), lanes = self.e, sides(tile.shape), ROW_PARTIALS
        combine, first = code.combine(op, tile.dtype), code.neutral(op, tile.dtype, lanes)
        mapping = (rows, columns, 2, lanes)
        outer_tees, code.tees = code.tees, {}
        code.plan(tile, tile.shape, mapping)
        with e.loop(0, rows) as outer:
            with e.loop(0, columns, lanes, carried=[first]) as inner:
                chunk = Chunk(outer.index, inner.index, lanes)
                x = code.tile(tile, chunk, chunk.row, chunk.column, lanes)
                left = code.inside(chunk, columns)
                x = x if left is None else e.select(left, x, first)
                inner.next(combine(inner.values[0], x))
            code.write(target, halved(e, [inner.values[0]], combine), 0, outer.index)
            outer.next()
        code.buffers.update(code.tees)
        code.tees = outer_tees

    def units(self, shape: ir.Tile) -> tuple[int, int]:
        rows, columns = shape
        lanes = min(2 * max(1, self.isa.lanes(4)), ROW_PARTIALS if columns > 1 else 1)
        most = 8 if self.isa.registers == 32 else 4
        return next(n for n in (most, 6, 5, 4, 3, 2, 1) if rows % n == 0 and n <= most), lanes


def halved(e: Emitter, parts: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """A tree over the lanes of vectors side by side: the first half with the second, until one lane is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    (x,) = parts
    while x.lanes > 1:
        half = x.lanes // 2
        low, high = (e.assign(f"shufflevector {x.type} {x.name}, {x.type} poison, <{half} x i32> <" + ", ".join(
            f"i32 {start + n}" for n in range(half)) + ">", x.element, half) for start in (0, half)) \
            if half > 1 else (e.assign(f"extractelement {x.type} {x.name}, i64 {n}", x.element, 1) for n in range(2))
        x = combine(low, high)
    return x


@lru_cache(maxsize=64)
def written(kernel: TileKernel, isa: Isa) -> tuple[str, int]:
    """The text of a kernel named `tile_kernel_name`, and bytes of scratch of a thread."""
    device = CpuDevice(isa)
    code = TileCode(kernel, device)
    e = device.e
    e.line("%status = alloca i32, align 4")
    e.store(e.constant(0, "i32", 1), "%status")
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as programs:
        code.write_program(programs.index)
        programs.next()
    e.line(f"ret i32 {e.load('%status', 'i32', 1).name}")
    text = defined(f"i32 @tile_kernel_name({SIGNATURE}) nounwind", e.text()) + e.outside()
    return text, code.most


def generate(kernel: TileKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel over tiles."""
    return written(kernel, isa)[0].replace("@tile_kernel_name(", f"@{name}(")
