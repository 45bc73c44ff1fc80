"""One tile of rows and one block of keys of attention: scores, masks, softmax, and the weighted sum of values.

A tile is made of groups of rows, two vectors each. Groups of enough rows are taken together, so that a line of keys or
values is read for all of them while it is near; the last group, of fewer rows, as half a group or row by row.
"""

from __future__ import annotations

from typing import NamedTuple

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.attention.attention import KEY_BLOCK, TALL_TILE
from morpho.backends.kernels.attention.attention_code import LARGEST, Shape, any_lane, smax, smin
from morpho.backends.kernels.attention.products import UNROLLED_PAIRS, stored_strip
from morpho.backends.kernels.attention.tiles import TileCode
from morpho.base.dtypes import DType

UNKNOWN = 2  # whether a block of values is finite, before anyone asked


class KeyBlock(NamedTuple):
    """A block of keys and values, as the routines read them; or as they are `stored`, which only those of a row can."""

    start: Value
    keys: Value  # how many there are
    stored: Value | None
    k: str
    k_stride: Value
    v: str
    v_stride: Value


class BlockCode(TileCode):
    """Work of the forward kernel on a block."""

    mask: DType | None
    most_rows = TALL_TILE  # of a tile
    paged: bool  # whether keys and values lie in pages
    tiles: list[Shape]  # those that are written: half a group and a whole one
    depth: Value  # padded, as the width is
    width: Value

    def lay_out(self) -> None:
        """Scratch: per row, per group of rows, then the tile and the block."""
        tile, packed = self.most_rows, TALL_TILE
        self.offsets = {key: self.scratch(8 * tile) for key in ("q", "o", "lse", *["mask"] * (self.mask is not None))}
        self.lower, self.upper = self.scratch(4 * tile), self.scratch(4 * tile)
        self.limits = self.scratch(32 * (tile // self.shape.rows))  # per group: least lower, most lower, ... upper
        self.m, self.sums, self.factor = (self.elements(tile) for _ in range(3))
        self.seen = self.scratch(8 * (tile // self.shape.rows))  # per group: keys of the block it sees, if a whole one
        self.s, self.marks = self.elements(KEY_BLOCK * packed), self.elements(KEY_BLOCK * self.shape.rows)
        self.top, self.flag = self.elements(tile), self.scratch(8)
        self.q, self.o = self.elements(packed * self.depth), self.elements(tile * self.width)
        self.k_room, self.v_room = self.elements(KEY_BLOCK * self.depth), self.elements(KEY_BLOCK * self.width)

    @property
    def early_scale(self) -> Value:
        """Factor of the queries: the products of pairs are scaled afterwards."""
        return self.one if self.shape.paired else self.scale

    def ways(self, left: Value) -> list[tuple[Shape | None, Value]]:
        """How a group of so many rows is taken: one by one, as half a tile or a whole one, and when."""
        e, shape = self.e, self.shape
        few = e.icmp("sle", left, shape.few)
        if not self.tiles:
            return [(None, few)]
        fits = e.icmp("sle", left, shape.lanes)
        return [(None, few), (shape.half, (few ^ 1) & fits), (shape, fits ^ 1)]

    def block(self, starts: dict[str, Value], start: Value, groups: Value, count: Value) -> None:
        e, n, shape = self.e, self.n, self.shape
        keys = smin(e, n["keys"] - start, KEY_BLOCK)
        sources = {key: self.pointer(key, starts[key] + self.block_offset(key, starts, start)) for key in "kv"}
        often = e.icmp("sgt", count, 2 * shape.value_rows)
        stored = self.read_as_stored(count)
        block = KeyBlock(start, keys, stored,
                      *self.packed("k", sources["k"], keys, n["depth"], self.depth, self.k_room, stored=stored),
                      *self.packed("v", sources["v"], keys, n["width"], self.width, self.v_room, often, stored))
        if shape.paired:
            end = (keys + (UNROLLED_PAIRS - 1)) & -UNROLLED_PAIRS  # keys come in pairs
            with e.loop(keys * self.width, end * self.width, shape.lanes) as loop:
                e.store(e.constant(0.0, shape.element), self.at(self.v_room, loop.index))
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

    def block_offset(self, key: str, starts: dict[str, Value], start: Value) -> Value:
        """How far into an operand the block of keys from `start` on lies: further along, or on a page of its own, which
        a table says; what it says is held inside the pool."""
        e = self.e
        if not self.paged:
            return start * self.strides[key][self.rank + 2]
        number = e.instruction("udiv", start, e.constant(KEY_BLOCK, "i64", 1))
        page = self.word(self.buffers["pages"], starts["pages"] + number * self.strides["pages"][self.rank + 2])
        return smin(e, smax(e, page, 0), self.n["pages"] - 1) * self.n[f"{key}_page"]

    def read_as_stored(self, count: Value) -> Value | None:
        """Whether half floats are read where they lie: by one row, and if nothing is to be padded."""
        e, n = self.e, self.n
        if self.dtype.itemsize >= 4:
            return None
        found = e.icmp("eq", count, 1)
        for key, size, unit in (("k", n["depth"], stored_strip(self.shape, self.dtype)),
                                ("v", n["width"], self.shape.columns)):
            found = found & e.icmp("eq", self.strides[key][self.rank + 3], 1) & e.icmp("eq", size & (unit - 1), 0)
        return found

    def view(self, group: Value, start: Value) -> tuple[Value, Value]:
        """How many keys of a block a group sees, and how many of the first ones are seen by all of its rows."""
        e = self.e
        least_lower, most_lower, least_upper, most_upper = (self.word(self.limits, group * 4 + i) for i in range(4))
        seen = smin(e, most_upper - start, KEY_BLOCK)
        seen = e.select(e.icmp("slt", least_lower, start + KEY_BLOCK), seen, 0)
        if self.mask is not None:
            return seen, e.constant(0, "i64", 1)
        clear = smin(e, smax(e, least_upper - start, 0), KEY_BLOCK)
        return seen, e.select(e.icmp("sgt", most_lower, start), 0, clear)

    def row(self, row: Value, block: KeyBlock) -> None:
        """One row and one block."""
        e, start = self.e, block.start
        lower, upper = (e.load(e.offset(table, "i32", row), "i32", 1) for table in (self.lower, self.upper))
        count = smin(e, e.convert("sext", upper, "i64") - start, KEY_BLOCK)
        first = e.convert("sext", lower, "i64") - start
        with e.when(e.icmp("sgt", count, 0) & e.icmp("slt", first, KEY_BLOCK)):
            self.call_row("score", block, self.at(self.q, row * self.depth), block.k, block.k_stride, self.depth, count,
                          block.keys, self.scale, self.marks, block.v)
            partial = e.icmp("slt", count, KEY_BLOCK) | e.icmp("sgt", first, 0)
            if self.mask is not None:
                partial = e.constant(True, "i1", 1)
            with e.when(partial):
                mask, step = self.mask_line(row)
                self.call("mask_row", self.marks, start, count, lower, upper, mask, step)
            m, sums, factor = (self.at(table, row) for table in (self.m, self.sums, self.factor))
            self.call("softmax_row", self.marks, self.s, m, sums, factor, count)
            clear = e.constant(0, "i64", 1) if self.mask is not None else e.select(e.icmp("sgt", first, 0), 0, count)
            self.call_row("value", block, self.s, self.marks, 1, block.v, block.v_stride, clear, count, self.width,
                          e.load(factor, self.shape.element, 1), self.at(self.o, row * self.width), self.after(block))

    def call_row(self, product: str, block: KeyBlock, *arguments: Value | str | int) -> None:
        """Call the routine of one of the two products of a row, which reads the block unpacked."""
        if block.stored is None:
            self.call(f"{product}_row", *arguments)
            return
        for stored in self.e.both(block.stored):
            self.call(f"{product}_stored_row" if stored else f"{product}_row", *arguments)

    def after(self, block: KeyBlock) -> str:
        """Where the keys lie, as they are stored, that are likely the next ones: of the next block, or head."""
        return self.e.offset(block.k, self.memory, block.k_stride * block.keys)

    def mask_line(self, row: Value) -> tuple[str, Value]:
        if self.mask is None:
            return "null", self.e.constant(0, "i64", 1)
        offset = self.word(self.offsets["mask"], row)
        line = self.e.offset(self.buffers["mask"], scalars.memory_type(self.mask), offset)
        return line, self.strides["mask"][self.rank + 3]

    def half_group(self, number: Value, first: Value, left: Value, block: KeyBlock) -> None:
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

    def whole_groups(self, groups: Value, count: Value, most: Value, block: KeyBlock) -> None:
        """All groups of the most rows and one block."""
        e, shape = self.e, self.shape
        self.call("score_tiles", self.q, block.k, block.k_stride, self.depth, most, block.keys, self.s, self.top,
                  groups, self.seen)
        with e.loop(0, groups) as loop:
            seen = self.word(self.seen, loop.index)
            with e.when(e.icmp("sgt", seen, 0)):
                first, s = loop.index * shape.rows, self.at(self.s, loop.index * (KEY_BLOCK * shape.rows))
                whole = self.weigh(shape, s, first, block, seen, self.view(loop.index, block.start)[1])
                with e.when(whole ^ 1):
                    self.value_rows(shape, s, first, smin(e, count - first, shape.rows), block, seen)
                    self.store_word(e.constant(0, "i64", 1), self.seen, loop.index)
        self.call("value_tiles", self.s, block.v, block.v_stride, self.width, self.factor, self.o, groups, self.seen)

    def weigh(self, shape: Shape, s: str, first: Value, block: KeyBlock, seen: Value, clear: Value) -> Value:
        """The scores of a group become weights. Where some keys are masked for some rows, a value that is not finite
        would reach rows that may not see it, as 0 * inf: then rows take their values one by one, and this is false."""
        e, kind, at_top = self.e, shape.vectors, self.at(self.top, first)
        top = e.absolute(e.load(at_top, shape.element, shape.rows))
        if shape.paired:
            top = e.maximum(top, e.absolute(top * e.splat(self.scale, shape.rows)))
        strange = any_lane(e, e.fcmp("uge", top, LARGEST[shape.element]))  # overflown: clamp
        partial = e.icmp("slt", clear, KEY_BLOCK) | strange
        scale = self.one
        if shape.paired:  # the largest is that of products before they are scaled
            partial = partial | (e.fcmp("oge", self.scale, 0.0) ^ 1)
            scale = e.select(partial, self.one, self.scale)
        with e.when(partial):
            lower, upper = (e.offset(table, "i32", first) for table in (self.lower, self.upper))
            mask = "null" if self.mask is None else self.buffers["mask"]
            step = e.constant(0, "i64", 1) if self.mask is None else self.strides["mask"][self.rank + 3]
            offsets = "null" if self.mask is None else e.offset(self.offsets["mask"], "i64", first)
            self.call(f"mask_tile{kind}", s, block.start, smin(e, clear, seen), seen, lower, upper, mask, offsets, step,
                      self.scale, at_top)
            with e.when(e.icmp("eq", self.word(self.flag, 0), UNKNOWN)):
                self.ask_finite(block)
        whole = e.icmp("ne", self.word(self.flag, 0), 0) | (partial ^ 1)
        with e.when(whole ^ 1), e.loop(0, KEY_BLOCK * shape.rows, shape.rows) as loop:
            e.store(e.load(self.at(s, loop.index), shape.element, shape.rows), self.at(self.marks, loop.index))
        m, sums, factor = (self.at(table, first) for table in (self.m, self.sums, self.factor))
        self.call(f"softmax_tile{kind}", s, m, sums, factor, at_top, seen, scale)
        return whole

    def ask_finite(self, block: KeyBlock) -> None:
        """Store at the flag whether all values of the block are finite."""
        self.call("finite", block.v, block.v_stride, block.keys, self.width, self.flag)

    def value_rows(self, shape: Shape, s: str, first: Value, left: Value, block: KeyBlock, seen: Value) -> None:
        """The second product of a group, row by row."""
        e, o, factor = self.e, self.at(self.o, first * self.width), self.at(self.factor, first)
        with e.loop(0, left) as rows:
            self.call("value_row", self.at(s, rows.index), self.at(self.marks, rows.index), shape.rows, block.v,
                      block.v_stride, 0, seen, self.width, e.load(self.at(factor, rows.index), shape.element, 1),
                      self.at(o, rows.index * self.width), block.v)
