"""Strategies by name.

A strategy is a function of a `Request` that returns bare stages (`node`, `start`, `end`, `activation_dtype`), or a
`Proposal` when it also knows a bound or has something to say. Users register their own:

    @plan.register_strategy("mine")
    def mine(request):
        return [plan.Stage(request.cluster.nodes[0].name, 0, request.card.depth)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.plan import Constraints, Stage


@dataclass(frozen=True, slots=True)
class Request:
    """Input of a strategy: model, cluster without excluded nodes, objective, seed, constraints, its options.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> cluster = plan.Cluster.uniform(nodes, 1e9, 1e-4)
    >>> request = plan.Request(card, cluster, "throughput", 0, plan.Constraints())
    >>> request.card.depth, len(request.cluster.nodes)
    (14, 2)
    """

    card: ModelCard
    cluster: Cluster
    objective: str
    seed: int
    constraints: Constraints
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Answer of a strategy: stages, and where it knows them a bound with its witness, a proof, notes.

    >>> from morpho import plan
    >>> plan.Proposal([plan.Stage("a", 0, 14)], notes=["everything on one node"]).optimal
    False
    """

    stages: Sequence[Stage]
    lower_bound_s: float = 0.0
    optimal: bool = False
    witness: Mapping[str, Any] = field(default_factory=dict)
    objective_value_s: float | None = None
    front: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


Strategy = Callable[[Request], "Proposal | Sequence[Stage]"]
STRATEGIES: dict[str, Strategy] = {}


def register_strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Make a function known to `solve` under a name; a name can be taken only once.

    >>> @register_strategy("all on the first")
    ... def first(request):
    ...     return [Stage(request.cluster.nodes[0].name, 0, request.card.depth)]
    """
    def keep(strategy: Strategy) -> Strategy:
        if name in STRATEGIES:
            raise fail(ArgumentError, "plan", f"there is already a strategy {name!r}", "choose another name")
        STRATEGIES[name] = strategy
        return strategy

    return keep


def run_strategy(name: str, request: Request) -> Proposal:
    """Return a strategy's proposal, unchecked: for strategies that start from another's plan."""
    answer = STRATEGIES[name](request)
    return answer if isinstance(answer, Proposal) else Proposal(answer)
