"""Writes attention of one query: rounds of up to four blocks of 64 keys, a warp each for the scores; then every warp
has some columns of the result and takes the blocks in order.

The order of every sum is the one of the kernels for many queries, so a row has their bits: the largest score so far is
known of every block as soon as all have theirs, and only sums go block by block.
"""

from __future__ import annotations

import math
from typing import Any

from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cuda.attention.forward import LN_2, LOG2_E, ForwardCode
from morpho.backends.cuda.attention.spec import BATCH_AXES, KEYS
from morpho.backends.cuda.codegen.grid import Header, entry
from morpho.backends.cuda.codegen.warp_math import exp2, log2, pack, zero_or
from morpho.backends.cuda.gemm.fragments import CHUNK

MINE = tuple(range(0, KEYS, 8))  # the first of the pairs of a lane of a quad, but for its own place


class DecodeCode(ForwardCode):
    """Writes one."""

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self.keys = self.spec.step_keys
        self.blocks, self.each = grid.blocks, max(1, self.width // 64)  # 16 columns at a time of a warp
        self.powers = grid.stages * grid.stage_bytes
        self.largest = self.powers + 4 * grid.round_keys

    def module(self) -> str:
        """The entry."""
        e, spec, grid = self.e, self.spec, self.grid
        e.line("call void @gpu.grid_early(ptr %ctx)")
        if not spec.still:
            e.line("call void @gpu.grid_wait(ptr %ctx)")
        self.find_tile()
        begin, _, end = self.key_range()
        stage = self.parts.number(0)
        self.fetch_round(begin, stage)
        if spec.still:
            e.line("call void @gpu.grid_wait(ptr %ctx)")
        self.find_query()
        self.own = self.own_columns()
        zero, low = e.constant(0.0, "float", 1), e.constant(-math.inf, "float", 1)
        with e.loop(begin, end, grid.round_keys, carried=[*[zero] * (8 * self.each), low, zero, stage]) as loop:
            *results, top, total, here = loop.values
            e.line("call void @gpu.cp_wait_0(ptr %ctx)")
            e.barrier()
            if spec.appends:
                self.append(loop.index, here)
                e.barrier()
            other = here
            if grid.stages == 2:
                other = grid.stage_bytes - here
                self.fetch_round(loop.index + grid.round_keys, other)
            loop.next(*self.round(loop.index, here, results, top, total), other)
        *results, top, total, _ = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.finish_row(results, top, total)
        if spec.appends:
            turns = e.instruction("udiv", end - begin + (grid.round_keys - 1), self.parts.number(grid.round_keys))
            self.append_rest(begin, begin + turns * grid.round_keys)
        words = int(Header.SIZE) + spec.places + len(spec.record)
        attributes = f' nounwind "nvvm.maxntid"="{grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", words, e.text(), attributes) + e.outside()

    # -- where things lie ----------------------------------------------------------------------------------------------
    def find_tile(self) -> None:
        """Where this head's part of the new line and of the caches begins, besides."""
        super().find_tile()
        e, n = self.e, self.n
        self.query_lane = e.icmp("slt", self.lane, 4)  # row 0 of a fragment: the one query
        if not self.spec.appends:
            return
        first = int(Header.SIZE) + self.spec.places - 5
        outer = e.instruction("udiv", e.ask("block"), n["heads"])
        at = {name: self.shared_head * n[f"{name}_head"] for name in "nwhcd"}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, n[f"batches{axis}"])
            index = outer - upper * n[f"batches{axis}"]
            at = {name: offset + index * n[f"{name}_batch{axis}"] for name, offset in at.items()}
            outer = upper
        place = {name: e.offset(e.address(first + number), "i8" if name == "h" else "i16", at[name])
                 for number, name in enumerate("nwhcd")}
        self.new, self.into, self.chosen = (place["n"], place["w"]), (place["c"], place["d"]), place["h"]
        self.writes = e.icmp("eq", self.head, self.shared_head * n["group"])  # one of the heads that share a cache

    def own_columns(self) -> Value:
        """The first column of this warp's results; those of a warp without any are those of the first one."""
        first = self.warp * (16 * self.each)
        self.works = self.e.icmp("slt", first, self.width)
        return self.e.select(self.works, first, 0)

    def find_query(self) -> None:
        """The query as a fragment: row 0, all others zero. Pairs behind its end are zero too."""
        e, self.query = self.e, []
        for step in range(self.depth // 16):
            pairs = []
            for half in range(2):
                column = (self.lane & 3) * 2 + (16 * step + 8 * half)
                there = self.query_lane & e.icmp("slt", column, self.spec.depth)
                value = e.load(e.offset(self.q, "i16", e.select(there, column, 0)), "i32", 1, align=4)
                pairs.append(e.select(there, value, 0).name)
            self.query.append([pairs[0], "0", pairs[1], "0"])

    def fetch_round(self, key: Value, stage: Value) -> None:
        """Queue the keys and values of a round."""
        spec, n, count = self.spec, self.n, self.grid.round_keys
        self.fetch(self.k, key, n["keys"], n["k_row"], spec.depth, self.depth, count, stage)
        self.fetch(self.v, key, n["keys"], n["v_row"], spec.width, self.width, count, stage + 2 * count * self.depth)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    # -- the new line --------------------------------------------------------------------------------------------------
    def append(self, key: Value, stage: Value | None) -> None:
        """The new line into the lines of a round that are chosen for it, in shared memory and in the cache."""
        e, n, count = self.e, self.n, self.grid.round_keys
        for side, (held, step, target_step, depth, padded) in enumerate((
                (self.k, n["k_row"], n["c_row"], self.spec.depth, self.depth),
                (self.v, n["v_row"], n["d_row"], self.spec.width, self.width))):
            chunks = padded // CHUNK
            each = count * chunks // self.grid.threads  # lines of a thread, one after another
            first, chunk = self.thread.shift_right(chunks.bit_length() - 1) * each, self.thread & (chunks - 1)
            inside = e.icmp("slt", chunk, depth // CHUNK)
            column = e.select(inside, chunk * CHUNK, 0)
            line = e.load(e.offset(self.new[side], "i16", column), "i32", 4, align=16)
            chosen = self.chosen_lines(key + first, each, inside)
            with e.loop(0, e.intrinsic("ctpop", chosen, suffix="i64"), carried=[chosen]) as loop:
                (rest,) = loop.values
                at = first + e.intrinsic("cttz", rest, e.constant(False, "i1", 1), suffix="i64")
                if stage is not None:
                    place = stage + side * 2 * count * self.depth + self.parts.swizzled(at, chunk, padded)
                    e.store(line, e.offset(e.shared(), "i8", place), align=16)
                with e.when(self.writes):
                    e.store(line, e.offset(self.into[side], "i16", (key + at) * target_step + column), align=16)
                loop.next(rest & (rest - 1))
            apart = e.icmp("ne", *(e.assign(f"ptrtoint ptr {p} to i64", "i64", 1) for p in (held, self.into[side])))
            with e.when(apart & self.writes & inside):
                left = e.intrinsic("smin", n["keys"] - key - first, self.parts.number(each))
                with e.loop(0, left) as loop, e.when(e.icmp("eq", chosen.shift_right(loop.index) & 1, 0)):
                    at = key + first + loop.index
                    old = e.load(e.offset(held, "i16", at * step + column), "i32", 4, align=16)
                    e.store(old, e.offset(self.into[side], "i16", at * target_step + column), align=16)

    def chosen_lines(self, key: Value, count: int, inside: Value) -> Value:
        """A bit of every line from a key on: whether the new one goes there."""
        e, bits = self.e, self.e.constant(0, "i64", 1)
        for number in range(count):
            there = inside & e.icmp("slt", key + number, self.n["keys"])
            place = e.offset(self.chosen, "i8", e.select(there, (key + number) * self.n["h_row"], 0))
            put = there & e.icmp("ne", e.load(place, "i8", 1), 0)
            bits = bits | (e.convert("zext", put, "i64") << number)
        return bits

    def append_rest(self, begin: Value, end: Value) -> None:
        """The lines that the query does not see."""
        e, step = self.e, self.grid.round_keys
        for first, last in ((self.parts.number(0), begin), (end, self.n["keys"])):
            with e.loop(first, last, step) as loop:
                self.append(loop.index, None)

    # -- a round -------------------------------------------------------------------------------------------------------
    def round(self, key: Value, stage: Value, results: list[Value], top: Value, total: Value) -> list[Value]:
        """The state after a round: results, the largest score, this lane's part of the sum."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        scores = self.block_scores(key, stage)
        largest = scores[0]
        for score in scores[1:]:
            largest = e.intrinsic("maxnum", largest, score)
        for mask in (1, 2):
            largest = e.intrinsic("maxnum", largest, e.shuffle_xor(largest, mask))
        has_block = e.icmp("slt", self.warp, self.blocks)
        room = e.offset(e.shared(), "i8", self.largest)
        with e.when(e.icmp("eq", self.lane, 0) & has_block):
            e.store(largest, e.offset(room, "float", self.warp), align=4)
        e.barrier()
        scales, base, span = [], e.constant(0.0, "float", 1), self.keys // KEYS
        for first in range(0, self.blocks, span):
            before = top
            for block in range(first, first + span):
                top = e.intrinsic("maxnum", top, e.load(e.offset(room, "float", block), "float", 1, align=4))
            mine = zero_or(e, top) * factor
            scales.append(exp2(e, e.fma(before, factor, -mine)))
            base = e.select(e.icmp("sge", self.warp, first), mine, base)
        self.store_powers(scores, base, factor, has_block)
        e.barrier()
        for block in range(self.blocks):
            pairs = self.pairs_of(block)
            if block % span == 0:
                total, results = (total * scales[block // span], [value * scales[block // span] for value in results])
            for value in (value for pair in pairs for value in pair):
                total = total + value
            results = self.weighted_block(stage, block, pairs, results)
        return [*results, top, total]

    def block_scores(self, key: Value, stage: Value) -> list[Value]:
        """Of this warp's block; a lane of the first four has 16 of them."""
        e = self.e
        block = e.select(e.icmp("slt", self.warp, self.blocks), self.warp, 0)
        mine = stage + block * (2 * KEYS * self.depth)
        zero = e.constant(0.0, "float", 1)
        found = [zero] * (KEYS // 2)
        for step, left in enumerate(self.query):
            for column in range(0, KEYS, 16):
                right = self.parts.of_lines(mine, column, step, self.depth, self.lane)
                for half in range(2):
                    at = (column // 8 + half) * 4
                    found[at:at + 4] = self.parts.multiply(left, right[2 * half:2 * half + 2], found[at:at + 4])
        return self.row_seen([found[4 * (n // 2) + n % 2] for n in range(16)], key + block * KEYS)

    def row_seen(self, scores: list[Value], key: Value) -> list[Value]:
        """Scores with -inf where the query does not see a key."""
        e, spec, low, seen = self.e, self.spec, self.e.constant(-math.inf, "float", 1), []
        for number, score in enumerate(scores):
            at = key + (self.lane & 3) * 2 + (8 * (number // 2) + number % 2)
            holds = e.icmp("slt", at, self.n["keys"])
            if spec.causal:
                holds = holds & e.icmp("sle", at, self.position)
                if spec.window:
                    holds = holds & e.icmp("sgt", at, self.position - spec.window)
            seen.append(e.select(holds, score, low))
        return seen

    def store_powers(self, scores: list[Value], base: Value, factor: Value, has_block: Value) -> None:
        """The powers of a block's scores, in the order of its keys."""
        e = self.e
        room = e.offset(e.shared(), "i8", self.powers)
        powers = [exp2(e, e.fma(score, factor, -base)) for score in scores]
        with e.when(self.query_lane & has_block):
            for number, power in enumerate(powers):
                at = self.warp * KEYS + (self.lane & 3) * 2 + (8 * (number // 2) + number % 2)
                e.store(power, e.offset(room, "float", at), align=4)

    def pairs_of(self, block: int) -> list[tuple[Value, Value]]:
        """The powers of a block that a lane of its quad has."""
        e, room, found = self.e, self.e.offset(self.e.shared(), "i8", self.powers), []
        for first in MINE:
            at = e.offset(room, "float", (self.lane & 3) * 2 + (block * KEYS + first))
            both = e.load(at, "float", 2, align=8)
            found.append(tuple(e.assign(f"extractelement {both.type} {both.name}, i64 {n}", "float", 1)
                               for n in range(2)))
        return found  # type: ignore[return-value]

    def weighted_block(self, stage: Value, block: int, pairs: list[tuple[Value, Value]],
                       results: list[Value]) -> list[Value]:
        """This warp's columns with a block's values, weighted."""
        e, count = self.e, self.grid.round_keys
        values = stage + (2 * count * self.depth + block * 2 * KEYS * self.width)
        packed = [e.select(self.query_lane, e.argument(pack(e, self.spec.dtype, *pair), "i32", 1), 0).name
                  for pair in pairs]
        for step in range(KEYS // 16):
            left = [packed[2 * step], "0", packed[2 * step + 1], "0"]
            for part in range(self.each):
                line = (self.lane & 15) + 16 * step
                chunk = self.lane.shift_right(4) + self.own.shift_right(3) + 2 * part
                right = self.parts.read(values + self.parts.swizzled(line, chunk, self.width), True)
                for half in range(2):
                    at = (2 * part + half) * 4
                    results[at:at + 4] = self.parts.multiply(left, right[2 * half:2 * half + 2], results[at:at + 4])
        return results

    # -- the end -------------------------------------------------------------------------------------------------------
    def finish_row(self, results: list[Value], top: Value, total: Value) -> None:
        """Divide by the sum and store; the row's logarithm too."""
        e, spec = self.e, self.spec
        for mask in (1, 2):
            total = total + e.shuffle_xor(total, mask)
        empty = e.fcmp("oeq", total, 0.0)
        inverse = e.select(empty, 0.0, e.constant(1.0, "float", 1) / total)
        with e.when(self.query_lane & self.works):
            for tile in range(2 * self.each):
                column = self.own + (self.lane & 3) * 2 + 8 * tile
                low, high = (value * inverse for value in results[4 * tile:4 * tile + 2])
                packed = pack(e, spec.dtype, low, high)
                with e.when(e.icmp("slt", column, spec.width)):
                    e.store(e.argument(packed, "i32", 1), e.offset(self.o, "i16", column), align=4)
        lse = e.fma(log2(e, total), e.constant(LN_2, "float", 1), zero_or(e, top) * spec.scale)
        with e.when(e.icmp("eq", self.thread, 0)):
            e.store(e.select(empty, math.inf, lse), self.l, align=4)
