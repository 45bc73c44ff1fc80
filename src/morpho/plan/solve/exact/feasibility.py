"""Whether a plan keeps within a period: furthest boundaries where they decide it, sets of boundaries where not."""

from __future__ import annotations

import math

import numpy as np

from morpho.plan.solve.exact.feasibility_frontier import DENSE_ROWS, reachable
from morpho.plan.solve.exact.feasibility_sets import cover
from morpho.plan.solve.problem import Path, Problem


def keeps_within(problem: Problem, period_s: float, guess: np.ndarray | None = None) -> tuple[Path | None, bool]:
    """A path whose period is at most `period_s`, or None; and whether None is proven rather than given up."""
    limited = problem.within(period_s)
    small = math.prod(int(cap) + 1 for cap in problem.caps) <= DENSE_ROWS
    if small and problem.budget is None and problem.uniform_cuts:
        path = reachable(limited, strict=True)
        progress = limited.far[:, :-1] > np.arange(problem.depth)
        if path is not None and len(path) <= problem.max_stages:
            return path, True
        if path is None and bool(progress[problem.usable].all()):
            return None, True
    if small and reachable(limited, strict=False) is None:
        return None, True
    return cover(limited, guess)
