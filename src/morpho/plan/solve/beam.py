"""Beam search guided by the relaxation: the incumbent of problems with too many multisets of nodes to enumerate.

A *label* is a partial placement: the boundary it has reached, its last kind, the nodes used of each pool. Boundaries
are taken in order; at each, the labels with the least cost plus priced completion (`Relaxation`) are kept, at most
`width`, and extended by every kind and every length a stage may have. A completion never costs more than a plan, so a
label whose sum is not below the incumbent is pruned; where nothing else was dropped, the search was exhaustive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.relaxation import Relaxation, capacities, tolls
from morpho.plan.solve.problem import Placement, Problem

PER_SET = 3  # labels of one boundary with the same nodes
MOST_CELLS = 4_000_000  # of the tables of one boundary: labels x kinds


@dataclass
class Labels:
    """Partial placements that end at one boundary, as columns; `parent` is a row of the labels at `start`."""

    score: np.ndarray
    cost: np.ndarray  # prices included
    paid: np.ndarray  # the prices in it
    kind: np.ndarray
    option: np.ndarray  # of the link into the last stage
    start: np.ndarray
    parent: np.ndarray
    mark: np.ndarray  # equal for equal multisets of nodes
    stages: np.ndarray
    error: np.ndarray

    def rows(self, kept: np.ndarray) -> Labels:
        """Only these."""
        return Labels(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))

    @staticmethod
    def joined(parts: list[Labels]) -> Labels:
        """All of several."""
        return Labels(*(np.concatenate([getattr(part, name) for part in parts])
                        for name in Labels.__dataclass_fields__))


def _varied(marks: np.ndarray) -> np.ndarray:
    """Rows without those that come after `PER_SET` others with the same nodes: orders of one set are much alike."""
    order = np.argsort(marks, kind="stable")
    fresh = np.concatenate([[True], np.diff(marks[order]) != 0])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    return np.sort(order[rank < PER_SET])


class Beam:
    """One search of the given width, below `upper_s` with time, otherwise for any placement at all.

    `cut` says whether labels were dropped without proof, so that finding nothing proves nothing.
    """

    def __init__(self, problem: Problem, relaxation: Relaxation, prices: np.ndarray, after: np.ndarray, width: int,
                 upper_s: float = math.inf, deadline: Deadline = NEVER) -> None:
        self.problem, self.relaxation, self.after = problem, relaxation, after
        self.width = max(1, min(width, MOST_CELLS // problem.kinds))
        self.deadline, self.cut = deadline, False
        self.toll = tolls(problem, prices)
        budget = float(capacities(problem) @ prices)
        self.limit = upper_s + budget if relaxation.weigh_time else budget * (1 + 1e-9)
        # Sums of random numbers tell multisets of nodes apart, but for one chance in 2^60.
        self.marks = np.random.default_rng(0).integers(1, 2**60, len(problem.caps))
        self.waiting: list[list[Labels]] = [[] for _ in range(problem.depth + 1)]
        self.kept: list[Labels | None] = [None] * (problem.depth + 1)
        self.used: list[np.ndarray | None] = [None] * (problem.depth + 1)

    def run(self) -> Placement | None:
        """The best placement met, or None."""
        problem = self.problem
        self._extend(0, None, np.where(problem.usable, self.toll, np.inf)[None, :], 0)
        for boundary in range(1, problem.depth):
            if self.deadline.passed():
                self.cut = True
                return None
            if self.waiting[boundary]:
                self._step(boundary)
        if not self.waiting[problem.depth]:
            return None
        final = Labels.joined(self.waiting[problem.depth])
        return self._trace(final.rows(np.array([int((final.cost - final.paid).argmin())])))

    def _step(self, boundary: int) -> None:
        """Keep the best labels of a boundary and extend them by one stage."""
        problem = self.problem
        found = Labels.joined(self.waiting[boundary])
        self.waiting[boundary] = []
        found = found.rows(np.argsort(found.score, kind="stable"))
        keys = np.stack([found.mark, found.kind, found.stages, (found.error * 2.0**40).astype(np.int64)])
        _, first = np.unique(keys, axis=1, return_index=True)  # of equal ones the cheapest
        found = found.rows(np.sort(first))
        if len(first) > self.width:
            self.cut = True
            found = found.rows(_varied(found.mark)[:self.width])
        used = np.zeros((len(found.kind), len(problem.caps)), dtype=np.int16)
        for start in np.unique(found.start[found.start > 0]):
            rows = np.flatnonzero(found.start == start)
            used[rows] = self.used[start][found.parent[rows]]
        used[np.arange(len(used)), problem.pool[found.kind]] += problem.use[found.kind].astype(np.int16)
        self.kept[boundary], self.used[boundary] = found, used
        full = (used[:, problem.pool] + problem.use > problem.caps[problem.pool]) | (
            found.stages >= problem.max_stages)[:, None]
        for option in range(len(problem.sizes)):
            hops = problem.late[found.kind] + problem.sizes[option, boundary] / problem.wide[found.kind]
            closed = full | (hops > problem.limit_s)
            if problem.budget is not None:
                closed |= (found.error + problem.errors[option] > problem.budget)[:, None]
            if not self.relaxation.weigh_time:
                hops = np.where(np.isfinite(hops), 0.0, np.inf)
            self._extend(boundary, found, np.where(closed, np.inf, found.cost[:, None] + hops + self.toll), option)

    def _extend(self, start: int, found: Labels | None, entry: np.ndarray, option: int) -> None:
        """Labels of one more stage from `start`, on every kind and of every length; `entry` is (labels, kinds)."""
        relaxation, problem = self.relaxation, self.problem
        base = entry - relaxation.time[:, start]
        for end in range(start + 1, min(problem.depth, start + relaxation.longest) + 1):
            able = np.flatnonzero(relaxation.lengths[:, start] >= end - start)
            if not len(able):
                break
            cost = base[:, able] + relaxation.time[able, end]
            score = (cost + self.after[able, end]).ravel()
            good = np.flatnonzero(score < self.limit)
            if len(good) > self.width:
                self.cut = True
                good = good[np.argpartition(score[good], self.width)[:self.width]]
            if len(good):
                row, column = np.divmod(good, len(able))
                kind = able[column]
                self.waiting[end].append(Labels(
                    score[good], cost.ravel()[good],
                    self.toll[kind] + (0.0 if found is None else found.paid[row]), kind,
                    np.full(len(good), option), np.full(len(good), start), row,
                    (0 if found is None else found.mark[row]) + self.marks[problem.pool[kind]] * problem.use[kind],
                    1 + (np.zeros(len(good), dtype=np.int64) if found is None else found.stages[row]),
                    np.zeros(len(good)) if found is None else found.error[row] + problem.errors[option]))

    def _trace(self, last: Labels) -> Placement:
        path: Placement = []
        label, row, end = last, 0, self.problem.depth
        while True:
            start = int(label.start[row])
            path.append((int(label.kind[row]), start, end, int(label.option[row])))
            if start == 0:
                return path[::-1]
            row, end, label = int(label.parent[row]), start, self.kept[start]  # type: ignore[assignment]
