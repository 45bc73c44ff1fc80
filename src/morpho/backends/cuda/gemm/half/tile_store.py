"""From a warpgroup's registers to memory: 64 rows of a tile, as `wgmma` leaves them.

A lane has pairs of neighbours of every eight columns. Four lanes that share a row exchange theirs, so that each has
eight columns side by side, 16 bytes of a half float.
"""

from __future__ import annotations

from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.backends.cuda.gemm.epilogue import EpilogueCode
from morpho.base.dtypes import bfloat16, float16

LINE_PITCH = 72  # half floats from one line of 64 to the next: those of eight rows lie in different banks
LINES_BYTES = 2 * 16 * LINE_PITCH  # of a warp


class TileStore:
    """Writes the end of a tile."""

    def __init__(self, e: GridEmitter, kernel: Any, target: str, m: Value, n: Value, c_m: Value, c_n: Value,
                 after: EpilogueCode | None) -> None:
        self.e, self.kernel, self.target, self.after = e, kernel, target, after
        self.m, self.n, self.c_m, self.c_n = m, n, c_m, c_n

    def tile(self, row: Value, column: Value, matrix: Value, offset: Value, sums: list[Value], thread: Value) -> None:
        """The sums of one warpgroup."""
        e = self.e
        self.lane = thread & 31
        if self.kernel.staged:
            self.by_lines(row, column, offset, sums, thread)
            return
        mine = row + thread.shift_right(5) * 16 + self.lane.shift_right(2)
        for half in range(2):
            at = mine + 8 * half
            inside = e.icmp("slt", at, self.m)
            if self.after is not None:
                self.followed(at, column, matrix, inside, sums, half)
                continue
            if not self.kernel.wide:
                with e.when(inside):
                    for block in range(len(sums) // 4):
                        self.pair(at, column + (self.lane & 3) * 2 + 8 * block, offset,
                                  sums[4 * block + 2 * half:4 * block + 2 * half + 2])
                continue
            for first in range(0, len(sums) // 4, 4):
                pairs = [sums[4 * block + 2 * half:4 * block + 2 * half + 2] for block in range(first, first + 4)]
                start = column + (self.lane & 3) * 8 + 8 * first
                words = self.eight(pairs)
                with e.when(inside & e.icmp("slt", start, self.n)):
                    kind = scalars.memory_type(self.kernel.result)
                    place = e.offset(self.target, kind, offset + at * self.c_m + start)
                    for number in range(0, len(words), 4):
                        self.store_words(words[number:number + 4], e.offset(place, "i32", number))

    def followed(self, row: Value, column: Value, matrix: Value, inside: Value, sums: list[Value], half: int) -> None:
        """A row with what follows the product."""
        e, after = self.e, self.after
        assert after is not None
        after.begin_row(e.select(inside, matrix * self.m + row, 0))
        for first in range(0, len(sums) // 4, 4):
            pairs = [sums[4 * block + 2 * half:4 * block + 2 * half + 2] for block in range(first, first + 4)]
            start = column + (self.lane & 3) * 8 + 8 * first
            lows, highs = (self.exchanged([e.bits(pair[n]) for pair in pairs]) for n in range(2))
            eight = [e.from_bits(word, "float") for both in zip(lows, highs, strict=True) for word in both]
            with e.when(inside & e.icmp("slt", start, self.n)):
                after.columns_at(start, eight)

    def by_lines(self, row: Value, column: Value, offset: Value, sums: list[Value], thread: Value) -> None:
        """Rows that begin anywhere: a warp puts 64 columns of its 16 rows into shared memory, then writes line by line,
        neighbours by neighbouring lanes."""
        e, kernel = self.e, self.kernel
        name = "pack_bf16" if kernel.result is bfloat16 else "pack_f16"
        warp = self.e.ask("thread").shift_right(5) - 4
        room = e.offset(e.shared(), "i8", warp * LINES_BYTES + kernel.lines_at)
        group, pair = self.lane.shift_right(2), (self.lane & 3) * 2
        first_row = row + thread.shift_right(5) * 16
        for start in range(0, len(sums) // 4, 8):
            for block in range(8):
                for half in range(2):
                    low, high = sums[4 * (start + block) + 2 * half:4 * (start + block) + 2 * half + 2]
                    word = e.assign(f"call i32 @gpu.{name}(ptr %ctx, float {low.name}, float {high.name})", "i32", 1)
                    at = (group + 8 * half) * LINE_PITCH + pair + 8 * block
                    e.store(word, e.offset(room, "i16", at), align=4)
            e.line("call void @gpu.warp_barrier(ptr %ctx)")
            rows = e.intrinsic("smin", self.m - first_row, e.constant(16, "i64", 1))
            with e.loop(0, rows) as loop:
                line = e.offset(self.target, "i16", offset + (first_row + loop.index) * self.c_m)
                for part in range(2):
                    along = self.lane + 32 * part
                    value = e.load(e.offset(room, "i16", loop.index * LINE_PITCH + along), "i16", 1)
                    at = column + along + 8 * start
                    with e.when(e.icmp("slt", at, self.n)):
                        e.store(value, e.offset(line, "i16", at * self.c_n))
            e.line("call void @gpu.warp_barrier(ptr %ctx)")

    def store_words(self, words: list[Value], place: str) -> None:
        """16 bytes at once."""
        e, text = self.e, "poison"
        for number, word in enumerate(words):
            name = "%" + e.fresh("w")
            e.line(f"{name} = insertelement <4 x i32> {text}, i32 {word.name}, i64 {number}")
            text = name
        e.line(f"store <4 x i32> {text}, ptr {place}, align 16")

    def eight(self, pairs: list[list[Value]]) -> list[Value]:
        """Eight neighbours as words of memory, of the block of this lane."""
        e, result = self.e, self.kernel.result
        if result in (bfloat16, float16):
            name = "pack_bf16" if result is bfloat16 else "pack_f16"
            return self.exchanged([e.assign(f"call i32 @gpu.{name}(ptr %ctx, float {low.name}, float {high.name})",
                                            "i32", 1) for low, high in pairs])
        lows = self.exchanged([e.bits(low) for low, _ in pairs])
        highs = self.exchanged([e.bits(high) for _, high in pairs])
        return [word for both in zip(lows, highs, strict=True) for word in both]

    def exchanged(self, words: list[Value]) -> list[Value]:
        """A 4 x 4 transposition among four lanes: word i of lane j becomes word j of lane i."""
        e, words = self.e, list(words)
        for bit in (1, 2):
            upper = e.icmp("ne", self.lane & bit, 0)
            for number in range(4):
                if number & bit:
                    continue
                low, high = words[number], words[number | bit]
                given = e.select(upper, low, high)
                taken = e.shuffle_xor(given, bit)
                words[number], words[number | bit] = e.select(upper, taken, low), e.select(upper, high, taken)
        return words

    def pair(self, row: Value, column: Value, offset: Value, values: list[Value]) -> None:
        """Two neighbours of a row, wherever they lie."""
        e, result = self.e, self.kernel.result
        kind = scalars.memory_type(result)
        for n, value in enumerate(values):
            rounded = scalars.to_memory(e, scalars.round_to(e, value, result), result)
            with e.when(e.icmp("slt", column + n, self.n)):
                e.store(rounded, e.offset(self.target, kind, offset + row * self.c_m + (column + n) * self.c_n))
