"""Dual bounds by Lagrangian relaxation of the capacities: a relaxed path may use a node more often than it exists.

Charge a relaxed path `prices[p]` for each node of pool p that a stage takes, and give back `caps[p] * prices[p]` once:
no plan becomes dearer, for it uses no more nodes of a pool than there are. So for any prices >= 0

    latency:     cheapest priced path - sum(caps * prices)  <=  latency of every plan
    throughput:  cheapest priced path within period T > sum(caps * prices)  =>  no plan has a period <= T

The limit of stages is one more capacity, so `prices` has an entry per pool and a last one, the price of a stage. The
cheapest path is a shortest path over (kind, boundary): anybody can verify a bound from its prices, the duals that a
plan stores as its witness. A subgradient method finds good ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.feasibility_frontier import relaxed_feasible
from morpho.plan.solve.problem import Problem

FEW_CODES = 5_000  # so few multisets of nodes are quicker to look through than to price
NEAR_KINDS = 24  # kinds looked at first as the next of a relaxed path; all others only where these do not decide
NEARBY = 0.3  # of a full step
SMALLEST_STEP = 1e-4  # where the subgradient method stops


@dataclass(frozen=True)
class RelaxedPath:
    """Cheapest completions: `after[k, a]` from a stage on kind k that ended at boundary a; `whole` from nothing."""

    after: np.ndarray  # (kinds, boundaries)
    whole: float
    visits: np.ndarray  # how many nodes of each pool the cheapest path takes, and how many stages it has


def capacities(problem: Problem) -> np.ndarray:
    """Capacity of everything with a price: nodes of each pool, and stages; (pools + 1,)."""
    return np.append(problem.caps, problem.max_stages).astype(float)


def tolls(problem: Problem, prices: np.ndarray) -> np.ndarray:
    """Toll of a stage of each kind, (kinds,)."""
    return prices[problem.pool] * problem.use + prices[-1]  # type: ignore[no-any-return]


class Relaxation:
    """The relaxed problem, prepared for many prices; without time, only prices count."""

    def __init__(self, problem: Problem, weigh_time: bool = True) -> None:
        self.problem, self.weigh_time = problem, weigh_time
        self.time = problem.time if weigh_time else np.zeros_like(problem.time)
        self.lengths = np.where(problem.usable[:, None], problem.far - np.arange(problem.depth + 1), 0)
        self.longest = max(1, int(self.lengths.max()))  # no stage is longer
        self.sizes = problem.sizes.min(axis=0)
        self.late, self.slow = problem.late.T.copy(), (1.0 / problem.wide).T.copy()  # (to, from)
        # A bound on what it takes to enter a kind, by which the next kinds are looked through.
        self.least = (problem.late.min(axis=0), (1.0 / problem.wide).min(axis=0)) if weigh_time else None
        self.open = None if weigh_time else self._open_links()
        steps = np.arange(1, self.longest + 1)
        self.beyond = [np.where(steps[None, :min(self.longest, problem.depth - a)] > self.lengths[:, a, None],
                                np.inf, 0.0) for a in range(problem.depth)]

    def _open_links(self) -> list[np.ndarray]:
        """At each boundary which kinds can send to which, (to, from)."""
        known: dict[float, np.ndarray] = {}
        for size in self.sizes[1:].tolist():
            if size not in known:
                known[size] = self.late + size * self.slow <= min(self.problem.limit_s, 1e300)
        return [known[size] if position else np.zeros_like(self.late, dtype=bool)
                for position, size in enumerate(self.sizes.tolist())]

    def solve(self, prices: np.ndarray) -> RelaxedPath:
        """The cheapest priced path, by dynamic programming from the end of the chain to its beginning."""
        depth, kinds, longest = self.problem.depth, self.problem.kinds, self.longest
        time, toll, every = self.time, tolls(self.problem, prices), np.arange(kinds)
        after = np.full((kinds, depth + 1), np.inf)
        after[:, depth] = 0.0
        onward = after + time  # finishing a stage at e costs time[e] - time[start], then what comes after
        end_at = np.zeros((depth, kinds), dtype=np.int64)
        next_kind = np.zeros((depth, kinds), dtype=np.int64)
        for a in range(depth - 1, -1, -1):
            span = onward[:, a + 1:a + 1 + longest] + self.beyond[a]  # (kinds, ends)
            best = span.argmin(axis=1)
            end_at[a] = best + a + 1
            enter = span[every, best] - time[:, a] + toll  # entering each kind at a, all that follows included
            if a:
                next_kind[a], after[:, a] = self._onward(a, enter)
                onward[:, a] = after[:, a] + time[:, a]
        return RelaxedPath(after, float(enter.min()), self._visits(int(enter.argmin()), enter, end_at, next_kind))

    def _hops(self, a: int, targets: np.ndarray, enter: np.ndarray) -> np.ndarray:
        """Cost of going on at boundary a to these kinds, (targets, from)."""
        if self.open is not None:
            return np.where(self.open[a][targets], enter[targets][:, None], np.inf)
        hops = self.late[targets] + self.sizes[a] * self.slow[targets]
        if math.isfinite(self.problem.limit_s):
            hops[hops > self.problem.limit_s] = np.inf
        return hops + enter[targets][:, None]  # type: ignore[no-any-return]

    def _onward(self, a: int, enter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best next kind after each, and its cost."""
        kinds = len(enter)
        if kinds <= 2 * NEAR_KINDS:
            hops = self._hops(a, np.arange(kinds), enter)
            best = hops.argmin(axis=0)
            return best, hops[best, np.arange(kinds)]
        key = enter if self.least is None else enter + self.least[0] + self.sizes[a] * self.least[1]
        order = np.argpartition(key, NEAR_KINDS)
        near, rest = order[:NEAR_KINDS], order[NEAR_KINDS:]
        if self.open is not None:  # the first in order that is open
            near = near[np.argsort(enter[near])]
            open_ = self.open[a][near]
            chosen = open_.argmax(axis=0)
            best = near[chosen]
            cost = np.where(open_[chosen, np.arange(kinds)], enter[best], np.inf)
        else:
            hops = self._hops(a, near, enter)
            chosen = hops.argmin(axis=0)
            cost, best = hops[chosen, np.arange(kinds)], near[chosen]
        unsure = np.flatnonzero(cost > key[rest].min())  # another kind may still be better
        if len(unsure):
            hops = self._hops(a, rest, enter)[:, unsure]
            chosen = hops.argmin(axis=0)
            found = hops[chosen, np.arange(len(unsure))]
            better = found < cost[unsure]
            cost[unsure[better]], best[unsure[better]] = found[better], rest[chosen[better]]
        return best, cost

    def _visits(self, kind: int, enter: np.ndarray, end_at: np.ndarray, next_kind: np.ndarray) -> np.ndarray:
        problem, at = self.problem, 0
        visits = np.zeros(len(problem.caps) + 1, dtype=np.int64)
        while math.isfinite(enter.min()):
            visits[problem.pool[kind]] += problem.use[kind]
            visits[-1] += 1
            at = int(end_at[at, kind])
            if at == problem.depth:
                break
            kind = int(next_kind[at, kind])
        return visits


def relaxed_path(problem: Problem, prices: np.ndarray, weigh_time: bool = True) -> RelaxedPath:
    """The cheapest priced path of a problem; prices without an entry for stages have it 0."""
    prices = prices if len(prices) > len(problem.caps) else np.append(prices, 0.0)
    return Relaxation(problem, weigh_time).solve(prices)


@dataclass(frozen=True)
class Bound:
    """A bound in seconds with the prices that prove it; `relaxed` are the completions under these prices."""

    seconds: float
    prices: np.ndarray
    relaxed: RelaxedPath


def latency_bound(problem: Problem, upper_s: float = math.inf, rounds: int = 100, prices: np.ndarray | None = None,
                  deadline: Deadline = NEVER) -> Bound:
    """The best bound on the latency that a subgradient method finds, from the given prices on."""
    relaxation, caps = Relaxation(problem), capacities(problem)
    prices = np.zeros(len(caps)) if prices is None else prices
    relaxed = relaxation.solve(prices)
    value = relaxed.whole - float(caps @ prices)
    best = Bound(value, prices, relaxed)
    if not math.isfinite(relaxed.whole):
        return best
    target = upper_s if math.isfinite(upper_s) else 1.5 * abs(value)
    stretch, since = 1.0, 0
    for _ in range(rounds):
        excess = relaxed.visits - caps
        slope = np.where((excess < 0) & (prices <= 0), 0.0, excess)
        norm = float(slope @ slope)
        if norm == 0 or best.seconds >= upper_s * (1 - 1e-9) or stretch < SMALLEST_STEP or deadline.passed():
            break  # the path is a plan, the bound meets the best plan known, or there is no more to be had
        prices = np.maximum(0.0, prices + stretch * max(target - value, 1e-6 * abs(target)) / norm * slope)
        relaxed = relaxation.solve(prices)
        value = relaxed.whole - float(caps @ prices)
        since += 1
        if value > best.seconds:
            best, since = Bound(value, prices, relaxed), 0
        elif since >= 8:
            stretch, since, prices, relaxed, value = stretch / 2, 0, best.prices, best.relaxed, best.seconds
    return best


def reach_prices(problem: Problem) -> np.ndarray:
    """A first guess: a node is worth the layers it can take; exact where only their number binds."""
    reach = (problem.far[:, :-1] - np.arange(problem.depth)).max(axis=1) / problem.use
    prices = np.full(len(problem.caps) + 1, 1e-9)
    np.maximum.at(prices, problem.pool[problem.usable], reach[problem.usable])
    prices[-1] = 0.0
    return prices


@dataclass(frozen=True)
class Refutation:
    """Prices whose sum over all capacities is 1; where the cheapest path costs more than 1 there is no plan."""

    prices: np.ndarray
    relaxed: RelaxedPath

    @property
    def proves(self) -> bool:
        """Whether there is provably no plan."""
        return self.relaxed.whole > 1 + 1e-9


def refute(problem: Problem, rounds: int = 60, prices: np.ndarray | None = None, deadline: Deadline = NEVER
           ) -> Refutation:
    """Look for prices that prove a problem (already limited to a period) to have no plan; the best ones found."""
    relaxation, caps = Relaxation(problem, weigh_time=False), capacities(problem)

    def priced(weights: np.ndarray) -> Refutation:
        weights = weights / max(float(caps @ weights), 1e-300)
        return Refutation(weights, relaxation.solve(weights))

    best, stretch = priced(reach_prices(problem)), 1.0
    if prices is not None and not best.proves:
        # Prices of a period nearby are almost right: long steps would only lose them.
        known = priced(prices)
        best, stretch = (known, NEARBY) if known.relaxed.whole > best.relaxed.whole else (best, stretch)
    current, since = best, 0
    for _ in range(rounds):
        excess = current.relaxed.visits - caps
        if best.proves or (excess <= 0).all() or stretch < 10 * SMALLEST_STEP or deadline.passed():
            break  # refuted, or the path is a plan
        slope = np.where((excess < 0) & (current.prices <= 0), 0.0, excess)
        step = stretch * (1.005 - current.relaxed.whole) / max(float(slope @ slope), 1e-300)
        current = priced(np.maximum(0.0, current.prices + step * slope))
        since += 1
        if current.relaxed.whole > best.relaxed.whole:
            best, since = current, 0
        elif since >= 6:
            stretch, since, current = stretch / 2, 0, best
    return best


def candidates(problem: Problem, low_s: float, high_s: float) -> np.ndarray:
    """Every period a plan can have in (low, high), ascending: a stage's time or a link's."""
    parts = [np.empty(0)]
    for kind in np.flatnonzero(problem.usable):
        spans = problem.time[kind][None, :] - problem.time[kind][:, None]  # (start, end)
        allowed = np.arange(problem.depth + 1) <= problem.far[kind][:, None]
        parts.append(spans[allowed & (spans > 0)])
    parts.append(problem.link[np.isfinite(problem.link)])
    values = np.unique(np.concatenate(parts))
    values = values[(values > low_s) & (values < high_s)]
    if not len(values):
        return values
    return values[np.concatenate([np.diff(values) > 1e-12 * values[1:], [True]])]  # type: ignore[no-any-return]  # the largest of nearly equal ones


def period_bound(problem: Problem, upper_s: float, rounds: int = 60, tolerance: float = 1e-3,
                 deadline: Deadline = NEVER) -> tuple[float, np.ndarray]:
    """A bound on the period: the largest one found that prices refute, with these prices.

    Two bisections: prices not found in a few rounds are looked for again, longer and in few steps, from the best known.
    """
    low, found = trivial_period(problem), np.zeros(len(problem.caps) + 1)
    guess: np.ndarray | None = None
    for effort, tries in ((rounds // 4, 20), (2 * rounds, 6)):
        high = upper_s
        while high > low * (1 + tolerance) and tries and not deadline.passed():
            tries -= 1
            middle = math.sqrt(low * high) if low > 0 and high / low > 4 else (low + high) / 2
            limited = problem.within(middle)
            if relaxed_feasible(limited, FEW_CODES):
                high = middle  # most likely there is a plan, and no price says otherwise
                continue
            answer = refute(limited, effort, guess, deadline)
            if answer.proves:
                low, found, guess = middle, answer.prices, answer.prices
            else:
                high = middle
    return low, found


def trivial_period(problem: Problem) -> float:
    """Every layer runs somewhere: the slowest layer on its quickest node, just not reached."""
    fits = problem.far[:, :-1] > np.arange(problem.depth)[None, :]
    alone = np.where(fits & problem.usable[:, None], problem.seconds, np.inf)
    return float(alone.min(axis=0).max()) * (1 - 1e-9)
