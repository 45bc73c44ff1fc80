"""Plans for the day a machine dies: one for each node, how fast it is, and what has to be loaded for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from morpho.base.errors import MorphoError
from morpho.base.units import format_bytes, format_seconds
from morpho.plan.predict.closed_form import evaluate, fill
from morpho.plan.predict.plan import Plan
from morpho.plan.replan.resolve import held_layers, new_bytes, resolve, surviving, with_familiar_names

STORAGE_BYTES_PER_S = 1e9  # what a node loads weights with, unless told otherwise


@dataclass(frozen=True, slots=True)
class Failure:
    """Effect of the death of a node.

    `plan` is None where the rest cannot hold the model; `problem` then says why. `reload_bytes` are the weights each
    survivor has to load that it does not hold yet, `reload_s` how long the longest of them takes.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [(failure.node, failure.plan is not None) for failure in plan.failures(p)]
    [('a', True), ('b', True)]
    """

    node: str
    plan: Plan | None
    problem: str
    reload_bytes: dict[str, int]
    reload_s: float

    def __str__(self) -> str:
        if self.plan is None:
            return f"without {self.node}: no plan: {self.problem}"
        how = "" if self.plan.optimal else f" ({self.plan.strategy})"
        speed = f"without {self.node}: {self.plan.predicted.tokens_per_s:.4g} tokens/s{how}"
        if not self.reload_bytes:
            return f"{speed}, nothing to load"
        parts = ", ".join(f"{format_bytes(size)} on {name}" for name, size in self.reload_bytes.items())
        return f"{speed}, after loading {parts} ({format_seconds(self.reload_s)})"


def failures(plan: Plan, storage_bytes_per_s: float = STORAGE_BYTES_PER_S) -> tuple[Failure, ...]:
    """The plan without each node of the cluster in turn; interchangeable nodes are solved once.

    Survivors keep what they hold where equal machines can swap their parts. The plans are of the same strategy and
    objective (annealed where a cluster of many different nodes would take too long); pins on the dead node are
    dropped. Weights are loaded with `storage_bytes_per_s`, each node by itself.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [failure.node for failure in plan.failures(p)]
    ['a', 'b']
    """
    held = held_layers(plan.stages)
    pinned = {*plan.constraints.pinned.values(), *plan.constraints.excluded}
    solved: dict[str, Plan | str] = {}
    for kind in plan.cluster.kinds():
        names = [plan.cluster.nodes[i].name for i in kind]
        free = [name for name in names if name in held and name not in pinned]
        for name in names:
            if name in held:
                twin = next((other for other in free if other in solved), None) if name in free else None
                solved[name] = _without(plan, name) if twin is None else _renamed(plan, solved[twin], twin, name)
    found = []
    for node in plan.cluster.nodes:
        answer = solved.get(node.name, "")
        if node.name not in held:  # idle: the plan stays as it is
            cluster = plan.cluster.without([node.name])
            found.append(Failure(node.name, replace(plan, cluster=cluster, constraints=surviving(
                plan.constraints, cluster)), "", {}, 0.0))
        elif isinstance(answer, str):
            found.append(Failure(node.name, None, answer, {}, 0.0))
        else:
            familiar = with_familiar_names(answer, held)
            loads = new_bytes(familiar, held)
            found.append(Failure(node.name, familiar, "", loads, max(loads.values(), default=0) / storage_bytes_per_s))
    return tuple(found)


def _without(plan: Plan, name: str) -> Plan | str:
    """The plan without a node, or why there is none."""
    if len(plan.cluster.nodes) == 1:
        return "it is the only node"
    try:
        return resolve(plan, plan.cluster.without([name]), quick=True)
    except MorphoError as error:
        return str(error)


def _renamed(plan: Plan, answer: Plan | str, dead: str, name: str) -> Plan | str:
    """A plan without `dead`, renamed for its twin `name`, with `dead` in the twin's place."""
    if isinstance(answer, str):
        return answer
    cluster = plan.cluster.without([name])

    def swap(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dead if one == name else one for one in names)

    stages = fill(plan.card, cluster, [
        replace(stage, node=swap((stage.node,))[0], members=swap(stage.members),
                replicas=tuple(map(swap, stage.replicas))) for stage in answer.stages], answer.constraints)
    return replace(answer, cluster=cluster, stages=stages, witness=_spelt(answer.witness, name, dead),
                   front=_spelt(answer.front, name, dead),
                   predicted=evaluate(plan.card, cluster, stages, plan.objective))


def _spelt(data: Any, old: str, new: str) -> Any:
    """Plain data with one name in the place of another, as key or value."""
    if isinstance(data, Mapping):
        return {_spelt(key, old, new): _spelt(value, old, new) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(_spelt(value, old, new) for value in data)
    return new if isinstance(data, str) and data == old else data
