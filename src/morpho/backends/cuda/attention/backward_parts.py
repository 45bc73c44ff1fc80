"""The two kernels of attention's gradient: dq over keys, dk and dv over queries."""

from __future__ import annotations

import math

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.backward_code import BackwardCode
from morpho.backends.cuda.attention.forward import LOG2_E
from morpho.backends.cuda.codegen.warp_math import exp2


class QueriesCode(BackwardCode):
    """dq: own lines are queries and cotangents, the others are keys and values."""

    def place_tile(self, block: Value) -> tuple[Value, Value, Value]:
        """Long rows of a causal mask first."""
        e, n, lines = self.e, self.n, self.grid.lines
        tiles = e.instruction("udiv", n["queries"] + (lines - 1), self.number(lines))
        rest = e.instruction("udiv", block, tiles)
        self.first = (tiles - 1 - (block - rest * tiles)) * lines
        outer = e.instruction("udiv", rest, n["heads"])
        head = rest - outer * n["heads"]
        return head, e.instruction("udiv", head, n["group"]), outer

    def key_range(self) -> tuple[Value, Value, Value]:
        """The first key, the first one of a block with a mask, and the end."""
        e, spec, keys = self.e, self.spec, self.n["keys"]
        begin, middle, end = self.number(0), keys & -self.grid.block, keys
        if spec.causal:
            start = self.position + self.first
            end = e.intrinsic("smin", keys, start + self.grid.lines)
            middle = e.intrinsic("smin", middle, e.intrinsic("smax", start + 1, begin) & -self.grid.block)
            if spec.window:
                begin = e.intrinsic("smax", start - (spec.window - 1), begin) & -self.grid.block
        if spec.window or spec.mask is not None:
            middle = begin
        return begin, middle, e.intrinsic("smax", end, begin)

    def work(self) -> None:
        """All keys of these queries."""
        e, n, grid = self.e, self.n, self.grid
        self.own = self.number(0), self.number(2 * grid.lines * self.depth)
        for name, place in zip("qc", self.own, strict=True):
            self.fetch(name, self.first, n["queries"], grid.lines, place)
        begin, middle, end = self.key_range()
        stage = self.number(grid.own_bytes)
        self.fetch_block(begin, stage)
        rows = [[self.row(self.first, tile, half) for half in range(2)] for tile in range(grid.tiles)]
        self.logarithms = [[self.number_of("l", row, math.inf) * LOG2_E for row in pair] for pair in rows]
        self.sums = [[self.number_of("s", row, 0.0) for row in pair] for pair in rows]
        state = [e.constant(0.0, "float", 1)] * (grid.tiles * self.depth // 2)
        for first, last, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(first, last, self.grid.block, carried=[*state, stage]) as loop:
                *values, here = loop.values
                other = self.number(2 * grid.own_bytes + grid.stage_bytes) - here
                self.arrived()
                self.fetch_block(loop.index + self.grid.block, other)
                loop.next(*self.block(loop.index, here, values, masked), other)
            *state, stage = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.store("a", self.spec.depth, self.depth, self.first, n["queries"], state, self.spec.scale)

    def fetch_block(self, key: Value, stage: Value) -> None:
        """Keys and values."""
        self.fetch("k", key, self.n["keys"], self.grid.block, stage)
        self.fetch("v", key, self.n["keys"], self.grid.block, stage + 2 * self.grid.block * self.depth)
        self.commit()

    def block(self, key: Value, stage: Value, state: list[Value], masked: bool) -> list[Value]:
        """A block of keys more."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        scores = self.products(self.own[0], stage, self.depth, 0)
        powers = []
        for tile, values in enumerate(scores):
            if masked:
                values = self.masked(values, self.row(self.first, tile, 0), key)
            powers.append([exp2(e, e.fma(value, factor, -self.logarithms[tile][(number % 4) // 2]))
                           for number, value in enumerate(values)])
        inner = self.products(self.own[1], stage + 2 * self.grid.block * self.depth, self.width, 0)
        sums = [[self.sums[tile][(number % 4) // 2] for number in range(len(values))]
                for tile, values in enumerate(inner)]
        return self.added(self.slopes(powers, inner, sums), stage, self.depth, 0, state)

    def masked(self, values: list[Value], row: Value, key: Value) -> list[Value]:
        """Scores of a tile, some of them -inf."""
        e, column = self.e, key + (self.lane & 3) * 2
        apart, found = self.narrow(self.position + row - column), []
        left = self.narrow(self.n["keys"] - column)
        for number, value in enumerate(values):
            down, along = 8 * ((number % 4) // 2), 8 * (number // 4) + number % 2
            value = self.seen(value, row + down, column + along, apart, down - along)
            found.append(e.select(e.icmp("sgt", left, along), value, -math.inf))
        return found


class KeysCode(BackwardCode):
    """dk and dv: own lines are keys and values, the others are queries and cotangents."""

    def place_tile(self, block: Value) -> tuple[Value, Value, Value]:
        """Early keys are seen by most queries of a causal mask: first."""
        e, n, lines = self.e, self.n, self.grid.lines
        tiles = e.instruction("udiv", n["keys"] + (lines - 1), self.number(lines))
        kept = e.instruction("udiv", n["heads"], n["group"])
        rest = e.instruction("udiv", block, tiles)
        self.first = (block - rest * tiles) * lines
        outer = e.instruction("udiv", rest, kept)
        shared = rest - outer * kept
        return shared * n["group"], shared, outer

    def query_range(self) -> tuple[Value, Value]:
        """The first query of the first block, and how many blocks there are."""
        e, spec, queries = self.e, self.spec, self.n["queries"]
        begin, end = self.number(0), queries
        if spec.causal:
            begin = e.intrinsic("smax", self.first - self.position, begin) & -self.grid.block
            if spec.window:
                last = self.first + (self.grid.lines - 1 + spec.window)
                end = e.intrinsic("smin", queries, e.intrinsic("smax", last - self.position, self.number(0)))
        lines = self.grid.block
        count = (e.intrinsic("smax", end - begin, self.number(0)) + (lines - 1)).shift_right(lines.bit_length() - 1)
        return begin, count

    def work(self) -> None:
        """All queries of these keys, head by head of those that share them."""
        e, n, grid = self.e, self.n, self.grid
        self.own = self.number(0), self.number(2 * grid.lines * self.depth)
        for name, place in zip("kv", self.own, strict=True):
            self.fetch(name, self.first, n["keys"], grid.lines, place)
        self.begin, self.count = self.query_range()
        self.some = e.intrinsic("smax", self.count, self.number(1))
        stage = self.number(grid.own_bytes)
        self.fetch_block(self.number(0), stage)
        size = grid.tiles * self.depth // 2
        state = [e.constant(0.0, "float", 1)] * (grid.tiles * (self.depth + self.width) // 2)
        with e.loop(0, self.count * n["group"], 1, carried=[*state, stage]) as loop:
            *values, here = loop.values
            other = self.number(2 * grid.own_bytes + grid.stage_bytes) - here
            self.arrived()
            self.fetch_block(loop.index + 1, other)
            loop.next(*self.block(loop.index, here, values[:size], values[size:]), other)
        *state, _ = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.store("b", self.spec.depth, self.depth, self.first, n["keys"], state[:size], self.spec.scale)
        self.store("d", self.spec.width, self.width, self.first, n["keys"], state[size:], 1)

    def item(self, number: Value) -> tuple[Value, Value]:
        """The head of the group and the first query of a block."""
        head = self.e.instruction("udiv", number, self.some)
        return head, self.begin + (number - head * self.some) * self.grid.block

    def fetch_block(self, number: Value, stage: Value) -> None:
        """Queries and cotangents; none of a head that is not there."""
        e = self.e
        head, query = self.item(number)
        there = e.icmp("slt", head, self.n["group"])
        head, size = e.select(there, head, 0), e.select(there, self.n["queries"], 0)
        self.fetch("q", query, size, self.grid.block, stage, head)
        self.fetch("c", query, size, self.grid.block, stage + 2 * self.grid.block * self.depth, head)
        self.commit()

    def block(self, number: Value, stage: Value, keys: list[Value], values: list[Value]) -> list[Value]:
        """A block of queries of a head more, some at a time."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        head, first = self.item(number)
        whole = dict(self.place)
        for name, kind in (("l", "float"), ("s", "float"), ("x", self.mask_element)):
            if name in whole:
                self.place[name] = e.offset(whole[name], kind, head * self.n[f"{name}_head"])
        cotangents = stage + 2 * self.grid.block * self.depth
        for start in range(0, self.grid.block, self.grid.at_once):
            logarithms, sums = self.of_queries(first, start)
            powers = []
            for tile, scores in enumerate(self.products(self.own[0], stage, self.depth, start)):
                scores = self.masked(scores, self.row(self.first, tile, 0), first + start)
                powers.append([exp2(e, e.fma(value, factor, -logarithms[2 * (n // 4) + n % 2]))
                               for n, value in enumerate(scores)])
            values = self.added(powers, cotangents, self.width, start, values)
            inner = self.products(self.own[1], cotangents, self.width, start)
            wide = [[sums[2 * (n // 4) + n % 2] for n in range(len(tile_values))] for tile_values in inner]
            keys = self.added(self.slopes(powers, inner, wide), stage, self.depth, start, keys)
        self.place = whole
        return [*keys, *values]

    def of_queries(self, first: Value, start: int) -> tuple[list[Value], list[Value]]:
        """Logarithms, times log2(e), and sums of a lane's queries."""
        columns = [first + (self.lane & 3) * 2 + (start + 8 * (n // 2) + n % 2) for n in range(self.grid.at_once // 4)]
        return ([self.number_of("l", query, math.inf) * LOG2_E for query in columns],
                [self.number_of("s", query, 0.0) for query in columns])

    def masked(self, values: list[Value], row: Value, query: Value) -> list[Value]:
        """Scores of a tile; those of queries that are not there have a logarithm of infinity."""
        if not self.spec.causal and self.spec.mask is None:
            return values
        column = query + (self.lane & 3) * 2
        apart, found = self.narrow(self.position + column - row), []
        for number, value in enumerate(values):
            down, along = 8 * ((number % 4) // 2), 8 * (number // 4) + number % 2
            found.append(self.seen(value, column + along, row + down, apart, along - down))
        return found
