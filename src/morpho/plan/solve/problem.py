"""A request as arrays: what the solvers work on.

Interchangeable nodes are a *pool* with a capacity. A *kind* of stage takes `use[k]` nodes of pool `pool[k]`: one, or
several that share each layer (tensor parallelism). A stage of kind k over layers [a, b) takes `time[k, b] - time[k,
a]` seconds and is allowed when `b <= far[k, a]`: memory and pins only ever forbid longer stages, so `far` says it
all. The cut at boundary a from kind k to kind l, sent as option d, takes `late[k, l] + sizes[d, a] / wide[k, l]`
seconds, and is not allowed where that exceeds `limit_s`. Links are kept in this factored form: the dense array `link`
is for searches of few nodes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from morpho.base.errors import ArgumentError, MemoryLimit, fail
from morpho.base.python.lazy import cached_property
from morpho.base.units import format_bytes
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF
from morpho.plan.predict.closed_form import layer_seconds, reduce_seconds
from morpho.plan.predict.plan import Constraints, Stage

Placement = list[tuple[int, int, int, int]]  # (kind, start, end, option of the link into the stage)
ROUNDING = 4 * float(np.finfo(float).eps)
SLACK = 1e-12  # relative: sums in another order may differ by so much


@dataclass(frozen=True)
class Problem:
    """Arrays of one placement problem; `steps[i]` is the layer at which boundary i lies."""

    steps: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]  # pool -> its nodes, those of all copies of the pipeline
    pool: np.ndarray  # (kinds,)
    use: np.ndarray  # (kinds,)
    data: int  # copies of the pipeline
    seconds: np.ndarray  # (kinds, steps)
    time: np.ndarray  # (kinds, boundaries): running sums of `seconds`, what no stage may hold left out
    far: np.ndarray  # (kinds, boundaries)
    late: np.ndarray  # (kinds, kinds), infinite where there is no line
    wide: np.ndarray  # (kinds, kinds)
    sizes: np.ndarray  # (options, boundaries), infinite at 0
    dtypes: tuple[str, ...]
    errors: tuple[float, ...]
    budget: float | None
    max_stages: int
    limit_s: float = math.inf

    @property
    def depth(self) -> int:
        """How many boundaries there are after the first."""
        return self.time.shape[1] - 1  # type: ignore[no-any-return]

    @property
    def kinds(self) -> int:
        """How many kinds of stages there are."""
        return self.time.shape[0]  # type: ignore[no-any-return]

    @cached_property
    def caps(self) -> np.ndarray:
        """How many nodes of each pool one copy of the pipeline has, (pools,)."""
        return np.array([len(names) // self.data for names in self.names], dtype=np.int64)

    @cached_property
    def usable(self) -> np.ndarray:
        """Kinds for which there are enough nodes, (kinds,)."""
        return self.use <= self.caps[self.pool]  # type: ignore[no-any-return]

    def link_at(self, option: int, boundary: int) -> np.ndarray:
        """Seconds of the cut at a boundary between every two kinds, (kinds, kinds)."""
        with np.errstate(invalid="ignore"):
            found = self.late + self.sizes[option, boundary] / self.wide
        return np.where(found <= self.limit_s, found, np.inf)

    @cached_property
    def link(self) -> np.ndarray:
        """All cuts, (options, kinds, kinds, boundaries)."""
        with np.errstate(invalid="ignore"):
            found = self.late[None, :, :, None] + self.sizes[:, None, None, :] / self.wide[None, :, :, None]
        return np.where(found <= self.limit_s, found, np.inf)

    @cached_property
    def best_link(self) -> np.ndarray:
        """The quickest option of each cut, (kinds, kinds, boundaries): a relaxation where there is a budget."""
        return self.link[0] if len(self.sizes) == 1 else self.link.min(axis=0)  # type: ignore[no-any-return]

    @cached_property
    def uniform_cuts(self) -> bool:
        """Whether a link takes as long at every inner cut."""
        inner = self.sizes.min(axis=0)[1:-1]
        return len(inner) == 0 or bool((inner == inner[0]).all())

    @cached_property
    def low(self) -> np.ndarray:
        """The earliest start of a stage that ends at a boundary, (kinds, boundaries)."""
        ends = np.arange(self.depth + 1)
        return np.stack([np.searchsorted(row, ends, side="left") for row in self.far])

    def capped(self, limit_s: float) -> Problem:
        """The problem in which no stage holds a step that alone takes longer than a limit.

        Such steps leave the running sums, which are then exact to the size of the limit however far times are apart.
        """
        over = self.seconds > limit_s
        if not over.any():
            return self
        blocked = np.where(over, np.arange(self.depth), self.depth)
        following = np.minimum.accumulate(blocked[:, ::-1], axis=1)[:, ::-1]  # the next step that is too long
        following = np.concatenate([following, np.full((self.kinds, 1), self.depth)], axis=1)
        kept = np.cumsum(np.where(over, 0.0, self.seconds), axis=1)
        return replace(self, far=np.minimum(self.far, following),
                       time=np.concatenate([np.zeros((self.kinds, 1)), kept], axis=1))

    def within(self, period_s: float) -> Problem:
        """The problem in which no stage and no link may take longer than a period."""
        limit = period_s * (1 + SLACK)
        kept = self.capped(limit)
        # A difference of sums is exact only to the size of the sums, which matters for short stages late in the chain.
        reach = np.stack([np.searchsorted(row, row + (limit + ROUNDING * row[-1]), side="right") - 1
                          for row in kept.time])
        return replace(kept, far=np.minimum(kept.far, reach), limit_s=min(self.limit_s, limit))

    def stages(self, path: Placement) -> list[Stage]:
        """Stages of a path of (kind, start, end, option of the link into it), nodes of a pool in their order."""
        left = [list(names) for names in self.names]
        done: list[Stage] = []
        for position, (kind, start, end, _) in enumerate(path):
            use, pool = int(self.use[kind]), left[self.pool[kind]]
            copies = tuple(tuple(pool.pop(0) for _ in range(use)) for _ in range(self.data))
            option = path[position + 1][3] if position + 1 < len(path) else 0
            done.append(Stage(copies[0][0], self.steps[start], self.steps[end], self.dtypes[option], copies[0], copies))
        return done

    def placement_of(self, stages: list[Stage]) -> Placement:
        """The path that stages stand for."""
        pool_of = {name: pool for pool, names in enumerate(self.names) for name in names}
        kind_of = {(int(pool), int(use)): kind for kind, (pool, use) in enumerate(zip(self.pool, self.use))}
        at = {step: boundary for boundary, step in enumerate(self.steps)}
        options = [0, *(self.dtypes.index(stage.activation_dtype) for stage in stages[:-1])]
        return [(kind_of[pool_of[stage.node], max(1, len(stage.members))], at[stage.start], at[stage.end], option)
                for stage, option in zip(stages, options)]

    def values(self, path: Placement) -> tuple[float, float]:
        """Period and latency of a path."""
        compute = [math.fsum(self.seconds[kind, start:end].tolist()) for kind, start, end, _ in path]
        links = [self.hop(after[3], before[0], after[0], before[2]) for before, after in pairwise(path)]
        return max(compute + links), math.fsum(compute + links)

    def hop(self, option: int, source: int, target: int, boundary: int) -> float:
        """Seconds of one cut."""
        found = float(self.late[source, target] + self.sizes[option, boundary] / self.wide[source, target])
        return found if found <= self.limit_s else math.inf

    def allows(self, path: Placement) -> bool:
        """Whether a placement keeps memory, pins, lines, the limit of stages and the budget of link types."""
        fits = all(start < end <= self.far[kind, start] for kind, start, end, _ in path)
        linked = fits and all(math.isfinite(self.hop(b[3], a[0], b[0], a[2])) for a, b in pairwise(path))
        return linked and len(path) <= self.max_stages and (
            self.budget is None or math.fsum(self.errors[stage[3]] for stage in path[1:]) <= self.budget)


def build(card: ModelCard, cluster: Cluster, constraints: Constraints, data: int = 1) -> Problem:
    """The arrays of a request, for one of `data` equal copies of the pipeline."""
    pools = split_pinned(cluster.kinds(), {cluster.index(node) for node in constraints.pinned.values()})
    ways = [(pool, use) for pool, nodes in enumerate(pools)
            for use in range(1, max(1, min(constraints.tensor, len(nodes) // data)) + 1)
            if use == 1 or _linked(cluster, nodes)]
    pool, use = (np.array(column, dtype=np.int64) for column in zip(*ways))
    steps, options = _steps(card, constraints), _options(card, constraints)
    layers = np.stack([_seconds(card, cluster, pools[number], degree) for number, degree in ways])
    seconds = np.stack([layers[:, a:b].sum(axis=1) for a, b in pairwise(steps)], axis=1)
    memory = [constraints.available_bytes(cluster.nodes[pools[number][0]].memory_bytes) * degree
              for number, degree in ways]
    far = _far(card, np.array(memory), steps)
    _apply_pins(far, [pools[number] for number, _ in ways], cluster, constraints, steps)
    late, wide = _links(cluster, pools, ways, data)
    sizes = np.array([[math.inf, *(card.cut_bytes(step, dtype) for step in steps[1:])] for dtype in options])
    count = sum(len(nodes) // data for nodes in pools)
    errors = tuple(ACTIVATION_ERROR[dtype] for dtype in options)
    most, budget = min(constraints.max_stages or count, count, len(steps) - 1), constraints.activation_error_budget
    if budget is not None:  # a budget is a number of links of the most exact type; of one type it is nothing else
        most = min(most, int(Fraction(budget) / Fraction(errors[0])) + 1)
        budget = budget if len(options) > 1 else None
    return Problem(tuple(steps), tuple(tuple(cluster.nodes[i].name for i in nodes) for nodes in pools), pool, use, data,
                   seconds, np.concatenate([np.zeros((len(ways), 1)), np.cumsum(seconds, axis=1)], axis=1), far, late,
                   wide, sizes, options, errors, budget, most)


def _linked(cluster: Cluster, nodes: tuple[int, ...]) -> bool:
    """Whether nodes of a pool can send to each other."""
    return len(nodes) > 1 and cluster.bandwidth_bytes_per_s[nodes[0]][nodes[1]] > 0


def split_pinned(kinds: tuple[tuple[int, ...], ...], pinned: set[int]) -> tuple[tuple[int, ...], ...]:
    """Kinds in which a pinned node stands alone."""
    free = [tuple(i for i in kind if i not in pinned) for kind in kinds]
    return tuple(kind for kind in free if kind) + tuple((i,) for i in sorted(pinned))


def _options(card: ModelCard, constraints: Constraints) -> tuple[str, ...]:
    """Types to choose from: with no budget, only the smallest, which is always the quickest."""
    ordered = sorted(set(constraints.link_dtypes(card)), key=lambda name: (ACTIVATION_ERROR[name], BYTES_OF[name]))
    if constraints.activation_error_budget is None:
        return (min(ordered, key=lambda name: (BYTES_OF[name], ACTIVATION_ERROR[name])),)
    return tuple(ordered)


def _steps(card: ModelCard, constraints: Constraints) -> list[int]:
    """Boundaries at which the chain may be cut: all, but inside tied layers that must stay together."""
    if constraints.tied == "together" and card.tied:
        first, last = card.tied
        return [*range(first + 1), *range(last + 1, card.depth + 1)]
    return list(range(card.depth + 1))


def _seconds(card: ModelCard, cluster: Cluster, kind: tuple[int, ...], degree: int) -> np.ndarray:
    """Seconds of every layer on a unit of a kind."""
    node = cluster.nodes[kind[0]]
    alone = np.array([layer_seconds(layer, node, card.dtype, card.phase) for layer in card.layers])
    if degree == 1:
        return alone
    link = cluster.link(cluster.nodes[kind[0]].name, cluster.nodes[kind[1]].name)
    size = BYTES_OF[card.activation_dtype]
    return alone / degree + [reduce_seconds(layer, link, degree, size, card.phase) for layer in card.layers]


def _far(card: ModelCard, memory: np.ndarray, steps: list[int]) -> np.ndarray:
    """The furthest boundary a stage may reach from each start, by memory alone."""
    held = np.cumsum([0, *(layer.weight_bytes + card.micro_batches * layer.kv_bytes for layer in card.layers)])
    scratch = np.array([layer.workspace_bytes for layer in card.layers])
    far = np.empty((len(memory), len(steps)), dtype=np.int64)
    for position, start in enumerate(steps):
        ends = np.array(steps[position + 1:], dtype=np.int64)
        if not len(ends):
            far[:, position] = position
            continue
        need = held[ends] - held[start] + np.maximum.accumulate(scratch[start:])[ends - start - 1]
        if card.tied and start <= card.tied[0]:
            need = need - np.where(ends > card.tied[1], card.tied_bytes, 0)
        need = np.maximum.accumulate(need)  # sharing a weight never makes a longer stage smaller
        far[:, position] = position + np.searchsorted(need, memory, side="right")
    return far


def _apply_pins(far: np.ndarray, kinds: list[tuple[int, ...]], cluster: Cluster, constraints: Constraints,
                steps: list[int]) -> None:
    """A stage of another node ends before a pinned layer; from within it, it goes nowhere."""
    for layer, name in constraints.pinned.items():
        if not 0 <= layer < steps[-1]:
            raise fail(ArgumentError, "plan", f"layer {layer} is pinned to {name}; the model has {steps[-1]} layers",
                       "layers count from 0")
        owner = cluster.index(name)
        before = max(boundary for boundary, step in enumerate(steps) if step <= layer)
        for row, kind in zip(far, kinds):
            if owner not in kind:
                row[:before + 1] = np.minimum(row[:before + 1], before)


def _links(cluster: Cluster, pools: tuple[tuple[int, ...], ...], ways: list[tuple[int, int]], data: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Latency and bandwidth between every two kinds; infinitely late where a pool has no nodes for both, or no line."""
    first, last = np.array([pools[pool][0] for pool, _ in ways]), np.array([pools[pool][-1] for pool, _ in ways])
    pool, use = np.array([pool for pool, _ in ways]), np.array([use for _, use in ways])
    room = np.array([len(pools[pool]) // data for pool, _ in ways])
    same = pool[:, None] == pool[None, :]
    target = np.where(same, last[None, :], first[None, :])
    wide = np.array(cluster.bandwidth_bytes_per_s)[first[:, None], target]
    late = np.array(cluster.latency_s)[first[:, None], target]
    none = (wide <= 0) | (same & (use[:, None] + use[None, :] > room[:, None]))
    return np.where(none, np.inf, late), np.where(wide > 0, wide, 1.0)


def require_fit(card: ModelCard, cluster: Cluster, constraints: Constraints) -> None:
    """A layer that fits no node is named with the shortfall on the roomiest one."""
    room, name = max((constraints.available_bytes(node.memory_bytes), node.name) for node in cluster.nodes)
    for position, layer in enumerate(card.layers):
        short = card.memory_bytes(position, position + 1) - room
        if short > 0:
            raise fail(MemoryLimit, "plan", f"layer {position} ({layer.name}) needs "
                       f"{format_bytes(card.memory_bytes(position, position + 1))} and the largest node, {name}, has "
                       f"{format_bytes(room)} to give: {format_bytes(short)} short",
                       "use a larger node, a smaller dtype, context or batch, or less headroom")


def no_plan(card: ModelCard, cluster: Cluster, constraints: Constraints) -> MemoryLimit:
    """The error for a model that no set of nodes can hold, with how far they get."""
    require_fit(card, cluster, constraints)
    room = sum(constraints.available_bytes(node.memory_bytes) for node in cluster.nodes)
    need = card.memory_bytes(0, card.depth)
    stuck = _where_it_ends(card, cluster, constraints)
    if need > room:
        what = (f"{card.name} needs {format_bytes(need)} and all {len(cluster.nodes)} nodes together have "
                f"{format_bytes(room)} to give: {format_bytes(need - room)} short; {stuck}")
    elif stuck:
        what = (f"{card.name} fits no chain of nodes, though they have {format_bytes(room)} for its "
                f"{format_bytes(need)}: {stuck}")
    else:
        what = (f"{card.name} fits no chain of nodes: memory, links, pins or the limit of stages forbid every cut "
                f"({format_bytes(need)} needed, {format_bytes(room)} there)")
    return fail(MemoryLimit, "plan", what, "add nodes, loosen constraints, or use a smaller dtype, context or batch")  # type: ignore[return-value]


def _where_it_ends(card: ModelCard, cluster: Cluster, constraints: Constraints) -> str:
    """How far the roomiest nodes get when each takes all it can, and what the next layer lacks; empty if all fits."""
    nodes = sorted(cluster.nodes, key=lambda node: -node.memory_bytes)[:constraints.max_stages]
    start = 0
    for node in nodes:
        end, room = start, constraints.available_bytes(node.memory_bytes)
        while end < card.depth and card.memory_bytes(start, end + 1) <= room:
            end += 1
        if end == card.depth:
            return ""
        short = card.memory_bytes(start, end + 1) - room
        start = end
    return (f"filled from the roomiest on, they end before layer {start} ({card.layers[start].name}), for which "
            f"{nodes[-1].name} is {format_bytes(short)} short")
