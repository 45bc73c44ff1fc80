"""Dual bounds by Lagrangian relaxation of the capacities: a relaxed path may use a node more often than it exists.

Charge a relaxed path `prices[p]` for each node of pool p that a stage takes, and give back `caps[p] * prices[p]` once:
no plan becomes dearer, for it uses no more nodes of a pool than there are. So for any prices >= 0

    latency:     cheapest priced path - sum(caps * prices)  <=  latency of every plan
    throughput:  cheapest priced path within period T > sum(caps * prices)  =>  no plan has a period <= T

The cheapest path is a shortest path over (kind, boundary), so anybody can verify a bound from its prices: they are the
duals that a plan stores as its witness. A subgradient method finds good ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from morpho.plan.solve.exact.feasibility_frontier import relaxed_feasible
from morpho.plan.solve.problem import Problem

FEW_CODES = 5_000  # so few multisets of nodes are quicker to look through than to price


@dataclass(frozen=True)
class RelaxedPath:
    """Cheapest completions: `after[k, a]` from a stage on kind k that ended at boundary a; `whole` from nothing."""

    after: np.ndarray  # (kinds, boundaries)
    whole: float
    visits: np.ndarray  # how many nodes of each pool the cheapest walk takes


def relaxed_path(problem: Problem, prices: np.ndarray, weigh_time: bool = True) -> RelaxedPath:
    """The cheapest priced walk, from the end of the chain to its beginning; without time, only prices count."""
    depth, kinds = problem.depth, problem.kinds
    time = problem.time if weigh_time else np.zeros_like(problem.time)
    link = problem.best_link if weigh_time else np.where(np.isfinite(problem.best_link), 0.0, np.inf)
    after = np.full((kinds, depth + 1), np.inf)
    after[:, depth] = 0.0
    onward = after + time  # finishing a stage at e costs time[e] - time[start], then what comes after
    enter = np.full((kinds, depth + 1), np.inf)  # entering kind l at boundary a, all that follows included
    end_at = np.zeros((kinds, depth + 1), dtype=np.int64)
    next_kind = np.zeros((kinds, depth + 1), dtype=np.int64)
    every, ends = np.arange(kinds), np.arange(depth + 1)
    allowed = ends[None, None, :] <= problem.far[:, :, None]  # (kinds, start, end)
    reach = max(1, int((problem.far - ends).max()))  # no stage is longer
    by_start = np.ascontiguousarray(np.moveaxis(link, 2, 0))  # (boundary, from, to)
    toll = prices[problem.pool] * problem.use  # (kinds,)
    for a in range(depth - 1, -1, -1):
        span = np.where(allowed[:, a, a + 1:a + 1 + reach], onward[:, a + 1:a + 1 + reach], np.inf)  # (kinds, ends)
        best = span.argmin(axis=1)
        end_at[:, a] = best + a + 1
        enter[:, a] = np.where(problem.usable, span[every, best] - time[:, a] + toll, np.inf)
        if a:
            through = by_start[a] + enter[None, :, a]  # (from, to)
            next_kind[:, a] = through.argmin(axis=1)
            after[:, a] = through[every, next_kind[:, a]]
            onward[:, a] = after[:, a] + time[:, a]
    visits, first = np.zeros(len(problem.caps), dtype=np.int64), int(enter[:, 0].argmin())
    whole = float(enter[first, 0])
    kind, at = first, 0
    while math.isfinite(whole):
        visits[problem.pool[kind]] += problem.use[kind]
        at = int(end_at[kind, at])
        if at == depth:
            break
        kind = int(next_kind[kind, at])
    return RelaxedPath(after, whole, visits)


@dataclass(frozen=True)
class Bound:
    """A bound in seconds with the prices that prove it; `walks` are the completions under these prices."""

    seconds: float
    prices: np.ndarray
    walks: RelaxedPath


def latency_bound(problem: Problem, upper_s: float = math.inf, rounds: int = 100) -> Bound:
    """The best bound on the latency that a subgradient method finds."""
    prices = np.zeros(len(problem.caps))
    walks = relaxed_path(problem, prices)
    best = Bound(walks.whole, prices, walks)
    if not math.isfinite(walks.whole):
        return best
    target = upper_s if math.isfinite(upper_s) else 1.5 * walks.whole
    stretch, since = 1.0, 0
    for _ in range(rounds):
        excess = (walks.visits - problem.caps).astype(float)
        slope = np.where((excess < 0) & (prices <= 0), 0.0, excess)
        norm = float(slope @ slope)
        value = walks.whole - float(problem.caps @ prices)
        if norm == 0 or best.seconds >= upper_s * (1 - 1e-9):
            break  # the walk is a plan, or the bound meets the best plan known
        prices = np.maximum(0.0, prices + stretch * max(target - value, 1e-6 * abs(target)) / norm * slope)
        walks = relaxed_path(problem, prices)
        value = walks.whole - float(problem.caps @ prices)
        since += 1
        if value > best.seconds:
            best, since = Bound(value, prices, walks), 0
        elif since >= 8:
            stretch, since, prices, walks = stretch / 2, 0, best.prices, best.walks
    return best


def certified(problem: Problem, period_s: float, prices: np.ndarray) -> bool:
    """Whether prices prove that no plan keeps within a period."""
    walks = relaxed_path(problem.within(period_s), prices, weigh_time=False)
    return walks.whole > float(problem.caps @ prices) * (1 + 1e-9)


def reach_prices(problem: Problem) -> np.ndarray:
    """A first guess: a node is worth the layers it can take; exact where only their number binds."""
    reach = (problem.far[:, :-1] - np.arange(problem.depth)).mean(axis=1) / problem.use
    prices = np.full(len(problem.caps), 1e-9)
    np.maximum.at(prices, problem.pool[problem.usable], reach[problem.usable])
    return prices


@dataclass(frozen=True)
class Refutation:
    """Prices that sum to 1 over all nodes; where the cheapest walk costs more than 1 there is no plan."""

    prices: np.ndarray
    walks: RelaxedPath

    @property
    def proves(self) -> bool:
        """Whether there is provably no plan."""
        return self.walks.whole > 1 + 1e-9


def refute(problem: Problem, rounds: int = 60, prices: np.ndarray | None = None) -> Refutation:
    """Look for prices that prove a problem (already limited to a period) to have no plan; the best ones found."""
    weights = reach_prices(problem) if prices is None else prices
    weights = weights / max(float(problem.caps @ weights), 1e-300)
    best = Refutation(weights, relaxed_path(problem, weights, weigh_time=False))
    stretch, since, walks = 1.0, 0, best.walks
    for _ in range(rounds):
        excess = (walks.visits - problem.caps).astype(float)
        if best.proves or (excess <= 0).all():
            break  # refuted, or the walk is a plan
        slope = np.where((excess < 0) & (weights <= 0), 0.0, excess)
        weights = np.maximum(0.0, weights + stretch * (1.05 - walks.whole) / max(float(slope @ slope), 1e-300) * slope)
        weights = weights / max(float(problem.caps @ weights), 1e-300)
        walks = relaxed_path(problem, weights, weigh_time=False)
        since += 1
        if walks.whole > best.walks.whole:
            best, since = Refutation(weights, walks), 0
        elif since >= 6:
            stretch, since, weights, walks = stretch / 2, 0, best.prices, best.walks
    return best


def candidates(problem: Problem, low_s: float, high_s: float) -> np.ndarray:
    """Every period a plan can have in (low, high), ascending: a stage's time or a link's."""
    parts = [np.empty(0)]
    for kind in np.flatnonzero(problem.usable):
        spans = problem.time[kind][None, :] - problem.time[kind][:, None]  # (start, end)
        parts.append(spans[np.triu_indices(problem.depth + 1, 1)])
    parts.append(problem.link[np.isfinite(problem.link)])
    values = np.unique(np.concatenate(parts))
    values = values[(values > low_s) & (values < high_s)]
    if not len(values):
        return values
    return values[np.concatenate([np.diff(values) > 1e-12 * values[1:], [True]])]  # the largest of nearly equal ones


def period_bound(problem: Problem, upper_s: float, rounds: int = 60, tolerance: float = 1e-3
                 ) -> tuple[float, np.ndarray]:
    """A bound on the period: the largest one found that prices refute, with these prices.

    Two bisections: prices not found in a few rounds are looked for again, longer and in few steps, from the best known.
    """
    low, found = trivial_period(problem), np.zeros(len(problem.caps))
    guess: np.ndarray | None = None
    for effort, tries in ((rounds // 4, 20), (2 * rounds, 6)):
        high = upper_s
        while high > low * (1 + tolerance) and tries:
            tries -= 1
            middle = math.sqrt(low * high) if low > 0 and high / low > 4 else (low + high) / 2
            limited = problem.within(middle)
            if relaxed_feasible(limited, FEW_CODES):
                high = middle  # most likely there is a plan, and no price says otherwise
                continue
            answer = refute(limited, effort, guess)
            if answer.proves:
                low, found, guess = middle, answer.prices, answer.prices
            else:
                high = middle
    return low, found


def trivial_period(problem: Problem) -> float:
    """Every layer runs somewhere: the slowest layer on its quickest node, just not reached."""
    fits = problem.far[:, :-1] > np.arange(problem.depth)[None, :]
    alone = np.where(fits & problem.usable[:, None], np.diff(problem.time, axis=1), np.inf)
    return float(alone.min(axis=0).max()) * (1 - 1e-9)
