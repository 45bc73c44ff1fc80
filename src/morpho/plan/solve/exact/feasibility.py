"""Feasibility of a period: by dominance (the furthest boundary) where that decides it, by sets of boundaries else."""

from __future__ import annotations

import math

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.feasibility_frontier import DENSE_ROWS, frontier_search
from morpho.plan.solve.exact.feasibility_sets import feasible
from morpho.plan.solve.problem import Placement, Problem


def feasible_within(problem: Problem, period_s: float, guess: np.ndarray | None = None, deadline: Deadline = NEVER
                    ) -> tuple[Placement | None, bool]:
    """A path whose period is at most `period_s`, or None; and whether None is proven rather than given up."""
    limited = problem.within(period_s)
    small = math.prod(int(cap) + 1 for cap in problem.caps) <= DENSE_ROWS
    if small and problem.budget is None and problem.uniform_cuts:
        path = frontier_search(limited, True, deadline)
        progress = limited.far[:, :-1] > np.arange(problem.depth)
        if path is not None and len(path) <= problem.max_stages:
            return path, True
        if path is None and bool(progress[problem.usable].all()):
            return None, True
    if small and frontier_search(limited, False, deadline) is None:
        return None, True
    return feasible(limited, guess, deadline)
