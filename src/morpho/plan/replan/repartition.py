"""Repartitioning: from measured times to a new plan and the cheapest moves, or to staying as it is.

    answer = plan.adapt(p, {"b": 0.120})                 # b now takes 120 ms for its stage
    answer.changed, answer.moves, answer.moved_bytes, answer.gain, answer.repaid_s, answer.reason
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from morpho.base.errors import ArgumentError, MorphoError, ValueFault, fail
from morpho.base.units import format_bytes, format_seconds
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import Node
from morpho.plan.predict.plan import Plan
from morpho.plan.replan.failures import STORAGE_BYTES_PER_S
from morpho.plan.replan.forecast import Forecast, forecast
from morpho.plan.replan.local_search import cut_plans
from morpho.plan.replan.resolve import held_layers, resolve, surviving, with_familiar_names
from morpho.plan.replan.what_if import with_links
from morpho.plan.solve.registry import Proposal
from morpho.plan.solve.solver import complete

MINIMUM_GAIN = 0.10
HORIZON_S = 3600.0


@dataclass(frozen=True, slots=True)
class Move:
    """Layers [start, end) that a node gets, from another node or (source None) from storage.

    >>> from morpho import plan
    >>> plan.Move(target="b", source="a", start=3, end=5, size_bytes=28_000_000).end
    5
    """

    target: str
    source: str | None
    start: int
    end: int
    size_bytes: int

    def __str__(self) -> str:
        return (f"layers [{self.start}, {self.end}) from {self.source or 'storage'} to {self.target}, "
                f"{format_bytes(self.size_bytes)}")


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Decision: `plan` is the one to run from now on (the old one, with its new prediction, unless `changed`).

    `gain` is how much more work per second the best other plan does, `move_s` how long the moves stop the pipeline,
    `repaid_s` after how long the new plan has made up for that. `forecasts` are the times that were planned with.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> plan.adapt(p, {}).changed
    False
    """

    changed: bool
    plan: Plan
    moves: tuple[Move, ...]
    gain: float
    move_s: float
    repaid_s: float
    reason: str
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> int:
        """Bytes of all moves."""
        return sum(move.size_bytes for move in self.moves)

    def __str__(self) -> str:
        lines = [self.reason, *(f"  {move}" for move in self.moves)]
        for name, guess in self.forecasts.items():
            error = "not known yet" if math.isinf(guess.error) else f"{guess.error:.1%}"
            lines.append(f"  {name}: {format_seconds(guess.value)} expected ({guess.method}, error {error})")
        return "\n".join(lines)


def adapt(plan: Plan, measured: Mapping[str, float], history: Sequence[tuple[float, Mapping[str, float]]] = (),
          horizon_s: float = HORIZON_S, minimum_gain: float = MINIMUM_GAIN,
          storage_bytes_per_s: float = STORAGE_BYTES_PER_S) -> Adaptation:
    """Compare a running plan with what would now be best, and say whether moving pays.

    `measured` maps a node to the seconds its stage takes, and "a -> b" to those of a link; infinite: it is gone, which
    forces a change where the plan uses it.
    `history` are earlier measurements with their times, oldest first, `measured` being the newest at the end; with
    three or more, the load in the middle of the horizon (but no further ahead than the history reaches back) is
    predicted and planned with. A change is made only if it gains at least `minimum_gain` and its moves are repaid
    within `horizon_s`, unless it is forced.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> slow = {stage.node: stage.compute_s * 10 for stage in p.stages[:1]}
    >>> plan.adapt(p, slow).changed
    True
    """
    if horizon_s <= 0 or minimum_gain < 0 or storage_bytes_per_s <= 0:
        raise fail(ValueFault, "adapt", f"horizon_s is {horizon_s}, minimum_gain {minimum_gain}, storage_bytes_per_s "
                   f"{storage_bytes_per_s}", "give positive numbers")
    expected = _expected(measured, history, horizon_s)
    gone = [name for name, seconds in measured.items() if math.isinf(seconds)]
    held, lines = held_layers(plan.stages), _lines(plan)
    if idle := [name for name in gone if name not in held and name not in lines]:  # the plan runs on without them
        rest = plan.cluster.without(idle)
        plan, gone = replace(plan, cluster=rest, constraints=surviving(plan.constraints, rest)), [
            name for name in gone if name not in idle]
    cluster = measured_cluster(plan, {name: guess.value for name, guess in expected.items()})
    shown = expected if history else {}
    if gone:
        return _forced(plan, cluster, gone, storage_bytes_per_s, shown)
    return _weighed(_on(plan, levelled(plan, cluster)), cluster, horizon_s, minimum_gain, storage_bytes_per_s, shown)


def _weighed(now: Plan, cluster: Cluster, horizon_s: float, minimum_gain: float, storage_bytes_per_s: float,
             shown: Mapping[str, Forecast]) -> Adaptation:
    """The best other plan against the running one, moves and all."""
    rate = _rate(now)
    best, staying = None, rate * horizon_s
    for other in _candidates(now, cluster):
        moves = moves_between(now, other)
        stop_s = move_seconds(cluster, moves, storage_bytes_per_s)
        done = _rate(other) * (horizon_s - stop_s)
        if best is None or done > best[0] * (1 + 1e-9):
            best = (done, other, moves, stop_s)
    if best is None or best[0] <= staying:
        return Adaptation(False, _bounded(now), (), 0.0, 0.0, 0.0, "stay: no other plan does more within the horizon",
                          shown)
    _, other, moves, stop_s = best
    gain = _rate(other) / rate - 1.0
    repaid_s = stop_s * _rate(other) / (_rate(other) - rate)
    facts = (f"{gain:.1%} more work per second, {format_bytes(sum(move.size_bytes for move in moves))} to move in "
             f"{format_seconds(stop_s)}, repaid after {format_seconds(repaid_s)}")
    why = ""
    if gain < minimum_gain:
        why = f"less than {minimum_gain:.0%}"
    elif repaid_s > horizon_s:
        why = f"later than the horizon of {format_seconds(horizon_s)}"
    if why:
        return Adaptation(False, _bounded(now), (), gain, stop_s, repaid_s, f"stay: {facts}; {why}", shown)
    return Adaptation(True, _bounded(other), moves, gain, stop_s, repaid_s, f"move: {facts}", shown)


def _expected(measured: Mapping[str, float], history: Sequence[tuple[float, Mapping[str, float]]], horizon_s: float
              ) -> dict[str, Forecast]:
    """Load to plan with: the measurement, or the forecast for the middle of the horizon if there is a history."""
    found = {}
    for name, seconds in measured.items():
        if math.isinf(seconds):
            continue
        if not seconds > 0:
            raise fail(ValueFault, "adapt", f"{name} was measured at {seconds} s", "times are positive")
        rows = [(time_s, row[name]) for time_s, row in history if name in row and math.isfinite(row[name])]
        times, values = [time_s for time_s, _ in rows], [value for _, value in rows]
        if not rows or values[-1] != seconds:  # the newest is not in the history yet: one step after the last
            step = times[-1] - times[-2] if len(times) > 1 else 1.0
            times, values = [*times, (times[-1] if times else 0.0) + step], [*values, seconds]
        # No further ahead than the history reaches back: a line through an instant says nothing about an hour.
        found[name] = forecast(times, values, times[-1] + min(horizon_s / 2, times[-1] - times[0]))
    return found


def _lines(plan: Plan) -> dict[str, tuple[str, str, float]]:
    """The lines a plan uses: "a -> b" to both ends and the predicted seconds."""
    return {f"{before[0]} -> {after[0]}": (before[0], after[0], stage.link_s)
            for stage, following in zip(plan.stages, plan.stages[1:])
            for before, after in zip(stage.replicas, following.replicas)}


def measured_cluster(plan: Plan, measured: Mapping[str, float]) -> Cluster:
    """The cluster as it shows itself: nodes and links as much slower or faster as their times say."""
    cluster, stage_of = plan.cluster, held_layers(plan.stages)
    nodes = {node.name: node for node in cluster.nodes}
    ends = _lines(plan)
    for name, seconds in measured.items():
        if name in ends:
            source, target, predicted = ends[name]
            pair = (cluster.index(source), cluster.index(target))
            link, factor = cluster.link(source, target), seconds / predicted
            cluster = with_links(cluster, [pair, pair[::-1]], link.bandwidth_bytes_per_s / factor,
                                 link.latency_s * factor)
        elif name in stage_of:
            predicted = next(stage.compute_s for stage in plan.stages for copy in stage.replicas if name in copy)
            nodes[name] = _slower(nodes[name], seconds / predicted)
        else:
            raise fail(ArgumentError, "adapt", f"{name!r} is neither a stage nor a link of the plan",
                       f"measure {', '.join([*stage_of, *ends])}")
    return replace(cluster, nodes=tuple(nodes[node.name] for node in cluster.nodes))


def levelled(plan: Plan, cluster: Cluster) -> Cluster:
    """The cluster as the running plan feels it: nodes that share a stage all go at the pace of the slowest of them."""
    nodes = {node.name: node for node in cluster.nodes}
    for stage in plan.stages:
        group = [nodes[name] for copy in stage.replicas for name in copy]
        slowest = min(group, key=lambda node: node.efficiency)
        for node in group:
            nodes[node.name] = replace(node, efficiency=slowest.efficiency, measured=slowest.measured)
    return replace(cluster, nodes=tuple(nodes[node.name] for node in cluster.nodes))


def _slower(node: Node, factor: float) -> Node:
    measured = {key: (pair[0] * factor, pair[1] * factor) for key, pair in node.measured.items()}
    return replace(node, efficiency=node.efficiency / factor, measured=measured)


def _on(plan: Plan, cluster: Cluster) -> Plan:
    """The same placement, predicted anew; its bound and proof were for another cluster."""
    return complete(plan.card, cluster, Proposal(plan.stages), plan.strategy, plan.objective, plan.seed,
                    plan.constraints, bound=False)


def _bounded(plan: Plan) -> Plan:
    """With a bound, where there is none yet."""
    if plan.lower_bound > 0:
        return plan
    return complete(plan.card, plan.cluster, Proposal(plan.stages, notes=plan.notes), plan.strategy, plan.objective,
                    plan.seed, plan.constraints)


def _rate(plan: Plan) -> float:
    """Work per second in the plan's objective."""
    if plan.objective == "latency":
        return plan.card.tokens_per_pass / plan.predicted.latency_s
    return plan.predicted.tokens_per_s


def _candidates(now: Plan, cluster: Cluster) -> Iterator[Plan]:
    """Other plans: the best there is, and better cuts between the machines as they stand, which move less."""
    held = held_layers(now.stages)
    try:
        yield with_familiar_names(resolve(now, cluster), held)
    except MorphoError:  # a strategy that is not exact may find nothing; moving cuts may still help
        pass
    yield from cut_plans(now)


def _forced(plan: Plan, cluster: Cluster, gone: Sequence[str], storage_bytes_per_s: float,
            forecasts: Mapping[str, Forecast]) -> Adaptation:
    """A node or a line is gone: whatever is best without it."""
    lines = _lines(plan)
    for name in gone:
        if name in lines:
            pair = (cluster.index(lines[name][0]), cluster.index(lines[name][1]))
            cluster = with_links(cluster, [pair, pair[::-1]], 0.0)
    rest = cluster.without(name for name in gone if name not in lines)
    other = resolve(replace(plan, constraints=surviving(plan.constraints, rest)), rest)
    other = with_familiar_names(other, held_layers(plan.stages))
    moves = moves_between(plan, other)
    stop_s = move_seconds(rest, moves, storage_bytes_per_s)
    reason = (f"move: {', '.join(gone)} gone, {other.predicted.tokens_per_s:.4g} tokens/s without, "
              f"{format_bytes(sum(move.size_bytes for move in moves))} to load in {format_seconds(stop_s)}")
    return Adaptation(True, other, moves, _rate(other) / _rate(plan) - 1.0, stop_s, math.inf, reason, forecasts)


# ---------------------------------------------------------------------------------------------------------- moves


def moves_between(before: Plan, after: Plan) -> tuple[Move, ...]:
    """Ranges of weights and caches that each node must get, from the node that has them over the quickest link."""
    held = held_layers(before.stages)
    alive = {node.name for node in after.cluster.nodes}
    moves: list[Move] = []
    for stage in after.stages:
        for copy in stage.replicas:
            for name in copy:
                for number in range(stage.start, stage.end):
                    if number in held.get(name, ()):
                        continue
                    owners = [other for other, layers in held.items() if number in layers and other in alive]
                    lines = [(after.cluster.link(other, name).bandwidth_bytes_per_s, other) for other in owners]
                    source = max(lines)[1] if lines and max(lines)[0] > 0 else None
                    layer = after.card.layers[number]
                    size = -(-(layer.weight_bytes + (after.card.micro_batches * layer.kv_bytes if source else 0))
                             // len(copy))
                    if moves and (moves[-1].target, moves[-1].source, moves[-1].end) == (name, source, number):
                        moves[-1] = replace(moves[-1], end=number + 1, size_bytes=moves[-1].size_bytes + size)
                    else:
                        moves.append(Move(name, source, number, number + 1, size))
    return tuple(moves)


def move_seconds(cluster: Cluster, moves: Sequence[Move], storage_bytes_per_s: float = STORAGE_BYTES_PER_S) -> float:
    """How long moves take side by side: each node sends one after the other, and receives so."""
    busy: dict[tuple[str, str], float] = {}
    for move in moves:
        if move.source is None:
            seconds = move.size_bytes / storage_bytes_per_s
        else:
            seconds = cluster.link(move.source, move.target).seconds(move.size_bytes)
            busy["from", move.source] = busy.get(("from", move.source), 0.0) + seconds
        busy["to", move.target] = busy.get(("to", move.target), 0.0) + seconds
    return max(busy.values(), default=0.0)
