"""The objective `balanced`: what latency, throughput and number of nodes can be had together.

The front holds plans of which none is at least as good as another in latency, period and nodes. The plan that
`balanced` picks is the one whose larger ratio to the two optima is least: with a score of 1.2 both its latency and
its period are within 20 % of the best possible, and no plan has a smaller score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from morpho.plan.exact import Answer, best_latency, best_period, lattice_cells
from morpho.plan.problem import Path, Problem
from morpho.plan.relaxation import candidates
from morpho.plan.sweep import Sweep

FRONT_STEPS = 16
WIDE_CELLS = 20_000_000
WIDTH = 128


@dataclass(frozen=True)
class Balanced:
    """The balanced path, its score, what is proven of it, and the front as (latency, period, path)."""

    path: Path
    score: float
    bound: float
    optimal: bool
    latency: Answer
    period: Answer
    front: list[tuple[float, float, Path]]


def balance(problem: Problem) -> Balanced | None:
    """The balanced plan of a problem, by bisection over the periods a plan can have."""
    quick, steady = best_latency(problem), best_period(problem)
    if quick is None or steady is None:
        return None
    slowest = problem.values(quick.path)[0]
    values = np.concatenate([candidates(problem, steady.value_s * (1 - 1e-9), slowest * (1 - 1e-9)), [slowest]])
    best: tuple[float, Path] = (math.inf, quick.path)
    proven = quick.optimal and steady.optimal
    low, high = -1, len(values) - 1  # the smallest period at which the latency is the better ratio lies in (low, high]
    front = [(quick.value_s, slowest, quick.path)]
    best = min(best, (_score(problem, quick.path, quick, steady), quick.path))
    while low + 1 < high:
        middle = (low + high) // 2
        answer = best_latency(problem.within(float(values[middle])))
        if answer is None:
            low = middle
            continue
        proven = proven and answer.optimal
        front.append((answer.value_s, problem.values(answer.path)[0], answer.path))
        best = min(best, (_score(problem, answer.path, quick, steady), answer.path))
        if answer.value_s / quick.value_s <= values[middle] / steady.value_s:
            high = middle
        else:
            low = middle
    if low >= 0:  # just below the crossing the latency decides
        answer = best_latency(problem.within(float(values[low])))
        if answer is not None:
            best = min(best, (_score(problem, answer.path, quick, steady), answer.path))
    return Balanced(best[1], best[0], best[0] if proven else 1.0, proven, quick, steady, front)


def _score(problem: Problem, path: Path, quick: Answer, steady: Answer) -> float:
    period, latency = problem.values(path)
    return max(latency / quick.value_s, period / steady.value_s)


def pareto_front(problem: Problem, known: list[tuple[float, float, Path]], shortest_s: float, steps: int = FRONT_STEPS
                 ) -> list[tuple[float, float, Path]]:
    """Plans of which none beats another in latency, period and nodes: the least latency of each number of stages within
    periods that fall from no limit to the shortest in at most `steps` steps."""
    found = list(known)
    limit, ratio = math.inf, 1.0
    width = WIDTH if lattice_cells(problem) > WIDE_CELLS else None
    for step in range(steps):
        answers = Sweep(problem.within(limit), width=width).run()
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


def undominated(problem: Problem, points: list[tuple[float, float, Path]]) -> list[tuple[float, float, Path]]:
    """Those that no other point beats or equals in latency, period and nodes at once, from low latency to high."""
    def nodes(path: Path) -> int:
        return int(sum(problem.use[stage[0]] for stage in path))

    kept: list[tuple[float, float, Path]] = []
    for point in sorted(points, key=lambda point: (point[0], point[1], nodes(point[2]))):
        if not any(other[0] <= point[0] * (1 + 1e-9) and other[1] <= point[1] * (1 + 1e-9)
                   and nodes(other[2]) <= nodes(point[2]) for other in kept):
            kept.append(point)
    return kept
