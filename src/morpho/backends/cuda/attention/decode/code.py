"""Writes attention of one query: rounds of up to 256 keys, 16 a warp for the scores; then some warps have 16 columns of
the result each and take the keys in order, and another one adds the powers up.

The order of every sum is the one of the kernels for many queries, so a row has their bits: the largest score so far is
known of every step as soon as all warps have theirs, and only sums go key by key. One row is little work for many
threads: time is that of instructions waiting for each other, so each thread has few.
"""

from __future__ import annotations

import math
from typing import Any

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.forward import LN_2, LOG2_E, ForwardCode
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.backends.cuda.codegen.grid import WARP, Header, entry
from morpho.backends.cuda.codegen.warp_math import exp2, log2, pack, shrunk, zero_or
from morpho.backends.cuda.gemm.half.fragments import CHUNK

PIECE = 16  # keys of a warp, and columns


class Rooms:
    """Where things lie in shared memory behind the keys and values of all stages, in bytes."""

    def __init__(self, grid: Any) -> None:
        keys, width = grid.round_keys, grid.padded[1]
        self.largest = grid.stages * grid.stage_bytes  # score of every warp
        self.powers = self.largest + 4 * (keys // PIECE)
        self.packed = self.powers + 4 * keys  # as half floats
        self.zeros = self.packed + 2 * keys  # a chunk
        self.results = self.zeros + 16  # eight of every thread that has columns
        self.totals = self.results + 32 * WARP * (width // PIECE)  # of the four lanes that a row's scores lie in
        self.end = self.totals + 16


class DecodeCode(ForwardCode):
    """Generator of the LLVM text of one decode kernel."""

    holds_values = True  # whether values of a round are in shared memory beside its keys
    grid: Any  # a DecodeAttention, and a DecodeSpec (`kernel.py`, which makes this)
    spec: Any

    def __init__(self, grid: Any) -> None:
        super().__init__(grid)
        self.keys = self.spec.step_keys
        self.rooms = Rooms(grid)
        self.pieces, self.works = grid.round_keys // PIECE, self.width // PIECE  # warps with keys, with columns

    def module(self) -> str:
        e, spec, grid = self.e, self.spec, self.grid
        e.line("call void @gpu.grid_early(ptr %ctx)")
        if not spec.still:
            e.wait_for_others()
        self.find_tile()
        begin, _, end = self.key_range()
        stage = self.parts.number(0)
        self.fetch_round(begin, stage)
        self.clear()
        if spec.still:
            e.wait_for_others()
        self.find_query()
        with e.loop(begin, end, grid.round_keys, carried=[e.constant(-math.inf, "float", 1), stage]) as loop:
            top, here = loop.values
            lines = self.new_lines(loop.index) if spec.appends else []
            e.line("call void @gpu.cp_wait_0(ptr %ctx)")
            e.barrier()
            if spec.appends:
                self.append(lines, loop.index, here)
                e.barrier()
            other = here
            if grid.stages == 2:
                other = grid.stage_bytes - here
                self.fetch_round(loop.index + grid.round_keys, other)
            loop.next(self.round(loop.index, here, top), other)
        top, _ = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        e.barrier()
        self.finish_row(top)
        if spec.appends:
            turns = e.instruction("udiv", end - begin + (grid.round_keys - 1), self.parts.number(grid.round_keys))
            self.append_rest(begin, begin + turns * grid.round_keys)
        words = int(Header.SIZE) + spec.places + len(spec.record)
        attributes = f' nounwind "nvvm.maxntid"="{grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", words, e.text(), attributes) + e.outside()

    def room(self, place: int) -> str:
        """An address in shared memory."""
        return self.e.offset(self.e.shared(), "i8", place)

    def clear(self) -> None:
        """Results, sums and the chunk of zeros before the first key."""
        e, zero = self.e, self.e.constant(0, "i32", 4)
        chunks = (self.rooms.end - self.rooms.zeros) // 16
        for number in range(-(-chunks // self.grid.threads)):
            chunk = self.thread + number * self.grid.threads
            with e.when(e.icmp("slt", chunk, chunks)):
                e.store(zero, e.offset(self.room(self.rooms.zeros), "i8", chunk * 16), align=16)

    # -- where things lie ----------------------------------------------------------------------------------------------
    def find_tile(self) -> None:
        """Where this head's part of every operand begins."""
        e, spec, first = self.e, self.spec, int(Header.SIZE)
        self.n = n = {name: e.word(first + spec.places + at) for at, name in enumerate(spec.record.names)}
        self.thread, self.first_row = e.ask("thread"), e.constant(0, "i64", 1)
        self.lane, self.warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        names = [name for name in spec.names if name != "s"]
        self.linear, self.part = self.of_block()
        self.head, batch = self.numbers()
        self.shared_head = self.head if spec.shared == 1 else e.instruction("udiv", self.head,
                                                                           self.parts.number(spec.shared))
        at = {name: (self.shared_head if name in "kvnwhcd" else self.head) * n[f"{name}_head"] for name in names}
        for axis, index in batch.items():
            at = {name: offset + index * n[f"{name}_batch{axis}"] for name, offset in at.items()}
        kinds = {"l": "float", "p": "i64", "h": "i8"}
        place = {name: e.offset(e.address(first + spec.names.index(name)), kinds.get(name, "i16"), at[name])
                 for name in names}
        self.q, self.k, self.v, self.o, self.l = (place.get(name, "null") for name in "qkvol")
        self.position = e.load(place["p"], "i64", 1) if spec.moving else e.constant(spec.offset, "i64", 1)
        self.query_lane = e.icmp("slt", self.lane, 4)  # row 0 of a fragment: the one query
        if spec.appends:
            self.new, self.into, self.chosen = (place["n"], place["w"]), (place["c"], place["d"]), place["h"]
            self.writes = e.icmp("eq", self.head, self.shared_head * spec.shared)  # one of those that share a cache

    def of_block(self) -> tuple[Value, Value]:
        """The number of this block's head among all of them, and of its part of that head's work."""
        return self.e.ask("block"), self.e.constant(0, "i64", 1)

    def numbers(self) -> tuple[Value, dict[int, Value]]:
        """The head of this block, and its place along every batch axis."""
        e, block = self.e, self.linear
        if self.spec.heads:
            return block, {}
        outer = e.instruction("udiv", block, self.n["heads"])
        head, found = block - outer * self.n["heads"], {}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, self.n[f"batches{axis}"])
            found[axis], outer = outer - upper * self.n[f"batches{axis}"], upper
        return head, found

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
    def new_lines(self, key: Value) -> list[tuple[Value, ...]]:
        """Of keys and of values: this thread's first line of a round, its column, its chunk of the new line, whether
        it has one, and a bit of each of its lines that the new one goes into."""
        e, chosen = self.e, {}
        found: list[tuple[Value, ...]] = []
        for side, (depth, padded) in enumerate(((self.spec.depth, self.depth), (self.spec.width, self.width))):
            chunks = padded // CHUNK
            each = max(1, self.grid.round_keys * chunks // self.grid.threads)
            first, chunk = self.thread.shift_right(chunks.bit_length() - 1) * each, self.thread & (chunks - 1)
            inside = e.icmp("slt", chunk, depth // CHUNK) & e.icmp("slt", first, self.grid.round_keys)
            column = e.select(inside, chunk * CHUNK, 0)
            line = e.load(e.offset(self.new[side], "i16", column), "i32", 4, align=16)
            if (depth, padded) not in chosen:
                chosen[depth, padded] = self.chosen_lines(key + first, each, inside)
            found.append((first, column, line, inside, chosen[depth, padded]))
        return found

    def append(self, lines: list[tuple[Value, ...]], key: Value, stage: Value | None) -> None:
        """The new line into the lines of a round that are chosen for it, in shared memory and in the cache."""
        e, n, count = self.e, self.n, self.grid.round_keys
        for side, (first, column, line, inside, chosen) in enumerate(lines):
            held, step, target_step, padded = ((self.k, n["k_row"], n["c_row"], self.depth),
                                               (self.v, n["v_row"], n["d_row"], self.width))[side]
            each = max(1, count * (padded // CHUNK) // self.grid.threads)
            with e.loop(0, e.intrinsic("ctpop", chosen, suffix="i64"), carried=[chosen]) as loop:
                (rest,) = loop.values
                at = first + e.intrinsic("cttz", rest, e.constant(False, "i1", 1), suffix="i64")
                if stage is not None and (side == 0 or self.holds_values):
                    place = stage + side * 2 * count * self.depth + self.parts.swizzled(at, column.shift_right(3),
                                                                                        padded)
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
                self.append(self.new_lines(loop.index), loop.index, None)

    # -- a round -------------------------------------------------------------------------------------------------------
    def round(self, key: Value, stage: Value, top: Value) -> Value:
        """Results and sums after a round, in shared memory; returned is the largest score."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        piece = self.piece()
        scores = self.piece_scores(key, stage, piece)
        largest = scores[0]
        for score in scores[1:]:
            largest = e.intrinsic("maxnum", largest, score)
        for mask in (1, 2):
            largest = e.intrinsic("maxnum", largest, e.shuffle_xor(largest, mask))
        with e.when(e.icmp("eq", self.lane, 0)):
            e.store(largest, e.offset(self.room(self.rooms.largest), "float", piece), align=4)
        e.barrier()
        scales, base, span = [], e.constant(0.0, "float", 1), self.keys // PIECE
        for first in range(0, self.pieces, span):
            before = top
            for number in range(first, first + span):
                place = e.offset(self.room(self.rooms.largest), "float", number)
                top = e.intrinsic("maxnum", top, e.load(place, "float", 1, align=4))
            mine = zero_or(e, top) * factor
            scales.append(shrunk(e, before, top, factor))
            base = e.select(e.icmp("sge", piece, first), mine, base)
        self.store_powers([exp2(e, e.fma(score, factor, -base)) for score in scores], piece)
        e.barrier()
        with e.when(e.icmp("slt", self.warp, self.works)):
            self.add_values(stage, scales)
        with e.when(self.query_lane & e.icmp("eq", self.warp, self.grid.threads // WARP - 1)):
            self.add_powers(scales)
        return top

    def piece(self) -> Value:
        """The keys of a round that are this warp's; warps without keys do again what the first one does."""
        if self.pieces * WARP == self.grid.threads:
            return self.warp
        return self.e.select(self.e.icmp("slt", self.warp, self.pieces), self.warp, 0)

    def piece_scores(self, key: Value, stage: Value, piece: Value) -> list[Value]:
        """Of this warp's keys; a lane of the first four has four of them. -inf where the query does not see one."""
        e, spec = self.e, self.spec
        mine, zero = stage + piece * (2 * PIECE * self.depth), e.constant(0.0, "float", 1)
        found = [zero] * 8
        for step, left in enumerate(self.query):
            right = self.parts.of_lines(mine, 0, step, self.depth, self.lane)
            for half in range(2):
                found[4 * half:4 * half + 4] = self.parts.multiply(left, right[2 * half:2 * half + 2],
                                                                   found[4 * half:4 * half + 4])
        seen, low = [], e.constant(-math.inf, "float", 1)
        for number in range(4):
            at = key + piece * PIECE + (self.lane & 3) * 2 + (8 * (number // 2) + number % 2)
            holds = e.icmp("slt", at, self.n["keys"])
            if spec.causal:
                holds = holds & e.icmp("sle", at, self.position)
                if spec.window:
                    holds = holds & e.icmp("sgt", at, self.position - spec.window)
            seen.append(e.select(holds, found[4 * (number // 2) + number % 2], low))
        return seen

    def store_powers(self, powers: list[Value], piece: Value) -> None:
        """The powers of a warp's scores in the order of its keys, as they are and as half floats."""
        e = self.e
        at = piece * PIECE + (self.lane & 3) * 2
        with e.when(self.query_lane):
            for half in range(2):
                low, high = powers[2 * half:2 * half + 2]
                for number, power in enumerate((low, high)):
                    e.store(power, e.offset(self.room(self.rooms.powers), "float", at + (8 * half + number)), align=4)
                packed = e.argument(pack(e, self.spec.dtype, low, high), "i32", 1)
                e.store(packed, e.offset(self.room(self.rooms.packed), "i16", at + 8 * half), align=4)

    def add_powers(self, scales: list[Value]) -> None:
        """This lane's part of the sum, as its quad has it in the kernels for many queries."""
        e = self.e
        place = e.offset(self.room(self.rooms.totals), "float", self.lane & 3)
        total = e.load(place, "float", 1, align=4)
        for number in range(0, self.grid.round_keys, 8):
            if number % self.keys == 0:
                total = total * scales[number // self.keys]
            at = e.offset(self.room(self.rooms.powers), "float", (self.lane & 3) * 2 + number)
            both = e.load(at, "float", 2, align=8)
            for one in range(2):
                total = total + e.assign(f"extractelement {both.type} {both.name}, i64 {one}", "float", 1)
        e.store(total, place, align=4)

    def add_values(self, stage: Value, scales: list[Value]) -> None:
        """This warp's columns with the round's values, weighted."""
        e, count = self.e, self.grid.round_keys
        room = e.offset(self.room(self.rooms.results), "float", self.thread * 8)
        results = [e.load(e.offset(room, "float", n), "float", 1, align=4) for n in range(8)]
        real = e.icmp("eq", self.lane & 15, 0)  # the lanes that point at the one row: two chunks of eight keys
        start = e.select(real, self.lane + self.rooms.packed, self.rooms.zeros)
        along = e.select(real, self.parts.number(2 * PIECE), 0)
        for step in range(count // PIECE):
            if step * PIECE % self.keys == 0:
                results = [value * scales[step * PIECE // self.keys] for value in results]
            left = self.parts.read(start + along * step, False)
            line, chunk = (self.lane & 15) + PIECE * step, self.lane.shift_right(4) + self.warp * 2
            right = self.parts.read(stage + (2 * count * self.depth + self.parts.swizzled(line, chunk, self.width)),
                                    True)
            for half in range(2):
                results[4 * half:4 * half + 4] = self.parts.multiply(left, right[2 * half:2 * half + 2],
                                                                     results[4 * half:4 * half + 4])
        for number, value in enumerate(results):
            e.store(value, e.offset(room, "float", number), align=4)

    # -- the end -------------------------------------------------------------------------------------------------------
    def finish_row(self, top: Value) -> None:
        """Divide by the sum and store; the row's logarithm too."""
        e, spec = self.e, self.spec
        parts = [e.load(e.offset(self.room(self.rooms.totals), "float", n), "float", 1, align=4) for n in range(4)]
        total = (parts[0] + parts[1]) + (parts[2] + parts[3])
        empty = e.fcmp("oeq", total, 0.0)
        inverse = e.select(empty, 0.0, e.constant(1.0, "float", 1) / total)
        with e.when(self.query_lane & e.icmp("slt", self.warp, self.works)):
            room = e.offset(self.room(self.rooms.results), "float", self.thread * 8)
            for half in range(2):
                column = self.warp * PIECE + (self.lane & 3) * 2 + 8 * half
                low, high = (e.load(e.offset(room, "float", 4 * half + n), "float", 1, align=4) * inverse
                             for n in range(2))
                with e.when(e.icmp("slt", column, spec.width)):
                    e.store(e.argument(pack(e, spec.dtype, low, high), "i32", 1), e.offset(self.o, "i16", column),
                            align=4)
        with e.when(e.icmp("eq", self.thread, 0)):
            lse = e.fma(log2(e, total), e.constant(LN_2, "float", 1), zero_or(e, top) * spec.scale)
            e.store(e.select(empty, math.inf, lse), self.l, align=4)
