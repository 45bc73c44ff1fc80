"""The gradient of blockwise attention: probabilities are recomputed from the log-sum-exps of the forward pass.

Every result is one chain in one order, whoever computes it. `queries` gives the gradient of q, a tile of rows walking
over blocks of keys; `keys` gives those of k and v, a tile of keys walking over blocks of rows: both divide among any
number of threads, and together compute the probabilities twice. `heads` gives all three for one key-value head after
another, computes them once, and is taken where there are heads enough. The routines are those of the forward pass; for
`keys` and `heads` the keys are in the lanes and rows take the place of keys.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.attention import packing, products, scores
from morpho.backends.kernels.attention.attention import FAR, KEY_BLOCK, READ, RESULTS, TILE, AttentionBackwardKernel
from morpho.backends.kernels.attention.attention_code import LARGEST, any_lane, smax, smin
from morpho.backends.kernels.attention.tiles import TileCode
from morpho.base.machine import Isa


def generate(kernel: AttentionBackwardKernel, isa: Isa, name: str) -> str:
    """The LLVM module of one part of the gradient."""
    parts: dict[str, Callable[[AttentionBackwardKernel, Isa], BackwardCode]] = {
        "queries": QueriesCode, "keys": KeysCode, "heads": HeadsCode}
    return parts[kernel.part](kernel, isa).module(name)


class BackwardCode(TileCode):
    """Base of all parts: the layout of rows and what they see, products, and the way out."""

    def __init__(self, kernel: AttentionBackwardKernel, isa: Isa) -> None:
        super().__init__(kernel.dtype, kernel.rank, isa)
        self.mask, self.moving = kernel.mask, kernel.moving
        shape = self.shape
        transposed = kernel.part != "queries"
        mask = (scores.mask_transposed if transposed else scores.mask_tile)(shape, self.mask)
        for routine in (products.score_tile(shape), mask, scores.slope_tile(shape, transposed),
                        products.value_tile(shape), packing.pack_lines(shape, self.dtype),
                        packing.pack_lanes(shape, self.dtype)):
            self.add(routine)

    def prepare(self) -> None:
        shape, n = self.shape, self.n
        self.lines = n["group"] * n["queries"]
        unit = max(shape.strip, shape.columns)  # lines are read by both products
        self.depth, self.width = self.padded(n["depth"], unit), self.padded(n["width"], unit)
        self.offsets = {key: self.scratch(8 * KEY_BLOCK) for key in ("q", "ct", "lse", "delta", "mask")}
        self.lower, self.upper = self.scratch(4 * KEY_BLOCK), self.scratch(4 * KEY_BLOCK)
        self.lse, self.delta = self.elements(KEY_BLOCK), self.elements(KEY_BLOCK)
        self.ones, self.top, self.ignored = (self.elements(shape.rows) for _ in range(3))
        self.s, self.t = self.elements(KEY_BLOCK * shape.rows), self.elements(KEY_BLOCK * KEY_BLOCK)
        self.e.store(self.e.constant(1.0, shape.element, shape.rows), self.ones)

    @abstractmethod
    def tile(self, starts: dict[str, Value], first: Value) -> None:
        """One tile of a head, from line or key `first` on."""

    def each_tile(self, length: Value, size: int) -> None:
        """The pieces of this call: `length` lines or keys of every head, `size` at a time."""
        e = self.e
        tiles = (length + (size - 1)).shift_right(size.bit_length() - 1)
        first, last = self.pieces(tiles * self.heads())
        with e.loop(first, last) as loop:
            head = e.instruction("udiv", loop.index, tiles)
            self.tile(self.starts(head, self.operands), (loop.index - head * tiles) * size)

    def place_rows(self, starts: dict[str, Value], first: Value, count: int) -> tuple[Value, Value]:
        """Tables of `count` rows from `first`, the last one repeated; the keys that any of them sees."""
        e, n, shape = self.e, self.n, self.shape
        far = [e.constant(FAR, "i64", 1), e.constant(-FAR, "i64", 1)]
        with e.loop(0, count, carried=[*far, *reversed(far)]) as loop:
            line = smin(e, first + loop.index, self.lines - 1)
            head = e.instruction("udiv", line, n["queries"])
            row = line - head * n["queries"]
            places = {key: self.line(key, starts[key], head, row) for key in self.offsets}
            for key, table in self.offsets.items():
                self.store_word(places[key], table, loop.index)
            for key, table in (("lse", self.lse), ("delta", self.delta)):
                value = e.load(self.at(self.buffers[key], places[key]), shape.element, 1)
                e.store(value, self.at(table, loop.index))
            lower, upper = self.limits_of(starts, head, row)
            for value, table in ((lower, self.lower), (upper, self.upper)):
                e.store(e.convert("trunc", value, "i32"), e.offset(table, "i32", loop.index))
            least, most, latest, earliest = loop.values
            loop.next(smin(e, least, lower), smax(e, most, upper), smax(e, latest, lower), smin(e, earliest, upper))
        least, most, self.latest, self.earliest = loop.values
        return least, most

    def partly(self, start: Value, count: int) -> Value:
        """Whether any of `count` keys from `start` is masked for any row, or has an overflown score to be clamped."""
        e, shape = self.e, self.shape
        top = e.absolute(e.load(self.top, shape.element, shape.rows))
        strange = any_lane(e, e.fcmp("uge", top, LARGEST[shape.element]))
        if self.mask is not None:
            return e.constant(True, "i1", 1)
        return e.icmp("slt", start, self.latest) | e.icmp("sgt", start + count, self.earliest) | strange

    def mask_operands(self) -> tuple[str, Value]:
        if self.mask is None:
            return "null", self.e.constant(0, "i64", 1)
        return self.buffers["mask"], self.strides["mask"][self.rank + 3]

    def clear(self, table: str, count: Value) -> None:
        with self.e.loop(0, count, self.shape.lanes) as loop:
            self.e.store(self.e.constant(0.0, self.shape.element), self.at(table, loop.index))

    def store_line(self, source: str, target: str, size: Value, factor: Value) -> None:
        """A finished line times a factor, rounded; never -0.0."""
        e, lanes = self.e, self.shape.lanes
        whole = size & -lanes
        for first, last, step in ((0, whole, lanes), (whole, size, 1)):
            with e.loop(first, last, step) as loop:
                value = e.load(self.at(source, loop.index), self.shape.element, step) * e.splat(factor, step) + 0.0
                stored = scalars.to_memory(e, scalars.round_to(e, value, self.dtype), self.dtype)
                e.store(stored, e.offset(target, self.memory, loop.index))


class QueriesCode(BackwardCode):
    """dq[row] = sum over keys of slope[row, key] * k[key], keys ascending."""

    operands = (*READ, *RESULTS["queries"])

    def body(self) -> None:
        self.prepare()
        self.q, self.ct = self.elements(TILE * self.depth), self.elements(TILE * self.width)
        self.dq = self.elements(TILE * self.depth)
        self.k_room, self.v_room = self.elements(KEY_BLOCK * self.depth), self.elements(KEY_BLOCK * self.width)
        self.each_tile(self.lines, TILE)

    def tile(self, starts: dict[str, Value], first: Value) -> None:
        e, n, rows = self.e, self.n, self.shape.rows
        count = smin(e, self.lines - first, TILE)
        least, most = self.place_rows(starts, first, TILE)
        with e.loop(0, TILE, rows) as loop:
            for key, size, width, factor, target in (("q", n["depth"], self.depth, self.scale, self.q),
                                                     ("ct", n["width"], self.width, self.one, self.ct)):
                self.call("pack_lanes", self.buffers[key],
                          e.offset(self.offsets[key], "i64", loop.index), self.strides[key][self.rank + 3], rows, size,
                          width, factor, rows, self.at(target, loop.index * width))
        self.clear(self.dq, self.depth * TILE)
        with e.loop(least & -KEY_BLOCK, most, KEY_BLOCK) as blocks:
            self.block(starts, blocks.index, count)
        with e.loop(0, count) as loop:
            line = smin(e, first + loop.index, self.lines - 1)
            head = e.instruction("udiv", line, n["queries"])
            place = self.line("dq", starts["dq"], head, line - head * n["queries"])
            self.store_line(self.at(self.dq, loop.index * self.depth), self.pointer("dq", place), n["depth"],
                            self.scale)

    def block(self, starts: dict[str, Value], start: Value, count: Value) -> None:
        e, n, shape, kind = self.e, self.n, self.shape, self.shape.vectors
        keys = smin(e, n["keys"] - start, KEY_BLOCK)
        sources = {key: self.pointer(key, starts[key] + start * self.strides[key][self.rank + 2]) for key in "kv"}
        k, k_stride = self.packed("k", sources["k"], keys, n["depth"], self.depth, self.k_room)
        v, v_stride = self.packed("v", sources["v"], keys, n["width"], self.width, self.v_room)
        mask, step = self.mask_operands()
        with e.loop(0, count, shape.rows) as loop:
            first = loop.index
            self.call(f"score_tile{kind}", self.at(self.q, first * self.depth), k, k_stride, self.depth, keys, keys,
                      self.s, self.top)
            self.call(f"score_tile{kind}", self.at(self.ct, first * self.width), v, v_stride, self.width, keys, keys,
                      self.t, self.ignored)
            lower, upper = (e.offset(table, "i32", first) for table in (self.lower, self.upper))
            with e.when(self.partly(start, KEY_BLOCK)):
                self.call(f"mask_tile{kind}", self.s, start, 0, keys, lower, upper, mask,
                          e.offset(self.offsets["mask"], "i64", first), step, self.one, self.top)
            self.call("slope_tile", self.s, self.t, self.at(self.lse, first), self.at(self.delta, first), keys)
            self.call(f"value_tile{kind}", self.t, k, k_stride, keys, self.depth, self.ones,
                      self.at(self.dq, first * self.depth))


class KeysCode(BackwardCode):
    """dk[key] = sum over rows of slope[row, key] * q[row], dv[key] = sum of p[row, key] * ct[row]; rows ascending, the
    heads of a group one after another."""

    operands: tuple[str, ...] = (*READ, *RESULTS["keys"])

    def prepare(self) -> None:
        super().prepare()
        self.k, self.v = self.elements(KEY_BLOCK * self.depth), self.elements(KEY_BLOCK * self.width)
        self.dk, self.dv = self.elements(KEY_BLOCK * self.depth), self.elements(KEY_BLOCK * self.width)
        self.q, self.ct = self.elements(KEY_BLOCK * self.depth), self.elements(KEY_BLOCK * self.width)

    def body(self) -> None:
        self.prepare()
        self.each_tile(self.n["keys"], KEY_BLOCK)

    def tile(self, starts: dict[str, Value], first: Value) -> None:
        e, n, rows = self.e, self.n, self.shape.rows
        count = smin(e, n["keys"] - first, KEY_BLOCK)
        sides = (("k", n["depth"], self.depth, self.k, self.dk), ("v", n["width"], self.width, self.v, self.dv))
        for key, size, width, target, result in sides:
            along, step = self.strides[key][self.rank + 2:self.rank + 4]
            with e.loop(0, KEY_BLOCK) as loop:
                place = starts[key] + smin(e, first + loop.index, n["keys"] - 1) * along
                self.store_word(place, self.offsets["q"], loop.index)
            with e.loop(0, KEY_BLOCK, rows) as loop:
                self.call("pack_lanes", self.buffers[key],
                          e.offset(self.offsets["q"], "i64", loop.index), step, rows, size, width, self.one,
                          rows, self.at(target, loop.index * width))
            self.clear(result, width * KEY_BLOCK)
        with e.loop(0, self.lines, KEY_BLOCK) as blocks:
            self.block(starts, blocks.index, first, count)
        for key, size, width, _, result in sides:
            with e.loop(0, count) as loop:
                place = starts["d" + key] + (first + loop.index) * self.strides["d" + key][self.rank + 2]
                self.store_line(self.at(result, loop.index * width), self.pointer("d" + key, place), size,
                                self.one)

    def block(self, starts: dict[str, Value], start: Value, first: Value, count: Value) -> None:
        """Rows from `start` and the tile's keys, unless none of those sees any of these."""
        e, n = self.e, self.n
        lines = smin(e, self.lines - start, KEY_BLOCK)
        least, most = self.place_rows(starts, start, KEY_BLOCK)
        with e.when(e.icmp("slt", least, first + count) & e.icmp("sgt", most, first)):
            for key, size, width, factor, target in (("q", n["depth"], self.depth, self.scale, self.q),
                                                     ("ct", n["width"], self.width, self.one, self.ct)):
                with e.loop(0, lines) as loop:
                    source = self.pointer(key, self.word(self.offsets[key], loop.index))
                    self.call("pack_lines", source, 0, self.strides[key][self.rank + 3], 1, size, width, factor,
                              self.at(target, loop.index * width))
            self.groups(start, first, count, lines)

    def groups(self, start: Value, first: Value, count: Value, lines: Value) -> None:
        """Every group of the tile's keys with a block of rows."""
        with self.e.loop(0, count, self.shape.rows) as loop:
            self.group(loop.index, first + loop.index, lines)

    def slopes(self, at: Value) -> str:
        """Where the slopes of the group of keys at `at` go."""
        return self.t

    def group(self, at: Value, key: Value, lines: Value) -> None:
        kind, t = self.shape.vectors, self.slopes(at)
        mask, step = self.mask_operands()
        self.call(f"score_tile{kind}", self.at(self.k, at * self.depth), self.q, self.depth, self.depth, lines, lines,
                  self.s, self.top)
        self.call(f"score_tile{kind}", self.at(self.v, at * self.width), self.ct, self.width, self.width, lines, lines,
                  t, self.ignored)
        with self.e.when(self.partly(key, self.shape.rows)):
            self.call("mask_transposed", self.s, key, lines, self.lower, self.upper, mask, self.offsets["mask"], step,
                      self.n["keys"])
        self.call("slope_tile", self.s, t, self.lse, self.delta, lines)
        self.call(f"value_tile{kind}", self.s, self.ct, self.width, lines, self.width, self.ones,
                  self.at(self.dv, at * self.width))
        self.call(f"value_tile{kind}", t, self.q, self.depth, lines, self.depth, self.ones,
                  self.at(self.dk, at * self.depth))


class HeadsCode(KeysCode):
    """All three gradients, head by head; those of q are gathered in `total`, one line of padded depth for each row."""

    operands = (*READ, *RESULTS["heads"])

    def __init__(self, kernel: AttentionBackwardKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.add(products.value_transposed(self.shape))

    def body(self) -> None:
        e, n = self.e, self.n
        self.prepare()
        self.k_room = self.elements(KEY_BLOCK * self.depth)
        first, last = self.pieces(self.heads())
        with e.loop(first, last) as heads:
            starts = self.starts(heads.index, self.operands)
            self.total = self.at(self.buffers["total"], heads.index * self.lines * self.depth)
            self.clear(self.total, self.lines * self.depth)
            with e.loop(0, n["keys"], KEY_BLOCK) as tiles:
                self.tile(starts, tiles.index)
            with e.loop(0, self.lines) as lines:
                head = e.instruction("udiv", lines.index, n["queries"])
                place = self.line("dq", starts["dq"], head, lines.index - head * n["queries"])
                self.store_line(self.at(self.total, lines.index * self.depth), self.pointer("dq", place), n["depth"],
                                self.scale)

    def slopes(self, at: Value) -> str:
        return self.at(self.t, at * KEY_BLOCK)

    def tile(self, starts: dict[str, Value], first: Value) -> None:
        n = self.n
        source = self.pointer("k", starts["k"] + first * self.strides["k"][self.rank + 2])
        count = smin(self.e, n["keys"] - first, KEY_BLOCK)
        self.k_lines, self.k_stride = self.packed("k", source, count, n["depth"], self.depth, self.k_room)
        super().tile(starts, first)

    def groups(self, start: Value, first: Value, count: Value, lines: Value) -> None:
        super().groups(start, first, count, lines)
        self.call("value_transposed", self.t, lines, self.k_lines, self.k_stride, count, self.depth,
                  self.at(self.total, start * self.depth))
