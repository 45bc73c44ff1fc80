"""The checker's own search: whether any plan has a value below the one claimed, in integers, exhaustively.

States are dictionaries from (nodes used of each group, errors spent, kind of the last stage) to what can be reached:
for the period a number whose bits are boundaries, for the latency the least units at every boundary. A state is left
out only where the certificate's prices show that it cannot be completed below the value (`certificate.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from morpho.plan.verify.certificate import completions
from morpho.plan.verify.scaled import NEVER, Scaled

Key = tuple[tuple[int, ...], int, int]  # nodes used of each group, error units spent, kind of the last stage
MOST_STATES = 3_000_000
MOST_NUMBERS = 60_000_000  # held at once: half a gigabyte


class TooLarge(Exception):
    """There are more states than the checker looks at."""


class Search:
    """Base of both searches: how a state grows, and how many there may be."""

    def __init__(self, scaled: Scaled, proof: Mapping[str, Any], timed: bool) -> None:
        self.scaled, self.request = scaled, scaled.request
        self.group, self.use = scaled.group.tolist(), scaled.use.tolist()
        self.far = self.request.far if timed else scaled.ends_within()
        self.after, self.whole, self.toll, self.paid = completions(scaled, self.far, proof, timed)
        self.errors, self.budget = self.request.budget or ([0] * len(self.request.dtypes), 0)
        self.seen = 0

    def first(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(kind, nodes used) of every first stage."""
        for kind, group in enumerate(self.group):
            yield kind, tuple(self.use[kind] if number == group else 0 for number in range(len(self.request.room)))

    def moves(self, used: tuple[int, ...], spent: int) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
        """(kind, type of the link, nodes used then, errors spent then) of every next stage."""
        for option, error in enumerate(self.errors):
            if spent + error > self.budget:
                continue
            for kind, group in enumerate(self.group):
                count = used[group] + self.use[kind]
                if count <= self.request.room[group]:
                    yield kind, option, (*used[:group], count, *used[group + 1:]), spent + error

    def count(self, states: int, numbers: int = 1) -> None:
        """Give up where there are too many states."""
        self.seen += states
        if self.seen > MOST_STATES or states * numbers > MOST_NUMBERS:
            raise TooLarge


def plan_within(scaled: Scaled, proof: Mapping[str, Any]) -> bool:
    """Whether any plan has a period below the value."""
    search = Search(scaled, proof, timed=False)
    if search.whole > search.paid:
        return False
    depth = search.request.depth
    gates = [_gates(row.tolist()) for row in search.after]
    spans = [[((1 << (far + 1)) - 1) >> (at + 1) << (at + 1) for at, far in enumerate(row)]
             for row in search.far.tolist()]
    open_cuts = _open_cuts(scaled)
    level: dict[Key, tuple[int, int]] = {}  # boundaries, and what was paid
    for kind, used in search.first():
        level[used, 0, kind] = spans[kind][0], int(search.toll[kind])
    for _ in range(search.request.most_stages):
        search.count(len(level))
        following: dict[Key, tuple[int, int]] = {}
        for (used, spent, last), (ends, paid) in level.items():
            if ends >> depth & 1:
                return True
            for kind, option, grown, error in search.moves(used, spent):
                starts = ends & open_cuts[option][last][kind]
                if not starts:
                    continue
                toll = paid + int(search.toll[kind])
                reached = _union(spans[kind], starts) & _gate(gates[kind], search.paid - toll)
                if reached:
                    known, paid_then = following.get((grown, error, kind), (0, toll))
                    following[grown, error, kind] = known | reached, min(toll, paid_then)
        level = following
    return False


def _open_cuts(scaled: Scaled) -> list[list[list[int]]]:
    """Boundaries at which a link takes less than the value, as bits: type -> from kind -> to kind."""
    kinds, request = len(scaled.use), scaled.request
    found = [[[0] * kinds for _ in range(kinds)] for _ in request.dtypes]
    for option in range(len(request.dtypes)):
        for boundary in range(1, request.depth):
            for source, target in np.argwhere(scaled.hops(option, boundary) < scaled.unit).tolist():
                found[option][source][target] |= 1 << boundary
    return found


def _union(spans: list[int], starts: int) -> int:
    """All ends that a stage from any of the starts can have."""
    reached = 0
    while starts:
        lowest = starts & -starts
        reached |= spans[lowest.bit_length() - 1]
        starts ^= lowest
    return reached


def _gates(row: list[int]) -> tuple[list[int], list[int]]:
    """Prices of completion in order, and the boundaries that each affords."""
    order = sorted(range(len(row)), key=lambda at: row[at])
    masks, mask = [], 0
    for at in order:
        mask |= 1 << at
        masks.append(mask)
    return [row[at] for at in order], masks


def _gate(gates: tuple[list[int], list[int]], left: int) -> int:
    """The boundaries from which the chain can still be finished for what is left."""
    position = bisect_right(gates[0], left)
    return gates[1][position - 1] if position else 0


def plan_below(scaled: Scaled, proof: Mapping[str, Any], period: Scaled | None = None) -> bool:
    """Whether any plan has a latency below the value; with `period`, one whose period is below that one's value too."""
    search = Search(scaled, proof, timed=True)
    unit, depth, prefix = scaled.unit, search.request.depth, scaled.prefix
    if search.whole - search.paid >= unit:
        return False
    far = search.far if period is None else np.minimum(search.far, period.ends_within())
    hops = [np.stack([np.full_like(scaled.closed, NEVER, dtype=np.int64)] + [
        _allowed_hops(scaled, period, option, boundary) for boundary in range(1, depth + 1)], axis=2)
        for option in range(len(search.request.dtypes))]
    level: dict[Key, tuple[np.ndarray, int]] = {}
    for kind, used in search.first():
        row = np.full(depth + 1, NEVER, dtype=np.int64)
        row[1:far[kind][0] + 1] = prefix[kind][1:far[kind][0] + 1]
        level[used, 0, kind] = row, int(search.toll[kind])
    for _ in range(search.request.most_stages):
        search.count(len(level), depth + 1)
        entries: dict[Key, tuple[np.ndarray, int]] = {}
        for (used, spent, last), (costs, paid) in level.items():
            if costs[-1] < unit:
                return True
            for kind, option, grown, error in search.moves(used, spent):
                entry, toll = np.minimum(costs + hops[option][last, kind], NEVER), paid + int(search.toll[kind])
                known = entries.get((grown, error, kind))
                if known is not None:
                    np.minimum(entry, known[0], out=entry)
                    toll = min(toll, known[1])
                entries[grown, error, kind] = entry, toll
            if len(entries) * (depth + 1) > MOST_NUMBERS:
                raise TooLarge
        level = {}
        for (used, spent, kind), (entry, paid) in entries.items():
            row = _least_ends(entry - prefix[kind], far[kind].tolist())
            row = np.where(row < NEVER // 2, row + prefix[kind], NEVER)
            row[row + search.after[kind] + (paid - search.paid) >= unit] = NEVER
            if (row < NEVER).any():
                level[used, spent, kind] = row, paid
    return False


def _allowed_hops(scaled: Scaled, period: Scaled | None, option: int, boundary: int) -> np.ndarray:
    """Units of a cut; `NEVER` where it takes as long as the period."""
    hops = scaled.hops(option, boundary)
    return hops if period is None else np.where(period.hops(option, boundary) < period.unit, hops, NEVER)


def _least_ends(values: np.ndarray, far: list[int]) -> np.ndarray:
    """For every end the least value among the starts that reach it; starts are taken with the cheapest first."""
    result = np.full(len(values), NEVER, dtype=np.int64)
    for at in np.argsort(values, kind="stable").tolist():
        if values[at] >= NEVER // 2:
            break
        part = result[at + 1:far[at] + 1]
        np.minimum(part, values[at], out=part)
    return result
