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


def layer_weights(problem: Problem) -> list[np.ndarray]:
    """Shares that steps may have in what a node can cover: equal ones, the time on a typical node, and equal ones of
    the long steps alone. Otherwise an embedding, or a head that many more nodes can hold, counts as a whole layer."""
    if not problem.usable.any():
        return []
    typical = np.median(problem.seconds[problem.usable], axis=0)
    typical = np.where(np.isfinite(typical), typical, typical[np.isfinite(typical)].max(initial=0.0))
    long = [(typical >= share * np.median(typical)).astype(float) for share in (0.5, 0.95)]
    return [each / each.sum() for each in (np.ones(problem.depth), typical, *long) if each.sum() > 0]


def coverage_prices(problem: Problem, weights: np.ndarray) -> np.ndarray:
    """Prices of pools: the most, of all weights, that a stage on one of its nodes can cover. Every plan pays at least
    the sum of the weights, 1; where all nodes together are worth less, there is no plan."""
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    most = (sums[problem.far] - sums[None, :]).max(axis=1) / problem.use
    prices = np.full(len(problem.caps) + 1, 1e-12)
    np.maximum.at(prices, problem.pool[problem.usable], most[problem.usable])
    prices[-1] = 0.0
    return prices


def coverage_bound(problem: Problem, low_s: float, high_s: float, deadline: Deadline
                   ) -> tuple[float, np.ndarray | None]:
    """The longest period in (low, high) at which nodes together cannot cover the layers, with its prices."""
    best, found = low_s, None
    caps = np.append(problem.caps, 0).astype(float)
    for weights in layer_weights(problem):
        high = high_s
        while high > best * (1 + CLOSE) and not deadline.passed():
            middle = _middle(best, high)
            prices = coverage_prices(problem.within(middle), weights)
            if float(caps @ prices) < 1 - 1e-6:
                best, found = middle, prices
            else:
                high = middle
    return best, found


def cover(problem: Problem, last: int | None) -> Placement | None:
    """A placement of a problem that is limited to a period: from the first layer on, each time the free node that
    reaches furthest, of equal ones the one that is worth least elsewhere; `last` is reserved for the end."""
    depth, free = problem.depth, problem.caps.copy()
    worth = (problem.far - np.arange(depth + 1)).max(axis=1)
    end = depth
    if last is not None:
        end = int(problem.low[last, depth])
        if end >= depth:
            return None
        free[problem.pool[last]] -= problem.use[last]
    path: Placement = []
    at = 0
    while at < end:
        able = problem.usable & (free[problem.pool] >= problem.use) & (problem.far[:, at] > at)
        option = 0
        if path:
            able &= problem.late[path[-1][0]] + problem.sizes[0, at] / problem.wide[path[-1][0]] <= problem.limit_s
        if not able.any() or len(path) + 1 + (last is not None) > problem.max_stages:
            return None
        reach = np.where(able, np.minimum(problem.far[:, at], end), -1)
        if last is not None and reach.max() == end:  # who hands over to the last node must reach it
            hop = problem.late[:, last] + problem.sizes[0, end] / problem.wide[:, last]
            reach = np.where((reach == end) & (hop > problem.limit_s), end - 1, reach)
        kind = int(np.lexsort((worth, -reach))[0])
        if reach[kind] <= at:
            return None
        path.append((kind, at, int(reach[kind]), option))
        at = int(reach[kind])
        free[problem.pool[kind]] -= problem.use[kind]
    return path if last is None else [*path, (last, end, depth, 0)]


def cover_placement(problem: Problem, low_s: float, path: Placement, deadline: Deadline) -> Placement:
    """A placement of a shorter period than that of `path`, if greedy covers find one: bisection on the period."""
    best, high, low = path, problem.values(path)[0], low_s
    while high > low * (1 + CLOSE) and not deadline.passed():
        middle = _middle(low, high)
        limited = problem.within(middle)
        ends = np.argsort(np.where(limited.usable, limited.low[:, problem.depth], problem.depth + 1), kind="stable")
        covers = (cover(limited, last) for last in (None, *ends[:3].tolist()))
        found = next((one for one in covers if one is not None and problem.allows(one)
                      and problem.values(one)[0] < high), None)
        if found is None:
            low = middle
        else:
            best, high = found, problem.values(found)[0]
    return best


def anytime_period(problem: Problem, path: Placement, deadline: Deadline) -> Answer:
    """The best period found from an incumbent on, and its bound, in turns that look closer and closer; before them what
    bound and plan a sum and a greedy cover give, which take no prices."""
    low = trivial_period(problem)
    path = cover_placement(problem, low, path, deadline.share(0.3))
    known = _Known(problem, path, low, np.zeros(len(problem.caps) + 1))
    covered, prices = coverage_bound(problem, low, known.period_s, deadline.share(0.3))
    if prices is not None:
        proof = refute(problem.within(covered), 0, prices)
        if proof.proves:
            known.low_s, known.prices, known.guess = covered, proof.prices, proof.prices
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
