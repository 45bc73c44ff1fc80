"""Placement of layers on workers, and the choice of one for the workers that are alive."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.plan import Plan, Prediction, Stage, adapt, failures
from morpho.plan.verify.placement import placement_faults


@dataclass(frozen=True, slots=True)
class Place:
    """Layers [start, end) on a node; `dtype` is what the link to the next one sends. `members` are the nodes that share
    each of the layers: the first is `node`, which speaks to other stages."""

    node: str
    start: int
    end: int
    dtype: str = "f32"
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members) or (self.node,))


def faults_of(plan: Plan) -> list[str]:
    """Why a plan cannot be run: it is no placement, or states what no time, rate or count can be."""
    wrong = placement_faults(plan.card, plan.cluster, plan.constraints, plan.stages)
    parts: list[tuple[str, Prediction | Stage]] = [
        ("the prediction", plan.predicted), *((f"the stage on {each.node}", each) for each in plan.stages)]
    for what, part in parts:
        wrong += [f"{what} has {name} = {value}" for name, value in asdict(part).items()
                  if isinstance(value, int | float) and value < 0]
    if plan.predicted.bottleneck >= len(plan.stages):
        wrong.append(f"stage {plan.predicted.bottleneck + 1} of {len(plan.stages)} is said to be the bottleneck")
    return wrong


def places_of(plan: Plan) -> tuple[Place, ...]:
    """The stages of a plan. Links send float32, which is what models compute in, unless the plan's user allowed less.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": 1e11}) for name in ("a", "b")]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [(place.start, place.end, place.dtype) for place in places_of(p)]
    [(0, 9, 'f32'), (9, 14, 'f32')]
    """
    for stage in plan.stages:
        if len(stage.replicas) > 1:
            raise fail(ArgumentError, "pipeline", f"the plan has copies of layers [{stage.start}, {stage.end}), and a "
                       "pipeline is one", "plan with data=1")
    allowed = plan.constraints.activation_dtypes
    return tuple(Place(stage.node, stage.start, stage.end, stage.activation_dtype if allowed else "f32",
                       stage.members)
                 for stage in plan.stages)


def to_rows(places: Sequence[Place]) -> list[dict[str, Any]]:
    return [asdict(place) for place in places]


def from_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Place, ...]:
    """The places that `to_rows` described."""
    return tuple(Place(**row) for row in rows)


def stored_failures(plan: Plan, check: Callable[[Sequence[Place]], None] = lambda places: None
                    ) -> dict[str, list[dict[str, Any]]]:
    """The placement for the death of each node, where there is one: made before it is needed."""
    found = {}
    for each in failures(plan):
        if each.plan is not None:
            try:
                check(places_of(each.plan))
            except ArgumentError:
                continue  # its layers cannot be shared so: that death is planned for when it comes
            found[each.node] = to_rows(places_of(each.plan))
    return found


def placement(plan: Plan, alive: Collection[str], stored: Mapping[str, Sequence[Mapping[str, Any]]],
              check: Callable[[Sequence[Place]], None] = lambda places: None) -> tuple[Place, ...]:
    """Return the placement for the living nodes: the plan, what was stored for the death of one, or what is now best.
    Layers that do not part among as many nodes as are left (`check` says so) are not shared."""
    dead = [node.name for node in plan.cluster.nodes if node.name not in alive]
    if not dead:
        return places_of(plan)
    if len(dead) == 1 and dead[0] in stored:
        return from_rows(stored[dead[0]])
    try:
        found = places_of(adapt(plan, {name: math.inf for name in dead}).plan)
        try:
            check(found)
        except ArgumentError:
            alone = replace(plan, constraints=replace(plan.constraints, tensor=1))
            found = places_of(adapt(alone, {name: math.inf for name in dead}).plan)
        return found
    except MorphoError as error:
        raise fail(ArgumentError, "pipeline", f"{', '.join(dead)} died, and no plan works without: "
                                              f"{error.message or error}", line="") from None
