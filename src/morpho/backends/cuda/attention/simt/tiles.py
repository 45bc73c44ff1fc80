"""Parts of the kernels of attention on the arithmetic units.

A warp has some lines of the block's own operand, of which every lane computes the scores with two lines of a block of
64 others: lines `lane` and `lane + 32`. So a warp has whole rows of scores in registers, whose sums by halves are
exchanges among its lanes, and it needs no other one until the next block is read. Every sum has the order of the
CPU's kernels (docs/numerics.md, rule 14): one chain over the depth, one over the lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.kernels.attention.attention import FAR
from morpho.backends.kernels.attention.attention_code import LARGEST
from morpho.base.dtypes import DType, bool_, float64

WARPS = 4
THREADS = WARP * WARPS
BLOCK = 64  # lines that are read at a time
UNROLLED = 4  # values of the depth per turn
SHARED_BYTES = 200 << 10


def columns_of(depth: int) -> int:
    """Columns of a line that a lane has."""
    return -(-depth // WARP)


def pitch_of(depth: int) -> int:
    """Elements from one line in shared memory to the next: odd, so that lanes read theirs from different banks."""
    return columns_of(depth) * WARP + 1


class TileCode:
    """A kernel being written."""

    def __init__(self, spec: Any, own: int, operands: str) -> None:
        """`own`: lines of a warp; `operands`: those in memory, by their letters."""
        self.spec, self.own, self.e, self.operands = spec, own, GridEmitter(), operands
        self.element = "double" if spec.dtype is float64 else "float"
        self.size = 8 if spec.dtype is float64 else 4
        self.used = 0  # elements of shared memory

    def number(self, value: int) -> Value:
        """A constant."""
        return self.e.constant(value, "i64", 1)

    def real(self, value: float) -> Value:
        """A constant."""
        return self.e.constant(value, self.element, 1)

    def room(self, count: int) -> int:
        """So many elements of shared memory: where they begin."""
        found, self.used = self.used, self.used + count
        return found

    def at(self, room: int, index: Value) -> str:
        """An address in shared memory."""
        return self.e.offset(self.e.offset(self.e.shared(), "i8", room * self.size), self.element, index)

    # -- where things lie ----------------------------------------------------------------------------------------------
    def find_tile(self, numbers: Sequence[str], long: str) -> None:
        """The numbers, the lines of this block's tile along `long` ("queries" or "keys"), its head, and where operands
        begin for it. Keys are those of the first of the heads that share them."""
        e, first = self.e, int(Header.SIZE)
        self.n = n = {name: e.word(first + len(self.operands) + at) for at, name in enumerate(numbers)}
        self.thread = e.ask("thread")
        self.lane, self.warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        lines = self.own * WARPS
        tiles = e.instruction("udiv", n[long] + (lines - 1), self.number(lines))
        block = e.ask("block")
        rest = e.instruction("udiv", block, tiles)
        self.first = (tiles - 1 - (block - rest * tiles)) * lines  # long rows of a causal mask first
        heads = n["heads"] if long == "queries" else e.instruction("udiv", n["heads"], n["group"])
        outer = e.instruction("udiv", rest, heads)
        head = rest - outer * heads
        shared, mine = (e.instruction("udiv", head, n["group"]), head) if long == "queries" else (
            head, head * n["group"])
        at = {name: (shared if name in "kvbd" else mine) * n[f"{name}_head"] for name in self.operands if name != "t"}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, n[f"batches{axis}"])
            index = outer - upper * n[f"batches{axis}"]
            at = {name: offset + index * n[f"{name}_batch{axis}"] for name, offset in at.items()}
            if axis == BATCH_AXES - 1:
                self.batch = index
            outer = upper
        self.place = {name: e.offset(e.address(first + number), self.kind_of(name), at.get(name, 0))
                      for number, name in enumerate(self.operands)}

    def kind_of(self, name: str) -> str:
        """The element of an operand in memory."""
        mask: DType | None = self.spec.mask
        if name == "x" and mask is not None:
            return "i8" if mask is bool_ else scalars.memory_type(mask)
        return "i64" if name in "pt" else self.element

    def find_position(self) -> None:
        """The key that the first query stands at."""
        e = self.e
        if not self.spec.moving:
            self.position = self.number(self.spec.offset)
            return
        given = e.load(self.place["p"], "i64", 1)
        self.position = e.intrinsic("smin", e.intrinsic("smax", given, self.number(-FAR)), self.number(FAR))

    # -- global to shared ----------------------------------------------------------------------------------------------
    def load_lines(self, source: str, first: Value, size: Value, step: Value, depth: int, count: int, room: int,
                   factor: float | None = None) -> None:
        """`count` lines from the line `first` on, a warp each at a time; what is not there is zero."""
        e = self.e
        with e.loop(self.warp, count, WARPS) as loop:
            line = first + loop.index
            there = e.icmp("slt", line, size)
            start = e.offset(source, self.element, e.select(there, line * step, 0))
            for part in range(columns_of(depth)):
                column = self.lane + WARP * part
                inside = there & e.icmp("slt", column, depth) if depth % WARP else there
                value = e.load(e.offset(start, self.element, e.select(inside, column, 0)), self.element, 1)
                if factor is not None:
                    value = value * self.real(factor)
                e.store(e.select(inside, value, 0.0), self.at(room, loop.index * pitch_of(depth) + column))

    # -- sums ----------------------------------------------------------------------------------------------------------
    def chains(self, mine: int, others: int, depth: int) -> list[list[Value]]:
        """Of every own line of the warp, the products with the lane's two lines: one chain over the depth each."""
        e, pitch = self.e, pitch_of(depth)
        unrolled = UNROLLED if depth % UNROLLED == 0 else 1
        zero = self.real(0.0)
        with e.loop(0, depth, unrolled, carried=[zero] * (2 * self.own)) as loop:
            sums = list(loop.values)
            for step in range(unrolled):
                column = loop.index + step
                right = [e.load(self.at(others, (self.lane + WARP * i) * pitch + column), self.element, 1)
                         for i in range(2)]
                for r in range(self.own):
                    left = e.load(self.at(mine, (self.warp * self.own + r) * pitch + column), self.element, 1)
                    for i in range(2):
                        sums[2 * r + i] = e.fma(left, right[i], sums[2 * r + i])
            loop.next(*sums)
        return [loop.values[2 * r:2 * r + 2] for r in range(self.own)]

    def weighted(self, weights: int, others: int, depth: int, results: list[Value], skips: bool) -> list[Value]:
        """Results (by own line, then column of the lane) with 64 more lines: one chain over the lines. With `skips`, a
        weight below zero says that a line takes no part."""
        e, pitch, columns = self.e, pitch_of(depth), columns_of(depth)
        with e.loop(0, BLOCK, carried=results) as loop:
            found = list(loop.values)
            values = [e.load(self.at(others, loop.index * pitch + self.lane + WARP * part), self.element, 1)
                      for part in range(columns)]
            for r in range(self.own):
                weight = e.load(self.at(weights, (self.warp * self.own + r) * BLOCK + loop.index), self.element, 1)
                hidden = e.fcmp("olt", weight, 0.0) if skips else None
                for part in range(columns):
                    at = r * columns + part
                    total = e.fma(weight, values[part], found[at])
                    found[at] = total if hidden is None else e.select(hidden, found[at], total)
            loop.next(*found)
        return list(loop.values)

    def put_weights(self, room: int, line: int, pair: list[Value]) -> None:
        """The lane's two weights of an own line into shared memory."""
        for i, value in enumerate(pair):
            self.e.store(value, self.at(room, (self.warp * self.own + line) * BLOCK + self.lane + WARP * i))

    def across(self, value: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """Of all lanes, by halves."""
        for mask in (16, 8, 4, 2, 1):
            value = combine(value, self.e.shuffle_xor(value, mask))
        return value

    # -- masks ---------------------------------------------------------------------------------------------------------
    def seen(self, score: Value, query: Value, key: Value, masked: bool) -> Value:
        """A score, finite but for NaN; -inf where a query does not see a key."""
        e, spec, n = self.e, self.spec, self.n
        most = LARGEST[self.element]
        score = e.select(e.fcmp("olt", score, -most), -most, score)
        score = e.select(e.fcmp("ogt", score, most), most, score)
        if not masked:
            return score
        holds = e.icmp("slt", key, n["keys"]) & e.icmp("slt", query, n["queries"])
        if spec.causal:
            stands = self.position + query
            inside = holds & e.icmp("sle", key, stands)
            inside = inside & e.icmp("sgt", key, stands - spec.window) if spec.window else inside
        else:
            inside = holds
        if spec.mask is not None:
            offset = e.select(holds, query * n["x_row"] + key * n["x_column"], 0)
            loaded = e.load(e.offset(self.place["x"], self.kind_of("x"), offset), self.kind_of("x"), 1)
            if spec.mask is bool_:
                inside = inside & e.icmp("ne", loaded, 0)
            else:
                value = scalars.from_memory(e, loaded, spec.mask)
                value = value if value.element == self.element else e.convert("fpext", value, self.element)
                score, inside = score + value, inside & e.fcmp("une", value, -math.inf)
        return e.select(inside, score, -math.inf)

    def key_range(self, lines: int) -> tuple[Value, Value, Value]:
        """The first key of this tile's blocks, the first one of a block with a mask, and the end."""
        e, spec, keys, zero = self.e, self.spec, self.n["keys"], self.number(0)
        begin, middle, end = zero, keys & -BLOCK, keys
        if spec.causal:
            start = self.position + self.first
            end = e.intrinsic("smin", keys, start + lines)
            middle = e.intrinsic("smin", middle, e.intrinsic("smax", start + 1, zero) & -BLOCK)
            if spec.window:
                begin = e.intrinsic("smax", start - (spec.window - 1), zero) & -BLOCK
        if spec.window or spec.mask is not None:
            middle = begin
        return begin, middle, e.intrinsic("smax", end, begin)

    def whole(self, numbers: int) -> str:
        """The module."""
        words = int(Header.SIZE) + len(self.operands) + numbers
        return entry("kernel_main", words, self.e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + self.e.outside()
