"""The strategy `optimal`: branch and bound, or beyond its reach an anytime search with a dual bound."""

from __future__ import annotations

import math
from typing import Any

from morpho.plan.predict.closed_form import evaluate
from morpho.plan.solve.annealing import start_placement
from morpho.plan.solve.anytime import anytime_latency, anytime_period
from morpho.plan.solve.deadline import Deadline, TimeUp
from morpho.plan.solve.exact.branch_and_bound import Answer, best_latency, best_period, is_large
from morpho.plan.solve.exact.dual_bound import problems
from morpho.plan.solve.pareto import FRONT_STEPS, Balanced, balance, pareto_front, undominated
from morpho.plan.solve.problem import Placement, Problem, no_plan
from morpho.plan.solve.registry import Proposal, Request, register_strategy

FIRST_SHARE = 0.4  # of the time given: for incumbent and bound, before the exact search


@register_strategy("optimal")
def optimal(request: Request) -> Proposal:
    """The best plan there is, proven; beyond the sizes of `docs/planner.md`, or when `seconds` are over, the best found
    with a dual bound.

    With `constraints.data` above 1 every number of copies of the pipeline is searched, with `constraints.tensor`
    above 1 every way to let interchangeable nodes share layers.
    """
    deadline = deadline_of(request)
    if request.objective == "balanced":
        return _balanced(request, deadline)
    best: tuple[float, Answer, Problem] | None = None
    proofs, bound = [], math.inf
    choices = list(problems(request.card, request.cluster, request.objective, request.constraints))
    for number, problem in enumerate(choices):
        answer = solve_one(request, problem, request.objective, deadline.share(1 / (len(choices) - number)))
        if answer is None:
            continue
        proofs.append({"data": problem.data, **answer.witness})
        bound = min(bound, answer.bound_s / problem.data)
        if best is None or answer.value_s / problem.data < best[0]:
            best = answer.value_s / problem.data, answer, problem
    if best is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    value, answer, problem = best
    proven = bound >= value * (1 - 1e-9)
    return Proposal(problem.stages(answer.path), value if proven else bound, proven,
                    {"relaxation": request.objective, "proofs": proofs})


def deadline_of(request: Request) -> Deadline:
    """Deadline of the search: `seconds` less the time to complete the plan."""
    seconds = request.options.get("seconds")
    return Deadline(None if seconds is None else 0.9 * float(seconds))


def solve_one(request: Request, problem: Problem, objective: str, deadline: Deadline) -> Answer | None:
    """Exact where the number of states and the time allow; else the best found, with the bound of the relaxation."""
    exact = best_latency if objective == "latency" else best_period
    if not is_large(problem) and math.isinf(deadline.until):
        return exact(problem)
    start = start_placement(request, problem, objective, deadline)
    if start is None:
        return None
    anytime = anytime_latency if objective == "latency" else anytime_period
    answer = anytime(problem, start, deadline if is_large(problem) else deadline.share(FIRST_SHARE))
    if answer.optimal or is_large(problem) or deadline.passed():
        return answer
    try:
        better = exact(problem, answer.path, deadline)
    except TimeUp:
        return answer
    if better is None or better.optimal:
        return better
    bounds = max((answer, better), key=lambda one: one.bound_s)
    plans = min((answer, better), key=lambda one: one.value_s)
    return Answer(plans.path, plans.value_s, bounds.bound_s, False, bounds.witness)


def _balanced(request: Request, deadline: Deadline) -> Proposal:
    """The plan of the best score, and plans around it."""
    choices = list(problems(request.card, request.cluster, "throughput", request.constraints))
    if is_large(choices[0]) or not math.isinf(deadline.until):
        return _balanced_anytime(request, choices[0], deadline)
    found = balance(choices)
    if found is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    steps = int(request.options.get("front_steps", FRONT_STEPS))
    front = [_point(request, near.problem, path) for near in found.near
             for _, _, path in pareto_front(near.problem, near.front, near.period.value_s, steps)]
    return Proposal(found.problem.stages(found.path), found.bound, found.optimal, balanced_witness(request, found),
                    found.score, _unbeaten(front))


def balanced_witness(request: Request, found: Balanced) -> dict[str, Any]:
    """Both optima that a score refers to: plans that attain them, and the duals of their bounds."""
    quick = min(found.near, key=lambda near: near.latency.value_s)
    steady = min(found.near, key=lambda near: near.period.value_s / near.problem.data)
    return {"relaxation": "balanced", "best_latency_s": found.latency_s, "best_period_s": found.period_s,
            "latency_plan": _point(request, quick.problem, quick.latency.path)["stages"],
            "period_plan": _point(request, steady.problem, steady.period.path)["stages"],
            "proofs": [{"data": near.problem.data, **answer.witness} for near in found.near
                       for answer in (near.latency, near.period)]}


def _unbeaten(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of all numbers of copies that no other equals or beats in latency, period and nodes at once."""
    kept: list[dict[str, Any]] = []
    names = ("latency_s", "period_s", "nodes_used")
    for point in sorted(points, key=lambda point: [point[name] for name in names]):
        if not any(all(other[name] <= point[name] * (1 + 1e-9) for name in names) for other in kept):
            kept.append(point)
    return kept


def _point(request: Request, problem: Problem, path: Placement) -> dict[str, Any]:
    """A plan of the front as plain data, with all that a checker needs to work it out anew."""
    stages = problem.stages(path)
    predicted = evaluate(request.card, request.cluster, stages)
    return {"latency_s": predicted.latency_s, "period_s": predicted.period_s, "tokens_per_s": predicted.tokens_per_s,
            "nodes_used": predicted.nodes_used,
            "stages": [[[list(copy) for copy in stage.replicas], stage.start, stage.end, stage.activation_dtype]
                       for stage in stages]}


def _balanced_anytime(request: Request, problem: Problem, deadline: Deadline) -> Proposal:
    """Without an exact search: the better of two plans that minimise one time alone; `solve` adds bound and score."""
    answers = [solve_one(request, problem, objective, deadline.share(share))
               for objective, share in (("latency", 0.4), ("throughput", 0.7))]
    paths = [answer.path for answer in answers if answer is not None]
    if not paths:
        raise no_plan(request.card, request.cluster, request.constraints)
    quick = min(problem.values(path)[1] for path in paths)
    steady = min(problem.values(path)[0] for path in paths)
    chosen = min(paths, key=lambda path: max(problem.values(path)[1] / quick, problem.values(path)[0] / steady))
    points = undominated(problem, [(problem.values(path)[1], problem.values(path)[0], path) for path in paths])
    return Proposal(problem.stages(chosen), front=[_point(request, problem, path) for _, _, path in points])
