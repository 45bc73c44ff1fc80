"""`solve`: run a strategy, check what it proposes, attach the prediction and a bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.closed_form import check_constraints, check_cover, check_memory, evaluate, fill
from morpho.plan.predict.plan import OBJECTIVES, Constraints, Plan, Prediction
from morpho.plan.solve import annealing, heuristics, optimal  # noqa: F401 (they register their strategies)
from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.dual_bound import certify
from morpho.plan.solve.registry import STRATEGIES, Proposal, Request, run_strategy


def strategies() -> tuple[str, ...]:
    """The names `solve` knows.

    >>> "optimal" in strategies()
    True
    """
    return tuple(STRATEGIES)


def _bounded(card: ModelCard, cluster: Cluster, objective: str, constraints: Constraints, predicted: Prediction,
             deadline: Deadline) -> tuple[float, float, Mapping[str, Any]]:
    """Value, bound and witness of a plan whose strategy knows none.

    The score of a balanced plan is taken relative to the bounds of both times, which no plan beats: it is at least 1.
    """
    if objective != "balanced":
        value = predicted.value(objective)
        found = certify(card, cluster, objective, constraints, value, deadline=deadline)
        return value, found.seconds, found.witness
    quick = certify(card, cluster, "latency", constraints, predicted.latency_s, deadline=deadline.share(0.5))
    steady = certify(card, cluster, "throughput", constraints, predicted.period_s, deadline=deadline)
    score = max(predicted.latency_s / quick.seconds, predicted.period_s / steady.seconds)
    return score, 1.0, {"relaxation": "balanced", "best_latency_s": quick.seconds, "best_period_s": steady.seconds,
                        "proofs": [*quick.witness["proofs"], *steady.witness["proofs"]]}


def solve(card: ModelCard, cluster: Cluster, strategy: str = "optimal", objective: str = "throughput", seed: int = 0,
          constraints: Constraints | None = None, bound: bool = True, **options: Any) -> Plan:
    """Place a model on a cluster: a plan that covers it, fits, and says how far it may be from the best.

    `options` go to the strategy: `seconds` bound the search of `optimal` and `annealing`. Where a strategy knows no
    bound, the relaxation gives one; `bound=False` leaves it out. A model that fits nowhere is a `MemoryLimit` that
    names the layer and the shortfall.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> cluster = plan.Cluster.uniform(nodes, 1e9, 1e-4)
    >>> p = plan.solve(card, cluster, objective="latency")
    >>> p.optimal, p.gap
    (True, 0.0)
    """
    if strategy not in STRATEGIES:
        raise fail(ArgumentError, "plan", f"there is no strategy {strategy!r}", f"use one of {', '.join(STRATEGIES)}")
    if objective not in OBJECTIVES:
        raise fail(ValueFault, "plan", f"there is no objective {objective!r}", f"use one of {', '.join(OBJECTIVES)}")
    constraints = constraints or Constraints()
    for name in (*constraints.excluded, *constraints.pinned.values()):
        cluster.index(name)
    usable = cluster.without(constraints.excluded) if constraints.excluded else cluster
    deadline = Deadline(_seconds(options))
    proposal = run_strategy(strategy, Request(card, usable, objective, seed, constraints, options))
    return complete(card, cluster, proposal, strategy, objective, seed, constraints, bound, deadline)


def _seconds(options: Mapping[str, Any]) -> float | None:
    """The option `seconds`, if it is a time."""
    seconds = options.get("seconds")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))
                                or not 0 <= seconds < float("inf")):
        raise fail(ValueFault, "plan", f"seconds is {seconds!r}", "give a time limit in seconds, 0 or more")
    return seconds


def complete(card: ModelCard, cluster: Cluster, proposal: Proposal, strategy: str, objective: str = "throughput",
             seed: int = 0, constraints: Constraints | None = None, bound: bool = True, deadline: Deadline = NEVER
             ) -> Plan:
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
        value, lower, witness = _bounded(card, usable, objective, constraints, predicted, deadline)
    proven = proposal.optimal or lower >= value * (1 - 1e-9)
    return Plan(card, cluster, stages, predicted, strategy, objective, seed, constraints, value,
                value if proven else lower, proven, witness, tuple(proposal.front), tuple(proposal.notes))
