"""Solving again when the cluster has changed, and giving equal machines the names that move least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.predict.closed_form import evaluate, fill
from morpho.plan.predict.plan import Constraints, Plan, Stage
from morpho.plan.solve.solver import solve

MANY_CELLS = 50_000_000  # states of an exact search (14 different nodes x 128 layers have 30 million)
MOVES = 15_000  # of an annealing when there are many


def surviving(constraints: Constraints, cluster: Cluster) -> Constraints:
    """Constraints without the nodes that a cluster no longer has."""
    names = {node.name for node in cluster.nodes}
    return replace(constraints, excluded=tuple(name for name in constraints.excluded if name in names),
                   pinned={layer: name for layer, name in constraints.pinned.items() if name in names})


def resolve(plan: Plan, cluster: Cluster, bound: bool = True, quick: bool = False) -> Plan:
    """The plan of the same model, by the same strategy, for the same objective, on another cluster.

    `quick` is for questions that take many solves: clusters too varied for many exact searches are annealed instead,
    and what is not exact comes without a bound.
    """
    constraints = surviving(plan.constraints, cluster)
    strategy, options = quick_strategy(plan) if quick else (plan.strategy, {})
    bound = bound and (strategy == "optimal" or not quick)  # elsewhere a bound may take longer than the plan
    return solve(plan.card, cluster, strategy, plan.objective, plan.seed, constraints, bound, **options)


def quick_strategy(plan: Plan) -> tuple[str, dict[str, int]]:
    """The plan's own strategy where some dozen solves take seconds, otherwise a short annealing."""
    if plan.strategy == "optimal":
        usable = plan.cluster.without(plan.constraints.excluded) if plan.constraints.excluded else plan.cluster
        cells = math.prod(len(kind) + 1 for kind in usable.kinds()) * len(usable.kinds()) * plan.card.depth
        return ("optimal", {}) if cells <= MANY_CELLS else ("annealing", {"moves": MOVES})
    return plan.strategy, {"moves": MOVES} if plan.strategy == "annealing" else {}


def held_layers(stages: Sequence[Stage]) -> dict[str, range]:
    """The layers of each node that holds any."""
    return {name: range(stage.start, stage.end) for stage in stages
            for copy in (stage.replicas or (stage.members or (stage.node,),)) for name in copy}


def new_bytes(plan: Plan, held: Mapping[str, range]) -> dict[str, int]:
    """Weights that each node of a plan has to load, given what the nodes hold already."""
    loads = {}
    for stage in plan.stages:
        for copy in stage.replicas:
            for name in copy:
                size = sum(plan.card.layers[number].weight_bytes for number in range(stage.start, stage.end)
                           if number not in held.get(name, ()))
                if size:
                    loads[name] = -(-size // len(copy))
    return loads


def with_familiar_names(plan: Plan, held: Mapping[str, range]) -> Plan:
    """The plan with interchangeable nodes renamed so that the fewest bytes have to be loaded.

    Nodes with equal figures and equal links make no difference to the prediction, only to what lies on them already.
    """
    if any(len(stage.members) > 1 or len(stage.replicas) > 1 for stage in plan.stages):
        return plan
    fixed = {*plan.constraints.pinned.values(), *plan.constraints.excluded}
    names: dict[str, str] = {}
    for kind in plan.cluster.kinds():
        free = [name for name in (plan.cluster.nodes[i].name for i in kind) if name not in fixed]
        stages = [stage for stage in plan.stages if stage.node in free]
        if not stages:
            continue
        kept = np.zeros((len(stages), len(free)))  # bytes that need not be loaded
        for row, stage in enumerate(stages):
            for column, name in enumerate(free):
                kept[row, column] = sum(plan.card.layers[number].weight_bytes for number in
                                        range(stage.start, stage.end) if number in held.get(name, ()))
        for stage, column in zip(stages, assignment(kept.max() - kept)):
            names[stage.node] = free[column]
    bare = [replace(stage, node=names.get(stage.node, stage.node), members=(), replicas=()) for stage in plan.stages]
    stages = fill(plan.card, plan.cluster, bare, plan.constraints)  # type: ignore[assignment]
    return replace(plan, stages=stages, predicted=evaluate(plan.card, plan.cluster, stages, plan.objective))  # type: ignore[arg-type]


def assignment(cost: np.ndarray) -> list[int]:
    """The cheapest choice of a different column for each row (rows <= columns), by shortest augmenting paths.

    >>> assignment(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]]))
    [1, 0, 2]
    """
    rows, columns = cost.shape
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    owner = np.zeros(columns + 1, dtype=np.int64)  # row of each column, 1-based; column 0 holds the row being placed
    for row in range(1, rows + 1):
        owner[0], column = row, 0
        least, before = np.full(columns + 1, np.inf), np.zeros(columns + 1, dtype=np.int64)
        seen = np.zeros(columns + 1, dtype=bool)
        while owner[column]:
            seen[column] = True
            reduced = cost[owner[column] - 1] - row_price[owner[column]] - column_price[1:]
            better = ~seen[1:] & (reduced < least[1:])
            least[1:][better], before[1:][better] = reduced[better], column
            following = 1 + int(np.where(seen[1:], np.inf, least[1:]).argmin())
            step = least[following]
            row_price[owner[seen]] += step
            column_price[seen] -= step
            least[~seen] -= step
            column = following
        while column:
            owner[column], column = owner[before[column]], before[column]
    chosen = [0] * rows
    for column in range(1, columns + 1):
        if owner[column]:
            chosen[owner[column] - 1] = column - 1
    return chosen
