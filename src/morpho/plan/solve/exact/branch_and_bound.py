"""Branch and bound: the multiset DP pruned by dual bounds, and bisection over periods with a feasibility test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from morpho.plan.solve.exact.dual_bound import prices_by_node
from morpho.plan.solve.exact.feasibility import feasible_within
from morpho.plan.solve.exact.feasibility_frontier import relaxed_feasible
from morpho.plan.solve.exact.multiset_dp import MultisetDP
from morpho.plan.solve.exact.relaxation import candidates, latency_bound, refute, trivial_period
from morpho.plan.solve.problem import Placement, Problem

TOLERANCE = 1e-9  # a plan better by less than this share is not looked for
EASY_CELLS = 8_000_000  # a search this small is quicker than the bounds that would narrow it
BEAM = 64
LARGE_ROWS = 1_100_000  # 20 distinct nodes


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


def best_latency(problem: Problem, start: Placement | None = None) -> Answer | None:
    """The plan of least latency, or None where there is no plan."""
    upper, path = (problem.values(start)[1], start) if start else (math.inf, None)
    if lattice_cells(problem) <= EASY_CELLS:
        bound = None
    else:
        bound = latency_bound(problem, upper, rounds=30)
        beam = MultisetDP(problem, upper, bound, width=BEAM, tighten=True)
        upper, path = _better(beam.run(), upper, path)
        if path is None or bound.seconds < upper * (1 - TOLERANCE):
            bound = latency_bound(problem, upper, rounds=400 if is_large(problem) else 120)
    sweep = MultisetDP(problem, upper * (1 - TOLERANCE), bound, tighten=True)
    if bound is None or bound.seconds < upper * (1 - TOLERANCE):
        upper, path = _better(sweep.run(), upper, path)
    if path is None:
        return None
    bound = bound or latency_bound(problem, upper, rounds=4)
    value = problem.values(path)[1]
    return Answer(path, value, min(value, bound.seconds) if sweep.cut else value, not sweep.cut,
                  {"prices": prices_by_node(problem, bound.prices)}, sweep.rows)


def _better(found: dict[int, tuple[float, Placement]], upper: float, path: Placement | None
            ) -> tuple[float, Placement | None]:
    for value, other in found.values():
        if value < upper:
            upper, path = value, other
    return upper, path


def best_period(problem: Problem, start: Placement | None = None) -> Answer | None:
    """The plan of the shortest period, or None where there is no plan.

    The periods a plan can have are finitely many. Relaxed searches refute all below one of them by bisection; exact
    ones then go up from there in growing steps, and bisect what remains.
    """
    path = start or feasible_within(problem, math.inf)[0]
    if path is None:
        return None
    high, searches = problem.values(path)[0], 0
    values = candidates(problem, trivial_period(problem), high * (1 - TOLERANCE))
    low, top = -1, len(values)  # values[:low + 1] are refuted, values[top:] are not needed
    guess: np.ndarray | None = None
    proven = True
    step, relaxed = 1, not problem.uniform_cuts or problem.budget is not None
    while low + 1 < top:
        middle = (low + top) // 2 if not relaxed else min(low + step, top - 1)
        if relaxed and step == 1:
            low, guess = _refuted_below(problem, values, top)
            middle, step = min(low + 1, top - 1), 1
            if low + 1 >= top:
                break
        better, sure = feasible_within(problem, float(values[middle]), guess)
        searches += 1
        if better is None:
            low, proven, step = middle, proven and sure, step * 2
        else:
            path, relaxed = better, False
            top = min(middle, int(np.searchsorted(values, problem.values(better)[0] * (1 - TOLERANCE))))
    return _proven_period(problem, path, proven, searches)


def _refuted_below(problem: Problem, values: np.ndarray, top: int) -> tuple[int, np.ndarray | None]:
    """The last value that relaxed searches refute, and the prices found on the way."""
    low, guess = -1, None
    high = top
    while low + 1 < high:
        middle = (low + high) // 2
        limited = problem.within(float(values[middle]))
        answer = relaxed_feasible(limited)
        if answer is None:
            refutation = refute(limited, 30, guess)
            answer, guess = not refutation.proves, refutation.prices
        if answer:
            high = middle
        else:
            low = middle
    return low, guess


def _proven_period(problem: Problem, path: Placement, proven: bool, searches: int) -> Answer:
    """The answer with its witness: the duals that refute most of what lies below."""
    value = problem.values(path)[0]
    limit = value * (1 - 1e-6)
    # Where a checker can search everything in no time, good duals are not worth their time.
    refutation = refute(problem.within(limit), rounds=4 if lattice_cells(problem) <= EASY_CELLS else 20)
    witness = {"prices": prices_by_node(problem, refutation.prices)}
    return Answer(path, value, value if proven else 0.0, proven, witness, searches)
