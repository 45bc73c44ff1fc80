"""The kernels of the gradient on `mma.sync` (FlashAttention-2's, without its atomic adds).

A warp has 16 or 32 lines of the block's own operand (queries for dq, keys for dk and dv) and walks over blocks of 64
lines of the other one, which two stages of shared memory hold. Its results stay in registers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Value
from morpho.backends.cuda.attention.backward_spec import BACKWARD, BLOCK, BackwardSpec
from morpho.backends.cuda.attention.forward import LOG2_E
from morpho.backends.cuda.attention.lane_offsets import LaneOffsets
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.codegen.warp_math import exp2, pack
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.gemm.fragments import Fragments
from morpho.base.dtypes import bool_
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class BackwardGrid(WithoutMaps):
    """A block per tile of queries or keys of a head."""

    spec: BackwardSpec
    aligned: bool = True
    tiles: int = 1  # of 16 lines, of a warp
    warps: int = 4  # of a block
    together: int = 1  # blocks of a multiprocessor, which the registers must allow
    at_once: int = 32  # lines of a block whose scores a warp holds at a time

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks of operands are read whole."""
        return tuple((number, 16) for number in range(4)) if self.aligned else ()

    def unaligned(self) -> BackwardGrid:
        """Element by element into shared memory."""
        return replace(self, aligned=False)

    def kernel(self) -> Kernel:
        """The kernel of the program."""
        return self.spec

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as powers of two."""
        return tuple(max(16, 1 << (n - 1).bit_length()) for n in (self.spec.depth, self.spec.width))  # type: ignore[return-value]

    @property
    def lines(self) -> int:
        """Of the block's own operand."""
        return 16 * self.tiles * self.warps

    @property
    def own_bytes(self) -> int:
        """Its own operands."""
        return 2 * self.lines * sum(self.padded)

    @property
    def stage_bytes(self) -> int:
        """A block of the other ones, and two numbers of each query."""
        return 2 * BLOCK * sum(self.padded) + 8 * BLOCK

    def launch(self, sizes: Sizes) -> Launch:
        """Tiles of all heads of all batches."""
        n = BACKWARD.by_name(sizes.values)
        long, heads = n["queries"], n["heads"]
        if self.spec.part == "keys":
            long, heads = n["keys"], heads // n["group"]
        count = -(-int(long) // self.lines) * int(heads)
        for axis in range(BATCH_AXES):
            count *= int(n[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), WARP * self.warps, self.own_bytes + 2 * self.stage_bytes))

    def text(self) -> str:
        """Its LLVM text."""
        return (QueriesCode if self.spec.part == "queries" else KeysCode)(self).module()


class BackwardCode:
    """What both kernels share. Own lines are rows of the scores here, those of the other operand are columns."""

    def __init__(self, grid: BackwardGrid) -> None:
        self.grid, self.spec, self.e = grid, grid.spec, GridEmitter()
        self.depth, self.width = grid.padded
        self.parts = Fragments(self.e, self.spec.dtype)
        self.deep = self.broad = LaneOffsets.__new__(LaneOffsets)  # when the lane is known
        self.number = self.parts.number

    @abstractmethod
    def place_tile(self, block: Value) -> tuple[Value, Value, Value]:
        """Find this block's lines; the first head that it reads, the head whose keys they are, and what is left of the
        number."""

    @abstractmethod
    def work(self) -> None:
        """All of it, when operands are known."""

    def module(self) -> str:
        """The entry."""
        e, spec, first = self.e, self.spec, int(Header.SIZE)
        operands = spec.operands
        self.n = {name: e.word(first + len(operands) + at) for at, name in enumerate(BACKWARD.names)}
        self.thread = e.ask("thread")
        self.lane, self.warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        self.deep = LaneOffsets(e, self.lane, self.depth)
        self.broad = self.deep if self.width == self.depth else LaneOffsets(e, self.lane, self.width)
        head, shared, outer = self.place_tile(e.ask("block"))
        at = {name: (shared if name in "kvbd" else head) * self.n[f"{name}_head"] for name in operands}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, self.n[f"batches{axis}"])
            index = outer - upper * self.n[f"batches{axis}"]
            at = {name: offset + index * self.n[f"{name}_batch{axis}"] for name, offset in at.items()}
            outer = upper
        self.mask_element = "i8" if spec.mask is None or spec.mask is bool_ else scalars.memory_type(spec.mask)
        kinds = {"l": "float", "s": "float", "p": "i64", "x": self.mask_element}
        self.place = {name: e.offset(e.address(first + number), kinds.get(name, "i16"), at[name])
                      for number, name in enumerate(operands)}
        self.position = (e.load(self.place["p"], "i64", 1) if spec.moving else e.constant(spec.offset, "i64", 1))
        self.work()
        attributes = f' nounwind "nvvm.maxntid"="{WARP * self.grid.warps}" "nvvm.minctasm"="{self.grid.together}"'
        return entry("kernel_main", first + len(operands) + len(BACKWARD), e.text(), attributes) + e.outside()

    # -- memory --------------------------------------------------------------------------------------------------------
    def fetch(self, name: str, first: Value, size: Value, count: int, stage: Value, head: Value | None = None) -> None:
        """Lines of an operand into shared memory; what is not there is zero."""
        deep = name in "qk"
        source = self.place[name]
        if head is not None:
            source = self.e.offset(source, "i16", head * self.n[f"{name}_head"])
        self.parts.fetch_lines(source, first, size, self.n[f"{name}_row"], self.spec.depth if deep else self.spec.width,
                               self.depth if deep else self.width, count, stage, self.thread,
                               WARP * self.grid.warps,
                               self.grid.aligned)

    def commit(self) -> None:
        """What was fetched is one group."""
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def arrived(self) -> None:
        """All that was fetched is there, and nobody reads the stage that comes next."""
        self.e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.e.barrier()

    def row(self, first: Value, tile: int, half: int) -> Value:
        """The line of a lane's results."""
        return first + self.warp * (16 * self.grid.tiles) + self.lane.shift_right(2) + (16 * tile + 8 * half)

    # -- products ------------------------------------------------------------------------------------------------------
    def products(self, own: Value, other: Value, offsets: LaneOffsets, start: int) -> list[list[Value]]:
        """Own lines times some of the other operand's, along both."""
        e, tiles, columns = self.e, self.grid.tiles, self.grid.at_once
        zero = e.constant(0.0, "float", 1)
        mine, there = self.narrow(own + self.warp * (16 * tiles * offsets.line_bytes)), self.narrow(other)
        found = [[zero] * (columns // 2) for _ in range(tiles)]
        for step in range(len(offsets.rows)):
            left = [offsets.by_rows(mine, 16 * tile, step) for tile in range(tiles)]
            for column in range(0, columns, 16):
                right = offsets.of_lines(there, start + column, step)
                for tile in range(tiles):
                    for half in range(2):
                        at = (column // 8 + half) * 4
                        found[tile][at:at + 4] = self.parts.multiply(left[tile], right[2 * half:2 * half + 2],
                                                                     found[tile][at:at + 4])
        return found

    def added(self, weights: list[list[Value]], other: Value, offsets: LaneOffsets, start: int,
              sums: list[Value]) -> list[Value]:
        """Sums with the other operand's lines, weighted; those of all tiles, one after another."""
        e, length = self.e, 16 * len(offsets.rows)
        sums, there = list(sums), self.narrow(other)
        packed = [[pack(e, self.spec.dtype, tile[n], tile[n + 1]) for n in range(0, len(tile), 2)] for tile in weights]
        for step in range(self.grid.at_once // 16):
            for column in range(0, length, 16):
                right = offsets.across_lines(there, column, start // 16 + step)
                for tile, words in enumerate(packed):
                    for half in range(2):
                        at = tile * length // 2 + (column // 8 + half) * 4
                        sums[at:at + 4] = self.parts.multiply(words[4 * step:4 * step + 4],
                                                              right[2 * half:2 * half + 2], sums[at:at + 4])
        return sums

    def seen(self, score: Value, query: Value, key: Value, apart: Value, constant: int) -> Value:
        """A score, or -inf where a query does not see a key; `apart` + constant is how far the key lies behind it."""
        e, spec = self.e, self.spec
        low = e.constant(-math.inf, "float", 1)
        if spec.causal:
            holds = e.icmp("sge", apart, -constant)
            if spec.window:
                holds = holds & e.icmp("slt", apart, min(spec.window - constant, (1 << 31) - 1))
            score = e.select(holds, score, low)
        if spec.mask is not None:
            inside = e.icmp("slt", query, self.n["queries"]) & e.icmp("slt", key, self.n["keys"])
            offset = e.select(inside, query * self.n["x_row"] + key * self.n["x_column"], 0)
            loaded = e.load(e.offset(self.mask_place, self.mask_element, offset), self.mask_element, 1)
            if spec.mask is bool_:
                return e.select(e.icmp("ne", loaded, 0), score, low)
            value = scalars.from_memory(e, loaded, spec.mask)
            value = e.convert("fptrunc", value, "float") if value.element == "double" else value
            score = e.fma(value, e.constant(1 / spec.scale, "float", 1), score)
        return score

    @property
    def mask_place(self) -> str:
        """Where the mask of the head at work begins."""
        return self.place["x"]

    def number_of(self, name: str, query: Value, missing: float) -> Value:
        """A float of a query; another one where there is no such query."""
        e = self.e
        inside = e.icmp("slt", query, self.n["queries"])
        place = e.offset(self.place[name], "float", e.select(inside, query * self.n[f"{name}_row"], 0))
        return e.select(inside, e.load(place, "float", 1), missing)

    def narrow(self, value: Value) -> Value:
        """A difference of positions: 32 bits hold it."""
        return self.e.convert("trunc", value, "i32")

    def store(self, name: str, long: int, padded: int, first: Value, size: Value, sums: list[Value],
              factor: float) -> None:
        """Results of this warp's lines, pair by pair."""
        e = self.e
        scale = e.constant(factor, "float", 1)
        for tile in range(self.grid.tiles):
            mine = sums[tile * padded // 2:(tile + 1) * padded // 2]
            for half in range(2):
                row = self.row(first, tile, half)
                values = [value * scale if factor != 1 else value
                          for n, value in enumerate(mine) if (n % 4) // 2 == half]
                with e.when(e.icmp("slt", row, size)):
                    for pair in range(long // 8):
                        word = pack(e, self.spec.dtype, *values[2 * pair:2 * pair + 2])
                        place = e.offset(self.place[name], "i16", row * self.n[f"{name}_row"] + (self.lane & 3) * 2
                                         + 8 * pair)
                        e.store(e.argument(word, "i32", 1), place, align=4)

    def slopes(self, powers: Any, inner: Any, sums: Any) -> Any:
        """p (ct v^T - sum)."""
        return [[p * (w - s) for p, w, s in zip(*three, strict=True)]
                for three in zip(powers, inner, sums, strict=True)]


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
        begin, middle, end = self.number(0), keys & -BLOCK, keys
        if spec.causal:
            start = self.position + self.first
            end = e.intrinsic("smin", keys, start + self.grid.lines)
            middle = e.intrinsic("smin", middle, e.intrinsic("smax", start + 1, begin) & -BLOCK)
            if spec.window:
                begin = e.intrinsic("smax", start - (spec.window - 1), begin) & -BLOCK
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
            with e.loop(first, last, BLOCK, carried=[*state, stage]) as loop:
                *values, here = loop.values
                other = self.number(2 * grid.own_bytes + grid.stage_bytes) - here
                self.arrived()
                self.fetch_block(loop.index + BLOCK, other)
                loop.next(*self.block(loop.index, here, values, masked), other)
            *state, stage = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.store("a", self.spec.depth, self.depth, self.first, n["queries"], state, self.spec.scale)

    def fetch_block(self, key: Value, stage: Value) -> None:
        """Keys and values."""
        self.fetch("k", key, self.n["keys"], BLOCK, stage)
        self.fetch("v", key, self.n["keys"], BLOCK, stage + 2 * BLOCK * self.depth)
        self.commit()

    def block(self, key: Value, stage: Value, state: list[Value], masked: bool) -> list[Value]:
        """64 more keys, some at a time."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        for start in range(0, BLOCK, self.grid.at_once):
            powers = []
            for tile, values in enumerate(self.products(self.own[0], stage, self.deep, start)):
                if masked:
                    values = self.masked(values, self.row(self.first, tile, 0), key + start)
                powers.append([exp2(e, e.fma(value, factor, -self.logarithms[tile][(number % 4) // 2]))
                               for number, value in enumerate(values)])
            inner = self.products(self.own[1], stage + 2 * BLOCK * self.depth, self.broad, start)
            sums = [[self.sums[tile][(number % 4) // 2] for number in range(len(inner[tile]))]
                    for tile in range(len(inner))]
            state = self.added(self.slopes(powers, inner, sums), stage, self.deep, start, state)
        return state

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
            begin = e.intrinsic("smax", self.first - self.position, begin) & -BLOCK
            if spec.window:
                last = self.first + (self.grid.lines - 1 + spec.window)
                end = e.intrinsic("smin", queries, e.intrinsic("smax", last - self.position, self.number(0)))
        count = (e.intrinsic("smax", end - begin, self.number(0)) + (BLOCK - 1)).shift_right(6)
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
        self.put(self.query_number(self.number(0)), stage)
        size = grid.tiles * self.depth // 2
        state = [e.constant(0.0, "float", 1)] * (grid.tiles * (self.depth + self.width) // 2)
        with e.loop(0, self.count * n["group"], 1, carried=[*state, stage]) as loop:
            *values, here = loop.values
            other = self.number(2 * grid.own_bytes + grid.stage_bytes) - here
            self.arrived()
            self.fetch_block(loop.index + 1, other)
            ahead = self.query_number(loop.index + 1)  # used after this block's work: nobody waits for it
            results = self.block(loop.index, here, values[:size], values[size:])
            self.put(ahead, other)
            loop.next(*results, other)
        *state, _ = loop.values
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        self.store("b", self.spec.depth, self.depth, self.first, n["keys"], state[:size], self.spec.scale)
        self.store("d", self.spec.width, self.width, self.first, n["keys"], state[size:], 1)

    def item(self, number: Value) -> tuple[Value, Value]:
        """The head of the group and the first query of a block."""
        head = self.e.instruction("udiv", number, self.some)
        return head, self.begin + (number - head * self.some) * BLOCK

    def fetch_block(self, number: Value, stage: Value) -> None:
        """Queries and cotangents; none of a head that is not there."""
        e = self.e
        head, query = self.item(number)
        there = e.icmp("slt", head, self.n["group"])
        head, size = e.select(there, head, 0), e.select(there, self.n["queries"], 0)
        self.fetch("q", query, size, BLOCK, stage, head)
        self.fetch("c", query, size, BLOCK, stage + 2 * BLOCK * self.depth, head)
        self.commit()

    def block(self, number: Value, stage: Value, keys: list[Value], values: list[Value]) -> list[Value]:
        """64 more queries of a head, some at a time."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        head, first = self.item(number)
        if self.spec.mask is not None:
            self.mask_of_head = e.offset(self.place["x"], self.mask_element, head * self.n["x_head"])
        cotangents, table = stage + 2 * BLOCK * self.depth, e.offset(e.shared(), "i8", stage + self.numbers_at)
        for start in range(0, BLOCK, self.grid.at_once):
            places = [e.offset(table, "float", (self.lane & 3) * 2 + (start + 8 * (n // 2) + n % 2))
                      for n in range(self.grid.at_once // 4)]
            logarithms = [e.load(place, "float", 1) for place in places]
            powers = []
            for tile, scores in enumerate(self.products(self.own[0], stage, self.deep, start)):
                scores = self.masked(scores, self.row(self.first, tile, 0), first + start)
                powers.append([exp2(e, e.fma(value, factor, -logarithms[2 * (n // 4) + n % 2]))
                               for n, value in enumerate(scores)])
            values = self.added(powers, cotangents, self.broad, start, values)
            inner = self.products(self.own[1], cotangents, self.broad, start)
            sums = [e.load(e.offset(place, "float", BLOCK), "float", 1) for place in places]
            wide = [[sums[2 * (n // 4) + n % 2] for n in range(len(tile_values))] for tile_values in inner]
            keys = self.added(self.slopes(powers, inner, wide), stage, self.deep, start, keys)
        return [*keys, *values]

    @property
    def numbers_at(self) -> int:
        """Where the logarithms, then the sums of a stage's queries lie."""
        return 2 * BLOCK * (self.depth + self.width)

    @property
    def mask_place(self) -> str:
        """Of the head at work."""
        return self.mask_of_head

    def query_number(self, number: Value) -> Value:
        """The logarithm (64 threads) or the sum (64 others) of a query of a block."""
        e = self.e
        head, first = self.item(number)
        query, sums = first + (self.thread & (BLOCK - 1)), e.icmp("sge", self.thread, BLOCK)
        there = e.icmp("slt", query, self.n["queries"]) & e.icmp("slt", head, self.n["group"])
        at = {name: e.select(there, head * self.n[f"{name}_head"] + query * self.n[f"{name}_row"], 0) for name in "ls"}
        chosen = "%" + e.fresh("place")
        logarithm, total = (e.offset(self.place[name], "float", at[name]) for name in "ls")
        e.line(f"{chosen} = select i1 {sums.name}, ptr {total}, ptr {logarithm}")
        found = e.load(chosen, "float", 1)
        missing = e.select(sums, e.constant(0.0, "float", 1), e.constant(math.inf, "float", 1))
        return e.select(there, found * e.select(sums, e.constant(1.0, "float", 1), LOG2_E), missing)

    def put(self, value: Value, stage: Value) -> None:
        """A thread's number among those of a stage."""
        e = self.e
        if self.grid.warps * WARP > 2 * BLOCK:
            with e.when(e.icmp("slt", self.thread, 2 * BLOCK)):
                e.store(value, e.offset(e.offset(e.shared(), "i8", stage + self.numbers_at), "float", self.thread))
            return
        e.store(value, e.offset(e.offset(e.shared(), "i8", stage + self.numbers_at), "float", self.thread))

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


# tiles, warps, blocks together and lines at once, by part and by whether lines are longer than 64
SHAPES = {("queries", False): (2, 4, 1, 32), ("keys", False): (2, 4, 1, 32), ("queries", True): (1, 4, 1, 64),
          ("keys", True): (1, 4, 1, 32)}


@dataclass(frozen=True)
class AttentionBackward(BackwardSpec):
    """A `BackwardSpec` that knows its grid."""

    def device_kernel(self, step: Any) -> BackwardGrid:
        """The kernel of a step."""
        return BackwardGrid(self, True, *SHAPES[self.part, max(self.depth, self.width) > 64])
