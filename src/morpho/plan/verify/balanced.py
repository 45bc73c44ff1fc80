"""The objective `balanced`: the optima that its score refers to, the score itself, and the points of the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from morpho.plan.predict.plan import Plan, Stage
from morpho.plan.verify.claims import BETTER, Claims
from morpho.plan.verify.costs import copies_of
from morpho.plan.verify.placement import placement_faults, same, values_of
from morpho.plan.verify.report import Report


def stages_of(rows: Sequence[Any]) -> tuple[Stage, ...]:
    """Stages from [copies, start, end, type of the link] as a front and a witness hold them."""
    return tuple(Stage(copies[0][0], start, end, dtype, tuple(copies[0]), tuple(map(tuple, copies)))
                 for copies, start, end, dtype in rows)


def check_balanced(plan: Plan, claims: Claims, values: tuple[Fraction, Fraction]) -> None:
    """Both optima (or bounds of them, where the plan is not called optimal), then that no plan is nearer to both."""
    report, witness = claims.report, plan.witness
    if "best_latency_s" not in witness or "best_period_s" not in witness:
        report.note(not plan.optimal and plan.lower_bound_s <= 0 and same(plan.objective_value_s, values[0]),
                    "no score and no bound are claimed", "what the score refers to is not stated")
        return
    if witness.get("relaxation", "balanced") != "balanced":
        report.note(False, "witness", f"it is of the objective {witness['relaxation']}")
        return
    best = _attained(plan, report) if plan.optimal else _stated(plan, report)
    if best is None:
        return
    latency_s, period_s = best
    score = max(values[1] / latency_s, values[0] / period_s)
    if not report.note(same(plan.objective_value_s, score), f"score {plan.objective_value_s:.6g}",
                       f"it is {float(score)}"):
        return
    if not claims.stated_bound(score):
        return
    how = "best" if plan.optimal else "bound of the"
    proven = [claims.no_latency_below(latency_s, f"{how} latency {float(latency_s):.6g} s", plan.optimal),
              claims.no_period_below(period_s, f"{how} period {float(period_s):.6g} s", plan.optimal)]
    if plan.optimal:
        claims.no_score_below(score, latency_s, period_s)
    elif all(proven):
        report.note(plan.lower_bound_s <= 1, "lower bound 1 of the score: no plan is better in both",
                    f"{plan.lower_bound_s} is claimed")


def _stated(plan: Plan, report: Report) -> tuple[Fraction, Fraction] | None:
    """The bounds that a score refers to."""
    stated = tuple(Fraction(plan.witness[name]) for name in ("best_latency_s", "best_period_s"))
    if not report.note(min(stated) > 0, "the score refers to bounds of both times", "one of them is not positive"):
        return None
    return stated[0], stated[1]


def _attained(plan: Plan, report: Report) -> tuple[Fraction, Fraction] | None:
    """The optima that a score refers to: those of two plans in the witness."""
    found = []
    for name, what, which in (("latency_plan", "best_latency_s", 1), ("period_plan", "best_period_s", 0)):
        if name not in plan.witness:
            report.note(False, what, "no plan attains it")
            return None
        stages = stages_of(plan.witness[name])
        wrong = placement_faults(plan.card, plan.cluster, plan.constraints, stages)
        values = None if wrong else values_of(plan.card, plan.cluster, stages)
        if values is None:
            report.note(False, what, f"the plan that attains it is none: {'; '.join(wrong)}")
            return None
        if not report.note(same(plan.witness[what], values[which]) and values[which] > 0, f"{what} is attained",
                           f"its plan has {float(values[which])}"):
            return None
        found.append(values[which])
    return found[0], found[1]


def check_front(plan: Plan, report: Report, values: tuple[Fraction, Fraction]) -> None:
    """Every point is a plan with the figures it states, none beats another, and none has a better score."""
    if not plan.front:
        return
    points, wrong = [], []
    for number, point in enumerate(plan.front):
        figures, faults = _point(plan, point)
        wrong += [f"point {number + 1}: {fault}" for fault in faults]
        points.append(figures)
    if not wrong:
        wrong = [f"point {number + 1} is beaten by another" for number, one in enumerate(points)
                 if any(other is not one and all(a <= b for a, b in zip(other, one)) for other in points)]  # type: ignore[operator]
    if not wrong and plan.optimal and plan.objective == "balanced":
        quick, steady = Fraction(plan.witness["best_latency_s"]), Fraction(plan.witness["best_period_s"])
        score = max(values[1] / quick, values[0] / steady)
        wrong = [f"point {number + 1} has a better score" for number, (latency, period, _) in enumerate(points)
                 if max(latency / quick, period / steady) < score * (1 - BETTER)]
    report.note(not wrong, f"front: {len(points)} points, sampled: each is a plan that none of the others beats",
                "; ".join(wrong[:3]))


def _point(plan: Plan, point: Mapping[str, Any]) -> tuple[tuple[Fraction, Fraction, int], list[str]]:
    """Latency, period and nodes of a point, and what is wrong with it."""
    stages = stages_of(point["stages"])
    wrong = placement_faults(plan.card, plan.cluster, plan.constraints, stages)
    values = None if wrong else values_of(plan.card, plan.cluster, stages)
    if values is None:
        return (Fraction(0), Fraction(0), 0), wrong
    period, latency = values
    nodes = sum(len(copy) for stage in stages for copy in copies_of(stage))
    tokens = plan.card.batch * (1 if plan.card.phase == "decode" else plan.card.context)
    exact = {"latency_s": latency, "period_s": period, "tokens_per_s": tokens / period if period else None}
    wrong = [f"{name} is stated as {point[name]}, it is {float(value)}" for name, value in exact.items()
             if value is not None and not same(point[name], value)]
    if point["nodes_used"] != nodes:
        wrong.append(f"nodes_used is stated as {point['nodes_used']}, it is {nodes}")
    return (latency, period, nodes), wrong
