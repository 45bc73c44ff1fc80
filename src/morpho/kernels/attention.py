"""Attention, block by block: scores, softmax and the weighted sum of values without the matrix of scores in memory.

Rows of one key-value head (all queries of all query heads that share it) are cut into tiles of 32 or 64. A tile walks
over blocks of 64 keys with a running maximum and sum per row; scratch is a tile of queries and results, a block of
scores, as they are and as weights, and one packed block of keys and values where those do not lie as the routines want
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from morpho.base.dtypes import DType
from morpho.base.machine import Isa
from morpho.kernels import attention_packing as packing
from morpho.kernels import attention_products as products
from morpho.kernels import attention_scores as scores
from morpho.kernels import scalars
from morpho.kernels.attention_code import BLOCK, LARGEST, MINUS_INFINITY, Shape, any_lane, ask_for, smax, smin
from morpho.kernels.attention_tiles import FAR, TALL_TILE, WIDEST, TileCode
from morpho.kernels.emit import Value
from morpho.kernels.vector_math.logarithm import log

UNKNOWN = 2  # whether a block of values is finite, before anyone asked
OPERANDS = ("q", "k", "v", "o", "lse", "mask", "offset")


def scratch_bytes(depth: int, width: int) -> int:
    """Bytes for one thread: tables, two blocks of scores, a tile of queries and results, a block of keys and values."""
    fixed = TALL_TILE * (4 * 8 + 2 * 4 + 3 * 8 + 6 * 8) + 2 * BLOCK * TALL_TILE * 8 + 20 * 64
    return fixed + (TALL_TILE + BLOCK) * (depth + width + 2 * WIDEST) * 8


@dataclass(frozen=True)
class AttentionKernel:
    """softmax(scale * q k^T + mask) v, and the logarithm of each row's sum. Called over `rows` pieces of work.

    `rank` batch axes; `mask` is the mask's dtype; `moving`: the offset is read from memory. Operands as in `OPERANDS`.
    `flops` and `scratch_bytes` belong to a step, not to the code.
    """

    dtype: DType
    rank: int
    mask: DType | None
    moving: bool
    flops: int = field(default=2, compare=False, repr=False)
    scratch_bytes: int = field(default=0, compare=False, repr=False)

    scratch_bytes_per_column = 0
    uneven = True

    def generate(self, isa: Isa, name: str) -> str:
        return ForwardCode(self, isa).module(name)


class Block(NamedTuple):
    """A block of keys and values, as the routines read them."""

    start: Value
    keys: Value  # how many there are
    k: str
    k_stride: Value
    v: str
    v_stride: Value


class ForwardCode(TileCode):
    """The forward kernel."""

    operands = OPERANDS

    def __init__(self, kernel: AttentionKernel, isa: Isa) -> None:
        super().__init__(kernel.dtype, kernel.rank, isa)
        self.mask, self.moving = kernel.mask, kernel.moving
        shape = self.shape
        for routine in (products.score_row(shape), scores.mask_row(shape, self.mask), scores.softmax_row(shape),
                        products.value_row(shape), packing.pack_lines(shape, self.dtype)):
            self.add(routine)
        self.tiles = [shape.half, shape] if shape.lanes > 1 else []
        if self.tiles:
            for routine in (packing.pack_lanes(shape, self.dtype), packing.finite(shape),
                            products.score_tile(shape.half), products.score_tiles(shape),
                            products.value_tile(shape.half), products.value_tiles(shape)):
                self.add(routine)
        for tile in self.tiles:
            self.add(scores.mask_tile(tile, self.mask))
            self.add(scores.softmax_tile(tile))

    def ways(self, left: Value) -> list[tuple[Shape | None, Value]]:
        """How a group of so many rows is taken: one by one, as half a tile or a whole one, and when."""
        e, shape = self.e, self.shape
        few = e.icmp("sle", left, shape.few)
        if not self.tiles:
            return [(None, few)]
        fits = e.icmp("sle", left, shape.lanes)
        return [(None, few), (shape.half, (few ^ 1) & fits), (shape, fits ^ 1)]

    def body(self) -> None:
        e, n, shape = self.e, self.n, self.shape
        self.lines = n["group"] * n["queries"]
        self.depth, self.width = self.padded(n["depth"], shape.strip), self.padded(n["width"], shape.columns)
        self.lay_out()
        tiles = e.instruction("udiv", self.lines + n["tile"] - 1, n["tile"])
        first, last = self.pieces(tiles * self.heads())
        with e.loop(first, last) as loop:
            head = e.instruction("udiv", loop.index, tiles)
            # The last rows of a head first: they may see the most keys, and threads end together on small pieces.
            self.tile(head, (head * tiles + (tiles - 1) - loop.index) * n["tile"])

    def lay_out(self) -> None:
        """Scratch: per row, per group of rows, then the tile and the block."""
        tile = TALL_TILE
        self.offsets = {key: self.scratch(8 * tile) for key in ("q", "o", "lse", *["mask"] * (self.mask is not None))}
        self.lower, self.upper = self.scratch(4 * tile), self.scratch(4 * tile)
        self.limits = self.scratch(32 * (tile // self.shape.rows))  # per group: least lower, most lower, ... upper
        self.m, self.sums, self.factor = (self.elements(tile) for _ in range(3))
        self.seen = self.scratch(8 * (tile // self.shape.rows))  # per group: keys of the block it sees, if a whole one
        self.s, self.marks = self.elements(BLOCK * tile), self.elements(BLOCK * self.shape.rows)
        self.top, self.flag = self.elements(tile), self.scratch(8)
        self.q, self.o = self.elements(tile * self.depth), self.elements(tile * self.width)
        self.k_room, self.v_room = self.elements(BLOCK * self.depth), self.elements(BLOCK * self.width)

    # -- one tile --------------------------------------------------------------------------------------------------
    def tile(self, head: Value, first: Value) -> None:
        e, rows = self.e, self.shape.rows
        starts = self.starts(head, OPERANDS)
        count = smin(e, self.lines - first, self.n["tile"])
        groups = e.instruction("udiv", count + (rows - 1), e.constant(rows, "i64", 1))
        self.place_rows(starts, first, groups * rows)
        least, most = self.find_limits(groups)
        self.begin(groups, count)
        with e.loop(least & -BLOCK, most, BLOCK) as blocks:
            self.block(starts, blocks.index, groups, count)
        self.finish(count)

    def place_rows(self, starts: dict[str, Value], first: Value, count: Value) -> None:
        """For each row where it lies, and the keys it sees; rows past the last one repeat it."""
        e, n = self.e, self.n
        with e.loop(0, count) as loop:
            line = smin(e, first + loop.index, self.lines - 1)
            head = e.instruction("udiv", line, n["queries"])
            row = line - head * n["queries"]
            places = {key: self.line(key, starts[key], head, row) for key in self.offsets}
            ask_for(e, self.pointer("q", places["q"]), self.memory, n["depth"])
            for key, table in self.offsets.items():
                self.store_word(places[key], table, loop.index)
            lower, upper = self.limits_of(starts, head, row)
            for value, table in ((lower, self.lower), (upper, self.upper)):
                e.store(e.convert("trunc", value, "i32"), e.offset(table, "i32", loop.index))

    def find_limits(self, groups: Value) -> tuple[Value, Value]:
        """The least and most of both limits for each group of rows, and the keys that any row sees."""
        e, rows = self.e, self.shape.rows
        far = [e.constant(FAR, "i64", 1), e.constant(-FAR, "i64", 1)]
        with e.loop(0, groups, carried=far) as loop:
            with e.loop(loop.index * rows, loop.index * rows + rows, carried=far * 2) as inner:
                found = []
                for table, (least, most) in ((self.lower, inner.values[:2]), (self.upper, inner.values[2:])):
                    value = e.convert("sext", e.load(e.offset(table, "i32", inner.index), "i32", 1), "i64")
                    found += [smin(e, least, value), smax(e, most, value)]
                inner.next(*found)
            for i, value in enumerate(inner.values):
                self.store_word(value, self.limits, loop.index * 4 + i)
            loop.next(smin(e, loop.values[0], inner.values[0]), smax(e, loop.values[1], inner.values[3]))
        return loop.values[0], loop.values[1]

    def begin(self, groups: Value, count: Value) -> None:
        """Nothing seen yet; queries packed, turned where a group has enough rows."""
        e, n, shape = self.e, self.n, self.shape
        rows = groups * shape.rows
        with e.loop(0, rows, shape.lanes) as loop:
            e.store(e.constant(MINUS_INFINITY, shape.element), self.at(self.m, loop.index))
            e.store(e.constant(0.0, shape.element), self.at(self.sums, loop.index))
        with e.loop(0, self.width * rows, 4 * shape.lanes) as loop:  # lines are 4 vectors, or 2 and rows an even number
            for i in range(4):
                e.store(e.constant(0.0, shape.element), self.at(self.o, loop.index + i * shape.lanes))
        step = self.strides["q"][self.rank + 3]
        with e.loop(0, groups) as loop:
            first = loop.index * shape.rows
            left = smin(e, count - first, shape.rows)
            target = self.at(self.q, first * self.depth)
            for tile, chosen in self.ways(left):
                with e.when(chosen):
                    offsets = e.offset(self.offsets["q"], "i64", first)
                    if tile is not None:
                        self.call("pack_lanes", self.buffers["q"], offsets, step, left, n["depth"], self.depth,
                                  self.scale, tile.rows, target)
                        continue
                    with e.loop(0, left) as lines:
                        source = self.pointer("q", self.word(offsets, lines.index))
                        line = self.at(target, lines.index * self.depth)
                        self.call("pack_lines", source, 0, step, 1, n["depth"], self.depth, self.scale, line)

    # -- one block of keys -----------------------------------------------------------------------------------------
    def block(self, starts: dict[str, Value], start: Value, groups: Value, count: Value) -> None:
        e, n, shape = self.e, self.n, self.shape
        keys = smin(e, n["keys"] - start, BLOCK)
        sources = {key: self.pointer(key, starts[key] + start * self.strides[key][self.rank + 2]) for key in "kv"}
        often = e.icmp("sgt", count, 2 * shape.value_rows)
        block = Block(start, keys, *self.packed("k", sources["k"], keys, n["depth"], self.depth, self.k_room),
                      *self.packed("v", sources["v"], keys, n["width"], self.width, self.v_room, often))
        e.store(e.constant(UNKNOWN, "i64", 1), self.flag)
        with e.loop(0, groups, carried=[e.constant(0, "i64", 1)]) as loop:
            seen, _ = self.view(loop.index, start)
            first = loop.index * shape.rows
            left = smin(e, count - first, shape.rows)
            together = e.constant(0, "i64", 1)
            for tile, chosen in self.ways(left):
                if tile is shape:
                    together = e.select(chosen, seen, 0)
                    continue
                with e.when(chosen & e.icmp("sgt", seen, 0)):
                    if tile is not None:
                        self.half_group(loop.index, first, left, block)
                        continue
                    with e.loop(first, first + left) as rows:
                        self.row(rows.index, block)
            self.store_word(together, self.seen, loop.index)
            loop.next(smax(e, loop.values[0], together))
        if self.tiles:
            with e.when(e.icmp("sgt", loop.values[0], 0)):
                self.whole_groups(groups, count, loop.values[0], block)

    def view(self, group: Value, start: Value) -> tuple[Value, Value]:
        """How many keys of a block a group sees, and how many of the first ones are seen by all of its rows."""
        e = self.e
        least_lower, most_lower, least_upper, most_upper = (self.word(self.limits, group * 4 + i) for i in range(4))
        seen = smin(e, most_upper - start, BLOCK)
        seen = e.select(e.icmp("slt", least_lower, start + BLOCK), seen, 0)
        if self.mask is not None:
            return seen, e.constant(0, "i64", 1)
        clear = smin(e, smax(e, least_upper - start, 0), BLOCK)
        return seen, e.select(e.icmp("sgt", most_lower, start), 0, clear)

    def row(self, row: Value, block: Block) -> None:
        """One row and one block."""
        e, start = self.e, block.start
        lower, upper = (e.load(e.offset(table, "i32", row), "i32", 1) for table in (self.lower, self.upper))
        count = smin(e, e.convert("sext", upper, "i64") - start, BLOCK)
        first = e.convert("sext", lower, "i64") - start
        with e.when(e.icmp("sgt", count, 0) & e.icmp("slt", first, BLOCK)):
            self.call("score_row", self.at(self.q, row * self.depth), block.k, block.k_stride, self.depth, count,
                      block.keys, self.marks)
            partial = e.icmp("slt", count, BLOCK) | e.icmp("sgt", first, 0)
            if self.mask is not None:
                partial = e.constant(True, "i1", 1)
            with e.when(partial):
                mask, step = self.mask_line(row)
                self.call("mask_row", self.marks, start, count, lower, upper, mask, step)
            m, sums, factor = (self.at(table, row) for table in (self.m, self.sums, self.factor))
            self.call("softmax_row", self.marks, self.s, m, sums, factor)
            self.call("value_row", self.s, self.marks, 1, block.v, block.v_stride, count, self.width,
                      e.load(factor, self.shape.element, 1), self.at(self.o, row * self.width))

    def mask_line(self, row: Value) -> tuple[str, Value]:
        if self.mask is None:
            return "null", self.e.constant(0, "i64", 1)
        offset = self.word(self.offsets["mask"], row)
        line = self.e.offset(self.buffers["mask"], scalars.memory_type(self.mask), offset)
        return line, self.strides["mask"][self.rank + 3]

    def half_group(self, number: Value, first: Value, left: Value, block: Block) -> None:
        """A group of few rows and one block."""
        e, half = self.e, self.shape.half
        seen, clear = self.view(number, block.start)
        self.call("score_tile1", self.at(self.q, first * self.depth), block.k, block.k_stride, self.depth, seen,
                  block.keys, self.s, self.at(self.top, first))
        whole = self.weigh(half, self.s, first, block, seen, clear)
        with e.when(whole):
            self.call("value_tile1", self.s, block.v, block.v_stride, seen, self.width, self.at(self.factor, first),
                      self.at(self.o, first * self.width))
        with e.when(whole ^ 1):
            self.value_rows(half, self.s, first, left, block, seen)

    def whole_groups(self, groups: Value, count: Value, most: Value, block: Block) -> None:
        """All groups of the most rows and one block."""
        e, shape = self.e, self.shape
        self.call("score_tiles", self.q, block.k, block.k_stride, self.depth, most, block.keys, self.s, self.top,
                  groups, self.seen)
        with e.loop(0, groups) as loop:
            seen = self.word(self.seen, loop.index)
            with e.when(e.icmp("sgt", seen, 0)):
                first, s = loop.index * shape.rows, self.at(self.s, loop.index * (BLOCK * shape.rows))
                whole = self.weigh(shape, s, first, block, seen, self.view(loop.index, block.start)[1])
                with e.when(whole ^ 1):
                    self.value_rows(shape, s, first, smin(e, count - first, shape.rows), block, seen)
                    self.store_word(e.constant(0, "i64", 1), self.seen, loop.index)
        self.call("value_tiles", self.s, block.v, block.v_stride, self.width, self.factor, self.o, groups, self.seen)

    def weigh(self, shape: Shape, s: str, first: Value, block: Block, seen: Value, clear: Value) -> Value:
        """The scores of a group become weights. Where some keys are masked for some rows, a value that is not finite
        would reach rows that may not see it, as 0 * inf: then rows take their values one by one, and this is false."""
        e, kind, at_top = self.e, shape.vectors, self.at(self.top, first)
        top = e.absolute(e.load(at_top, shape.element, shape.rows))
        strange = any_lane(e, e.fcmp("uge", top, LARGEST[shape.element]))  # overflown: clamp
        partial = e.icmp("slt", clear, BLOCK) | strange
        with e.when(partial):
            lower, upper = (e.offset(table, "i32", first) for table in (self.lower, self.upper))
            mask = "null" if self.mask is None else self.buffers["mask"]
            step = e.constant(0, "i64", 1) if self.mask is None else self.strides["mask"][self.rank + 3]
            offsets = "null" if self.mask is None else e.offset(self.offsets["mask"], "i64", first)
            self.call(f"mask_tile{kind}", s, block.start, smin(e, clear, seen), seen, lower, upper, mask, offsets, step,
                      at_top)
            with e.when(e.icmp("eq", self.word(self.flag, 0), UNKNOWN)):
                self.call("finite", block.v, block.v_stride, block.keys, self.width, self.flag)
        whole = e.icmp("ne", self.word(self.flag, 0), 0) | (partial ^ 1)
        with e.when(whole ^ 1), e.loop(0, BLOCK * shape.rows, shape.rows) as loop:
            e.store(e.load(self.at(s, loop.index), shape.element, shape.rows), self.at(self.marks, loop.index))
        m, sums, factor = (self.at(table, first) for table in (self.m, self.sums, self.factor))
        self.call(f"softmax_tile{kind}", s, m, sums, factor, at_top, seen)
        return whole

    def value_rows(self, shape: Shape, s: str, first: Value, left: Value, block: Block, seen: Value) -> None:
        """The second product of a group, row by row."""
        e, o, factor = self.e, self.at(self.o, first * self.width), self.at(self.factor, first)
        with e.loop(0, left) as rows:
            self.call("value_row", self.at(s, rows.index), self.at(self.marks, rows.index), shape.rows, block.v,
                      block.v_stride, seen, self.width, e.load(self.at(factor, rows.index), shape.element, 1),
                      self.at(o, rows.index * self.width))

    # -- results ---------------------------------------------------------------------------------------------------
    def finish(self, count: Value) -> None:
        """o / l, and m + log(l); a row that saw nothing is 0, and its logarithm +inf, so that its gradient is 0."""
        e, n, shape, lanes = self.e, self.n, self.shape, self.shape.lanes
        with e.loop(0, count, lanes) as loop:
            sums, m = (self.at(table, loop.index) for table in (self.sums, self.m))
            total = e.load(sums, shape.element, lanes)
            empty = e.fcmp("oeq", total, 0.0)
            total = e.select(empty, 1.0, total)
            e.store(total, sums)
            e.store(e.select(empty, float("inf"), e.load(m, shape.element, lanes) + log(e, total)), m)
        with e.loop(0, count) as loop:
            total, lse = (e.load(self.at(table, loop.index), shape.element, 1) for table in (self.sums, self.m))
            e.store(lse, self.at(self.buffers["lse"], self.word(self.offsets["lse"], loop.index)))
            source = self.at(self.o, loop.index * self.width)
            target = self.pointer("o", self.word(self.offsets["o"], loop.index))
            done = e.constant(0, "i64", 1)
            for vectors, size in ((4, lanes), (1, lanes), (1, 1)) if lanes > 1 else ((1, 1),):
                until = n["width"] & -(vectors * size)
                with e.loop(done, until, vectors * size) as columns:
                    for i in range(vectors):
                        self.store_result(source, target, columns.index + i * size, e.splat(total, size), size)
                done = until

    def store_result(self, source: str, target: str, column: Value, total: Value, lanes: int) -> None:
        e = self.e
        value = e.load(self.at(source, column), self.shape.element, lanes) / total + 0.0  # never -0.0
        stored = scalars.to_memory(e, scalars.round_to(e, value, self.dtype), self.dtype)
        e.store(stored, e.offset(target, self.memory, column))


