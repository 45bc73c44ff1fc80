"""Sums of a tile, handed over to warps that only write: the warpgroups that multiply go on with the next tile.

Those that multiply round their sums to the product's dtype and put them into shared memory; helpers take them from
there, eight columns of a row at a time, with what follows the product. Two barriers say that the tile is there
(`READY`) and that it has been taken (`FREE`), each by one arrival of every warp.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import WARP
from morpho.backends.cuda.gemm.half.tile_store import TileStore
from morpho.base.dtypes import bfloat16

GROUP_WARPS, GROUP_ROWS = 4, 64  # of a warpgroup
CHUNK = 8  # columns that a thread takes at once
BARRIERS_BYTES = 16
READY, FREE = 0, 8
GAP = 16  # bytes between two rows, so that those of eight lie in different banks


def pitch_bytes(columns: int) -> int:
    """From a row of a tile to the next, in shared memory.

    >>> pitch_bytes(256)
    528
    """
    return 2 * columns + GAP


def room_bytes(rows: int, columns: int) -> int:
    """Of a tile and its barriers."""
    return rows * pitch_bytes(columns) + BARRIERS_BYTES


class Handover(TileStore):
    """Writes both sides: `give` and `take`. `at` is the offset of the room, barriers first."""

    at: int

    def begin(self, at: int) -> None:
        """Set up the barriers; one thread does."""
        self.at = at
        for which, count in ((READY, GROUP_WARPS * self.kernel.workers), (FREE, self.kernel.helpers // WARP)):
            self.e.line(f"call void @gpu.mbarrier_init(ptr %ctx, i32 {at + which}, i32 {count})")

    def wait(self, which: int, phase: Value) -> None:
        """Until a phase of a barrier is over."""
        given = self.e.convert("trunc", phase, "i32").name
        self.e.line(f"call void @gpu.mbarrier_wait(ptr %ctx, i32 {self.at + which}, i32 {given})")

    def arrive(self, which: int, lane: Value) -> None:
        """One arrival of a warp whose lanes are all here."""
        e = self.e
        e.line("call void @gpu.warp_barrier(ptr %ctx)")
        with e.when(e.icmp("eq", lane, 0)):
            e.line(f"call void @gpu.mbarrier_arrive(ptr %ctx, i32 {self.at + which})")

    def room(self) -> str:
        """Where the tile lies."""
        return self.e.offset(self.e.shared(), "i8", self.at + BARRIERS_BYTES)

    # -- the warpgroups that multiply ----------------------------------------------------------------------------------
    def give(self, worker: Value, sums: list[Value], thread: Value, turn: Value) -> None:
        """64 rows, as `wgmma` leaves them: a lane has pairs of neighbours of every eight columns."""
        e, pitch = self.e, pitch_bytes(self.kernel.tile[1])
        self.wait(FREE, turn ^ 1)
        name = "pack_bf16" if self.kernel.result is bfloat16 else "pack_f16"
        row = worker * GROUP_ROWS + thread.shift_right(5) * 16 + (thread & 31).shift_right(2)
        mine = e.offset(self.room(), "i8", row * pitch + (thread & 3) * 4)
        for number in range(0, len(sums), 4):
            for half in range(2):
                low, high = sums[number + 2 * half:number + 2 * half + 2]
                word = e.assign(f"call i32 @gpu.{name}(ptr %ctx, float {low.name}, float {high.name})", "i32", 1)
                e.store(word, e.offset(mine, "i8", 8 * half * pitch + 4 * number), align=4)
        self.arrive(READY, thread & 31)

    # -- the helpers ---------------------------------------------------------------------------------------------------
    def take(self, row: Value, column: Value, matrix: Value, offset: Value, thread: Value, turn: Value) -> None:
        """A tile from shared memory to the results, by helpers of these numbers."""
        e = self.e
        self.wait(READY, turn)
        rows = e.intrinsic("smin", self.m - row, e.constant(self.kernel.tile[0], "i64", 1))
        if self.kernel.staged:
            self.take_lines(row, column, offset, thread, rows)
        else:
            self.take_chunks(row, column, matrix, offset, thread, rows)
        self.arrive(FREE, thread & 31)

    def take_chunks(self, row: Value, column: Value, matrix: Value, offset: Value, thread: Value, rows: Value) -> None:
        """Neighbouring threads have neighbouring chunks of a row, a thread the same columns of every row it has."""
        e, columns = self.e, self.kernel.tile[1]
        across = columns // CHUNK
        together = self.kernel.helpers // across  # rows
        first = e.instruction("udiv", thread, e.constant(across, "i64", 1))
        along = (thread - first * across) * CHUNK
        start, room = column + along, e.offset(self.room(), "i16", along)
        here = e.icmp("slt", start, self.n) & e.icmp("slt", first, together)
        with e.when(here), e.loop(first, rows, together) as loop:
            words = self.four_words(e.offset(room, "i8", loop.index * pitch_bytes(columns)))
            if self.after is not None:
                self.after.begin_row(matrix * self.m + row + loop.index)
                self.after.given_at(start, words)
            else:
                self.store_words(words, e.offset(self.target, "i16", offset + (row + loop.index) * self.c_m + start))

    def take_lines(self, row: Value, column: Value, offset: Value, thread: Value, rows: Value) -> None:
        """Rows that begin anywhere: a warp writes one at a time, neighbours by neighbouring lanes."""
        e, columns = self.e, self.kernel.tile[1]
        room, lane = self.room(), thread & 31
        with e.loop(thread.shift_right(5), rows, self.kernel.helpers // WARP) as loop:
            source = e.offset(room, "i8", loop.index * pitch_bytes(columns))
            line = e.offset(self.target, "i16", offset + (row + loop.index) * self.c_m)
            for part in range(0, columns, 32):
                value = e.load(e.offset(source, "i16", lane + part), "i16", 1)
                at = column + lane + part
                with e.when(e.icmp("slt", at, self.n)):
                    e.store(value, e.offset(line, "i16", at * self.c_n))

    def four_words(self, place: str) -> list[Value]:
        """16 bytes at once."""
        e, name = self.e, "%" + self.e.fresh("w")
        e.line(f"{name} = load <4 x i32>, ptr {place}, align 16")
        return [e.assign(f"extractelement <4 x i32> {name}, i64 {n}", "i32", 1) for n in range(4)]
