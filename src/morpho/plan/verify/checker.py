"""`plan check`: is a plan what it says it is? Trusts no solver, and uses no code of one.

    report = plan.check(plan)                             # or the text of plan.json
    report = plan.check(plan, card=card, cluster=cluster) # is it a plan for these?
    report.ok, report.lines                               # one line per thing looked at

Looked at: the stages cover the model in order; constraints; memory; every stored time, count and rate, in rational
numbers; the lower bound, from the stored duals, in integers; for a plan called optimal, that nothing beats it by more
than one part in 10^8, from the duals or by a search; the optima that a balanced score refers to, which must be attained
and proven; every point of the front.
"""

from __future__ import annotations

from fractions import Fraction

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.predict.plan import Plan
from morpho.plan.verify.balanced import check_balanced, check_front
from morpho.plan.verify.claims import Claims
from morpho.plan.verify.inputs import check_inputs
from morpho.plan.verify.placement import (
    check_binding,
    check_figures,
    constraint_faults,
    cover_fault,
    memory_faults,
    same,
    values_of,
)
from morpho.plan.verify.report import Report


def check(plan: Plan | str, prove: bool = True, card: ModelCard | None = None, cluster: Cluster | None = None
          ) -> Report:
    """Verify a plan; `prove=False` leaves out the searches that re-prove optimality where the duals do not.

    With `card` or `cluster`, also whether it is a plan for this model and these machines.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> plan.check(p).ok
    True
    """
    plan = Plan.from_json(plan) if isinstance(plan, str) else plan
    report = Report()
    check_inputs(plan, report, card, cluster)
    fault = cover_fault(plan.card, plan.cluster, plan.stages)
    if not report.note(not fault, f"cover: {len(plan.stages)} stages, {plan.card.depth} layers", fault):
        return report
    wrong = constraint_faults(plan.card, plan.cluster, plan.constraints, plan.stages)
    report.note(not wrong, "constraints", "; ".join(wrong))
    wrong = memory_faults(plan.card, plan.cluster, plan.constraints, plan.stages)
    if wrong:
        report.note(False, "memory", "; ".join(wrong))
    check_figures(plan, report)
    check_binding(plan, report)
    values = values_of(plan.card, plan.cluster, plan.stages)
    if report.ok and values is not None:
        claims = Claims(plan, report, prove)
        if plan.objective == "balanced":
            check_balanced(plan, claims, values)
        else:
            _check_bound(plan, claims, values)
        if report.ok:
            check_front(plan, report, values)
    report.leave(f"said and not verified: strategy {plan.strategy!r}, seed {plan.seed}"
                 + (f", {len(plan.notes) + len(plan.card.notes)} notes" if plan.notes or plan.card.notes else ""))
    return report


def _check_bound(plan: Plan, claims: Claims, values: tuple[Fraction, Fraction]) -> None:
    """The value, and its lower bound from the duals or by a search."""
    report, latency = claims.report, plan.objective == "latency"
    value = values[1] if latency else values[0]
    if not report.note(same(plan.objective_value_s, value), f"objective value {plan.objective_value_s:.6g} s",
                       f"it is {float(value)}"):
        return
    stated = plan.witness.get("relaxation", plan.objective)
    if stated != plan.objective:
        report.note(False, "witness", f"it is of the objective {stated}")
        return
    if not claims.stated_bound(value):
        return
    if plan.lower_bound_s <= 0:
        report.note(True, "lower bound: none is claimed")
        return
    bound = value if plan.optimal else Fraction(plan.lower_bound_s)
    what = f"lower bound {plan.lower_bound_s:.6g} s"
    (claims.no_latency_below if latency else claims.no_period_below)(bound, what, plan.optimal)
