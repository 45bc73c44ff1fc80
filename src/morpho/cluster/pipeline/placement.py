"""Who runs which layers: the part of a plan that workers need, and which one to run with the workers there are."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.plan import Plan, adapt, failures


@dataclass(frozen=True, slots=True)
class Place:
    """Layers [start, end) on a node; `dtype` is what the link to the next one sends."""

    node: str
    start: int
    end: int
    dtype: str = "f32"


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
        if len(stage.members) > 1 or len(stage.replicas) > 1:
            raise fail(ArgumentError, "pipeline", f"the plan shares layers [{stage.start}, {stage.end}) among several "
                       "nodes, and stages run on one each", "plan with tensor=1 and data=1")
    allowed = plan.constraints.activation_dtypes
    return tuple(Place(stage.node, stage.start, stage.end, stage.activation_dtype if allowed else "f32")
                 for stage in plan.stages)


def to_rows(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Plain data for JSON."""
    return [asdict(place) for place in places]


def from_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Place, ...]:
    """The places that `to_rows` described."""
    return tuple(Place(**row) for row in rows)


def stored_failures(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """The placement for the death of each node, where there is one: made before it is needed."""
    return {each.node: to_rows(places_of(each.plan)) for each in failures(plan) if each.plan is not None}


def placement(plan: Plan, alive: Collection[str], stored: Mapping[str, Sequence[Mapping[str, Any]]]
              ) -> tuple[Place, ...]:
    """What to run with the nodes there are: the plan, what was stored for the death of one, or what is now best."""
    dead = [node.name for node in plan.cluster.nodes if node.name not in alive]
    if not dead:
        return places_of(plan)
    if len(dead) == 1 and dead[0] in stored:
        return from_rows(stored[dead[0]])
    try:
        return places_of(adapt(plan, {name: math.inf for name in dead}).plan)
    except MorphoError as error:
        raise fail(ArgumentError, "pipeline", f"{', '.join(dead)} gone, and there is no plan without: "
                                              f"{error.message or error}", line="") from None
