"""The strategy `optimal`: exact search over one problem, or over the ways to combine degrees of parallelism."""

from __future__ import annotations

from morpho.plan.exact import Answer, best_latency, best_period
from morpho.plan.problem import build, no_plan
from morpho.plan.strategies import Proposal, Request, register_strategy


@register_strategy("optimal")
def optimal(request: Request) -> Proposal:
    """The best plan there is, proven; beyond the sizes of `docs/planner.md` the best found, with a bound."""
    problem = build(request.card, request.cluster, request.constraints)
    answer: Answer | None = (best_latency if request.objective == "latency" else best_period)(problem)
    if answer is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    return Proposal(problem.stages(answer.path), answer.bound_s, answer.optimal, answer.witness)
