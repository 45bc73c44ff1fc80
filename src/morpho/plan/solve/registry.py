"""Strategies by name, and `solve`, which runs one and attaches prediction and bound.

A strategy is a function of a `Request` that returns bare stages (`node`, `start`, `end`, `activation_dtype`), or a
`Proposal` when it also knows a bound or has something to say. Users register their own:

    @plan.register_strategy("mine")
    def mine(request):
        return [plan.Stage(request.cluster.nodes[0].name, 0, request.card.depth)]
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.closed_form import check_constraints, check_cover, check_memory, evaluate, fill
from morpho.plan.predict.plan import OBJECTIVES, Constraints, Plan, Prediction, Stage
from morpho.plan.solve.exact.dual_bound import certify


@dataclass(frozen=True, slots=True)
class Request:
    """What a strategy is asked: model, cluster without excluded nodes, objective, seed, constraints, its options."""

    card: ModelCard
    cluster: Cluster
    objective: str
    seed: int
    constraints: Constraints
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a strategy answers: stages, and where it knows them a bound with its witness, a proof, notes."""

    stages: Sequence[Stage]
    lower_bound_s: float = 0.0
    optimal: bool = False
    witness: Mapping[str, Any] = field(default_factory=dict)
    objective_value_s: float | None = None
    front: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


Strategy = Callable[[Request], "Proposal | Sequence[Stage]"]
_STRATEGIES: dict[str, Strategy] = {}
# Files of this folder that register the strategies that come with Morpho; loaded at the first use.
_OWN = ("heuristics", "annealing", "optimal")


def register_strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Make a function known to `solve` under a name; a name can be taken only once.

    >>> @register_strategy("all on the first")
    ... def first(request):
    ...     return [Stage(request.cluster.nodes[0].name, 0, request.card.depth)]
    """
    def keep(strategy: Strategy) -> Strategy:
        if name in _STRATEGIES:
            raise fail(ArgumentError, "plan", f"there is already a strategy {name!r}", "choose another name")
        _STRATEGIES[name] = strategy
        return strategy

    return keep


def strategies() -> tuple[str, ...]:
    """The names `solve` knows."""
    _load()
    return tuple(_STRATEGIES)


def _load() -> None:
    for module in _OWN:
        importlib.import_module(f"morpho.plan.solve.{module}")


def run_strategy(name: str, request: Request) -> Proposal:
    """What a strategy proposes, before anything is checked: for strategies that start from another's plan."""
    answer = _STRATEGIES[name](request)
    return answer if isinstance(answer, Proposal) else Proposal(answer)


def _bounded(card: ModelCard, cluster: Cluster, objective: str, constraints: Constraints, predicted: Prediction
             ) -> tuple[float, float, Mapping[str, Any]]:
    """Value, bound and witness of a plan whose strategy knows none.

    The score of a balanced plan is taken relative to the bounds of both times, which no plan beats: it is at least 1.
    """
    if objective != "balanced":
        value = predicted.value(objective)
        found = certify(card, cluster, objective, constraints, value)
        return value, found.seconds, found.witness
    quick = certify(card, cluster, "latency", constraints, predicted.latency_s)
    steady = certify(card, cluster, "throughput", constraints, predicted.period_s)
    score = max(predicted.latency_s / quick.seconds, predicted.period_s / steady.seconds)
    return score, 1.0, {"relaxation": "balanced", "best_latency_s": quick.seconds, "best_period_s": steady.seconds,
                        "proofs": [*quick.witness["proofs"], *steady.witness["proofs"]]}


def solve(card: ModelCard, cluster: Cluster, strategy: str = "optimal", objective: str = "throughput", seed: int = 0,
          constraints: Constraints | None = None, bound: bool = True, **options: Any) -> Plan:
    """Place a model on a cluster: a plan that covers it, fits, and says how far it may be from the best.

    `options` go to the strategy (`annealing` takes `seconds`). Where a strategy knows no bound, the relaxation gives
    one; `bound=False` leaves it out. A model that fits nowhere is a `MemoryLimit` that names the layer and the
    shortfall.
    """
    _load()
    if strategy not in _STRATEGIES:
        raise fail(ArgumentError, "plan", f"there is no strategy {strategy!r}", f"use one of {', '.join(_STRATEGIES)}")
    if objective not in OBJECTIVES:
        raise fail(ValueFault, "plan", f"there is no objective {objective!r}", f"use one of {', '.join(OBJECTIVES)}")
    constraints = constraints or Constraints()
    for name in (*constraints.excluded, *constraints.pinned.values()):
        cluster.index(name)
    usable = cluster.without(constraints.excluded) if constraints.excluded else cluster
    proposal = run_strategy(strategy, Request(card, usable, objective, seed, constraints, options))
    return complete(card, cluster, proposal, strategy, objective, seed, constraints, bound)


def complete(card: ModelCard, cluster: Cluster, proposal: Proposal, strategy: str, objective: str = "throughput",
             seed: int = 0, constraints: Constraints | None = None, bound: bool = True) -> Plan:
    """The plan of stages that somebody proposes: cover and memory are checked, prediction and bound attached."""
    constraints = constraints or Constraints()
    usable = cluster.without(constraints.excluded) if constraints.excluded else cluster
    check_cover(card, cluster, proposal.stages)
    check_constraints(card, proposal.stages, constraints)
    check_memory(card, cluster, proposal.stages, constraints)
    stages = fill(card, cluster, proposal.stages, constraints)
    predicted = evaluate(card, cluster, stages, objective)
    value = proposal.objective_value_s
    if value is None:
        value = predicted.value("latency" if objective == "latency" else "throughput")
    lower, witness = proposal.lower_bound_s, proposal.witness
    if bound and lower <= 0:
        value, lower, witness = _bounded(card, usable, objective, constraints, predicted)
    proven = proposal.optimal or lower >= value * (1 - 1e-9)
    return Plan(card, cluster, stages, predicted, strategy, objective, seed, constraints, value,
                value if proven else lower, proven, witness, tuple(proposal.front), tuple(proposal.notes))
