"""The objective `balanced`: what latency, throughput and number of nodes can be had together.

The front holds plans of which none is at least as good as another in latency, period and nodes. The plan that
`balanced` picks is the one whose larger ratio to the two optima is least: with a score of 1.2 both its latency and
its period are within 20 % of the best possible, and no plan has a smaller score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from morpho.plan.solve.exact.branch_and_bound import Answer, best_latency, best_period, lattice_cells
from morpho.plan.solve.exact.multiset_dp import MultisetDP
from morpho.plan.solve.exact.relaxation import candidates
from morpho.plan.solve.problem import Placement, Problem

FRONT_STEPS = 16
WIDE_CELLS = 20_000_000
WIDTH = 128


@dataclass(frozen=True)
class Near:
    """Offer of one number of pipeline copies: its own optima, and its front as (latency, period, path)."""

    problem: Problem
    latency: Answer
    period: Answer
    front: list[tuple[float, float, Placement]]


@dataclass(frozen=True)
class Balanced:
    """The balanced path, its problem and score, what is proven, both optima (the period that of all copies together),
    and what there is with each number of copies."""

    problem: Problem
    path: Placement
    score: float
    bound: float
    optimal: bool
    latency_s: float
    period_s: float
    near: list[Near]


def balance(problems: Iterable[Problem]) -> Balanced | None:
    """The balanced plan over all numbers of copies, each by bisection over the periods a plan can have."""
    near = []
    for problem in problems:
        quick, steady = best_latency(problem), best_period(problem)
        if quick is not None and steady is not None:
            near.append(Near(problem, quick, steady, []))
    if not near:
        return None
    latency_s = min(each.latency.value_s for each in near)
    period_s = min(each.period.value_s / each.problem.data for each in near)
    found = [_nearest(each, latency_s, period_s * each.problem.data) for each in near]
    proven = all(sure and each.latency.optimal and each.period.optimal for (_, _, sure), each in zip(found, near))
    (score, path, _), best = min(zip(found, near), key=lambda pair: pair[0][0])
    return Balanced(best.problem, path, score, score if proven else 1.0, proven, latency_s, period_s, near)


def _nearest(near: Near, latency_s: float, period_s: float) -> tuple[float, Placement, bool]:
    """The least score of a problem, its path, and whether that is proven; what is met on the way joins the front."""
    problem, quick = near.problem, near.latency
    slowest = problem.values(quick.path)[0]

    def score(path: Placement) -> float:
        period, latency = problem.values(path)
        return max(latency / latency_s, period / period_s)

    values = np.concatenate([candidates(problem, near.period.value_s * (1 - 1e-9), slowest * (1 - 1e-9)), [slowest]])
    near.front.append((quick.value_s, slowest, quick.path))
    best, proven = (score(quick.path), quick.path), True
    low, high = -1, len(values) - 1  # the smallest period at which the latency is the better ratio lies in (low, high]
    while low + 1 < high:
        middle = (low + high) // 2
        answer = best_latency(problem.within(float(values[middle])))
        if answer is None:
            low = middle
            continue
        proven = proven and answer.optimal
        near.front.append((answer.value_s, problem.values(answer.path)[0], answer.path))
        best = min(best, (score(answer.path), answer.path))
        if answer.value_s / latency_s <= values[middle] / period_s:
            high = middle
        else:
            low = middle
    if low >= 0:  # just below the crossing the latency decides
        answer = best_latency(problem.within(float(values[low])))
        if answer is not None:
            best = min(best, (score(answer.path), answer.path))
    return (*best, proven)


def pareto_front(problem: Problem, known: list[tuple[float, float, Placement]], shortest_s: float,
                 steps: int = FRONT_STEPS) -> list[tuple[float, float, Placement]]:
    """Plans of which none beats another in latency, period and nodes: the least latency of each number of stages within
    periods that fall from no limit to the shortest in at most `steps` steps."""
    found = list(known)
    limit, ratio = math.inf, 1.0
    width = WIDTH if lattice_cells(problem) > WIDE_CELLS else None
    for step in range(steps):
        answers = MultisetDP(problem.within(limit), width=width).run()
        points = [(value, problem.values(path)[0], path) for value, path in answers.values()]
        if not points:
            break
        found += points
        longest = max(period for _, period, _ in points)
        if step == 0:
            ratio = (shortest_s / longest) ** (1 / max(1, steps - 1))
        limit = min(longest * (1 - 1e-9), limit * ratio) if math.isfinite(limit) else longest * max(ratio, 0.5)
        limit = max(limit, shortest_s)
        if longest <= shortest_s * (1 + 1e-9):
            break
    return undominated(problem, found)


def undominated(problem: Problem, points: list[tuple[float, float, Placement]]) -> list[tuple[float, float, Placement]]:
    """Points that no other one beats or equals in latency, period and nodes at once, from low latency to high."""
    def nodes(path: Placement) -> int:
        return int(sum(problem.use[stage[0]] for stage in path))

    kept: list[tuple[float, float, Placement]] = []
    for point in sorted(points, key=lambda point: (point[0], point[1], nodes(point[2]))):
        if not any(other[0] <= point[0] * (1 + 1e-9) and other[1] <= point[1] * (1 + 1e-9)
                   and nodes(other[2]) <= nodes(point[2]) for other in kept):
            kept.append(point)
    return kept
