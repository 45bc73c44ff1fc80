"""The forward kernel (FlashAttention-2's loop on `mma.sync`): a warp has 16 or 32 queries, walks over blocks of 64
keys, and keeps the largest score, the sum and the weighted values of its rows in registers.

Every row is computed by itself, in an order that depends on its keys alone. Powers are the GPU's own `ex2`; scores of a
block come from tensor cores in float32, probabilities go to them rounded to the operands' dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.spec import BATCH_AXES, KEYS, AttentionSpec
from morpho.backends.cuda.codegen.grid import WARP, GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.codegen.warp_math import exp2, log2, pack, shrunk, zero_or
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.gemm.half.fragments import Fragments
from morpho.base.dtypes import bool_
from morpho.program.kernel import Kernel

LOG2_E, LN_2 = math.log2(math.e), math.log(2)


@dataclass(frozen=True)
class AttentionGrid(WithoutMaps):
    """A block per tile of queries of a head."""

    spec: AttentionSpec
    aligned: bool

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Chunks of operands are read whole, pairs of results written at once."""
        return ((0, 16), (1, 16), (2, 16)) if self.aligned else ()

    def unaligned(self) -> AttentionGrid:
        """Element by element into shared memory."""
        return replace(self, aligned=False)

    def kernel(self) -> Kernel:
        return self.spec

    @property
    def tiles(self) -> int:
        """Of 16 queries, of a warp: two where its results leave room for the registers."""
        return 2 if max(self.padded) <= 64 and self.spec.rows >= 32 else 1

    @property
    def threads(self) -> int:
        return 2 * self.spec.rows // self.tiles

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as powers of two."""
        return tuple(max(16, 1 << (n - 1).bit_length()) for n in (self.spec.depth, self.spec.width))  # type: ignore[return-value]

    @property
    def stage_bytes(self) -> int:
        """A block of keys and of values."""
        return 2 * KEYS * sum(self.padded)

    @property
    def shared_bytes(self) -> int:
        """Queries, and two stages."""
        return 2 * self.spec.rows * self.padded[0] + 2 * self.stage_bytes

    def launch(self, sizes: Sizes) -> Launch:
        numbers = self.spec.record.by_name(sizes.values)
        count = -(-known(numbers["queries"]) // self.spec.rows) * known(numbers["heads"])
        for axis in range(BATCH_AXES):
            count *= known(numbers[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), self.threads, self.shared_bytes))

    def text(self) -> str:
        return self.code().module()

    def code(self) -> ForwardCode:
        return ForwardCode(self)


class ForwardCode:
    """Generator of the LLVM text of one forward kernel."""

    def __init__(self, grid: AttentionGrid) -> None:
        self.grid, self.spec, self.e = grid, grid.spec, GridEmitter()
        self.depth, self.width = grid.padded
        self.keys = KEYS
        self.parts = Fragments(self.e, self.spec.dtype)

    # -- the kernel ----------------------------------------------------------------------------------------------------
    def module(self) -> str:
        e, spec = self.e, self.spec
        self.find_tile()
        self.fetch(self.q, self.first_row, self.n["queries"], self.n["q_row"], spec.depth, self.depth, spec.rows,
                   self.parts.number(0))
        begin, middle, end = self.key_range()
        stage = self.parts.number(2 * spec.rows * self.depth)
        self.fetch_block(begin, stage)
        state = self.start()
        for first, last, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(first, last, self.keys, carried=[*state, stage]) as loop:
                *values, here = loop.values
                other = (self.parts.number(2 * (2 * spec.rows * self.depth) + self.grid.stage_bytes)) - here
                e.line("call void @gpu.cp_wait_0(ptr %ctx)")
                e.barrier()
                self.fetch_block(loop.index + self.keys, other)
                values = self.block(loop.index, here, values, masked)
                loop.next(*values, other)
            *state, stage = loop.values
        self.finish(state)
        words = int(Header.SIZE) + spec.places + len(spec.record)
        attributes = f' nounwind "nvvm.maxntid"="{self.grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", words, e.text(), attributes) + e.outside()

    def find_tile(self) -> None:
        """The queries, the head and the batch of this block; where its operands begin."""
        e, first, spec = self.e, int(Header.SIZE), self.spec
        self.n = {name: e.word(first + spec.places + at) for at, name in enumerate(spec.record.names)}
        n = self.n
        self.thread = e.ask("thread")
        self.lane, self.warp = self.thread & (WARP - 1), self.thread.shift_right(5)
        tiles = e.instruction("udiv", n["queries"] + (spec.rows - 1), e.constant(spec.rows, "i64", 1))
        block = e.ask("block")
        rest = e.instruction("udiv", block, tiles)
        self.first_row = (tiles - 1 - (block - rest * tiles)) * spec.rows  # long rows of a causal mask first
        outer = e.instruction("udiv", rest, n["heads"])
        head = rest - outer * n["heads"]
        shared = e.instruction("udiv", head, n["group"])
        self.head, self.shared_head, where = head, shared, {}
        at = {name: (shared if name in "kv" else head) * n[f"{name}_head"] for name in "qkvolxp"}
        for axis in reversed(range(BATCH_AXES)):
            upper = e.instruction("udiv", outer, n[f"batches{axis}"])
            where[axis] = index = outer - upper * n[f"batches{axis}"]
            at = {name: offset + index * n[f"{name}_batch{axis}"] for name, offset in at.items()}
            outer = upper
        self.batch = (where[2], where[1])
        kinds = {"l": "float", "p": "i64", "x": "i8" if spec.mask is bool_ else self.mask_element}
        present = ["q", "k", "v", "o", "l", *(["x"] if spec.mask is not None else []), *(["p"] if spec.moving else [])]
        place = {name: e.offset(e.address(first + number), kinds.get(name, "i16"), at[name])
                 for number, name in enumerate(present)}
        self.q, self.k, self.v, self.o, self.l = (place[name] for name in "qkvol")
        self.x = place.get("x", "")
        self.position = e.load(place["p"], "i64", 1) if spec.moving else e.constant(spec.offset, "i64", 1)

    @property
    def mask_element(self) -> str:
        """As it lies in memory."""
        return scalars.memory_type(self.spec.mask) if self.spec.mask is not None else "i8"

    def key_range(self) -> tuple[Value, Value, Value]:
        """The first key of this tile's blocks, the first one of a block with a mask, and the end."""
        e, spec, keys = self.e, self.spec, self.n["keys"]
        zero = e.constant(0, "i64", 1)
        begin, middle, end = zero, keys & -self.keys, keys
        if spec.causal:
            start = self.position + self.first_row
            end = e.intrinsic("smin", keys, start + spec.rows)
            middle = e.intrinsic("smin", middle, e.intrinsic("smax", start + 1, zero) & -self.keys)
            if spec.window:
                begin = e.intrinsic("smax", start - (spec.window - 1), zero) & -self.keys
        if spec.window or spec.mask is not None:
            middle = begin
        return begin, middle, e.intrinsic("smax", end, begin)

    # -- global to shared ----------------------------------------------------------------------------------------------
    def fetch_block(self, key: Value, stage: Value) -> None:
        """Queue a block of keys and of values."""
        spec, n = self.spec, self.n
        self.fetch(self.k, key, n["keys"], n["k_row"], spec.depth, self.depth, self.keys, stage)
        values = stage + 2 * self.keys * self.depth
        self.fetch(self.v, key, n["keys"], n["v_row"], spec.width, self.width, self.keys, values)
        self.e.line("call void @gpu.cp_commit(ptr %ctx)")

    def fetch(self, source: str, first: Value, size: Value, step: Value, depth: int, padded: int, count: int,
              stage: Value) -> None:
        """Lines of an operand; what is not there is zero."""
        self.parts.fetch_lines(source, first, size, step, depth, padded, count, stage, self.thread, self.grid.threads,
                               self.grid.aligned)

    # -- a block of keys -----------------------------------------------------------------------------------------------
    def start(self) -> list[Value]:
        """The results, largest scores and sums before the first key."""
        e, tiles = self.e, self.grid.tiles
        zero, low = e.constant(0.0, "float", 1), e.constant(-math.inf, "float", 1)
        return [*[zero] * (tiles * self.width // 2), *[low] * (2 * tiles), *[zero] * (2 * tiles)]

    def block(self, key: Value, stage: Value, values: list[Value], masked: bool) -> list[Value]:
        """The state after 64 more keys."""
        probabilities, new, rest = self.softened(self.scores(stage), key, values, masked)
        new = self.weighted(stage + 2 * self.keys * self.depth, probabilities, new)
        return [*(value for tile in new for value in tile), *rest]

    def softened(self, scores: list[list[Value]], key: Value, values: list[Value],
                 masked: bool) -> tuple[list[list[Value]], list[list[Value]], list[Value]]:
        """Powers of a block's scores, the results so far below the new largest ones, these and the sums."""
        tiles, each = self.grid.tiles, self.width // 2
        tops, sums = values[tiles * each:tiles * each + 2 * tiles], values[tiles * each + 2 * tiles:]
        new, probabilities = [], []
        for tile in range(tiles):
            row = self.first_row + self.warp * (16 * tiles) + self.lane.shift_right(2) + 16 * tile
            seen = self.seen(scores[tile], row, key) if masked else scores[tile]
            powers, top, total, scale = self.softmax(seen, tops[2 * tile:2 * tile + 2], sums[2 * tile:2 * tile + 2])
            tops[2 * tile:2 * tile + 2], sums[2 * tile:2 * tile + 2] = top, total
            results = values[tile * each:(tile + 1) * each]
            new.append([value * scale[(number % 4) // 2] for number, value in enumerate(results)])
            probabilities.append(powers)
        return probabilities, new, [*tops, *sums]

    def scores(self, stage: Value) -> list[list[Value]]:
        """Of every tile, 16 queries by 64 keys: four of each 8 keys."""
        tiles, zero = self.grid.tiles, self.e.constant(0.0, "float", 1)
        found = [[zero] * (self.keys // 2) for _ in range(tiles)]
        for step in range(self.depth // 16):
            left = [self.parts.by_rows(self.parts.number(0), self.warp * (16 * tiles) + 16 * tile, step, self.depth,
                                       self.lane) for tile in range(tiles)]
            for column in range(0, self.keys, 16):
                right = self.parts.of_lines(stage, column, step, self.depth, self.lane)
                for tile in range(tiles):
                    for half in range(2):
                        at = (column // 8 + half) * 4
                        found[tile][at:at + 4] = self.parts.multiply(left[tile], right[2 * half:2 * half + 2],
                                                                     found[tile][at:at + 4])
        return found

    def seen(self, scores: list[Value], row: Value, key: Value) -> list[Value]:
        """Scores with -inf where a query does not see a key."""
        e, spec = self.e, self.spec
        low = e.constant(-math.inf, "float", 1)
        found = []
        for number, score in enumerate(scores):
            query = row + 8 * ((number % 4) // 2)
            at = key + (self.lane & 3) * 2 + (8 * (number // 4) + number % 2)
            holds = e.icmp("slt", at, self.n["keys"])
            if spec.causal:
                place = self.position + query
                holds = holds & e.icmp("sle", at, place)
                if spec.window:
                    holds = holds & e.icmp("sgt", at, place - spec.window)
            if spec.mask is not None:
                score, allowed = self.with_mask(score, query, at)
                holds = holds & allowed
            found.append(e.select(holds, score, low))
        return found

    def with_mask(self, score: Value, query: Value, key: Value) -> tuple[Value, Value]:
        """A score with its mask, and whether that lets it be seen."""
        e, mask = self.e, self.spec.mask
        assert mask is not None
        inside = e.icmp("slt", query, self.n["queries"]) & e.icmp("slt", key, self.n["keys"])
        offset = e.select(inside, query * self.n["x_row"] + key * self.n["x_column"], 0)
        loaded = e.load(e.offset(self.x, self.mask_element, offset), self.mask_element, 1)
        if mask is bool_:
            return score, e.icmp("ne", loaded, 0)
        value = scalars.from_memory(e, loaded, mask)
        value = e.convert("fptrunc", value, "float") if value.element == "double" else value
        return e.fma(value, e.constant(1 / self.spec.scale, "float", 1), score), e.fcmp("une", value, -math.inf)

    def softmax(self, scores: list[Value], tops: list[Value],
                sums: list[Value]) -> tuple[list[Value], list[Value], list[Value], list[Value]]:
        """Powers of a tile's scores below its rows' largest ones; the new largest ones and sums, and by what the
        results so far shrink."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        powers = list(scores)
        new_tops, new_sums, shrink = [], [], []
        for half in range(2):
            mine = [n for n in range(len(scores)) if (n % 4) // 2 == half]
            top = scores[mine[0]]
            for n in mine[1:]:
                top = e.intrinsic("maxnum", top, scores[n])
            for mask in (1, 2):
                top = e.intrinsic("maxnum", top, e.shuffle_xor(top, mask))
            top = e.intrinsic("maxnum", tops[half], top)
            base = zero_or(e, top) * factor
            scale = shrunk(e, tops[half], top, factor)
            total = sums[half] * scale
            for n in mine:
                powers[n] = exp2(e, e.fma(scores[n], factor, -base))
                total = total + powers[n]
            new_tops.append(top)
            new_sums.append(total)
            shrink.append(scale)
        return powers, new_tops, new_sums, shrink

    def weighted(self, stage: Value, powers: list[list[Value]], results: list[list[Value]]) -> list[list[Value]]:
        """Results with the block's values, weighted."""
        e = self.e
        for step in range(self.keys // 16):
            left = []
            for tile in powers:
                four = tile[8 * step:8 * step + 8]
                left.append([pack(e, self.spec.dtype, four[n], four[n + 1]) for n in (0, 2, 4, 6)])
            for column in range(0, self.width, 16):
                right = self.parts.across_lines(stage, column, step, self.width, self.lane)
                for result, a in zip(results, left, strict=True):
                    for half in range(2):
                        at = (column // 8 + half) * 4
                        result[at:at + 4] = self.parts.multiply(a, right[2 * half:2 * half + 2], result[at:at + 4])
        return results

    # -- the end -------------------------------------------------------------------------------------------------------
    def finish(self, state: list[Value]) -> None:
        """Divide by the sums and store; of every row its logarithm too."""
        e, tiles, each = self.e, self.grid.tiles, self.width // 2
        e.line("call void @gpu.cp_wait_0(ptr %ctx)")
        tops, sums = state[tiles * each:tiles * each + 2 * tiles], state[tiles * each + 2 * tiles:]
        for tile in range(tiles):
            for half in range(2):
                total = sums[2 * tile + half]
                for mask in (1, 2):
                    total = total + e.shuffle_xor(total, mask)
                row = self.first_row + self.warp * (16 * tiles) + self.lane.shift_right(2) + (16 * tile + 8 * half)
                empty = e.fcmp("oeq", total, 0.0)
                inverse = e.select(empty, 0.0, e.constant(1.0, "float", 1) / total)
                values = [value * inverse for n, value in enumerate(state[tile * each:(tile + 1) * each])
                          if (n % 4) // 2 == half]
                with e.when(e.icmp("slt", row, self.n["queries"])):
                    self.store_row(row, values)
                    top = zero_or(e, tops[2 * tile + half])
                    lse = e.fma(log2(e, total), e.constant(LN_2, "float", 1), top * self.spec.scale)
                    with e.when(e.icmp("eq", self.lane & 3, 0)):
                        e.store(e.select(empty, math.inf, lse), e.offset(self.l, "float", row * self.n["l_row"]))

    def store_row(self, row: Value, values: list[Value]) -> None:
        """A lane's pairs of a row."""
        e, spec = self.e, self.spec
        for pair in range(len(values) // 2):
            column = (self.lane & 3) * 2 + 8 * pair
            packed = pack(e, spec.dtype, *values[2 * pair:2 * pair + 2])
            place = e.offset(self.o, "i16", row * self.n["o_row"] + column)
            if 8 * pair < spec.width:
                e.store(e.argument(packed, "i32", 1), place, align=4)
