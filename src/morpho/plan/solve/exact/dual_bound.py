"""A valid lower bound for any plan of any strategy, with the duals that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.plan import Constraints
from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.relaxation import latency_bound, period_bound
from morpho.plan.solve.problem import Problem, build

SAFE = 1 - 1e-9  # a bound found with floats is stated so much lower, and then holds in exact arithmetic


@dataclass(frozen=True)
class Certificate:
    """A bound in seconds and its witness as plain data."""

    seconds: float
    witness: Mapping[str, Any]


def copies(objective: str, constraints: Constraints) -> range:
    """The numbers of copies of the pipeline to consider: more than one helps only the throughput."""
    return range(1, (constraints.data if objective == "throughput" else 1) + 1)


def problems(card: ModelCard, cluster: Cluster, objective: str, constraints: Constraints) -> Iterator[Problem]:
    """One problem for each number of copies that the cluster has nodes for."""
    for data in copies(objective, constraints):
        problem = build(card, cluster, constraints, data)
        if problem.caps.any():
            yield problem


def duals(problem: Problem, prices: np.ndarray) -> dict[str, Any]:
    """Prices as plain data: by node, interchangeable ones have the same, and that of a stage."""
    by_node = {name: float(prices[pool]) for pool, names in enumerate(problem.names) for name in names}
    return {"prices": by_node, "stage_price": float(prices[-1])}


def certify(card: ModelCard, cluster: Cluster, objective: str, constraints: Constraints, value_s: float,
            rounds: int = 60, deadline: Deadline = NEVER) -> Certificate:
    """A bound on the period or the latency of every plan; `value_s` is that of a plan known."""
    proofs, least = [], value_s
    for problem in problems(card, cluster, objective, constraints):
        if objective == "latency":
            bound = latency_bound(problem, value_s, rounds, deadline=deadline)
            seconds, prices = bound.seconds, bound.prices
        else:
            seconds, prices = period_bound(problem, value_s * problem.data, rounds, deadline=deadline)
        seconds = max(0.0, seconds * SAFE)
        proofs.append({"data": problem.data, **duals(problem, prices)})
        least = min(least, seconds / problem.data)
    return Certificate(least, {"relaxation": objective, "proofs": proofs})
