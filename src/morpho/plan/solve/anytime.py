"""Incumbent and dual bound of problems of any size, improved in turns until they meet, stop moving, or time is up.

The relaxation prices the nodes; a beam search guided by these prices finds plans; plans tighten the bound's target.
"""

from __future__ import annotations

import math

import numpy as np

from morpho.plan.solve.beam import Beam
from morpho.plan.solve.deadline import Deadline
from morpho.plan.solve.exact.branch_and_bound import Answer
from morpho.plan.solve.exact.dual_bound import SAFE, duals
from morpho.plan.solve.exact.relaxation import Relaxation, latency_bound, refute, trivial_period
from morpho.plan.solve.problem import Placement, Problem

WIDTHS = (64, 256, 1024)  # of the beam, in turn
CLOSE = 1e-3  # a gap that is not worth another turn
MEET = 1 - 1e-9


def first_placement(problem: Problem, deadline: Deadline) -> tuple[Placement | None, bool]:
    """Any placement, or None; and whether None is proven."""
    refutation = refute(problem, 40, deadline=deadline)
    if refutation.proves:
        return None, True
    relaxation = Relaxation(problem, weigh_time=False)
    for width in WIDTHS:
        beam = Beam(problem, relaxation, refutation.prices, refutation.relaxed.after, width, deadline=deadline)
        path = beam.run()
        if path is not None or not beam.cut:
            return path, True
    return None, False


def anytime_latency(problem: Problem, path: Placement, deadline: Deadline) -> Answer:
    """The best latency found from an incumbent on, and its bound."""
    problem = problem.capped(problem.values(path)[1])
    relaxation = Relaxation(problem)
    # Rough prices give the first plans; the better the plan, the better the bound's target.
    bound = latency_bound(problem, rounds=60, deadline=deadline.share(0.2))
    exhausted = False
    for rounds, width in zip((60, 100, 200), WIDTHS):
        upper = problem.values(path)[1]
        if bound.seconds >= upper * (1 - CLOSE) or deadline.passed() or exhausted:
            break
        beam = Beam(problem, relaxation, bound.prices, bound.relaxed.after, width, upper * MEET,
                    deadline.share(0.6))
        found = beam.run()
        if found is not None and problem.values(found)[1] < upper:
            path = found
        exhausted = not beam.cut
        if not exhausted:
            bound = max(bound, latency_bound(problem, problem.values(path)[1], rounds, bound.prices,
                                             deadline.share(0.5)), key=lambda one: one.seconds)
    value = problem.values(path)[1]
    proven = exhausted or bound.seconds >= value * MEET
    return Answer(path, value, value if proven else max(0.0, bound.seconds * SAFE), proven,
                  duals(problem, bound.prices))


def anytime_period(problem: Problem, path: Placement, deadline: Deadline) -> Answer:
    """The best period found from an incumbent on, and its bound: bisection, prices from below, beams from above.

    A period at which neither decides is left for the next turn, which has a wider beam and looks for prices longer.
    """
    low, prices = trivial_period(problem), np.zeros(len(problem.caps) + 1)
    guess: np.ndarray | None = None
    for rounds, width in zip((30, 80, 160), WIDTHS):
        undecided = low
        while problem.values(path)[0] > undecided * (1 + CLOSE) and not deadline.passed():
            high = problem.values(path)[0]
            middle = math.sqrt(max(undecided, high / 1e6) * high)
            limited = problem.within(middle)
            refutation = refute(limited, rounds, guess, deadline.share(0.3))
            if refutation.proves:
                low, undecided, prices, guess = middle, middle, refutation.prices, refutation.prices
                continue
            beam = Beam(limited, Relaxation(limited, weigh_time=False), refutation.prices, refutation.relaxed.after,
                        width, deadline=deadline.share(0.5))
            found = beam.run()
            if found is None:
                undecided = middle
            elif problem.values(found)[0] < high:
                path = found
        last = refute(problem.within(problem.values(path)[0] * MEET), rounds // 4, guess, deadline)
        if last.proves:
            value = problem.values(path)[0]
            return Answer(path, value, value, True, duals(problem, last.prices))
        if problem.values(path)[0] <= low * (1 + 2 * CLOSE) or deadline.passed():
            break
    return Answer(path, problem.values(path)[0], low * SAFE, False, duals(problem, prices))
