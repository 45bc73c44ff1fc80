"""Branch and bound: the multiset DP pruned by dual bounds, and bisection over periods with a feasibility test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline, TimeUp
from morpho.plan.solve.exact.dual_bound import SAFE, duals
from morpho.plan.solve.exact.feasibility import feasible_within
from morpho.plan.solve.exact.feasibility_frontier import relaxed_feasible
from morpho.plan.solve.exact.multiset_dp import MultisetDP
from morpho.plan.solve.exact.relaxation import candidates, latency_bound, period_bound, refute, trivial_period
from morpho.plan.solve.problem import Placement, Problem

TOLERANCE = 1e-9  # a plan better by less than this share is not looked for
EASY_CELLS = 8_000_000  # a search this small is quicker than the bounds that would narrow it
WIDTH = 64
LARGE_ROWS = 1_100_000  # 20 distinct nodes
WIDE_RANGE = 1e4  # running sums so much larger than the incumbent are not exact enough: steps that are too long leave


@dataclass
class Answer:
    """A path with its value, the bound, whether they provably meet, the duals, and how much was looked at."""

    path: Placement
    value_s: float
    bound_s: float
    optimal: bool
    witness: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0


def lattice_cells(problem: Problem) -> int:
    """How many cells a search without bounds would visit."""
    return math.prod(int(cap) + 1 for cap in problem.caps) * problem.kinds * (problem.depth + 1)


def is_large(problem: Problem) -> bool:
    """Whether there are so many multisets of nodes that no exact search is tried for the period."""
    return math.prod(int(cap) + 1 for cap in problem.caps) > LARGE_ROWS


def best_latency(problem: Problem, start: Placement | None = None, deadline: Deadline = NEVER) -> Answer | None:
    """The plan of least latency, or None where there is no plan.

    Where times are far apart the first answer is an incumbent only: steps that alone take longer are then left out of
    the running sums, and the search is done again.
    """
    answer = _least_latency(problem, start, deadline)
    while answer is not None and problem.time[:, -1].max() > WIDE_RANGE * answer.value_s:
        capped = problem.capped(answer.value_s)
        if capped is problem:
            break
        problem = capped
        again = _least_latency(problem, answer.path, deadline)
        if again is None or again.value_s >= answer.value_s / 2:
            return again or answer
        answer = again
    return answer


def _least_latency(problem: Problem, start: Placement | None, deadline: Deadline) -> Answer | None:
    upper, path = (problem.values(start)[1], start) if start else (math.inf, None)
    if lattice_cells(problem) <= EASY_CELLS:
        bound = None
    else:
        bound = latency_bound(problem, upper, 30, None, deadline)
        beam = MultisetDP(problem, upper, bound, width=WIDTH, tighten=True, deadline=deadline)
        upper, path = _better(beam.run(), problem, upper, path)
        if path is None or bound.seconds < upper * (1 - TOLERANCE):
            bound = latency_bound(problem, upper, 400 if is_large(problem) else 120, bound.prices, deadline)
    search = MultisetDP(problem, upper * (1 - TOLERANCE), bound, tighten=True, deadline=deadline)
    if bound is None or bound.seconds < upper * (1 - TOLERANCE):
        upper, path = _better(search.run(), problem, upper, path)
    if path is None:
        if search.cut:
            raise TimeUp
        return None
    bound = bound or latency_bound(problem, upper, rounds=4)
    value = problem.values(path)[1]
    return Answer(path, value, max(0.0, min(value, bound.seconds * SAFE)) if search.cut else value, not search.cut,
                  duals(problem, bound.prices), search.rows)


def _better(found: dict[int, tuple[float, Placement]], problem: Problem, upper: float, path: Placement | None
            ) -> tuple[float, Placement | None]:
    for _, other in found.values():
        value = problem.values(other)[1]
        if value < upper:
            upper, path = value, other
    return upper, path


def best_period(problem: Problem, start: Placement | None = None, deadline: Deadline = NEVER) -> Answer | None:
    """The plan of the shortest period, or None where there is no plan.

    The periods a plan can have are finitely many. Relaxed searches refute all below one of them by bisection; exact
    ones then go up from there in growing steps, and bisect what remains.
    """
    path, sure = (start, True) if start else feasible_within(problem, math.inf, None, deadline)
    if path is None:
        if not sure:
            raise TimeUp
        return None
    proven, searches = False, 0
    try:
        while True:
            # Candidates are differences of running sums: where times were far apart, those of a shorter incumbent are
            # exact to its own size, and the search goes on among them.
            value = problem.values(path)[0]
            capped = problem.capped(value)
            path, proven, searches = _shortest_period(capped, path, deadline.share(0.7))
            shorter = problem.values(path)[0]
            if not proven or shorter > value / 2 or capped.time[:, -1].max() <= WIDE_RANGE * shorter:
                break
    except TimeUp:
        proven = False
    return _proven_period(problem, path, proven, searches, deadline)


def _shortest_period(problem: Problem, path: Placement, deadline: Deadline) -> tuple[Placement, bool, int]:
    """The best path at or below an incumbent, whether it is proven, and the number of searches."""
    high, searches = problem.values(path)[0], 0
    values = candidates(problem, trivial_period(problem), high * (1 - TOLERANCE))
    low, top = -1, len(values)  # values[:low + 1] are refuted, values[top:] are not needed
    guess: np.ndarray | None = None
    proven = True
    step, relaxed = 1, not problem.uniform_cuts or problem.budget is not None
    while low + 1 < top:
        middle = (low + top) // 2 if not relaxed else min(low + step, top - 1)
        if relaxed and step == 1:
            low, guess = _refuted_below(problem, values, top, deadline)
            middle, step = min(low + 1, top - 1), 1
            if low + 1 >= top:
                break
        better, sure = feasible_within(problem, float(values[middle]), guess, deadline)
        searches += 1
        if better is None:
            low, proven, step = middle, proven and sure, step * 2
        else:
            path, relaxed = better, False
            top = min(middle, int(np.searchsorted(values, problem.values(better)[0] * (1 - TOLERANCE))))
        if deadline.passed():
            return path, proven and low + 1 >= top, searches
    return path, proven, searches


def _refuted_below(problem: Problem, values: np.ndarray, top: int, deadline: Deadline
                   ) -> tuple[int, np.ndarray | None]:
    """The last value that relaxed searches refute, and the prices found on the way."""
    low, guess = -1, None
    high = top
    while low + 1 < high:
        deadline.check()
        middle = (low + high) // 2
        limited = problem.within(float(values[middle]))
        answer = relaxed_feasible(limited, deadline=deadline)
        if answer is None:
            refutation = refute(limited, 30, guess, deadline)
            answer, guess = not refutation.proves, refutation.prices
        if answer:
            high = middle
        else:
            low = middle
    return low, guess


def _proven_period(problem: Problem, path: Placement, proven: bool, searches: int, deadline: Deadline) -> Answer:
    """The answer with its witness: the duals that refute most of what lies below."""
    value = problem.values(path)[0]
    if not proven:
        bound, prices = period_bound(problem, value, deadline=deadline)
        return Answer(path, value, bound * SAFE, False, duals(problem, prices), searches)
    # Where a checker can search everything in no time, good duals are not worth their time.
    refutation = refute(problem.within(value * (1 - 1e-8)), 4 if lattice_cells(problem) <= EASY_CELLS else 20,
                        deadline=deadline)
    return Answer(path, value, value, True, duals(problem, refutation.prices), searches)
