"""Feasibility by sets of boundaries: exact for cuts of any size and for budgets of link types.

The states are those of `multiset_dp.py`, a multiset of used nodes and the last kind; here a cell is a bit, whether a
boundary can be reached. Dual prices that almost prove infeasibility (`relaxation.py`) prune cells that can no longer
reach the end within the capacities.
"""

from __future__ import annotations

import math

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.multiset_dp import FEW_ROWS, Level, MultisetDP
from morpho.plan.solve.exact.relaxation import Refutation, refute
from morpho.plan.solve.problem import Placement, Problem

BEAM = 48
PRICED_ROWS = 20_000  # fewer rows than this are searched more quickly than priced


class SetSearch(MultisetDP):
    """The search of `MultisetDP` on cells that are true where a boundary is reached."""

    refutation: Refutation | None = None

    def first_path(self) -> Placement | None:
        """Any path to the end, or None; `cut` tells whether None is a proof."""
        level: Level | None = self._first_cells()
        while level is not None and len(level.codes):
            self.levels.append(level)
            self.rows += len(level.codes)
            done = np.argwhere(level.cost[:, :, -1])
            if len(done):
                return self._trace(int(done[0, 0]), int(done[0, 1]))
            level = self._next(level) if len(self.levels) < self.problem.max_stages and not self.expired() else None
        return None

    def _first_cells(self) -> Level:
        problem = self.problem
        kinds = np.flatnonzero(problem.usable)
        codes = self.steps[kinds]
        cells = np.zeros((len(kinds), problem.kinds, problem.depth + 1), dtype=bool)
        for row, kind in enumerate(kinds):
            cells[row, kind, 1:int(problem.far[kind, 0]) + 1] = True
        return self._prune(Level(codes, self.marks[kinds], cells).keep(np.argsort(codes)))

    def _empty(self, rows: int) -> np.ndarray:
        return np.zeros((rows, self.problem.kinds, self.problem.depth + 1), dtype=bool)

    def _join(self, before: np.ndarray, extended: np.ndarray) -> np.ndarray:
        return before | extended  # type: ignore[no-any-return]

    def _extend(self, cost: np.ndarray, rows: np.ndarray, kind: int, option: int) -> np.ndarray:
        problem = self.problem
        starts = np.zeros((len(rows), problem.depth + 1), dtype=bool)
        if len(rows) <= FEW_ROWS:
            starts = (cost[rows] & np.isfinite(problem.link[option, :, kind])).any(axis=1)
            return self._ends(starts, kind)
        for before in range(problem.kinds):
            line = np.isfinite(problem.link[option, before, kind])
            if line.any():
                starts |= cost[rows, before] & line
        return self._ends(starts, kind)

    def _ends(self, starts: np.ndarray, kind: int) -> np.ndarray:
        problem = self.problem
        # The last start before an end decides: any earlier one reaches less far.
        last = np.maximum.accumulate(np.where(starts, np.arange(problem.depth + 1, dtype=np.int16), -1), axis=1)
        ends = np.zeros_like(starts)
        ends[:, 1:] = last[:, :-1] >= np.maximum(problem.low[kind][1:], 0).astype(np.int16)
        return ends

    def _prune(self, level: Level) -> Level:
        problem, score = self.problem, None
        if self.refutation is not None:
            prices, after = self.refutation.prices, self.refutation.relaxed.after
            paid = level.digits[:, :len(problem.caps)] @ prices[:-1] + self.stages * prices[-1]  # (rows,)
            total = after + paid[:, None, None]
            level.cost &= total <= 1 + 1e-9
            score = np.where(level.cost, total, np.inf).min(axis=(1, 2))
        kept = np.flatnonzero(level.cost.any(axis=(1, 2)))
        if self.width is not None and len(kept) > self.width:
            self.cut = True
            if score is None:
                score = -level.cost.argmax(axis=2).max(axis=1)
            kept = np.sort(kept[np.argpartition(score[kept], self.width)[:self.width]])
        return level if len(kept) == len(level.codes) else level.keep(kept)

    def _came_from(self, position: int, code: int, kind: int, end: int, cost: float) -> tuple[int, int, int, int]:
        problem, earlier = self.problem, self.levels[position - 1]
        low = int(problem.low[kind, end])
        for option in range(len(problem.dtypes)):
            row = self._row_before(earlier, code, kind, option)
            if row is None:
                continue
            reached = earlier.cost[row, :, low:end] & np.isfinite(problem.link[option, :, kind, low:end])
            found = np.argwhere(reached)
            if len(found):
                return int(found[-1, 1]) + low, int(found[-1, 0]), row, option
        raise AssertionError("a reached cell has a predecessor")


def feasible(problem: Problem, guess: np.ndarray | None = None, deadline: Deadline = NEVER
             ) -> tuple[Placement | None, bool]:
    """A path through the chain, or None; and whether None is proven rather than given up."""
    rows = math.prod(int(cap) + 1 for cap in problem.caps)
    if rows <= PRICED_ROWS and problem.budget is None:
        search = SetSearch(problem, deadline=deadline)
        path = search.first_path()
        return path, not search.cut
    refutation = refute(problem, 40, guess, deadline)
    if refutation.proves:
        return None, True
    for width in (BEAM, None):
        search = SetSearch(problem, width=width, deadline=deadline)
        search.refutation = refutation
        path = search.first_path()
        if path is not None or not search.cut:
            return path, True
    return None, False
