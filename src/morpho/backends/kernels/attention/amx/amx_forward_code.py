"""The forward kernel of bfloat16 on matrix units. A few rows alone are taken by vectors, with the same bits."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.kernels.attention.amx import units
from morpho.backends.kernels.attention.amx.units import GROUP, ITEM, KEY_TILES
from morpho.backends.kernels.attention.attention import KEY_BLOCK, PAIR_BLOCK, UNIT_TILE
from morpho.backends.kernels.attention.attention_code import smax, smin
from morpho.backends.kernels.attention.blocks import UNKNOWN, KeyBlock
from morpho.backends.kernels.attention.forward_code import ForwardCode
from morpho.backends.kernels.attention.scores import mask_tile, softmax_tile
from morpho.backends.kernels.gemm.amx.amx import SIDE
from morpho.backends.kernels.gemm.amx.amx_code import TILE_BYTES, configure, release


class AmxForwardCode(ForwardCode):
    """Groups of 32 rows, 64 keys at a time."""

    most_rows = UNIT_TILE

    def add_tiles(self) -> None:
        shape = self.shape
        assert shape.rows == GROUP, "matrix units come with vectors of 512 bits"
        self.tiles = []  # vectors take single rows only
        for routine in (units.pack_queries(shape), units.pack_keys(shape), units.pack_values(shape),
                        units.finite_values(shape), units.score_units(shape), units.weight_units(shape),
                        units.scale_results(shape), units.value_units(shape), mask_tile(shape, self.mask),
                        softmax_tile(shape)):
            self.add(routine)

    def body(self) -> None:
        configure(self.e)
        super().body()
        release(self.e)

    def lay_out(self) -> None:
        super().lay_out()
        n = self.n
        self.unit_depth = self.padded(n["depth"], PAIR_BLOCK)
        self.depth_tiles = self.unit_depth.shift_right(5)
        self.width_tiles = self.width.shift_right(4)
        self.unit_q = self.scratch(self.unit_depth * (UNIT_TILE * ITEM))
        self.unit_k = self.scratch(self.unit_depth * (KEY_BLOCK * ITEM))
        self.unit_v = self.scratch(self.width * (KEY_BLOCK * ITEM))
        self.unit_p = self.scratch(2 * KEY_TILES * TILE_BYTES)

    def pack_queries(self, groups: Value, count: Value) -> None:
        e, n = self.e, self.n
        for few in e.both(e.icmp("sle", count, self.shape.few)):
            if few:
                super().pack_queries(groups, count)
                continue
            with e.loop(0, groups * GROUP, SIDE) as loop:  # rows past the last one repeat it
                self.call("pack_queries", self.buffers["q"], e.offset(self.offsets["q"], "i64", loop.index),
                          self.strides["q"][self.rank + 3], n["depth"], self.depth_tiles, self.queries_at(loop.index))

    def queries_at(self, row: Value) -> str:
        return self.e.offset(self.unit_q, "i16", row * self.unit_depth)

    # -- one block -------------------------------------------------------------------------------------------------
    def block(self, starts: dict[str, Value], start: Value, groups: Value, count: Value) -> None:
        e = self.e
        for few in e.both(e.icmp("sle", count, self.shape.few)):
            if few:
                super().block(starts, start, groups, count)
            else:
                self.unit_block(starts, start, groups, count)

    def unit_block(self, starts: dict[str, Value], start: Value, groups: Value, count: Value) -> None:
        e, n = self.e, self.n
        with e.loop(0, groups, carried=[e.constant(0, "i64", 1)]) as loop:
            seen, _ = self.view(loop.index, start)
            self.store_word(seen, self.seen, loop.index)
            loop.next(smax(e, loop.values[0], seen))
        most = loop.values[0]
        with e.when(e.icmp("sgt", most, 0)):
            keys = smin(e, n["keys"] - start, KEY_BLOCK)
            k, v = (self.pointer(key, starts[key] + self.block_offset(key, starts, start)) for key in "kv")
            stride, step = self.strides["v"][self.rank + 2:self.rank + 4]
            self.call("pack_values", v, stride, step, keys, n["width"], self.width_tiles, self.unit_v)
            e.store(e.constant(UNKNOWN, "i64", 1), self.flag)
            block = KeyBlock(start, keys, None, *self.unit_keys(k, keys, most), v, stride)
            with e.loop(0, groups) as loop:
                seen = self.word(self.seen, loop.index)
                with e.when(e.icmp("sgt", seen, 0)):
                    self.unit_group(loop.index, block, seen, count)

    def unit_keys(self, k: str, keys: Value, most: Value) -> tuple[str, Value]:
        """Where keys lie as left tiles, and how many bytes apart: in their place, if nothing is to be padded."""
        e, n = self.e, self.n
        stride, step = self.strides["k"][self.rank + 2:self.rank + 4]
        plain = (e.icmp("eq", step, 1) & e.icmp("eq", n["depth"], self.unit_depth)
                 & e.icmp("sle", (most + (GROUP - 1)) & -GROUP, keys))
        with e.when(plain ^ 1):
            self.call("pack_keys", k, stride, step, keys, n["depth"], self.unit_depth, self.unit_k)
        pointer = e.fresh("%p")
        e.line(f"{pointer} = select i1 {plain.name}, ptr {k}, ptr {self.unit_k}")
        return pointer, e.select(plain, stride, self.unit_depth) * ITEM

    def unit_group(self, group: Value, block: KeyBlock, seen: Value, count: Value) -> None:
        e, shape = self.e, self.shape
        first = group * GROUP
        self.call("score_units", self.queries_at(first), block.k, block.k_stride, self.depth_tiles, seen, self.s,
                  self.at(self.top, first))
        whole = self.weigh(shape, self.s, first, block, seen, self.view(group, block.start)[1])
        for fine in e.both(whole):
            if not fine:
                self.packed_value_rows(first, block, seen, count)
                continue
            o = self.at(self.o, first * self.width)
            self.call("scale_results", o, self.width, self.at(self.factor, first))
            self.call("weight_units", self.s, self.unit_p)
            self.call("value_units", self.unit_p, self.unit_v, (seen + (PAIR_BLOCK - 1)).shift_right(5), o, self.width)

    def ask_finite(self, block: KeyBlock) -> None:
        self.call("finite_values", self.unit_v, self.width_tiles, self.flag)

    def packed_value_rows(self, first: Value, block: KeyBlock, seen: Value, count: Value) -> None:
        """The second product row by row: values that are not finite reach only rows that see them."""
        e, n = self.e, self.n
        step = self.strides["v"][self.rank + 3]
        self.call("pack_lines", block.v, block.v_stride, step, block.keys, n["width"], self.width, self.one,
                  self.v_room)
        packed = block._replace(v=self.v_room, v_stride=self.width)
        self.value_rows(self.shape, self.s, first, smin(e, count - first, GROUP), packed, seen)
