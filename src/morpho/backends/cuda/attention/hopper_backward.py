"""The gradient of attention by warpgroups: one has the copy engine bring blocks of the other operands, two have 64
lines of the block's own each (`wgmma`), and keep their scores and results in registers.

Scores of own lines by others and their slopes come from shared memory; both are then the left operand of the products
that are summed, from registers. No two blocks add to the same result, and a block adds in the order of its loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.backward import BackwardGrid
from morpho.backends.cuda.attention.backward_code import BackwardCode
from morpho.backends.cuda.attention.backward_parts import KeysCode, QueriesCode
from morpho.backends.cuda.attention.backward_spec import BACKWARD, BLOCK
from morpho.backends.cuda.attention.forward import LOG2_E
from morpho.backends.cuda.attention.hopper import (
    GROUP,
    LOADER_REGISTERS,
    MOST_STAGES,
    PART,
    RANK,
    ROWS,
    SHARED_BYTES,
    WORKER_REGISTERS,
)
from morpho.backends.cuda.codegen.warp_math import exp2, pack
from morpho.backends.cuda.driver.tensor_map import MAP_WORDS, TensorMap
from morpho.base.dtypes import bfloat16

WORKERS = 2
NUMBERS = 8 * BLOCK  # bytes of the logarithms and sums of a block of queries
COPIED = "qkvc"  # operands that the copy engine brings


@dataclass(frozen=True)
class HopperBackward(BackwardGrid):
    """A block per tile of 128 queries or keys of a head."""

    def unaligned(self) -> HopperBackward:
        return self

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as multiples of a line of shared memory."""
        return -(-self.spec.depth // PART) * PART, -(-self.spec.width // PART) * PART

    @property
    def tiles(self) -> int:
        """Of 16 lines, of a warp."""
        return 1

    @property
    def block(self) -> int:
        """Twice as many keys where registers hold their scores: dq is one result, dk and dv are two."""
        return 2 * BLOCK if self.spec.part == "queries" and max(self.padded) <= BLOCK else BLOCK

    @property
    def at_once(self) -> int:
        """A whole block's scores."""
        return self.block

    @property
    def lines(self) -> int:
        """Of all workers."""
        return ROWS * WORKERS

    @property
    def threads(self) -> int:
        """Workers, and the warpgroup that loads."""
        return GROUP * (1 + WORKERS)

    @property
    def own(self) -> str:
        """The block's own operands."""
        return "qc" if self.spec.part == "queries" else "kv"

    @property
    def stages(self) -> int:
        """Blocks in flight."""
        return min(MOST_STAGES, (SHARED_BYTES - self.own_bytes) // (self.stage_bytes + NUMBERS))

    @property
    def numbers_at(self) -> int:
        """Where the logarithms and sums of the blocks' queries begin in shared memory."""
        return self.own_bytes + self.stages * self.stage_bytes

    @property
    def barriers_at(self) -> int:
        """Where the barriers begin: own operands are there; of every stage: it is full, it was read."""
        return self.numbers_at + self.stages * NUMBERS

    @property
    def shared_bytes(self) -> int:
        """All of it."""
        return self.barriers_at + 8 * (1 + 2 * self.stages)

    @property
    def first_map(self) -> int:
        """The word where the first operand's map begins."""
        return -(-super().words // 8) * 8

    @property
    def words(self) -> int:
        """Of a launch."""
        return self.first_map + len(COPIED) * MAP_WORDS

    def maps(self, values: tuple[int, ...]) -> tuple[TensorMap, ...]:
        """Operands by rows, heads and two batch axes."""
        n = {name: int(value) for name, value in BACKWARD.by_name(values).items()}
        kind = "bfloat16" if self.spec.dtype is bfloat16 else "float16"
        made = []
        for operand, name in enumerate(COPIED):
            depth = self.spec.depth if name in "qk" else self.spec.width
            rows, heads = (n["queries"], n["heads"]) if name in "qc" else (n["keys"], n["heads"] // n["group"])
            sizes = (depth, max(rows, 1), heads, n["batches2"], n["batches1"])
            steps = (n[f"{name}_row"], n[f"{name}_head"], n[f"{name}_batch2"], n[f"{name}_batch1"])
            strides = tuple(2 * step if size > 1 else 16 * -(-2 * depth // 16)
                            for step, size in zip(steps, sizes[1:], strict=True))
            box = (PART, self.lines if name in self.own else self.block, 1, 1, 1)
            made.append(TensorMap(operand, self.first_map + operand * MAP_WORDS, kind, sizes, strides, box))
        return tuple(made)

    def text(self) -> str:
        return (HopperQueries if self.spec.part == "queries" else HopperKeys)(self).module()


class Warpgroups(BackwardCode):
    """Barriers, the copy engine and products by warpgroups."""

    grid: HopperBackward
    first: Value  # of the block's own lines
    ahead: list[Value] | None = None  # products that were computed with the last ones

    def call(self, name: str, *values: Value | int) -> None:
        """A function of the grid with 32-bit numbers."""
        given = ", ".join(f"i32 {value if isinstance(value, int) else self.narrow(value).name}" for value in values)
        self.e.line(f"call void @gpu.{name}(ptr %ctx, {given})")

    def ring(self, stage: Value, number: int) -> Value:
        """A barrier of a stage: it is full, it was read."""
        return stage * 16 + (self.grid.barriers_at + 8 * (1 + number))

    def following(self, stage: Value, phase: Value) -> list[Value]:
        """The next stage, and its phase."""
        e = self.e
        last = e.icmp("eq", stage, self.grid.stages - 1)
        return [e.select(last, self.number(0), stage + 1), e.select(last, phase ^ 1, phase)]

    def by_roles(self, fills: int, load: Callable[[], None], compute: Callable[[], None]) -> None:
        """Make the barriers, then load or compute; `fills`: arrivals that make a stage full."""
        e, grid = self.e, self.grid
        self.own = self.number(0), self.number(2 * grid.lines * self.depth)
        with e.when(e.icmp("eq", self.thread, 0)):
            self.call("mbarrier_init", grid.barriers_at, 1)
            for stage in range(grid.stages):
                self.call("mbarrier_init", grid.barriers_at + 8 * (1 + 2 * stage), fills)
                self.call("mbarrier_init", grid.barriers_at + 8 * (2 + 2 * stage), 4 * WORKERS)
            e.line("call void @gpu.mbarrier_ready(ptr %ctx)")
        e.barrier()
        for loads in e.both(e.icmp("slt", self.thread, GROUP)):
            if loads:
                e.line(f"call void @gpu.registers_down_{LOADER_REGISTERS}(ptr %ctx)")
                load()
            else:
                e.line(f"call void @gpu.registers_up_{WORKER_REGISTERS}(ptr %ctx)")
                self.thread = self.thread - GROUP
                self.warp, self.worker = self.thread.shift_right(5), self.thread.shift_right(7)
                self.call("mbarrier_wait", grid.barriers_at, 0)
                compute()

    # -- the warpgroup that loads --------------------------------------------------------------------------------------
    def load_own(self) -> None:
        """The block's own operands."""
        grid = self.grid
        self.call("mbarrier_expect", grid.barriers_at, grid.own_bytes)
        for name, place in zip(grid.own, self.own, strict=True):
            head = self.shared_head if name in "kv" else self.head
            self.copied(name, place, self.first, head, grid.lines, self.number(grid.barriers_at))

    def load_stage(self, stage: Value, phase: Value, row: Value, head: Value) -> None:
        """A block of the other operands, when its stage is empty."""
        grid = self.grid
        self.call("mbarrier_wait", self.ring(stage, 1), phase ^ 1)
        self.call("mbarrier_expect", self.ring(stage, 0), grid.stage_bytes)
        place = stage * grid.stage_bytes + grid.own_bytes
        for number, name in enumerate(name for name in COPIED if name not in grid.own):
            at = place + number * 2 * grid.block * self.depth
            self.copied(name, at, row, head, grid.block, self.ring(stage, 0))

    def copied(self, name: str, place: Value, row: Value, head: Value, count: int, full: Value) -> None:
        """Rows of an operand, 64 numbers of each at a time."""
        table = 8 * (self.grid.first_map + COPIED.index(name) * MAP_WORDS)
        for part in range((self.depth if name in "qk" else self.width) // PART):
            values = (place + part * 2 * PART * count, full, self.number(part * PART), row, head, *self.batch)
            given = ", ".join(f"i32 {self.narrow(value).name}" for value in values)
            self.e.line(f"call void @gpu.tma_load_{RANK}(ptr %ctx, i32 {table}, {given})")

    # -- the warpgroups that compute -----------------------------------------------------------------------------------
    def was_read(self, stage: Value) -> None:
        """A warp needs a stage no longer."""
        with self.e.when(self.e.icmp("eq", self.lane, 0)):
            self.call("mbarrier_arrive", self.ring(stage, 1))

    def products(self, own: Value, other: Value, length: int, start: int) -> list[list[Value]]:
        """64 own lines times a block of the other operand's, along both; those of the other two operands as well, which
        come next: tensor cores go on without a wait."""
        if self.ahead is not None:
            found, self.ahead = self.ahead, None
            return [found]
        grid, count = self.grid, self.grid.block // 2
        places = [own, other, self.own[1], other + 2 * grid.block * self.depth]
        places = [at + self.worker * (2 * PART * ROWS) if n % 2 == 0 else at for n, at in enumerate(places)]
        parts = f"{self.depth // PART}_{self.width // PART}_{2 * PART * grid.lines}_{2 * PART * grid.block}"
        values = self.asked(f"scores_two_{self.half}_{grid.block}_{parts}", places, [], 2 * count)
        self.ahead = values[count:]
        return [values[:count]]

    def asked(self, function: str, places: list[Value], given: list[str], count: int) -> list[Value]:
        """The floats that a function of the grid gives for places of shared memory and registers."""
        e = self.e
        kind, name = "{ " + ", ".join(["float"] * count) + " }", "%" + e.fresh("d")
        words = ", ".join([*(f"i32 {self.narrow(at).name}" for at in places), *given])
        e.line(f"{name} = call {kind} @gpu.{function}(ptr %ctx, {words})")
        return [e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(count)]

    def packed(self, weights: list[list[Value]]) -> list[str]:
        """Weights as the left operand of a product."""
        (tile,) = weights
        return [f"i32 {pack(self.e, self.spec.dtype, tile[n], tile[n + 1])}" for n in range(0, len(tile), 2)]

    def added(self, weights: list[list[Value]], other: Value, length: int, start: int,
              sums: list[Value]) -> list[Value]:
        """Sums with the other operand's lines, weighted."""
        given = [*(f"float {x.name}" for x in sums), *self.packed(weights)]
        return self.asked(f"wgmma_rs_{self.half}_{length}_{self.grid.block}", [other], given, len(sums))

    @property
    def half(self) -> str:
        """The type of the operands in names of functions."""
        return "bf16" if self.spec.dtype is bfloat16 else "f16"

    def where(self, condition: Value, values: list[Value], change: Callable[[], list[Value]]) -> list[Value]:
        """Values, or others where a condition holds, which is the same for a whole warpgroup."""
        return self.e.changed_if(condition, values, change)


class HopperQueries(Warpgroups, QueriesCode):
    """dq."""

    def work(self) -> None:
        """All keys of these queries."""
        self.range = self.key_range()
        self.by_roles(1, self.load, self.compute)

    def load(self) -> None:
        """Queries and cotangents, then keys and values."""
        e = self.e
        begin, _, end = self.range
        with e.when(e.icmp("eq", self.thread, 0)):
            self.load_own()
            with e.loop(begin, end, self.grid.block, carried=[self.number(0), self.number(0)]) as loop:
                stage, phase = loop.values
                self.load_stage(stage, phase, loop.index, self.shared_head)
                loop.next(*self.following(stage, phase))

    def compute(self) -> None:
        """dq of 64 queries."""
        e, n, grid = self.e, self.n, self.grid
        rows = [self.row(self.first, 0, half) for half in range(2)]
        self.logarithms = [[self.number_of("l", row, math.inf) * LOG2_E for row in rows]]
        self.sums = [[self.number_of("s", row, 0.0) for row in rows]]
        begin, middle, end = self.range
        state = [*[e.constant(0.0, "float", 1)] * (self.depth // 2), self.number(0), self.number(0)]
        for first, last, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(first, last, self.grid.block, carried=state) as loop:
                *values, stage, phase = loop.values
                self.call("mbarrier_wait", self.ring(stage, 0), phase)
                values = self.block(loop.index, stage * grid.stage_bytes + grid.own_bytes, values, masked)
                self.was_read(stage)
                loop.next(*values, *self.following(stage, phase))
            state = loop.values
        self.store("a", self.spec.depth, self.depth, self.first, n["queries"], state[:-2], self.spec.scale)


class HopperKeys(Warpgroups, KeysCode):
    """dk and dv."""

    def work(self) -> None:
        """All queries of these keys, head by head of those that share them."""
        e = self.e
        self.begin, self.count = self.query_range()
        self.some = e.intrinsic("smax", self.count, self.number(1))
        self.by_roles(1 + BLOCK, self.load, self.compute)

    def load(self) -> None:
        """Keys and values, then queries and cotangents; the second half of the threads bring logarithms and sums."""
        e, items = self.e, self.count * self.n["group"]
        start = [self.number(0), self.number(0)]
        with e.when(e.icmp("eq", self.thread, 0)):
            self.load_own()
            with e.loop(0, items, 1, carried=start) as loop:
                (head, query), (stage, phase) = self.item(loop.index), loop.values
                self.load_stage(stage, phase, query, self.head + head)
                loop.next(*self.following(stage, phase))
        with e.when(e.icmp("sge", self.thread, GROUP - BLOCK)):
            mine = self.thread - (GROUP - BLOCK)
            with e.loop(0, items, 1, carried=start) as loop:
                stage, phase = loop.values
                self.call("mbarrier_wait", self.ring(stage, 1), phase ^ 1)
                self.load_numbers(loop.index, stage, mine)
                self.call("mbarrier_arrive", self.ring(stage, 0))
                loop.next(*self.following(stage, phase))

    def load_numbers(self, number: Value, stage: Value, mine: Value) -> None:
        """The logarithm, times log2(e), and the sum of one query of a block."""
        e, whole = self.e, dict(self.place)
        head, query = self.item(number)
        place = e.offset(e.shared(), "i8", stage * NUMBERS + self.grid.numbers_at)
        for at, (name, missing) in enumerate((("l", math.inf), ("s", 0.0))):
            self.place[name] = e.offset(whole[name], "float", head * self.n[f"{name}_head"])
            value = self.number_of(name, query + mine, missing)
            e.store(value * LOG2_E if name == "l" else value, e.offset(place, "float", mine + at * BLOCK))
        self.place = whole

    def from_shared(self, at: int) -> list[Value]:
        """Logarithms (0) or sums (1) of a lane's queries."""
        e = self.e
        place = e.offset(e.shared(), "i8", self.here * NUMBERS + (self.grid.numbers_at + 4 * at * BLOCK))
        return [e.load(e.offset(place, "float", (self.lane & 3) * 2 + (8 * (n // 2) + n % 2)), "float", 1)
                for n in range(BLOCK // 4)]

    def block(self, number: Value, stage: Value, keys: list[Value], values: list[Value]) -> list[Value]:
        """A block of queries of a head more: both sums are products in flight at the same time."""
        e, factor = self.e, self.e.constant(self.spec.scale * LOG2_E, "float", 1)
        head, first = self.item(number)
        whole = dict(self.place)
        if "x" in whole:
            self.place["x"] = e.offset(whole["x"], self.mask_element, head * self.n["x_head"])
        (scores,) = self.products(self.own[0], stage, self.depth, 0)
        scores = self.masked(scores, self.row(self.first, 0, 0), first)
        logarithms = self.from_shared(0)
        powers = [exp2(e, e.fma(value, factor, -logarithms[2 * (n // 4) + n % 2])) for n, value in enumerate(scores)]
        (inner,) = self.products(self.own[1], stage, self.width, 0)
        sums = self.from_shared(1)
        slopes = [p * (w - sums[2 * (n // 4) + n % 2]) for n, (p, w) in enumerate(zip(powers, inner, strict=True))]
        self.place = whole
        given = [*(f"float {x.name}" for x in (*keys, *values)), *self.packed([slopes]), *self.packed([powers])]
        return self.asked(f"wgmma_rs_two_{self.half}_{self.depth}_{self.width}_{BLOCK}",
                          [stage, stage + 2 * BLOCK * self.depth], given, len(keys) + len(values))

    def compute(self) -> None:
        """dk and dv of 64 keys."""
        e, n, grid = self.e, self.n, self.grid
        size = self.depth // 2
        state = [*[e.constant(0.0, "float", 1)] * (size + self.width // 2), self.number(0), self.number(0)]
        with e.loop(0, self.count * n["group"], 1, carried=state) as loop:
            *values, stage, phase = loop.values
            self.here = stage
            self.call("mbarrier_wait", self.ring(stage, 0), phase)
            values = self.block(loop.index, stage * grid.stage_bytes + grid.own_bytes, values[:size], values[size:])
            self.was_read(stage)
            loop.next(*values, *self.following(stage, phase))
        *state, _, _ = loop.values
        self.store("b", self.spec.depth, self.depth, self.first, n["keys"], state[:size], self.spec.scale)
        self.store("d", self.spec.width, self.width, self.first, n["keys"], state[size:], 1)

    def masked(self, values: list[Value], row: Value, query: Value) -> list[Value]:
        """Scores of a tile; a causal mask hides only queries before the last key of the block."""
        if self.spec.causal and not self.spec.window and self.spec.mask is None:
            near = self.e.icmp("slt", self.position + query, self.first + (self.grid.lines - 1))
            return self.where(near, values, lambda: KeysCode.masked(self, values, row, query))
        return KeysCode.masked(self, values, row, query)
