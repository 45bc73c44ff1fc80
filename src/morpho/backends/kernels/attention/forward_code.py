"""The function of an `AttentionKernel`: tiles of rows walk over blocks of keys."""

from __future__ import annotations

from dataclasses import replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.code.vector_math.logarithm import log
from morpho.backends.kernels.attention import packing, products, scores
from morpho.backends.kernels.attention.attention import FAR, KEY_BLOCK, AttentionKernel
from morpho.backends.kernels.attention.attention_code import MINUS_INFINITY, prefetch, smax, smin
from morpho.backends.kernels.attention.blocks import BlockCode
from morpho.base.dtypes import bfloat16
from morpho.base.machine import Isa


class ForwardCode(BlockCode):
    """The forward kernel."""

    def __init__(self, kernel: AttentionKernel, isa: Isa) -> None:
        super().__init__(kernel.dtype, kernel.rank, isa)
        self.shape = replace(self.shape, paired=kernel.dtype is bfloat16)
        self.operands, self.record, self.paged = kernel.operands, kernel.record, kernel.paged
        self.mask, self.moving = kernel.mask, kernel.moving
        shape = self.shape
        for routine in (products.score_row(shape), scores.mask_row(shape, self.mask), scores.softmax_row(shape),
                        products.value_row(shape), packing.pack_lines(shape, self.dtype)):
            self.add(routine)
        if self.dtype.itemsize < 4:
            self.add(products.score_row(shape, self.dtype))
            self.add(products.value_row(shape, self.dtype))
        self.add_tiles()

    def add_tiles(self) -> None:
        """The routines of many rows."""
        shape = self.shape
        self.tiles = [shape.half, shape] if shape.lanes > 1 else []
        if self.tiles:
            for routine in (packing.pack_lanes(shape, self.dtype), packing.finite(shape),
                            products.score_tile(shape.half), products.score_tiles(shape),
                            products.value_tile(shape.half), products.value_tiles(shape)):
                self.add(routine)
        for tile in self.tiles:
            self.add(scores.mask_tile(tile, self.mask))
            self.add(scores.softmax_tile(tile))

    def body(self) -> None:
        e, n, shape = self.e, self.n, self.shape
        self.lines = n["group"] * n["queries"]
        self.depth, self.width = self.padded(n["depth"], shape.padding), self.padded(n["width"], shape.columns)
        self.lay_out()
        tiles = e.instruction("udiv", self.lines + n["tile"] - 1, n["tile"])
        first, last = self.pieces(tiles * self.heads())
        with e.loop(first, last) as loop:
            head = e.instruction("udiv", loop.index, tiles)
            # The last rows of a head first: they may see the most keys, and threads end together on small pieces.
            self.tile(head, (head * tiles + (tiles - 1) - loop.index) * n["tile"])

    # -- one tile --------------------------------------------------------------------------------------------------
    def tile(self, head: Value, first: Value) -> None:
        e, rows = self.e, self.shape.rows
        starts = self.starts(head, self.operands)
        count = smin(e, self.lines - first, self.n["tile"])
        groups = e.instruction("udiv", count + (rows - 1), e.constant(rows, "i64", 1))
        # Rows past the last one fill up tiles; a few rows alone need none.
        placed = e.select(e.icmp("sle", count, self.shape.few), count, groups * rows)
        self.place_rows(starts, first, placed)
        least, most = self.find_limits(groups, placed)
        self.begin(groups, count, placed)
        with e.loop(least & -KEY_BLOCK, most, KEY_BLOCK) as blocks:
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
            prefetch(e, self.pointer("q", places["q"]), self.memory, n["depth"])
            for key, table in self.offsets.items():
                self.store_word(places[key], table, loop.index)
            lower, upper = self.limits_of(starts, head, row)
            for value, table in ((lower, self.lower), (upper, self.upper)):
                e.store(e.convert("trunc", value, "i32"), e.offset(table, "i32", loop.index))

    def find_limits(self, groups: Value, placed: Value) -> tuple[Value, Value]:
        """The least and most of both limits for each group of rows, and the keys that any row sees."""
        e, rows = self.e, self.shape.rows
        far = [e.constant(FAR, "i64", 1), e.constant(-FAR, "i64", 1)]
        with e.loop(0, groups, carried=far) as loop:
            start = loop.index * rows
            with e.loop(start, smin(e, start + rows, placed), carried=far * 2) as inner:
                found = []
                for table, (least, most) in ((self.lower, inner.values[:2]), (self.upper, inner.values[2:])):
                    value = e.convert("sext", e.load(e.offset(table, "i32", inner.index), "i32", 1), "i64")
                    found += [smin(e, least, value), smax(e, most, value)]
                inner.next(*found)
            for i, value in enumerate(inner.values):
                self.store_word(value, self.limits, loop.index * 4 + i)
            loop.next(smin(e, loop.values[0], inner.values[0]), smax(e, loop.values[1], inner.values[3]))
        return loop.values[0], loop.values[1]

    def begin(self, groups: Value, count: Value, placed: Value) -> None:
        """Nothing seen yet; queries packed, transposed where a group has enough rows."""
        e, shape = self.e, self.shape
        with e.loop(0, placed, shape.lanes) as loop:
            e.store(e.constant(MINUS_INFINITY, shape.element), self.at(self.m, loop.index))
            e.store(e.constant(0.0, shape.element), self.at(self.sums, loop.index))
        with e.loop(0, self.width * placed, 4 * shape.lanes) as loop:  # what is written past the last is room
            for i in range(4):
                e.store(e.constant(0.0, shape.element), self.at(self.o, loop.index + i * shape.lanes))
        self.pack_queries(groups, count)

    def pack_queries(self, groups: Value, count: Value) -> None:
        e, n, shape = self.e, self.n, self.shape
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
                                  self.early_scale, tile.rows, target)
                        continue
                    with e.loop(0, left) as lines:
                        source = self.pointer("q", self.word(offsets, lines.index))
                        line = self.at(target, lines.index * self.depth)
                        self.call("pack_lines", source, 0, step, 1, n["depth"], self.depth, self.early_scale, line)

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


