"""The forward kernel on the arithmetic units: FlashAttention's loop, and no matrix of scores in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.code.vector_math.exponential import exp_nonpositive
from morpho.backends.code.vector_math.logarithm import log
from morpho.backends.cuda.attention.simt.tiles import (
    BLOCK,
    SHARED_BYTES,
    THREADS,
    WARPS,
    TileCode,
    columns_of,
    pitch_of,
)
from morpho.backends.cuda.attention.spec import BATCH_AXES, AttentionSpec
from morpho.backends.cuda.codegen.grid import WARP
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.codegen.warp_math import zero_or
from morpho.backends.cuda.driver.interface import Geometry
from morpho.program.kernel import Kernel
from morpho.program.program import Step

MANY, FEW = 8, 1  # queries of a warp


@dataclass(frozen=True)
class SimtSpec(AttentionSpec):
    """Attention of float32 or float64; `rows` are those of a block."""

    @property
    def operands(self) -> str:
        """Those in memory, by their letters."""
        return "qkvol" + ("x" if self.mask is not None else "") + ("p" if self.moving else "") + "t" * self.paged

    @property
    def shared_bytes(self) -> int:
        """Queries, a block of keys and of values, and the weights of a block."""
        lines = self.rows * pitch_of(self.depth) + BLOCK * (pitch_of(self.depth) + pitch_of(self.width))
        return self.dtype.itemsize * (lines + self.rows * BLOCK)

    @property
    def fits(self) -> bool:
        """Whether a block's shared memory holds it."""
        return self.shared_bytes <= SHARED_BYTES

    def device_kernel(self, step: Step) -> SimtAttention:
        return SimtAttention(self)


@dataclass(frozen=True)
class SimtAttention(WithoutMaps):
    """A block per tile of queries of a head."""

    spec: SimtSpec

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> SimtAttention:
        return self

    def kernel(self) -> Kernel:
        return self.spec

    def launch(self, sizes: Sizes) -> Launch:
        numbers = self.spec.record.by_name(sizes.values)
        count = -(-known(numbers["queries"]) // self.spec.rows) * known(numbers["heads"])
        for axis in range(BATCH_AXES):
            count *= known(numbers[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), THREADS, self.spec.shared_bytes))

    def text(self) -> str:
        return ForwardCode(self.spec).module()


class ForwardCode(TileCode):
    """Generator of the LLVM text of one forward kernel."""

    def __init__(self, spec: SimtSpec) -> None:
        super().__init__(spec, spec.rows // WARPS, spec.operands)
        self.columns = columns_of(spec.width)

    def module(self) -> str:
        e, spec = self.e, self.spec
        self.find_tile(spec.record.names, "queries")
        self.find_position()
        self.queries = self.room(spec.rows * pitch_of(spec.depth))
        self.keys, self.values = self.room(BLOCK * pitch_of(spec.depth)), self.room(BLOCK * pitch_of(spec.width))
        self.weights = self.room(spec.rows * BLOCK)
        self.load_lines(self.place["q"], self.first, self.n["queries"], self.n["q_row"], spec.depth, spec.rows,
                        self.queries, spec.scale)
        begin, middle, end = self.key_range(spec.rows)
        state = [*[self.real(-math.inf)] * self.own, *[self.real(0.0)] * (self.own * (1 + self.columns))]
        for first, last, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(first, last, BLOCK, carried=state) as loop:
                e.barrier()
                self.load_block(loop.index)
                e.barrier()
                loop.next(*self.block(loop.index, list(loop.values), masked))
            state = list(loop.values)
        self.finish(state)
        return self.whole(len(spec.record))

    def load_block(self, key: Value) -> None:
        """64 keys and values, or a page of them."""
        e, spec, n = self.e, self.spec, self.n
        first, size, sources = key, n["keys"], [self.place["k"], self.place["v"]]
        if spec.paged:
            number = key.shift_right(6) * n["t_column"] + self.batch * n["t_batch"]
            page = e.load(e.offset(self.place["t"], "i64", number), "i64", 1)
            page = e.intrinsic("smax", e.intrinsic("smin", page, n["pages"] - 1), self.number(0))
            first, size = self.number(0), self.number(BLOCK)
            sources = [e.offset(source, self.element, page * n[f"{name}_page"])
                       for source, name in zip(sources, "kv", strict=True)]
        for source, name, depth, room in zip(sources, "kv", (spec.depth, spec.width), (self.keys, self.values),
                                             strict=True):
            self.load_lines(source, first, size, n[f"{name}_row"], depth, BLOCK, room)

    def block(self, key: Value, state: list[Value], masked: bool) -> list[Value]:
        """The largest scores, sums and results after 64 more keys."""
        e, own, columns = self.e, self.own, self.columns
        scores = self.chains(self.queries, self.keys, self.spec.depth)
        tops, sums, results = state[:own], state[own:2 * own], state[2 * own:]
        for r in range(own):
            query = self.first + self.warp * own + r
            pair = [self.seen(scores[r][i], query, key + self.lane + WARP * i, masked) for i in range(2)]
            top = e.maximum(tops[r], self.across(e.maximum(*pair), e.maximum))
            shift = zero_or(e, top)
            factor = exp_nonpositive(e, tops[r] - shift)
            powers = [exp_nonpositive(e, score - shift) for score in pair]
            total = self.across(powers[0] + powers[1], lambda a, b: a + b)
            tops[r], sums[r] = top, e.fma(sums[r], factor, total)
            if masked:
                powers = [e.select(e.fcmp("oeq", score, -math.inf), -1.0, power)
                          for score, power in zip(pair, powers, strict=True)]
            self.put_weights(self.weights, r, powers)
            results[r * columns:(r + 1) * columns] = [x * factor for x in results[r * columns:(r + 1) * columns]]
        e.line("call void @gpu.warp_barrier(ptr %ctx)")
        return [*tops, *sums, *self.weighted(self.weights, self.values, self.spec.width, results, masked)]

    def finish(self, state: list[Value]) -> None:
        """o / l, and m + log(l); a row that saw nothing is 0, and its logarithm +inf."""
        e, own, columns = self.e, self.own, self.columns
        for r in range(own):
            query = self.first + self.warp * own + r
            empty = e.fcmp("oeq", state[own + r], 0.0)
            total = e.select(empty, 1.0, state[own + r])
            with e.when(e.icmp("slt", query, self.n["queries"])):
                line = e.offset(self.place["o"], self.element, query * self.n["o_row"])
                for part in range(columns):
                    column = self.lane + WARP * part
                    value = state[2 * own + r * columns + part] / total + 0.0  # never -0.0
                    with e.when(e.icmp("slt", column, self.spec.width)):
                        e.store(value, e.offset(line, self.element, column))
                with e.when(e.icmp("eq", self.lane, 0)):
                    lse = e.select(empty, math.inf, state[r] + log(e, total))
                    e.store(lse, e.offset(self.place["l"], self.element, query * self.n["l_row"]))
