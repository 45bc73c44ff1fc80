"""The forward kernel by warpgroups (FlashAttention-3's roles): one has the copy engine bring blocks of keys and values,
the others have 64 queries each, whose scores, sums and results they keep in registers (`wgmma`).

A warpgroup queues the scores of the next keys together with the results of these, and takes powers when both are there;
the tensor cores work for the other one meanwhile. A row's order of sums depends on its keys alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.forward import ForwardCode
from morpho.backends.cuda.attention.spec import ATTENTION, BATCH_AXES, AttentionSpec
from morpho.backends.cuda.codegen.grid import Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, known
from morpho.backends.cuda.codegen.warp_math import pack
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.tensor_map import MAP_WORDS, TensorMap
from morpho.base.dtypes import bfloat16
from morpho.program.kernel import Kernel

KEYS = 128  # of a block
PART = 64  # numbers of a line of shared memory
GROUP = 128  # threads of a warpgroup
ROWS = 64  # queries of one
RANK = 5  # axes of a tensor map: a row, rows, heads, two batch axes
LOADER_REGISTERS, WORKER_REGISTERS = 40, 232
SHARED_BYTES = 224 << 10
MOST_STAGES = 4


@dataclass(frozen=True)
class HopperAttention:
    """A block per tile of queries of a head."""

    spec: AttentionSpec
    tiles: int = 1  # of 16 queries, of a warp

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """The copy engine reads chunks."""
        return (0, 16), (1, 16), (2, 16)

    def unaligned(self) -> HopperAttention:
        return self

    def kernel(self) -> Kernel:
        return self.spec

    @property
    def workers(self) -> int:
        """Warpgroups that compute."""
        return self.spec.rows // ROWS

    @property
    def threads(self) -> int:
        return GROUP * (1 + self.workers)

    @property
    def padded(self) -> tuple[int, int]:
        """Depth and width as multiples of a line."""
        return -(-self.spec.depth // PART) * PART, -(-self.spec.width // PART) * PART

    @property
    def query_bytes(self) -> int:
        """Of a tile of queries."""
        return 2 * self.spec.rows * self.padded[0]

    @property
    def stage_bytes(self) -> int:
        """A block of keys and of values."""
        return 2 * KEYS * sum(self.padded)

    @property
    def stages(self) -> int:
        """Blocks in flight."""
        return min(MOST_STAGES, (SHARED_BYTES - self.query_bytes) // self.stage_bytes)

    @property
    def first_map(self) -> int:
        """The word where the first operand's map begins."""
        return -(-(int(Header.SIZE) + self.spec.places + len(ATTENTION)) // 8) * 8

    def launch(self, sizes: Sizes) -> Launch:
        numbers = ATTENTION.by_name(sizes.values)
        count = -(-known(numbers["queries"]) // self.spec.rows) * known(numbers["heads"])
        for axis in range(BATCH_AXES):
            count *= known(numbers[f"batches{axis}"])
        shared = self.query_bytes + self.stages * self.stage_bytes + 8 * (1 + 3 * self.stages)
        return Launch(Geometry(max(count, 1), self.threads, shared))

    def maps(self, values: tuple[int, ...]) -> tuple[TensorMap, ...]:
        """Queries, keys and values by rows, heads and two batch axes."""
        n = {name: known(value) for name, value in ATTENTION.by_name(values).items()}
        kind = "bfloat16" if self.spec.dtype is bfloat16 else "float16"
        made = []
        for operand, name in enumerate("qkv"):
            depth = self.spec.width if name == "v" else self.spec.depth
            rows, heads = (n["queries"], n["heads"]) if name == "q" else (n["keys"], n["heads"] // n["group"])
            sizes = (depth, max(rows, 1), heads, n["batches2"], n["batches1"])
            steps = (n[f"{name}_row"], n[f"{name}_head"], n[f"{name}_batch2"], n[f"{name}_batch1"])
            strides = tuple(2 * step if size > 1 else 16 * -(-2 * depth // 16)
                            for step, size in zip(steps, sizes[1:], strict=True))
            box = (PART, self.spec.rows if name == "q" else KEYS, 1, 1, 1)
            made.append(TensorMap(operand, self.first_map + operand * MAP_WORDS, kind, sizes, strides, box))
        return tuple(made)

    def text(self) -> str:
        return HopperCode(self).module()


class HopperCode(ForwardCode):
    """Writes one. Masks, powers and the end are those of the kernel for warps."""

    grid: HopperAttention  # type: ignore[assignment]

    def __init__(self, grid: HopperAttention) -> None:
        super().__init__(grid)  # type: ignore[arg-type]
        self.keys = KEYS
        self.kind = "bf16" if self.spec.dtype is bfloat16 else "f16"

    def module(self) -> str:
        e, grid = self.e, self.grid
        self.find_tile()
        begin, middle, end = self.key_range()
        end = e.intrinsic("smax", end, begin + 1)  # one block at least, all of which may be masked
        self.barriers = grid.query_bytes + grid.stages * grid.stage_bytes  # of the queries, then three of a stage
        with e.when(e.icmp("eq", self.thread, 0)):
            self.call("mbarrier_init", self.barriers, 1)
            for stage in range(grid.stages):
                for number, count in enumerate((1, 1, grid.workers)):
                    self.call("mbarrier_init", self.barriers + 8 * (1 + 3 * stage + number), count)
            e.line("call void @gpu.mbarrier_ready(ptr %ctx)")
        e.barrier()
        for loads in e.both(e.icmp("slt", self.thread, GROUP)):
            if loads:
                e.line(f"call void @gpu.registers_down_{LOADER_REGISTERS}(ptr %ctx)")
                with e.when(e.icmp("eq", self.thread, 0)):
                    self.load_all(begin, end)
            else:
                e.line(f"call void @gpu.registers_up_{WORKER_REGISTERS}(ptr %ctx)")
                self.thread = self.thread - GROUP
                self.warp = self.thread.shift_right(5)
                self.worker = self.thread.shift_right(7)
                self.attend(begin, middle, end)
        attributes = f' nounwind "nvvm.maxntid"="{grid.threads}" "nvvm.minctasm"="1"'
        return entry("kernel_main", grid.first_map + 3 * MAP_WORDS, e.text(), attributes) + e.outside()

    def call(self, name: str, *values: Value | int) -> None:
        """A function of the grid with 32-bit numbers."""
        e = self.e
        given = ", ".join(f"i32 {value if isinstance(value, int) else e.convert('trunc', value, 'i32').name}"
                          for value in values)
        e.line(f"call void @gpu.{name}(ptr %ctx, {given})")

    def ring(self, stage: Value, number: int) -> Value:
        """A barrier of a stage: keys are there, values are there, both were read."""
        return stage * 24 + (self.barriers + 8 * (1 + number))

    def following(self, stage: Value, phase: Value) -> tuple[Value, Value]:
        """The next stage, and its phase."""
        e = self.e
        last = e.icmp("eq", stage, self.grid.stages - 1)
        return e.select(last, self.parts.number(0), stage + 1), e.select(last, phase ^ 1, phase)

    # -- the warpgroup that loads --------------------------------------------------------------------------------------
    def load_all(self, begin: Value, end: Value) -> None:
        """The queries, then blocks of keys and values, each when its stage is empty."""
        e, grid = self.e, self.grid
        depth, width = grid.padded
        self.call("mbarrier_expect", self.barriers, grid.query_bytes)
        self.load(0, self.parts.number(0), self.first_row, self.head, depth, self.spec.rows,
                  self.parts.number(self.barriers))
        zero = self.parts.number(0)
        with e.loop(begin, end, KEYS, carried=[zero, zero]) as loop:
            stage, phase = loop.values
            self.call("mbarrier_wait", self.ring(stage, 2), phase ^ 1)
            place = stage * grid.stage_bytes + grid.query_bytes
            for number, long in enumerate((depth, width)):
                full = self.ring(stage, number)
                self.call("mbarrier_expect", full, 2 * KEYS * long)
                self.load(1 + number, place + number * 2 * KEYS * depth, loop.index, self.shared_head, long, KEYS, full)
            loop.next(*self.following(stage, phase))

    def load(self, operand: int, place: Value, row: Value, head: Value, long: int, count: int, full: Value) -> None:
        """Rows of an operand, 64 numbers of each at a time."""
        e, table = self.e, 8 * (self.grid.first_map + operand * MAP_WORDS)
        for part in range(long // PART):
            values = (place + part * 2 * PART * count, full, self.parts.number(part * PART), row, head, *self.batch)
            given = ", ".join(f"i32 {e.convert('trunc', value, 'i32').name}" for value in values)
            e.line(f"call void @gpu.tma_load_{RANK}(ptr %ctx, i32 {table}, {given})")

    # -- the warpgroups that compute -----------------------------------------------------------------------------------
    def attend(self, begin: Value, middle: Value, end: Value) -> None:
        """All keys of this warpgroup's queries."""
        e = self.e
        self.call("mbarrier_wait", self.barriers, 0)
        zero = self.parts.number(0)
        self.first = e.icmp("eq", self.thread & (GROUP - 1), 0)
        if self.grid.stages == 1:
            self.one_by_one(begin, middle, end)
            return
        last = begin + ((end - begin - 1) & -KEYS)  # where the last block begins
        (scores,) = self.scores(self.place(zero), zero, zero)
        state = [*self.start(), *scores, zero, zero]
        between = e.intrinsic("smin", middle, last)
        for start, stop, masked in ((begin, between, False), (between, last, True)):
            with e.loop(start, stop, KEYS, carried=state) as loop:
                loop.next(*self.step(loop.index, loop.values, masked))
            state = loop.values
        values, scores, (stage, phase) = self.parted(state)
        for clear in e.both(e.icmp("slt", last, middle)):
            powers, new, rest = self.softened([scores], last, values, not clear)
            (results,) = self.weighted(stage, phase, powers, new)
            self.finish([*results, *rest])

    def one_by_one(self, begin: Value, middle: Value, end: Value) -> None:
        """All keys where shared memory has room for one block: its scores, then its results."""
        e, zero = self.e, self.parts.number(0)
        state, phase = self.start(), zero
        for start, stop, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(start, stop, KEYS, carried=[*state, phase]) as loop:
                *values, turn = loop.values
                powers, new, rest = self.softened(self.scores(self.place(zero), zero, turn), loop.index, values, masked)
                (results,) = self.weighted(zero, turn, powers, new)
                with e.when(self.first):
                    self.call("mbarrier_arrive", self.ring(zero, 2))
                loop.next(*results, *rest, turn ^ 1)
            *state, phase = loop.values
        self.finish(state)

    def parted(self, state: list[Value]) -> tuple[list[Value], list[Value], list[Value]]:
        """Results, largest scores and sums; the scores of the next block; its stage and phase."""
        count = len(state) - 2 - KEYS // 2
        return state[:count], state[count:-2], state[-2:]

    def place(self, stage: Value) -> Value:
        """Where the keys of a stage begin."""
        return stage * self.grid.stage_bytes + self.grid.query_bytes

    def step(self, key: Value, state: list[Value], masked: bool) -> list[Value]:
        """A block of keys but the last: its powers, then its results and the scores of the next one."""
        e = self.e
        values, scores, (stage, phase) = self.parted(state)
        (powers,), (new,), rest = self.softened([scores], key, values, masked)
        following = self.following(stage, phase)
        self.call("mbarrier_wait", self.ring(stage, 1), phase)
        self.call("mbarrier_wait", self.ring(following[0], 0), following[1])
        weights = [pack(e, self.spec.dtype, powers[n], powers[n + 1]) for n in range(0, len(powers), 2)]
        places = (self.worker * (2 * PART * ROWS), self.place(following[0]), self.place(stage) + 2 * KEYS * self.depth)
        given = ", ".join([*(f"i32 {e.convert('trunc', at, 'i32').name}" for at in places),
                           *(f"float {x.name}" for x in new), *(f"i32 {x}" for x in weights)])
        count = KEYS // 2 + len(new)
        kind, name = "{ " + ", ".join(["float"] * count) + " }", "%" + e.fresh("d")
        function = f"attend_{self.kind}_{KEYS}_{self.parts_of_depth}_{self.width}"
        e.line(f"{name} = call {kind} @gpu.{function}(ptr %ctx, {given})")
        found = [e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(count)]
        with e.when(self.first):
            self.call("mbarrier_arrive", self.ring(stage, 2))
        return [*found[KEYS // 2:], *rest, *found[:KEYS // 2], *following]

    @property
    def parts_of_depth(self) -> str:
        """Lines of 64 numbers of the depth, and the bytes from one to the next of queries and of keys."""
        return f"{self.grid.padded[0] // PART}_{2 * PART * self.spec.rows}_{2 * PART * KEYS}"

    def scores(self, place: Value, stage: Value, phase: Value) -> list[list[Value]]:  # type: ignore[override]
        """64 queries by the first block of keys."""
        e = self.e
        self.call("mbarrier_wait", self.ring(stage, 0), phase)
        kind, name = "{ " + ", ".join(["float"] * (KEYS // 2)) + " }", "%" + e.fresh("d")
        mine = self.worker * (2 * PART * ROWS)
        places = ", ".join(f"i32 {e.convert('trunc', at, 'i32').name}" for at in (mine, place))
        e.line(f"{name} = call {kind} @gpu.scores_{self.kind}_{KEYS}_{self.parts_of_depth}(ptr %ctx, {places})")
        return [[e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(KEYS // 2)]]

    def weighted(self, stage: Value, phase: Value, powers: list[list[Value]],  # type: ignore[override]
                 results: list[list[Value]]) -> list[list[Value]]:
        """Results with the last block's values, weighted."""
        e = self.e
        self.call("mbarrier_wait", self.ring(stage, 1), phase)
        (tile,), (sums,) = powers, results
        weights = [pack(e, self.spec.dtype, tile[n], tile[n + 1]) for n in range(0, len(tile), 2)]
        kind = "{ " + ", ".join(["float"] * len(sums)) + " }"
        name = "%" + e.fresh("d")
        place = e.convert("trunc", self.place(stage) + 2 * KEYS * self.depth, "i32")
        given = ", ".join([*(f"float {x.name}" for x in sums), *(f"i32 {x}" for x in weights)])
        function = f"wgmma_rs_{self.kind}_{self.width}_{KEYS}"
        e.line(f"{name} = call {kind} @gpu.{function}(ptr %ctx, i32 {place.name}, {given})")
        return [[e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(len(sums))]]
