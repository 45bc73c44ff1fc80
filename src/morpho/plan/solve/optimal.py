"""The strategy `optimal`: exact search, or beyond its reach the best that annealing and a narrow search find."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

from morpho.plan.predict.closed_form import evaluate
from morpho.plan.solve.annealing import anneal, cheap_start, climb
from morpho.plan.solve.exact.branch_and_bound import Answer, best_latency, best_period, is_large
from morpho.plan.solve.exact.dual_bound import prices_by_node, problems
from morpho.plan.solve.exact.feasibility_sets import BEAM, SetSearch
from morpho.plan.solve.exact.relaxation import period_bound, refute
from morpho.plan.solve.pareto import FRONT_STEPS, balance, pareto_front, undominated
from morpho.plan.solve.problem import Placement, Problem, no_plan
from morpho.plan.solve.registry import Proposal, Request, register_strategy

LARGE_MOVES, LARGE_CLIMBS, LARGE_ROUNDS = 300_000, 2_000, 60
NARROW_SEARCHES = 4


@register_strategy("optimal")
def optimal(request: Request) -> Proposal:
    """The best plan there is, proven; beyond the sizes of `docs/planner.md` the best found, with a bound.

    With `constraints.data` above 1 every number of copies of the pipeline is searched, with `constraints.tensor`
    above 1 every way to let interchangeable nodes share layers.
    """
    if request.objective == "balanced":
        return _balanced(request)
    best: tuple[float, Answer, Problem] | None = None
    proofs, bound = [], math.inf
    for problem in problems(request.card, request.cluster, request.objective, request.constraints):
        answer = _answer(request, problem)
        if answer is None:
            continue
        proofs.append({"data": problem.data, "bound_s": answer.bound_s, **answer.witness})
        bound = min(bound, answer.bound_s / problem.data)
        if best is None or answer.value_s / problem.data < best[0]:
            best = answer.value_s / problem.data, answer, problem
    if best is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    value, answer, problem = best
    proven = bound >= value * (1 - 1e-9)
    return Proposal(problem.stages(answer.path), value if proven else bound, proven,
                    {"relaxation": request.objective, "proofs": proofs})


def _answer(request: Request, problem: Problem) -> Answer | None:
    """Exact where the number of states allows; else the best found, with the bound of the relaxation."""
    if not is_large(problem):
        return best_latency(problem) if request.objective == "latency" else best_period(problem)
    path = anneal(problem, cheap_start(request, problem), request.objective, request.seed, LARGE_MOVES)
    path = climb(problem, path, request.objective, LARGE_CLIMBS, Random(request.seed))
    if request.objective == "latency":
        return best_latency(problem, path)
    bound, prices = period_bound(problem, problem.values(path)[0], LARGE_ROUNDS)
    path = narrow(problem, path, bound, prices)
    value = problem.values(path)[0]
    return Answer(path, value, bound, False, {"prices": prices_by_node(problem, prices)})


def narrow(problem: Problem, path: Placement, bound_s: float, prices: np.ndarray) -> Placement:
    """A better path for the period, if a narrow search between the bound and the best known one meets any."""
    low = bound_s
    for _ in range(NARROW_SEARCHES):
        value = problem.values(path)[0]
        if value <= low * 1.005:
            break
        limited = problem.within((low + value) / 2)
        search = SetSearch(problem=limited, width=BEAM)
        search.refutation = refute(limited, 20, prices)
        better = search.first_path()
        if better is None:
            low = (low + value) / 2
        else:
            path = better
    return path


def _balanced(request: Request) -> Proposal:
    """The plan of the best score, and the front around it."""
    choices = list(problems(request.card, request.cluster, "throughput", request.constraints))
    if is_large(choices[0]):
        return _balanced_large(request, choices[0])
    found = balance(choices)
    if found is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    steps = int(request.options.get("front_steps", FRONT_STEPS))
    front = [_point(request, near.problem, path) for near in found.near
             for _, _, path in pareto_front(near.problem, near.front, near.period.value_s, steps)]
    proofs = [{"data": near.problem.data, **answer.witness} for near in found.near
              for answer in (near.latency, near.period)]
    witness = {"relaxation": "balanced", "best_latency_s": found.latency_s, "best_period_s": found.period_s,
               "proofs": proofs}
    return Proposal(found.problem.stages(found.path), found.bound, found.optimal, witness, found.score,
                    _unbeaten(front))


def _unbeaten(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points of all numbers of copies that no other equals or beats in latency, period and nodes at once."""
    kept: list[dict[str, Any]] = []
    names = ("latency_s", "period_s", "nodes_used")
    for point in sorted(points, key=lambda point: [point[name] for name in names]):
        if not any(all(other[name] <= point[name] * (1 + 1e-9) for name in names) for other in kept):
            kept.append(point)
    return kept


def _point(request: Request, problem: Problem, path: Placement) -> dict[str, Any]:
    """A plan of the front as plain data."""
    stages = problem.stages(path)
    predicted = evaluate(request.card, request.cluster, stages)
    return {"latency_s": predicted.latency_s, "period_s": predicted.period_s, "tokens_per_s": predicted.tokens_per_s,
            "nodes_used": predicted.nodes_used,
            "stages": [[" | ".join("+".join(copy) for copy in stage.replicas), stage.start, stage.end]
                       for stage in stages]}


def _balanced_large(request: Request, problem: Problem) -> Proposal:
    """Beyond exact search: the better of the two plans that minimise one time alone; `solve` adds bound and score."""
    start = cheap_start(request, problem)
    paths = [climb(problem, anneal(problem, start, objective, request.seed, LARGE_MOVES), objective, LARGE_CLIMBS,
                   Random(request.seed)) for objective in ("latency", "throughput")]
    quick, steady = problem.values(paths[0])[1], problem.values(paths[1])[0]
    chosen = min(paths, key=lambda path: max(problem.values(path)[1] / quick, problem.values(path)[0] / steady))
    points = undominated(problem, [(problem.values(path)[1], problem.values(path)[0], path) for path in paths])
    return Proposal(problem.stages(chosen), front=[_point(request, problem, path) for _, _, path in points])
