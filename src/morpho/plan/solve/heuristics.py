"""Rules of thumb, quick and without promise: `uniform`, `proportional`, `smallest-set`, `greedy`.

They are what people do by hand and what other systems ship; `solve` shows how far each is from the proven bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from morpho.base.errors import ArgumentError, fail
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF
from morpho.plan.predict.closed_form import layer_seconds
from morpho.plan.predict.plan import Stage
from morpho.plan.solve.problem import no_plan
from morpho.plan.solve.registry import Proposal, Request, register_strategy

CHEAP_RULES = ("uniform", "proportional", "proportional-memory", "smallest-set", "greedy")


def balanced_cuts(depth: int, parts: int) -> list[int]:
    """Boundaries of `parts` ranges whose sizes differ by at most one; longer ones first.

    >>> balanced_cuts(10, 4)
    [0, 3, 6, 8, 10]
    """
    small, longer = divmod(depth, parts)
    return [part * small + min(part, longer) for part in range(parts + 1)]


def proportional_cuts(costs: Sequence[float], shares: Sequence[float]) -> list[int]:
    """Boundaries at which the running cost comes nearest to the running share; a part may be empty.

    >>> proportional_cuts([1.0] * 8, [3.0, 1.0])
    [0, 6, 8]
    """
    total, whole = sum(costs), sum(shares)
    running = [0.0]
    for cost in costs:
        running.append(running[-1] + cost)
    cuts, filled = [0], 0.0
    for share in shares[:-1]:
        filled += share
        wanted = total * filled / whole
        cut = min(range(len(running)), key=lambda at: (abs(running[at] - wanted), at))
        cuts.append(max(cut, cuts[-1]))
    return [*cuts, len(costs)]


def lay_out(request: Request, names: Sequence[str], cuts: Sequence[int], repair: bool = True) -> list[Stage]:
    """Stages at these cuts; where a stage does not fit its node, what is too much goes to the next one."""
    card, limits = request.card, request.constraints
    free = limits.activation_error_budget is None
    dtype = (_small if free else _exact)(limits.link_dtypes(card))
    stages, start = [], 0
    for name, cut in zip(names, cuts[1:]):
        end = cut if name != names[-1] else card.depth
        room = limits.available_bytes(request.cluster.node(name).memory_bytes)
        while repair and end > start and card.memory_bytes(start, end) > room:
            end -= 1
        if end > start:
            stages.append(Stage(name, start, end, dtype))
            start = end
    if start < card.depth:
        raise no_plan(card, request.cluster, limits)
    return stages


def _small(dtypes: Sequence[str]) -> str:
    """The smallest of the allowed types, which is the quickest: what one sends where errors do not matter."""
    return min(dtypes, key=lambda name: (BYTES_OF[name], ACTIVATION_ERROR[name]))


def _exact(dtypes: Sequence[str]) -> str:
    """The most exact of the allowed types: what a rule of thumb does under a budget of errors."""
    return next(name for name in ("f32", "f16", "bf16", "int8") if name in dtypes)


def _names(request: Request) -> list[str]:
    """The nodes a rule may use, in the cluster's order; a rule of thumb knows nothing of pins."""
    if request.constraints.pinned:
        raise fail(ArgumentError, "plan", "a rule of thumb cannot pin layers", "use 'optimal' or 'annealing'")
    most = min(request.constraints.max_stages or request.card.depth, request.card.depth)
    return [node.name for node in request.cluster.nodes][:most]


@register_strategy("uniform")
def uniform(request: Request) -> list[Stage]:
    """Floor or ceil of layers / nodes on each node, in the order of the cluster; memory is not looked at."""
    names = _names(request)
    return lay_out(request, names, balanced_cuts(request.card.depth, len(names)), repair=False)


@register_strategy("proportional")
def proportional(request: Request) -> list[Stage]:
    """Layers in proportion to speed (`by="speed"`: seconds for the whole model) or to memory (`by="memory"`)."""
    by = request.options.get("by", "speed")
    if by not in ("speed", "memory"):
        raise fail(ArgumentError, "plan", f"proportional to {by!r} is not known", "use by='speed' or by='memory'")
    names, card = _names(request), request.card
    nodes = [request.cluster.node(name) for name in names]
    if by == "speed":
        times = [[layer_seconds(layer, node, card.dtype, card.phase) for layer in card.layers] for node in nodes]
        shares = [1.0 / max(sum(row), 1e-300) for row in times]
        costs = [max(sum(row[i] for row in times), 1e-300) for i in range(card.depth)]
    else:
        shares = [float(request.constraints.available_bytes(node.memory_bytes)) for node in nodes]
        costs = [float(max(card.memory_bytes(i, i + 1), 1)) for i in range(card.depth)]
    return lay_out(request, names, proportional_cuts(costs, shares))


@register_strategy("proportional-memory")
def proportional_memory(request: Request) -> list[Stage]:
    """`proportional` by memory."""
    return proportional(Request(request.card, request.cluster, request.objective, request.seed, request.constraints,  # type: ignore[return-value]
                                {"by": "memory"}))


@register_strategy("smallest-set")
def smallest_set(request: Request) -> list[Stage]:
    """As few nodes as hold the model, the roomiest first, each filled to the brim."""
    names = sorted(_names(request), key=lambda name: -request.cluster.node(name).memory_bytes)
    card, limits = request.card, request.constraints
    cuts, start, used = [0], 0, []
    for name in names:
        room, end = limits.available_bytes(request.cluster.node(name).memory_bytes), start
        while end < card.depth and card.memory_bytes(start, end + 1) <= room:
            end += 1
        if end > start:
            cuts.append(end)
            used.append(name)
            start = end
        if start == card.depth:
            return lay_out(request, used, cuts)
    raise no_plan(card, request.cluster, limits)


@dataclass(frozen=True)
class Packing:
    """Independent work on unequal workers: who does each piece, how long each worker takes, broken neighbours.

    >>> from morpho import plan
    >>> packing = plan.pack([3.0, 1.0, 2.0, 2.0], [1.0, 1.0])
    >>> packing.worker, packing.loads
    ((0, 0, 1, 1), (4.0, 4.0))
    """

    worker: tuple[int, ...]
    loads: tuple[float, ...]

    @property
    def broken_links(self) -> int:
        """How many neighbours lie on different workers: each would be a transfer if the work were a chain."""
        return sum(a != b for a, b in zip(self.worker, self.worker[1:]))


def pack(costs: Sequence[float], speeds: Sequence[float]) -> Packing:
    """Least-loaded bin packing for *independent* work: the largest piece first, to whoever would be done with it first.

    n pieces on m workers of equal speed take n log n + n log m steps. The result pays no heed to the order of pieces:
    do not use it for the layers of a model, whose neighbours send activations to each other.

    >>> pack([3.0, 1.0, 2.0, 2.0], [1.0, 1.0]).loads
    (4.0, 4.0)
    """
    if not speeds or min(speeds) <= 0:
        raise fail(ArgumentError, "plan", f"workers cannot have the speeds {list(speeds)}", "speeds are positive")
    classes: dict[float, list[tuple[float, int]]] = {}
    for worker, speed in enumerate(speeds):
        classes.setdefault(speed, []).append((0.0, worker))
    chosen = [0] * len(costs)
    for piece in sorted(range(len(costs)), key=lambda piece: (-costs[piece], piece)):
        # Within a class of equal speed the least loaded is first to finish: one look at each heap's top.
        speed = min(classes, key=lambda speed: (classes[speed][0][0] + costs[piece] / speed, classes[speed][0][1]))
        load, worker = classes[speed][0]
        heapq.heapreplace(classes[speed], (load + costs[piece] / speed, worker))
        chosen[piece] = worker
    loads = [0.0] * len(speeds)
    for group in classes.values():
        for load, worker in group:
            loads[worker] = load
    return Packing(tuple(chosen), tuple(loads))


@register_strategy("greedy")
def greedy(request: Request) -> Proposal:
    """Bin packing decides how much each node does; the chain is then laid out in ranges of these amounts."""
    names, card = _names(request), request.card
    nodes = [request.cluster.node(name) for name in names]
    times = [[layer_seconds(layer, node, card.dtype, card.phase) for layer in card.layers] for node in nodes]
    costs = [sum(row[i] for row in times) / len(times) for i in range(card.depth)]
    speeds = [sum(costs) / max(sum(row), 1e-300) for row in times]
    packing = pack(costs, [max(speed, 1e-300) for speed in speeds])
    work = [load * speed for load, speed in zip(packing.loads, speeds)]
    stages = lay_out(request, names, proportional_cuts([max(cost, 1e-300) for cost in costs], work))
    note = (f"bin packing alone would cut the chain {packing.broken_links} times; laid out as contiguous ranges it is "
            f"cut {len(stages) - 1} times, with other loads")
    return Proposal(stages, notes=(note,))
