"""The closed-form prediction: what a placement costs, by adding up; no search, no state.

    compute_s of a stage = sum over its layers of max(flops / rate, bytes / bandwidth), or of their measured times
    link_s of a stage    = latency + bytes across the cut / bandwidth of the link to the next stage's node
    period_s             = max over stages of compute_s and link_s     (computing and sending overlap)
    latency_s            = sum over stages of compute_s and link_s     (one pass alone in the pipeline)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from morpho.base.errors import ArgumentError, DeviceError, MemoryLimit, fail
from morpho.base.units import format_bytes
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import Link, Node
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF, Layer
from morpho.plan.predict.plan import Constraints, Prediction, Stage


def layer_seconds(layer: Layer, node: Node, dtype: str, phase: str) -> float:
    """Seconds of a layer on a node: as measured there, or the roofline over the node's efficiency.

    >>> node = Node("a", 1, memory_bytes_per_s=1e10, flops_per_s={"f32": 1e12})
    >>> layer_seconds(Layer("l", "linear", 3e9, 1e7, 0, 0, 0), node, "f32", "prefill")
    0.003
    """
    if layer.key in node.measured:
        return node.measured[layer.key][0 if phase == "prefill" else 1]
    moving = layer.bytes(phase) / node.memory_bytes_per_s
    return max(layer.flops(phase) / node.rate(dtype), moving) / node.efficiency


def reduce_seconds(layer: Layer, link: Link, members: int, element_bytes: float, phase: str) -> float:
    """Seconds of a layer's ring all-reduces among `members` nodes: each sends its part 2 (t - 1) times."""
    if members == 1 or not layer.reduces:
        return 0.0
    rounds = 2 * (members - 1)
    return layer.reduces * rounds * link.latency_s + (
        rounds / members * layer.reduce_elements(phase) * element_bytes / link.bandwidth_bytes_per_s)


def stage_seconds(card: ModelCard, cluster: Cluster, stage: Stage, phase: str) -> float:
    """Compute time of a stage; the members of a tensor-parallel one share work and bytes and sum their parts."""
    node, members = cluster.node(stage.node), max(1, len(stage.members))
    total = math.fsum(layer_seconds(layer, node, card.dtype, phase) for layer in card.layers[stage.start:stage.end])
    if members == 1:
        return total
    link = cluster.link(stage.members[0], stage.members[1])
    size = BYTES_OF[card.activation_dtype]
    return total / members + math.fsum(reduce_seconds(layer, link, members, size, phase)
                                       for layer in card.layers[stage.start:stage.end])


def link_seconds(card: ModelCard, cluster: Cluster, stage: Stage, following: Stage | None, phase: str) -> float:
    """Transfer time from a stage to the next one; nothing after the last."""
    if following is None:
        return 0.0
    dtype = stage.activation_dtype or card.activation_dtype
    return cluster.link(stage.node, following.node).seconds(card.cut_bytes(stage.end, dtype, phase))


def fill(card: ModelCard, cluster: Cluster, stages: Sequence[Stage], constraints: Constraints | None = None
         ) -> tuple[Stage, ...]:
    """The stages with all computed fields: memory, times, what binds each. Cover and memory are not judged here.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> cluster = plan.Cluster.uniform(nodes, 1e9, 1e-4)
    >>> [stage] = plan.fill(card, cluster, [plan.Stage("a", 0, card.depth)])
    >>> stage.memory_needed_bytes > 0, stage.compute_s > 0
    (True, True)
    """
    constraints = constraints or Constraints()
    done = []
    stages = [stage if stage.activation_dtype else replace(stage, activation_dtype=constraints.link_dtype(card))
              for stage in stages]
    for stage, following in zip(stages, [*stages[1:], None]):
        members = stage.members or (stage.node,)
        times = {f"{prefix}compute_s": stage_seconds(card, cluster, stage, phase)
                 for prefix, phase in (("", card.phase), ("prefill_", "prefill"))}
        times |= {f"{prefix}link_s": link_seconds(card, cluster, stage, following, phase)
                  for prefix, phase in (("", card.phase), ("prefill_", "prefill"))}
        available = constraints.available_bytes(cluster.node(stage.node).memory_bytes)
        whole = [math.ceil(card.memory_bytes(start, end) / len(members)) for start, end in
                 ((stage.start, stage.end), (max(0, stage.start - 1), stage.end),
                  (stage.start, min(card.depth, stage.end + 1)))]
        done.append(replace(
            stage, members=members, replicas=stage.replicas or (members,), memory_needed_bytes=whole[0],
            memory_available_bytes=available, memory_tight=max(whole[1:]) > available,
            binds=_binds(card, cluster.node(stage.node), stage, times["compute_s"], times["link_s"]), **times))  # type: ignore[arg-type]
    return tuple(done)


def _binds(card: ModelCard, node: Node, stage: Stage, compute_s: float, link_s: float) -> str:
    """Bottleneck of a stage: the link, or the side of the roofline on which its layers spend most time."""
    if link_s > compute_s:
        return "link"
    sides = {"compute": 0.0, "memory bandwidth": 0.0, "measured": 0.0}
    for layer in card.layers[stage.start:stage.end]:
        seconds = layer_seconds(layer, node, card.dtype, card.phase)
        if layer.key in node.measured:
            sides["measured"] += seconds
        elif layer.flops(card.phase) / node.rate(card.dtype) >= layer.bytes(card.phase) / node.memory_bytes_per_s:
            sides["compute"] += seconds
        else:
            sides["memory bandwidth"] += seconds
    return max(sides, key=lambda side: sides[side])


def evaluate(card: ModelCard, cluster: Cluster, stages: Sequence[Stage], objective: str = "throughput") -> Prediction:
    """The prediction for a placement that covers the model; the order of the stages is the order of the chain.

    `objective` only decides which stage is named as the bottleneck: the one with the longest period, or the one that
    contributes most to the latency.

    >>> card = ModelCard.from_config("gpt2", dtype="f32")
    >>> node = Node("a", 8_000_000_000, 1e10, {"f32": 1e11})
    >>> evaluate(card, Cluster.uniform([node], 1, 0), [Stage("a", 0, card.depth)]).nodes_used
    1
    """
    check_cover(card, cluster, stages)
    stages = fill(card, cluster, stages)
    data = len(stages[0].replicas)
    period = max(stage.period_s for stage in stages) / data
    latency = math.fsum(stage.compute_s + stage.link_s for stage in stages)
    first = math.fsum(stage.prefill_compute_s + stage.prefill_link_s for stage in stages)

    def weight(position: int) -> float:
        stage = stages[position]
        return stage.compute_s + stage.link_s if objective == "latency" else stage.period_s

    return Prediction(
        tokens_per_s=card.tokens_per_pass / period if period > 0 else math.inf, period_s=period, latency_s=latency,
        first_token_s=first, bottleneck=max(range(len(stages)), key=weight),
        in_flight=max(1, math.ceil(latency / (period * data) - 1e-9)) if period > 0 else 1,
        nodes_used=sum(len(copy) for stage in stages for copy in stage.replicas))


def check_cover(card: ModelCard, cluster: Cluster, stages: Sequence[Stage]) -> None:
    """Stages are not empty, follow each other from layer 0 to the last over lines that exist, and use a node once."""
    at, used = 0, set[str]()
    for stage in stages:
        if stage.start != at or stage.end <= stage.start:
            raise fail(ArgumentError, "plan", f"a stage on {stage.node} holds layers [{stage.start}, {stage.end}) "
                       f"where layer {at} comes next", "stages cover the model in order, without gaps")
        for name in {name for copy in (stage.replicas or (stage.members or (stage.node,),)) for name in copy}:
            cluster.index(name)
            if name in used:
                raise fail(ArgumentError, "plan", f"node {name} is in two stages", "a node holds one range of layers")
            used.add(name)
        at = stage.end
    for stage, following in pairwise(stages):
        if cluster.link(stage.node, following.node).bandwidth_bytes_per_s <= 0:
            raise fail(DeviceError, "plan", f"there is no line from {stage.node} to the next stage's node, "
                       f"{following.node}", "use a strategy that looks at links, such as 'optimal'")
    if at != card.depth:
        raise fail(ArgumentError, "plan", f"the stages end at layer {at} of {card.depth}", "cover the whole model")


def check_constraints(card: ModelCard, stages: Sequence[Stage], constraints: Constraints) -> None:
    """Check constraints beside memory: exclusions, pins, number of stages, tied layers, types of activations."""
    place = {layer: stage for stage in stages for layer in range(stage.start, stage.end)}
    used = {stage: {name for copy in (stage.replicas or (stage.members or (stage.node,),)) for name in copy}
            for stage in stages}
    wrong = [f"{name} is excluded" for name in constraints.excluded if any(name in names for names in used.values())]
    wrong += [f"layer {layer} is pinned to {name}" for layer, name in constraints.pinned.items()
              if name not in used[place[layer]]]
    if constraints.max_stages is not None and len(stages) > constraints.max_stages:
        wrong.append(f"{len(stages)} stages are more than {constraints.max_stages}")
    if constraints.tied == "together" and card.tied and place[card.tied[0]] is not place[card.tied[1]]:
        wrong.append(f"layers {card.tied[0]} and {card.tied[1]} must stay together")
    sent = [stage.activation_dtype or constraints.link_dtype(card) for stage in stages[:-1]]
    spent = math.fsum(ACTIVATION_ERROR[dtype] for dtype in sent)
    budget = constraints.activation_error_budget
    if budget is not None and spent > budget:  # powers of two: their sums are exact
        wrong.append(f"activation errors of {spent:g} exceed the budget of {budget:g}")
    wrong += [f"activations cannot be sent as {dtype}" for dtype in sent if dtype not in constraints.link_dtypes(card)]
    if wrong:
        raise fail(ArgumentError, "plan", f"the strategy breaks a constraint: {wrong[0]}",
                   "use one that knows constraints, such as 'optimal' or 'annealing'")


def check_memory(card: ModelCard, cluster: Cluster, stages: Sequence[Stage], constraints: Constraints) -> None:
    """Every stage fits its node; the error names stage, node and shortfall."""
    for stage in fill(card, cluster, stages, constraints):
        short = stage.memory_needed_bytes - stage.memory_available_bytes
        if short > 0:
            raise fail(MemoryLimit, "plan",
                       f"layers [{stage.start}, {stage.end}) need {format_bytes(stage.memory_needed_bytes)} on "
                       f"{stage.node}, which has {format_bytes(stage.memory_available_bytes)} to give: "
                       f"{format_bytes(short)} short", "use more nodes, a smaller dtype, context or batch")
