"""Attention's gradient on the arithmetic units, in two kernels: dq by tiles of queries, dk and dv by tiles of keys.

Scores are computed again in both; each result is one chain, in the order of the CPU's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.code.vector_math.exponential import exp_nonpositive
from morpho.backends.cuda.attention.backward_spec import BACKWARD, BackwardSpec
from morpho.backends.cuda.attention.simt.tiles import (
    BLOCK,
    SHARED_BYTES,
    THREADS,
    WARPS,
    TileCode,
    columns_of,
    pitch_of,
)
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.backends.cuda.codegen.grid import WARP
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.program.kernel import Kernel
from morpho.program.program import Step

OWN = {"queries": 8, "keys": 4}  # lines of a warp


@dataclass(frozen=True)
class SimtBackwardSpec(BackwardSpec):
    """A `BackwardSpec` of float32 or float64."""

    @property
    def lines(self) -> int:
        """Of a block's own operands."""
        return OWN[self.part] * WARPS

    @property
    def shared_bytes(self) -> int:
        """Own operands, a block of the others, and weights and slopes."""
        lines = (self.lines + BLOCK) * (pitch_of(self.depth) + pitch_of(self.width))
        return self.dtype.itemsize * (lines + 2 * self.lines * BLOCK)

    @property
    def fits(self) -> bool:
        """Whether a block's shared memory holds it."""
        return self.shared_bytes <= SHARED_BYTES

    def device_kernel(self, step: Step) -> SimtGradient:
        return SimtGradient(self)


@dataclass(frozen=True)
class SimtGradient(WithoutMaps):
    """A block per tile of queries or of keys."""

    spec: SimtBackwardSpec

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> SimtGradient:
        return self

    def kernel(self) -> Kernel:
        return self.spec

    def launch(self, sizes: Sizes) -> Launch:
        n = BACKWARD.by_name(sizes.values)
        long, heads = n["queries"], n["heads"]
        if self.spec.part == "keys":
            long, heads = n["keys"], heads // n["group"]
        count = -(-known(long) // self.spec.lines) * known(heads)
        for axis in range(BATCH_AXES):
            count *= known(n[f"batches{axis}"])
        return Launch(Geometry(max(count, 1), THREADS, self.spec.shared_bytes))

    def text(self) -> str:
        return (QueriesCode if self.spec.part == "queries" else KeysCode)(self.spec).module()


class GradientCode(TileCode):
    """Base of both kernels: own lines and others, each of two operands (q and ct, or k and v)."""

    def __init__(self, spec: SimtBackwardSpec) -> None:
        super().__init__(spec, OWN[spec.part], spec.operands)
        depths = (spec.depth, spec.width)
        self.find_tile(BACKWARD.names, spec.part)
        self.mine = [self.room(spec.lines * pitch_of(depth)) for depth in depths]
        self.others = [self.room(BLOCK * pitch_of(depth)) for depth in depths]
        self.powers, self.slopes = (self.room(spec.lines * BLOCK) for _ in range(2))

    def load_pair(self, names: str, first: Value, count: int, rooms: list[int], moved: dict[str, Value]) -> None:
        """Lines of two operands; queries times the scale."""
        spec, n = self.spec, self.n
        size = n["keys" if names == "kv" else "queries"]
        for name, depth, room in zip(names, (spec.depth, spec.width), rooms, strict=True):
            source = self.e.offset(self.place[name], self.element, moved[name]) if name in moved else self.place[name]
            self.load_lines(source, first, size, n[f"{name}_row"], depth, count, room,
                            spec.scale if name == "q" else None)

    def slope(self, score: Value, product: Value, lse: Value, delta: Value) -> tuple[Value, Value]:
        """A probability, and the slope of its score."""
        e = self.e
        hidden = e.fcmp("oeq", score, -math.inf)
        power = e.select(hidden, 0.0, exp_nonpositive(e, score - lse))
        return power, e.select(hidden, 0.0, power * (product - delta))

    def of_row(self, name: str, row: Value, moved: Value | None = None) -> Value:
        """The logarithm or the sum of a query; of none, zero."""
        e = self.e
        at = e.select(e.icmp("slt", row, self.n["queries"]), row * self.n[f"{name}_row"], 0)
        at = at if moved is None else at + moved
        return e.load(e.offset(self.place[name], self.element, at), self.element, 1)

    def store_lines(self, name: str, size: Value, depth: int, results: list[Value], factor: float | None) -> None:
        """Finished own lines, never -0.0."""
        e, columns = self.e, columns_of(depth)
        for r in range(self.own):
            line = self.first + self.warp * self.own + r
            with e.when(e.icmp("slt", line, size)):
                start = e.offset(self.place[name], self.element, line * self.n[f"{name}_row"])
                for part in range(columns):
                    column, value = self.lane + WARP * part, results[r * columns + part]
                    value = value if factor is None else value * self.real(factor)
                    with e.when(e.icmp("slt", column, depth)):
                        e.store(value + 0.0, e.offset(start, self.element, column))


class QueriesCode(GradientCode):
    """dq[row] = scale * sum over keys of slope[row, key] * k[key], keys ascending."""

    def module(self) -> str:
        e, spec = self.e, self.spec
        self.find_position()
        self.load_pair("qc", self.first, spec.lines, self.mine, {})
        rows = [self.first + self.warp * self.own + r for r in range(self.own)]
        numbers = [(self.of_row("l", row), self.of_row("s", row)) for row in rows]
        begin, middle, end = self.key_range(spec.lines)
        results = [self.real(0.0)] * (self.own * columns_of(spec.depth))
        for first, last, masked in ((begin, middle, False), (middle, end, True)):
            with e.loop(first, last, BLOCK, carried=results) as loop:
                e.barrier()
                self.load_pair("kv", loop.index, BLOCK, self.others, {})
                e.barrier()
                scores, products = (self.chains(self.mine[i], self.others[i], (spec.depth, spec.width)[i])
                                    for i in range(2))
                for r, (row, (lse, delta)) in enumerate(zip(rows, numbers, strict=True)):
                    slopes = []
                    for i in range(2):
                        score = self.seen(scores[r][i], row, loop.index + self.lane + WARP * i, masked)
                        slopes.append(self.slope(score, products[r][i], lse, delta)[1])
                    self.put_weights(self.slopes, r, slopes)
                e.line("call void @gpu.warp_barrier(ptr %ctx)")
                loop.next(*self.weighted(self.slopes, self.others[0], spec.depth, list(loop.values), False))
            results = list(loop.values)
        self.store_lines("a", self.n["queries"], spec.depth, results, spec.scale)
        return self.whole(len(BACKWARD))


class KeysCode(GradientCode):
    """dk[key] = sum over rows of slope[row, key] * scale q[row], dv[key] = sum of p[row, key] * ct[row]: rows
    ascending, the heads of a group one after another."""

    def module(self) -> str:
        e, spec = self.e, self.spec
        self.load_pair("kv", self.first, spec.lines, self.mine, {})
        count = [self.own * columns_of(depth) for depth in (spec.depth, spec.width)]
        position = self.place.get("p")
        with e.loop(0, self.n["group"], carried=[self.real(0.0)] * sum(count)) as heads:
            if position is not None:
                self.place["p"] = e.offset(position, "i64", heads.index * self.n["p_head"])
            self.find_position()
            begin, end = self.row_range()
            with e.loop(begin, end, BLOCK, carried=list(heads.values)) as loop:
                found = self.block(loop.index, heads.index, list(loop.values), count[0])
                loop.next(*found)
            heads.next(*loop.values)
        self.store_lines("b", self.n["keys"], spec.depth, heads.values[:count[0]], None)
        self.store_lines("d", self.n["keys"], spec.width, heads.values[count[0]:], None)
        return self.whole(len(BACKWARD))

    def row_range(self) -> tuple[Value, Value]:
        """The queries that see any of this tile's keys by their position, from a whole block on."""
        e, spec, zero = self.e, self.spec, self.number(0)
        begin, end = zero, self.n["queries"]
        if spec.causal:
            begin = e.intrinsic("smax", self.first - self.position, zero) & -BLOCK
            if spec.window:
                end = e.intrinsic("smin", end, self.first + (spec.lines + spec.window) - self.position)
        return begin, e.intrinsic("smax", end, begin)

    def block(self, row: Value, head: Value, results: list[Value], split: int) -> list[Value]:
        """dk and dv with 64 more queries."""
        e, spec, n = self.e, self.spec, self.n
        moved = {name: head * n[f"{name}_head"] for name in "qcls"}
        e.barrier()
        self.load_pair("qc", row, BLOCK, self.others, moved)
        e.barrier()
        scores, products = (self.chains(self.mine[i], self.others[i], (spec.depth, spec.width)[i]) for i in range(2))
        mask = self.place.get("x")
        if mask is not None:
            self.place["x"] = e.offset(mask, self.kind_of("x"), head * n["x_head"])
        rows = [row + self.lane + WARP * i for i in range(2)]
        numbers = [[self.of_row(name, at, moved[name]) for name in "ls"] for at in rows]
        for r in range(self.own):
            key = self.first + self.warp * self.own + r
            both = [self.slope(self.seen(scores[r][i], rows[i], key, True), products[r][i], *numbers[i])
                    for i in range(2)]
            self.put_weights(self.powers, r, [power for power, _ in both])
            self.put_weights(self.slopes, r, [slope for _, slope in both])
        if mask is not None:
            self.place["x"] = mask
        e.line("call void @gpu.warp_barrier(ptr %ctx)")
        return [*self.weighted(self.slopes, self.others[0], spec.depth, results[:split], False),
                *self.weighted(self.powers, self.others[1], spec.width, results[split:], False)]
