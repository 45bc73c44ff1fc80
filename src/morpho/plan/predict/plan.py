"""A plan: stages in order, their prediction, and the bound that shows how good it is.

A plan knows its model and its cluster, so that `to_json` holds all that a checker needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morpho.base.errors import ArgumentError, MorphoError, ValueFault, fail
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF
from morpho.plan.model.strict_json import strict_json
from morpho.plan.predict.content import content_hash
from morpho.plan.predict.shapes import require

OBJECTIVES = ("throughput", "latency", "balanced")
FORMAT = 2
MOST_LAYERS, MOST_NODES = 10_000, 1024


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers [start, end) on one node, or on several equal ones that share each layer (tensor) or the batch (data).

    A strategy gives `node`, `start`, `end` and `activation_dtype`; `predict.fill` computes the rest. `members` are
    all nodes that share every layer of the stage (the first is `node`; one member means no tensor parallelism).
    `replicas` are the members of each copy of the stage when the batch is split over copies of the pipeline (the
    first is `members`). `activation_dtype` is the type of the link to the next stage; empty in a strategy's answer, it
    is the model's own where the constraints allow that, else the quickest they allow. `link_s` is the transfer to the
    next stage (0 for the last). `binds` says what its time is made of: "compute", "memory bandwidth", "measured" or
    "link"; `memory_tight` that one more layer would not fit.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> sum(stage.end - stage.start for stage in p.stages) == card.depth
    True
    """

    node: str
    start: int
    end: int
    activation_dtype: str = ""
    members: tuple[str, ...] = ()
    replicas: tuple[tuple[str, ...], ...] = ()
    memory_needed_bytes: int = 0
    memory_available_bytes: int = 0
    compute_s: float = 0.0
    link_s: float = 0.0
    prefill_compute_s: float = 0.0
    prefill_link_s: float = 0.0
    binds: str = ""
    memory_tight: bool = False

    @property
    def period_s(self) -> float:
        """How often the stage can take a micro-batch: computing and sending overlap."""
        return max(self.compute_s, self.link_s)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted figures of a plan.

    `period_s` is the bottleneck: the longest compute or link time of any stage; in the steady state a micro-batch
    leaves the pipeline every period, so `tokens_per_s` is tokens per pass over period (times the data degree).
    `latency_s` is one token (one pass) through all stages and links, nothing else in the pipeline. `first_token_s` is
    the prompt through all stages. `in_flight` micro-batches keep the pipeline full. `bottleneck` is the position of
    the stage that binds.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> p.predicted.nodes_used, p.predicted.latency_s > 0
    (2, True)
    """

    tokens_per_s: float
    period_s: float
    latency_s: float
    first_token_s: float
    bottleneck: int
    in_flight: int
    nodes_used: int

    def value(self, objective: str) -> float:
        """Value of an objective, in seconds: the period or the latency."""
        if objective == "throughput":
            return self.period_s
        if objective == "latency":
            return self.latency_s
        raise fail(ValueFault, "plan", f"{objective!r} has no value of its own", "use 'throughput' or 'latency'")


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints of a plan beside the memory of its nodes.

    `headroom` is the share of each node's memory that stays free. `pinned` maps a layer to the node it must be on.
    `tied` is "copy" (layers that share weights may lie apart, each with a copy) or "together" (in one stage).
    `activation_dtypes` are the types links may send; none named means the model's own, so that links lose nothing.
    Where there are several, each link's type is chosen with the cut. The sum of `ACTIVATION_ERROR` over the links stays
    within `activation_error_budget` (None: no limit).
    `tensor` and `data` allow groups of interchangeable nodes to share layers or the batch, up to that degree.

    >>> Constraints(headroom=0.1).available_bytes(1000)
    900
    """

    headroom: float = 0.1
    pinned: Mapping[int, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    max_stages: int | None = None
    tied: str = "copy"
    activation_dtypes: tuple[str, ...] = ()
    activation_error_budget: float | None = None
    tensor: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.headroom < 1:
            raise fail(ValueFault, "plan", f"headroom is {self.headroom}", "it is a share of memory: 0 <= headroom < 1")
        if self.tied not in ("copy", "together"):
            raise fail(ValueFault, "plan", f"tied is {self.tied!r}", "use 'copy' or 'together'")
        for dtype in self.activation_dtypes:
            if dtype not in ACTIVATION_ERROR:
                raise fail(ValueFault, "plan", f"activations cannot be sent as {dtype!r}",
                           f"use {', '.join(ACTIVATION_ERROR)}")
        budget = self.activation_error_budget
        if budget is not None and not (math.isfinite(budget) and budget >= 0):
            raise fail(ValueFault, "plan", f"activation_error_budget is {budget}", "give a number, 0 or more")
        for name in ("max_stages", "tensor", "data"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise fail(ValueFault, "plan", f"{name} is {value!r}", "give a positive whole number")
        for name in ("tensor", "data"):
            if getattr(self, name) > MOST_NODES:
                raise fail(ValueFault, "plan", f"{name} is {getattr(self, name)}",
                           f"no more than {MOST_NODES} nodes can share a layer or a batch")

    def link_dtypes(self, card: ModelCard) -> tuple[str, ...]:
        """The types links may send for this model."""
        return self.activation_dtypes or (card.activation_dtype,)

    def link_dtype(self, card: ModelCard) -> str:
        """Default type of a link: the model's own if allowed, else the quickest of those allowed."""
        allowed = self.link_dtypes(card)
        own = card.activation_dtype
        return own if own in allowed else min(allowed, key=lambda name: (BYTES_OF[name], ACTIVATION_ERROR[name]))

    def available_bytes(self, memory_bytes: int) -> int:
        """Bytes that a node of this memory may hold."""
        return math.floor(memory_bytes * (1.0 - self.headroom))


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement with its prediction and the proof of how good it is.

    `lower_bound_s` is a time no plan can beat in the objective (`objective_value_s` is this plan's), `gap` the
    relative distance between the two, and `optimal` that they meet. `witness` holds what a checker needs to verify
    the bound without trusting the solver: the duals of the relaxation (see `docs/planner.md`). `front` are sampled
    plans that none of the others beats in latency, period and nodes at once. `notes` are warnings for the reader.
    `inputs` are the hashes of model and cluster as the file had them that the plan was read from.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [(stage.node, stage.start, stage.end) for stage in p.stages], p.optimal
    ([('b', 0, 9), ('a', 9, 14)], True)
    """

    card: ModelCard
    cluster: Cluster
    stages: tuple[Stage, ...]
    predicted: Prediction
    strategy: str
    objective: str = "throughput"
    seed: int = 0
    constraints: Constraints = field(default_factory=Constraints)
    objective_value_s: float = 0.0
    lower_bound_s: float = 0.0
    optimal: bool = False
    witness: Mapping[str, Any] = field(default_factory=dict)
    front: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def lower_bound(self) -> float:
        """No plan has a smaller value of the objective: seconds, or the balanced score."""
        return self.lower_bound_s

    @property
    def gap(self) -> float:
        """How far the plan may be from the best, relative to the bound: 0.05 is five percent."""
        if self.optimal:
            return 0.0
        if self.lower_bound_s <= 0:
            return math.inf
        return max(0.0, self.objective_value_s / self.lower_bound_s - 1.0)

    if TYPE_CHECKING:  # `show/methods.py` sets these: what explains and draws a plan stands above what makes one
        def explain(self, relief: int = 8, with_failures: bool = True) -> Any: ...
        def plot(self, path: str | Path, what: str = "cluster") -> Path: ...

    def to_json(self, indent: int | None = 1) -> str:
        """The whole plan with its model, cluster and witness as JSON."""
        inputs = {"model": content_hash(self.card), "cluster": content_hash(self.cluster)}
        return json.dumps({"format": FORMAT, **asdict(self), "inputs": inputs}, indent=indent, default=float)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; what is missing or malformed is an error that names it."""
        data = strict_json(text, "the plan")
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise fail(ValueFault, "plan", f"this is no plan of format {FORMAT}", "give a file written by Plan.to_json")
        _require_sizes(data)
        require({name: value for name, value in data.items() if name != "format"}, Plan, "the plan")
        _require_witness(data)
        try:
            return _require_known(_plan_from_dict(data))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            if isinstance(error, MorphoError):
                raise
            raise fail(ArgumentError, "plan", f"the plan lacks or garbles a field: {error}",
                       "give a file written by Plan.to_json") from None


@dataclass(frozen=True, slots=True)
class _Proof:
    """Duals: prices by node and of a stage, for a number of copies of the pipeline."""

    data: int
    prices: Mapping[str, float]
    stage_price: float = 0.0


_Rows = tuple[tuple[tuple[tuple[str, ...], ...], int, int, str], ...]  # copies, start, end, type of the link


@dataclass(frozen=True, slots=True)
class _Witness:
    """All that a checker reads of a witness."""

    relaxation: str = ""
    proofs: tuple[_Proof, ...] = ()
    best_latency_s: float = 0.0
    best_period_s: float = 0.0
    latency_plan: _Rows = ()
    period_plan: _Rows = ()


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of the front."""

    latency_s: float
    period_s: float
    tokens_per_s: float
    nodes_used: int
    stages: _Rows


def _require_witness(data: Mapping[str, Any]) -> None:
    """Witness and front have the shapes that a checker expects, and nothing else."""
    require(data.get("witness", {}), _Witness, "witness")
    for position, point in enumerate(data.get("front", ())):
        require(point, _Point, f"front[{position}]")
    rows = [*data.get("witness", {}).get("latency_plan", ()), *data.get("witness", {}).get("period_plan", ()),
            *(row for point in data.get("front", ()) for row in point["stages"])]
    for copies, _, _, dtype in rows:
        if not copies or not all(copies) or (dtype and dtype not in ACTIVATION_ERROR):
            raise fail(ValueFault, "plan", "a stage of the witness or the front has no nodes, or no known type",
                       "give a file written by Plan.to_json")


def _require_sizes(data: Mapping[str, Any]) -> None:
    """Not more layers, nodes or degrees than there can be, before anything is built from them."""
    for where, key, most in (("card", "layers", MOST_LAYERS), ("cluster", "nodes", MOST_NODES)):
        part = data.get(where)
        found = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(found, list) and len(found) > most:
            raise fail(ValueFault, "plan", f"the plan has {len(found)} {key}", f"there can be at most {most}")
    stages = data.get("stages")
    if isinstance(stages, list) and len(stages) > MOST_NODES:
        raise fail(ValueFault, "plan", f"the plan has {len(stages)} stages", f"there can be at most {MOST_NODES}")


def _require_known(plan: Plan) -> Plan:
    """Names and layers that a plan speaks of exist."""
    for stage in plan.stages:
        if stage.activation_dtype not in ACTIVATION_ERROR:
            raise fail(ValueFault, "plan", f"the stage on {stage.node} sends {stage.activation_dtype!r}",
                       f"use {', '.join(ACTIVATION_ERROR)}")
    for layer, name in plan.constraints.pinned.items():
        plan.cluster.index(name)
        if layer >= plan.card.depth:
            raise fail(ValueFault, "plan", f"layer {layer} is pinned to {name}, and the model has {plan.card.depth}",
                       "layers count from 0")
    for name in plan.constraints.excluded:
        plan.cluster.index(name)
    if plan.objective not in OBJECTIVES:
        raise fail(ValueFault, "plan", f"there is no objective {plan.objective!r}", f"use {', '.join(OBJECTIVES)}")
    return plan


def _plan_from_dict(data: dict[str, Any]) -> Plan:
    stages = tuple(
        Stage(**{**stage, "members": tuple(stage["members"]), "replicas": tuple(map(tuple, stage["replicas"]))})
        for stage in data["stages"]
    )
    limits = dict(data["constraints"])
    limits["pinned"] = {int(layer): node for layer, node in limits["pinned"].items()}
    limits["excluded"], limits["activation_dtypes"] = tuple(limits["excluded"]), tuple(limits["activation_dtypes"])
    rest = {name: data[name] for name in ("strategy", "objective", "seed", "objective_value_s", "lower_bound_s",
                                          "optimal", "witness")}
    return Plan(ModelCard.from_dict(data["card"]), Cluster.from_dict(data["cluster"]), stages,
                Prediction(**data["predicted"]), constraints=Constraints(**limits), front=tuple(data["front"]),
                notes=tuple(data["notes"]), inputs=dict(data["inputs"]), **rest)
