"""Incumbent and dual bound of problems of any size, improved in turns until they meet, stop moving, or time is up.

The relaxation prices the nodes; a beam search guided by these prices finds plans; plans tighten the bound's target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """The best period found from an incumbent on, and its bound, in turns that look closer and closer."""
    known = _Known(problem, path, trivial_period(problem), np.zeros(len(problem.caps) + 1))
    for rounds, cells, close in TURNS:
        _raise_bound(known, rounds, close, deadline.share(0.4))
        _lower_period(known, rounds, max(64, cells // problem.kinds), close, deadline)
        value = known.period_s
        last = refute(problem.within(value * MEET), rounds // 4, known.guess, deadline)
        if last.proves:
            return Answer(known.path, value, value, True, duals(problem, last.prices))
        if value <= known.low_s * (1 + CLOSE) or deadline.passed():
            break
    return Answer(known.path, known.period_s, known.low_s * SAFE, False, duals(problem, known.prices))


# Rounds of the subgradient method, labels x kinds of the beam, and how closely both bisections look.
TURNS = ((25, 1 << 13, 0.03), (80, 1 << 15, 0.01), (200, 1 << 17, 0.002))


@dataclass
class _Known:
    """State of the search for a period: an incumbent, a refuted period with its prices, and the last prices tried."""

    problem: Problem
    path: Placement
    low_s: float
    prices: np.ndarray
    guess: np.ndarray | None = None

    @property
    def period_s(self) -> float:
        """Of the incumbent."""
        return self.problem.values(self.path)[0]


def _middle(low: float, high: float) -> float:
    return math.sqrt(max(low, high / 1e6) * high)


def _raise_bound(known: _Known, rounds: int, close: float, deadline: Deadline) -> None:
    """Bisect for the longest period that prices refute."""
    high = known.period_s
    while high > known.low_s * (1 + close) and not deadline.passed():
        middle = _middle(known.low_s, high)
        found = refute(known.problem.within(middle), rounds, known.guess, deadline)
        known.guess = found.prices
        if found.proves:
            known.low_s, known.prices = middle, found.prices
        else:
            high = middle


def _lower_period(known: _Known, rounds: int, width: int, close: float, deadline: Deadline) -> None:
    """Bisect for the shortest period at which a beam finds a plan, from just above the bound on."""
    low, ahead = known.low_s, 2 * close
    while known.period_s > low * (1 + close) and not deadline.passed():
        high = known.period_s
        middle, ahead = min(_middle(low, high), low * (1 + ahead)), 4 * ahead
        limited = known.problem.within(middle)
        found = refute(limited, rounds // 2, known.guess, deadline.share(0.3))
        beam = Beam(limited, Relaxation(limited, weigh_time=False), found.prices, found.relaxed.after, width,
                    deadline=deadline.share(0.6))
        path = None if found.proves else beam.run()
        if path is not None and known.problem.values(path)[0] < high:
            known.path = path
        else:
            low = middle
