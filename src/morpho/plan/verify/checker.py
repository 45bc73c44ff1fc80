"""`plan check`: is a plan what it says it is? Trusts no solver, and uses no code of one.

    report = plan.check(plan)            # or the text of plan.json
    report.ok, report.lines              # one line per thing looked at

Looked at: the stages cover the model in order; constraints; memory; the arithmetic of every stored time and of the
prediction; the lower bound, from the stored duals; and for a plan called optimal a search of its own shows that nothing
beats it by more than one part in a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from morpho.plan.model.layer import ACTIVATION_ERROR
from morpho.plan.predict.plan import Plan, Stage
from morpho.plan.verify.facts import Facts, bytes_of, gather, hop_seconds, seconds_on
from morpho.plan.verify.search import latency_bound_holds, limit, period_bound_holds, plan_below, plan_within

CLOSE = 1e-9  # stored figures may differ from ours by so much, relatively
BETTER = 1e-6  # nothing beats an optimal plan by more


@dataclass
class Report:
    """What was found: `ok`, and a line for each thing looked at, beginning with "ok" or "WRONG"."""

    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(line.startswith("WRONG") for line in self.lines)

    def note(self, good: bool, what: str, wrong: str = "") -> bool:
        """Add a line."""
        self.lines.append(f"ok     {what}" if good else f"WRONG  {what}: {wrong}" if wrong else f"WRONG  {what}")
        return good


def check(plan: Plan | str, prove: bool = True) -> Report:
    """Verify a plan; `prove=False` leaves out the search that re-proves optimality."""
    plan = Plan.from_json(plan) if isinstance(plan, str) else plan
    report = Report()
    if not _cover(plan, report):
        return report
    _constraints(plan, report)
    _memory(plan, report)
    _arithmetic(plan, report)
    _bound(plan, report, prove)
    return report


def _copies(stage: Stage) -> tuple[tuple[str, ...], ...]:
    return stage.replicas or (stage.members or (stage.node,),)


def _cover(plan: Plan, report: Report) -> bool:
    """Ranges follow each other from the first layer to the last; no node is used twice, none is unknown."""
    known, used, at = {node.name for node in plan.cluster.nodes}, set(), 0
    for stage in plan.stages:
        if stage.start != at or stage.end <= stage.start:
            return report.note(False, "cover", f"[{stage.start}, {stage.end}) on {stage.node} where {at} comes next")
        at = stage.end
        for name in (name for copy in _copies(stage) for name in copy):
            if name not in known or name in used:
                return report.note(False, "cover", f"node {name} is {'used twice' if name in used else 'not there'}")
            used.add(name)
        if not all(_copies(stage)):
            return report.note(False, "cover", f"a copy of the stage of {stage.node} has no members")
        if _copies(stage)[0][0] != stage.node or (stage.members and stage.members != _copies(stage)[0]):
            return report.note(False, "cover", f"stage of {stage.node} lists other members")
    return report.note(at == len(plan.card.layers), f"cover: {len(plan.stages)} stages, {at} layers",
                       f"the stages end at layer {at} of {len(plan.card.layers)}")


def _constraints(plan: Plan, report: Report) -> None:
    limits, card = plan.constraints, plan.card
    place = {layer: stage for stage in plan.stages for layer in range(stage.start, stage.end)}
    wrong = [f"layer {layer} is not on {name}" for layer, name in limits.pinned.items()
             if name not in {member for copy in _copies(place[layer]) for member in copy}]
    wrong += [f"{name} is excluded" for stage in plan.stages for copy in _copies(stage) for name in copy
              if name in limits.excluded]
    if limits.max_stages is not None and len(plan.stages) > limits.max_stages:
        wrong.append(f"{len(plan.stages)} stages, at most {limits.max_stages}")
    if limits.tied == "together" and card.tied and place[card.tied[0]] is not place[card.tied[1]]:
        wrong.append("tied layers lie apart")
    wrong += [f"{stage.node} sends {stage.activation_dtype}" for stage in plan.stages[:-1]
              if stage.activation_dtype not in limits.activation_dtypes]
    spent = math.fsum(ACTIVATION_ERROR[stage.activation_dtype] for stage in plan.stages[:-1])
    if limits.activation_error_budget is not None and spent > limits.activation_error_budget * (1 + CLOSE):
        wrong.append(f"activation errors sum to {spent:g}, the budget is {limits.activation_error_budget:g}")
    for stage in plan.stages:
        copies = _copies(stage)
        if len({len(copy) for copy in copies}) > 1 or len(copies[0]) > limits.tensor or len(copies) > limits.data:
            wrong.append(f"the degrees of the stage on {stage.node} are not allowed")
        if len(copies) != len(_copies(plan.stages[0])):
            wrong.append("stages have different numbers of copies")
        kinds = [plan.cluster.node(name) for copy in copies for name in copy]
        if any(node.figures() != kinds[0].figures() for node in kinds):
            wrong.append(f"the members of the stage on {stage.node} are not equal nodes")
    wrong = wrong or _uneven(plan)
    report.note(not wrong, "constraints", "; ".join(wrong))


def _uneven(plan: Plan) -> list[str]:
    """Lines inside a stage, or between copies of two, that are not what the first pair's is: times rest on that one."""
    wrong = []
    for stage, following in zip(plan.stages, [*plan.stages[1:], None]):
        copies = _copies(stage)
        inside = [(a, b) for copy in copies for a in copy for b in copy if a != b]
        onward = [(a[0], b[0]) for a, b in zip(copies, _copies(following))] if following else []
        for pairs in (inside, onward):
            lines = [plan.cluster.link(a, b) for a, b in pairs]
            wrong += [f"the line {line.source} -> {line.target} is not equal to {lines[0].source} -> {lines[0].target}"
                      for line in lines if not (_same(line.bandwidth_bytes_per_s, lines[0].bandwidth_bytes_per_s)
                                                and _same(line.latency_s, lines[0].latency_s))]
    return wrong


def _memory(plan: Plan, report: Report) -> None:
    worst = math.inf
    for stage in plan.stages:
        room = math.floor(plan.cluster.node(stage.node).memory_bytes * (1.0 - plan.constraints.headroom))
        need = math.ceil(bytes_of(plan.card, stage.start, stage.end) / len(_copies(stage)[0]))
        worst = min(worst, room - need)
        if need > room:
            report.note(False, "memory", f"[{stage.start}, {stage.end}) needs {need} bytes, {stage.node} has {room}")
        if (need, room) != (stage.memory_needed_bytes, stage.memory_available_bytes):
            report.note(False, "memory", f"{stage.node} states {stage.memory_needed_bytes} of "
                        f"{stage.memory_available_bytes} bytes; it is {need} of {room}")
    if worst >= 0:
        report.note(True, f"memory: at least {worst} bytes spare on every node")


def _times(plan: Plan, phase: str) -> tuple[list[float], list[float]]:
    """Compute and link seconds of all stages."""
    card, cluster = plan.card, plan.cluster
    compute, links = [], []
    for position, stage in enumerate(plan.stages):
        members = [cluster.index(name) for name in _copies(stage)[0]]
        other = members[1] if len(members) > 1 else None
        compute.append(math.fsum(seconds_on(card, cluster, members[0], layer, len(members), phase, other)
                                 for layer in range(stage.start, stage.end)))
        if position + 1 == len(plan.stages):
            links.append(0.0)
        else:
            target = cluster.index(plan.stages[position + 1].node)
            links.append(hop_seconds(card, cluster, members[0], target, stage.end, stage.activation_dtype, phase))
    return compute, links


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-300)


def _arithmetic(plan: Plan, report: Report) -> None:
    compute, links = _times(plan, plan.card.phase)
    prompt_compute, prompt_links = _times(plan, "prefill")
    data = len(_copies(plan.stages[0]))
    period, latency = max(compute + links) / data, math.fsum(compute + links)
    wrong = [f"{stage.node} states {stage.compute_s} s + {stage.link_s} s, it is {a} s + {b} s"
             for stage, a, b in zip(plan.stages, compute, links)
             if not (_same(stage.compute_s, a) and _same(stage.link_s, b))]
    wrong += [f"{stage.node} states {stage.prefill_compute_s} s + {stage.prefill_link_s} s for a prompt, it is {a} s + "
              f"{b} s" for stage, a, b in zip(plan.stages, prompt_compute, prompt_links)
              if not (_same(stage.prefill_compute_s, a) and _same(stage.prefill_link_s, b))]
    said, tokens = plan.predicted, plan.card.batch * (1 if plan.card.phase == "decode" else plan.card.context)
    first = math.fsum(prompt_compute + prompt_links)
    for name, value in (("period_s", period), ("latency_s", latency), ("first_token_s", first),
                        ("tokens_per_s", tokens / period if period else math.inf)):
        if not _same(getattr(said, name), value):
            wrong.append(f"{name} is stated as {getattr(said, name)}, it is {value}")
    wrong += _counts(plan, compute, links)
    value = latency if plan.objective == "latency" else period
    if plan.objective != "balanced" and not _same(plan.objective_value_s, value):
        wrong.append(f"the objective is stated as {plan.objective_value_s}")
    report.note(not wrong, "arithmetic of the prediction", "; ".join(wrong))


def _counts(plan: Plan, compute: list[float], links: list[float]) -> list[str]:
    """What is wrong with the numbers of a prediction that are no times: bottleneck, batches in flight, nodes."""
    said, wrong = plan.predicted, []
    weight = [a + b if plan.objective == "latency" else max(a, b) for a, b in zip(compute, links)]
    if not 0 <= said.bottleneck < len(weight) or weight[said.bottleneck] < max(weight) * (1 - CLOSE):
        wrong.append(f"stage {said.bottleneck + 1} is stated as the bottleneck, it is "
                     f"{weight.index(max(weight)) + 1}")
    passes = math.fsum(compute + links) / max(compute + links) if max(compute + links) else 1.0
    if abs(said.in_flight - passes) >= 1 + 1e-6 or said.in_flight < passes - 1e-6:
        wrong.append(f"in_flight is stated as {said.in_flight}, the latency has {passes:.4g} periods")
    used = sum(len(copy) for stage in plan.stages for copy in _copies(stage))
    if said.nodes_used != used:
        wrong.append(f"nodes_used is stated as {said.nodes_used}, it is {used}")
    return wrong


def _bound(plan: Plan, report: Report, prove: bool) -> None:
    """The stored lower bound, from its duals or by a search."""
    if plan.objective == "balanced":
        _balanced(plan, report, prove)
        return
    proofs = {int(proof["data"]): proof for proof in plan.witness.get("proofs", ())}
    copies = range(1, (plan.constraints.data if plan.objective == "throughput" else 1) + 1)
    for data in copies:
        facts = gather(plan.card, plan.cluster, plan.constraints, data)
        prices = proofs.get(data, {}).get("prices", {})
        _one_bound(plan, report, facts, prices, data, prove)


def _one_bound(plan: Plan, report: Report, facts: Facts, prices: dict[str, float], data: int, prove: bool) -> None:
    latency = plan.objective == "latency"
    claim = plan.lower_bound_s * data * (1 - BETTER if plan.optimal else 1.0)
    which = f"lower bound {plan.lower_bound_s:.6g} s" + (f" with {data} copies" if data > 1 else "")
    if claim <= 0:
        report.note(True, "lower bound: none is claimed")
    elif (latency_bound_holds if latency else period_bound_holds)(facts, prices, claim):
        report.note(True, f"{which}: follows from the stored duals")
    elif not plan.optimal:
        report.note(False, which, "does not follow from the stored duals")
    elif not prove:
        report.note(True, f"{which}: not searched")
    else:
        beaten = plan_below(facts, claim, prices) if latency else plan_within(facts, claim, prices)
        report.note(not beaten, f"{which}: nothing beats it by more than {BETTER:g} (searched)", "a better plan exists")
    if plan.optimal and not _same(plan.lower_bound_s, plan.objective_value_s):
        report.note(False, "optimal", "bound and value differ")


def _balanced(plan: Plan, report: Report, prove: bool) -> None:
    """Both optima (or bounds of them, where the plan is not called optimal), then that no plan is nearer to both."""
    quick, steady = (float(plan.witness.get(name, 0.0)) for name in ("best_latency_s", "best_period_s"))
    score = max(plan.predicted.latency_s / quick, plan.predicted.period_s / steady) if quick and steady else math.nan
    if plan.lower_bound_s <= 0:
        report.note(not plan.optimal, "lower bound: none is claimed")
        return
    if not report.note(_same(score, plan.objective_value_s), "score", f"it is {score}"):
        return
    if plan.optimal and not _same(plan.lower_bound_s, plan.objective_value_s):
        report.note(False, "optimal", "bound and value differ")
    copies = {data: gather(plan.card, plan.cluster, plan.constraints, data)
              for data in range(1, plan.constraints.data + 1)}
    _front(plan, report)
    _best_latency(plan, report, copies[1], quick, prove)
    for data, facts in copies.items():
        _best_period(plan, report, facts, steady, data, prove)
    if not plan.optimal:
        report.note(plan.lower_bound_s <= 1 + CLOSE, "lower bound 1 of the score: no plan is better in both",
                    f"{plan.lower_bound_s} is claimed")
    elif prove:
        less = score * (1 - BETTER)
        beaten = any(plan_below(limit(facts, steady * data * less), quick * less, {}) for data, facts in copies.items())
        report.note(not beaten, "score (searched)", "a better plan exists")


def _front(plan: Plan, report: Report) -> None:
    """Points of the front agree with themselves, none beats another, and none has a better score than the plan."""
    tokens = plan.card.batch * (1 if plan.card.phase == "decode" else plan.card.context)
    try:
        points = [tuple(float(point[name]) for name in ("latency_s", "period_s", "nodes_used", "tokens_per_s"))
                  for point in plan.front]
    except (KeyError, TypeError, ValueError) as error:
        report.note(False, "front", f"a point lacks or garbles a field: {error}")
        return
    wrong = [f"{rate} tokens/s do not follow from a period of {period} s" for _, period, _, rate in points
             if not _same(rate * period, tokens)]
    wrong += [f"the point of latency {one[0]} s is beaten" for one in points for other in points
              if other is not one and all(a <= b for a, b in zip(other[:3], one[:3]))]
    quick, steady = (float(plan.witness.get(name, 0.0)) for name in ("best_latency_s", "best_period_s"))
    if plan.optimal and quick and steady:
        wrong += [f"the point of latency {latency} s has a better score" for latency, period, _, _ in points
                  if max(latency / quick, period / steady) < plan.objective_value_s * (1 - BETTER)]
    report.note(not wrong, f"front: {len(points)} points", "; ".join(wrong))


def _prices(plan: Plan, data: int) -> list[dict[str, float]]:
    """All stored duals for a number of copies: any of them may prove a bound, whichever time it was found for."""
    return [dict(proof["prices"]) for proof in plan.witness.get("proofs", ()) if proof["data"] == data] or [{}]


def _best_latency(plan: Plan, report: Report, facts: Facts, quick: float, prove: bool) -> None:
    claim, prices = quick * (1 - BETTER if plan.optimal else 1.0), _prices(plan, 1)
    if any(latency_bound_holds(facts, by_node, claim) for by_node in prices):
        report.note(True, f"best latency {quick:.6g} s: follows from the stored duals")
    elif not plan.optimal:
        report.note(False, f"best latency {quick:.6g} s", "does not follow from the stored duals")
    elif prove:
        report.note(not plan_below(facts, claim, prices[0]), "best latency (searched)", "a better one exists")


def _best_period(plan: Plan, report: Report, facts: Facts, steady: float, data: int, prove: bool) -> None:
    claim, prices = steady * data * (1 - BETTER if plan.optimal else 1.0), _prices(plan, data)
    which = f"best period {steady:.6g} s" + (f" with {data} copies" if data > 1 else "")
    if any(period_bound_holds(facts, by_node, claim) for by_node in prices):
        report.note(True, f"{which}: follows from the stored duals")
    elif not plan.optimal:
        report.note(False, which, "does not follow from the stored duals")
    elif prove:
        report.note(not plan_within(facts, claim, prices[-1]), f"{which} (searched)", "a better one exists")
