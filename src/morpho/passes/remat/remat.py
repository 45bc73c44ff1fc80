"""Rematerialisation: values computed again instead of being kept, as few as a budget of memory asks for.

At the step where most is alive, values are dropped that only later steps read. Which ones: the steps before it are cut
into segments where little crosses from one to the next; what crosses is kept, and of the rest the cheapest to compute
again per byte go first, as many as needed. Of several numbers of segments the one that costs the least time is taken;
and if none of them is enough, the best is taken and the next peak looked at in the same way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from morpho.base.errors import MemoryLimit, fail
from morpho.base.units import format_bytes
from morpho.cost.estimate import node_cost
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.passes.memory.liveness import Updates
from morpho.passes.memory.schedule import schedule
from morpho.passes.remat.bodies import inner_value, renewed, with_results, without_unread
from morpho.passes.remat.recompute import NOMINAL, Attempt, Recomputation, Trial

SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # numbers of segments that are tried
ROUNDS = 4
SLACK = 0.1  # of the peak, for an order with less alive elsewhere
FITTINGS = 4  # of the model of memory to the program itself


class Budget(NamedTuple):
    """Bytes, or a share of what the plain program needs."""

    nbytes: int = 0
    share: float = 0.0

    def of(self, plain_bytes: int) -> int:
        return int(self.share * plain_bytes) if self.share else self.nbytes


@dataclass
class Recomputed:
    """Effect of a budget: bytes without it and with it, the kernels that run again, and their cost."""

    plain_bytes: int
    budget_bytes: int
    peak_bytes: int = 0
    kernels: dict[str, int] = field(default_factory=dict)  # what they do -> how many
    flops: int = 0
    extra_time: float = 0.0  # of the repeated kernels, as a share of the plain program's, as predicted


def remat(graph: Graph, budget: Budget, measure: Callable[[Graph], int], updates: Updates = (),
          allowed: bool = True, reorder: bool = True) -> tuple[Graph, Recomputed]:
    """A graph that fits a budget, with the same values. `measure` says what a graph needs once it is a program; an
    error names the least that was reached. With nothing `allowed` the plain graph fits or is refused; `reorder` lets
    the steps be put in another order before."""
    plain_bytes = needed = measure(graph)
    wanted = budget.of(plain_bytes)
    best = Attempt(graph, Recomputation(graph, updates).peak, ())
    besides = plain_bytes - best.peak  # inputs, results, scratch, and what the model of memory does not know
    starts = [best]
    if needed > wanted and reorder:
        starts.append(Attempt(schedule(graph, updates, SLACK), best.peak, ()))
    for _ in range(FITTINGS if allowed else 0):
        if needed <= wanted:
            break
        target = wanted - besides
        tried = [_fit(start, target, updates) for start in starts]
        best = min(tried, key=lambda attempt: (max(attempt.peak, target), attempt.seconds))
        if best.peak > target:
            break
        needed = measure(best.graph)
        besides += max(needed - wanted, 0)
    if needed > wanted and allowed:  # the lowest that is found whatever is wanted: what an error names can be had
        lowest = [_fit(start, 0, updates) for start in starts]
        needed, number = min((measure(attempt.graph), number) for number, attempt in enumerate(lowest))
        best = lowest[number]
    if needed > wanted:
        raise fail(MemoryLimit, "compile",
                   f"a memory_budget of {format_bytes(wanted)} ({wanted} bytes) cannot be kept: the least reached is "
                   f"{format_bytes(needed)} ({needed} bytes), {format_bytes(plain_bytes)} with nothing computed again",
                   f"give memory_budget={needed} or more, or a smaller batch")
    kernels: dict[str, int] = {}
    for node in best.copies:
        kernels[_label(node)] = kernels.get(_label(node), 0) + 1
    extra = best.seconds / max(sum(NOMINAL.seconds(node_cost(node)) for node in graph.nodes), 1e-12)
    return best.graph, Recomputed(plain_bytes, wanted, needed, kernels,
                                  sum(node_cost(node).flops for node in best.copies), extra)


def _label(node: Node) -> str:
    if "body" not in node.attributes:
        return node.op.name
    names = [part.op.name for part in node["body"].graph.nodes if part.op.kind in ("elementwise", "reduce")]
    shown = joined(names, most=4)
    return f"{node['by']}+{shown}" if node.op.name == "gemm" else shown


# -- search ------------------------------------------------------------------------------------------------------------
class Choice(NamedTuple):
    """Values that may go, the cheapest first, while others are kept."""

    dropped: Sequence[int]
    kept: Collection[int]


def _fit(start: Attempt, target: int, updates: Updates) -> Attempt:
    """The cheapest graph found whose worst step stays below `target`, or the one with the lowest."""
    current = start
    for _ in range(ROUNDS):
        if current.peak <= target:
            break
        found = _one_peak(current, target, updates)
        if found is None or found.peak >= current.peak:
            break
        current = found
    return current


def _one_peak(start: Attempt, target: int, updates: Updates) -> Attempt | None:
    """The best way to lower the present peak: the cheapest that reaches the target, else the lowest."""
    source = Recomputation(_exposed(start.graph, updates), updates)
    fitting: list[Trial] = []
    lowest: Trial | None = None
    for choice in _choices(source):
        whole = source.trial(*choice)
        if lowest is None or whole.peak < lowest.peak:
            lowest = whole
        if whole.peak <= target:
            fitting.append(_fewest(source, choice, target, whole))
    chosen = min(fitting, key=lambda trial: (trial.seconds, trial.peak)) if fitting else lowest
    if chosen is None:
        return None
    found = source.attempt(chosen)
    return Attempt(without_unread(found.graph), found.peak, (*start.copies, *found.copies))


def _exposed(graph: Graph, updates: Updates) -> Graph:
    """Products of which several results are read after the peak give the value those come from too: keeping it may
    be cheaper than keeping them, and computing them from it than repeating the product."""
    source = Recomputation(graph, updates)
    late: dict[int, list[int]] = {}
    for value in source.droppable:
        late.setdefault(source.writer[value], []).append(value)
    replaced: dict[int, tuple[Node, dict[int, int]]] = {}
    for step, values in late.items():
        node = source.steps.nodes[step]
        inner = inner_value(node, [source.steps.writes[step].index(value) for value in values]) if len(values) > 1 \
            else None
        if inner is not None:
            made = with_results(node, [*node["body"].outputs, inner])
            replaced[node.serial] = made, {i: i for i in range(len(node.outputs))}
    return renewed(graph, replaced) if replaced else graph


def _fewest(source: Recomputation, choice: Choice, target: int, whole: Trial) -> Trial:
    """As few of the cheapest values as reach the target."""
    best, low, high = whole, 1, len(choice.dropped)
    while low < high:
        middle = (low + high) // 2
        found = source.trial(choice.dropped[:middle], choice.kept)
        if found.peak <= target:
            high = middle
            best = found if found.seconds <= best.seconds else best
        else:
            low = middle + 1
    return best


def _choices(source: Recomputation) -> list[Choice]:
    """For several numbers of segments, what is kept between them and what may go inside all but the last."""
    found: list[Choice] = []
    seen: set[tuple[frozenset[int], int]] = set()
    inner = {value for value, readers in enumerate(source.steps.readers)
             if not readers and source.steps.sizes[value] and source.writer[value] < source.top}
    held = (frozenset[int](), frozenset(inner)) if inner else (frozenset[int](),)
    prices = [{value: source.price(value, own) for value in source.droppable} for own in held]
    for count in SEGMENTS:
        if count > len(source.droppable):
            break
        cuts = _cuts(source, count)
        kept = frozenset(value for cut in cuts for value in _crossing(source, cut))
        last = cuts[-1] if cuts else source.top
        if (kept, last) in seen:
            continue
        seen.add((kept, last))
        dropped = [value for value in source.droppable if value not in kept and source.writer[value] <= last]
        for own, price in zip(held, prices, strict=True) if dropped else ():
            found.append(Choice(sorted(dropped, key=lambda value: (price[value], value)), kept | own))
    return found


def _cuts(source: Recomputation, count: int) -> list[int]:
    """Steps after which little crosses to the next, so that the segments between hold about as much each."""
    sums: list[int] = []
    held = 0
    written = {source.writer[value]: 0 for value in source.droppable}
    for value in source.droppable:
        written[source.writer[value]] += source.steps.sizes[value]
    for step in range(source.top):
        held += written.get(step, 0)
        sums.append(held)
    crossing = _crossing_bytes(source)
    cuts: list[int] = []
    for number in range(1, count):
        low = bisect_left(sums, held * (number - 0.5) / count)
        high = min(bisect_left(sums, held * (number + 0.5) / count), source.top - 1)
        wished = held * number / count
        steps = range(max(low, cuts[-1] + 1 if cuts else 0), high + 1)
        if steps:
            cuts.append(min(steps, key=lambda step: (crossing[step], abs(sums[step] - wished))))
    return cuts


def _crossing(source: Recomputation, cut: int) -> list[int]:
    """Values written up to a step and read by later ones before the peak."""
    return [value for value, writer in enumerate(source.writer)
            if writer <= cut and source.steps.sizes[value]
            and any(cut < step <= source.top for step in source.steps.readers[value])]


def _crossing_bytes(source: Recomputation) -> list[int]:
    changes = [0] * (source.top + 2)
    for value, writer in enumerate(source.writer):
        last = max((step for step in source.steps.readers[value] if step <= source.top), default=writer)
        if writer < last:
            changes[writer] += source.steps.sizes[value]
            changes[last] -= source.steps.sizes[value]
    found, alive = [], 0
    for change in changes:
        alive += change
        found.append(alive)
    return found
