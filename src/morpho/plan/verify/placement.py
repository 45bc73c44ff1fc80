"""A placement by itself: does it cover the model, keep the constraints, fit, and take the time it says?"""

from __future__ import annotations

import math
from fractions import Fraction

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import COMPUTES_AS, Node
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, Layer
from morpho.plan.predict.plan import Constraints, Plan, Stage
from morpho.plan.verify.costs import copies_of, interchangeable, layer_cost, memory_of, room_of, stage_costs
from morpho.plan.verify.report import Report

CLOSE = Fraction(1, 10**9)  # stated figures are floats: they may differ from ours by so much, relatively


def same(stated: float, value: Fraction) -> bool:
    """Whether a stated float is a value."""
    return math.isfinite(stated) and abs(Fraction(stated) - value) <= CLOSE * abs(value)


def cover_fault(card: ModelCard, cluster: Cluster, stages: tuple[Stage, ...]) -> str:
    """Ranges follow each other from the first layer to the last; no node is used twice, none is unknown."""
    known, used, at = {node.name for node in cluster.nodes}, set(), 0
    for stage in stages:
        copies = copies_of(stage)
        if stage.start != at or stage.end <= stage.start:
            return f"[{stage.start}, {stage.end}) on {stage.node} where {at} comes next"
        at = stage.end
        for name in (name for copy in copies for name in copy):
            if name not in known or name in used:
                return f"node {name} is {'used twice' if name in used else 'not there'}"
            used.add(name)
        if not all(copies):
            return f"a copy of the stage of {stage.node} has no members"
        if not stage.replicas or copies[0][0] != stage.node or stage.members != copies[0]:
            return f"stage of {stage.node} lists other members"
    return "" if at == card.depth else f"the stages end at layer {at} of {card.depth}"


def constraint_faults(card: ModelCard, cluster: Cluster, limits: Constraints, stages: tuple[Stage, ...]) -> list[str]:
    """Every constraint that a placement breaks; it must cover the model."""
    place = {layer: stage for stage in stages for layer in range(stage.start, stage.end)}
    wrong = [f"layer {layer} is not on {name}" for layer, name in limits.pinned.items()
             if name not in {member for copy in copies_of(place[layer]) for member in copy}]
    wrong += [f"{name} is excluded" for stage in stages for copy in copies_of(stage) for name in copy
              if name in limits.excluded]
    if limits.max_stages is not None and len(stages) > limits.max_stages:
        wrong.append(f"{len(stages)} stages, at most {limits.max_stages}")
    if limits.tied == "together" and card.tied and place[card.tied[0]] is not place[card.tied[1]]:
        wrong.append("tied layers lie apart")
    allowed = limits.activation_dtypes or (card.activation_dtype,)
    wrong += [f"{stage.node} sends {stage.activation_dtype or 'nothing'}" for stage in stages[:-1]
              if stage.activation_dtype not in allowed]
    spent = sum((Fraction(ACTIVATION_ERROR.get(stage.activation_dtype, 0.0)) for stage in stages[:-1]), Fraction(0))
    budget = limits.activation_error_budget
    if budget is not None and spent > Fraction(budget):
        wrong.append(f"activation errors sum to {float(spent):g}, the budget is {budget:g}")
    return wrong + _degree_faults(cluster, limits, stages)


def _degree_faults(cluster: Cluster, limits: Constraints, stages: tuple[Stage, ...]) -> list[str]:
    """Stages on several nodes: degrees that are allowed, nodes that are interchangeable, lines that are equal."""
    if all(len(copies_of(stage)) == 1 and len(copies_of(stage)[0]) == 1 for stage in stages):
        return []
    pinned = {cluster.index(name) for name in limits.pinned.values()}
    group_of = {cluster.nodes[node].name: number for number, group in enumerate(interchangeable(cluster, pinned))
                for node in group}
    wrong = []
    for stage in stages:
        copies = copies_of(stage)
        if len({len(copy) for copy in copies}) > 1 or len(copies[0]) > limits.tensor or len(copies) > limits.data:
            wrong.append(f"the degrees of the stage on {stage.node} are not allowed")
        if len(copies) != len(copies_of(stages[0])):
            wrong.append("stages have different numbers of copies")
        if len({group_of[name] for copy in copies for name in copy}) > 1:
            wrong.append(f"the members of the stage on {stage.node} are not interchangeable: "
                         f"a line or a figure is not equal")
    return wrong


def memory_faults(card: ModelCard, cluster: Cluster, limits: Constraints, stages: tuple[Stage, ...]) -> list[str]:
    """Stages that do not fit their nodes."""
    wrong = []
    for stage in stages:
        need, room = stage_memory(card, cluster, limits, stage)
        if need > room:
            wrong.append(f"[{stage.start}, {stage.end}) needs {need} bytes, {stage.node} has {room}")
    return wrong


def stage_memory(card: ModelCard, cluster: Cluster, limits: Constraints, stage: Stage) -> tuple[int, int]:
    """Bytes that each member needs, and has to give."""
    members = len(copies_of(stage)[0])
    return -(-memory_of(card, stage.start, stage.end) // members), room_of(cluster.node(stage.node), limits.headroom)


def values_of(card: ModelCard, cluster: Cluster, stages: tuple[Stage, ...]) -> tuple[Fraction, Fraction] | None:
    """Period and latency of a placement; None where two neighbours have no line."""
    costs = stage_costs(card, cluster, stages, card.phase)
    if costs is None:
        return None
    compute, links = costs
    return max(compute + links) / len(copies_of(stages[0])), sum(compute + links, Fraction(0))


def placement_faults(card: ModelCard, cluster: Cluster, limits: Constraints, stages: tuple[Stage, ...]) -> list[str]:
    """All that is wrong with a placement, whatever it says of itself."""
    if fault := cover_fault(card, cluster, stages):
        return [fault]
    wrong = constraint_faults(card, cluster, limits, stages) + memory_faults(card, cluster, limits, stages)
    return wrong or ([] if values_of(card, cluster, stages) else ["two neighbours have no line"])


def check_figures(plan: Plan, report: Report) -> bool:
    """The stated figures of a plan that is a placement: memory, times, prediction."""
    card, cluster = plan.card, plan.cluster
    wrong, spare = [], math.inf
    for stage in plan.stages:
        need, room = stage_memory(card, cluster, plan.constraints, stage)
        spare = min(spare, room - need)
        if (need, room) != (stage.memory_needed_bytes, stage.memory_available_bytes):
            wrong.append(f"{stage.node} states {stage.memory_needed_bytes} of {stage.memory_available_bytes} bytes; "
                         f"it is {need} of {room}")
        if stage.memory_tight != _tight(plan, stage, room):
            wrong.append(f"{stage.node} states memory_tight = {stage.memory_tight}")
    report.note(not wrong, f"memory: at least {spare} bytes spare on every node", "; ".join(wrong))
    wrong = _time_faults(plan)
    return report.note(not wrong, "arithmetic of the prediction", "; ".join(wrong))


def _tight(plan: Plan, stage: Stage, room: int) -> bool:
    """Whether one more layer at either end would not fit."""
    members, depth = len(copies_of(stage)[0]), plan.card.depth
    wider = [(max(0, stage.start - 1), stage.end), (stage.start, min(depth, stage.end + 1))]
    return any(-(-memory_of(plan.card, *part) // members) > room for part in wider)


def _time_faults(plan: Plan) -> list[str]:
    """Faults of the times, rates and counts that a plan states."""
    card, said = plan.card, plan.predicted
    costs, prompt = (stage_costs(card, plan.cluster, plan.stages, phase) for phase in (card.phase, "prefill"))
    if costs is None or prompt is None:
        return ["two neighbours have no line"]
    compute, links = costs
    data = len(copies_of(plan.stages[0]))
    longest, latency = max(compute + links), sum(compute + links, Fraction(0))
    wrong = []
    for stage, *exact in zip(plan.stages, compute, links, *prompt):
        stated = (stage.compute_s, stage.link_s, stage.prefill_compute_s, stage.prefill_link_s)
        if not all(map(same, stated, exact)):
            wrong.append(f"{stage.node} states {stated} s, it is {tuple(map(float, exact))} s")
    tokens = card.batch * (1 if card.phase == "decode" else card.context)
    figures = {"period_s": longest / data, "latency_s": latency, "first_token_s": sum(prompt[0] + prompt[1]),
               "tokens_per_s": tokens * data / longest if longest else None}
    wrong += [f"{name} is stated as {getattr(said, name)}, it is {float(value)}" for name, value in figures.items()
              if value is not None and not same(getattr(said, name), Fraction(value))]
    weight = [a + b if plan.objective == "latency" else max(a, b) for a, b in zip(compute, links)]
    if not 0 <= said.bottleneck < len(weight) or weight[said.bottleneck] < max(weight) * (1 - CLOSE):
        wrong.append(f"stage {said.bottleneck + 1} is stated as the bottleneck, it is "
                     f"{weight.index(max(weight)) + 1}")
    passes = latency / longest if longest else Fraction(1)
    # As many as it takes, and not one more; predictions round down what is a whole number but for 10^-9.
    if not (said.in_flight - 1 < passes * (1 - CLOSE / 1000) and said.in_flight >= passes - 2 * CLOSE):
        wrong.append(f"in_flight is stated as {said.in_flight}, the latency has {float(passes):.4g} periods")
    used = sum(len(copy) for stage in plan.stages for copy in copies_of(stage))
    if said.nodes_used != used:
        wrong.append(f"nodes_used is stated as {said.nodes_used}, it is {used}")
    return wrong


def check_binding(plan: Plan, report: Report) -> None:
    """Check that the stated bottleneck of each stage is where most of its time goes."""
    card, wrong = plan.card, []
    costs = stage_costs(card, plan.cluster, plan.stages, card.phase)
    for stage, compute, link in zip(plan.stages, *(costs or ((), ()))):
        node = plan.cluster.node(stage.node)
        sides = dict.fromkeys(("compute", "memory bandwidth", "measured"), Fraction(0))
        for layer in card.layers[stage.start:stage.end]:
            sides[_side(card, node, layer)] += layer_cost(card, node, layer, card.phase)
        largest = max(sides.values()) * (1 - CLOSE)
        by_link = stage.binds == "link" and link >= compute * (1 - CLOSE)
        by_side = link <= compute * (1 + CLOSE) and sides.get(stage.binds, Fraction(-1)) >= largest
        if not by_link and not by_side:
            wrong.append(f"{stage.node} is not bound by {stage.binds or 'nothing'}")
    report.note(not wrong, "what binds each stage", "; ".join(wrong))


def _side(card: ModelCard, node: Node, layer: Layer) -> str:
    """The side of the roofline that a layer's time is on."""
    if layer.key in node.measured:
        return "measured"
    late = card.phase == "decode"
    rate = next(node.flops_per_s[dtype] for dtype in COMPUTES_AS[card.dtype] if dtype in node.flops_per_s)
    computing = Fraction(layer.decode_flops if late else layer.prefill_flops) / Fraction(rate)
    moving = Fraction(layer.decode_bytes if late else layer.prefill_bytes) / Fraction(node.memory_bytes_per_s)
    return "compute" if computing >= moving else "memory bandwidth"
