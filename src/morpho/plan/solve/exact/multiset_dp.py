"""The multiset dynamic program: best partial placements for every multiset of used nodes, level by level of its size.

A *state* is a multiset of used nodes (a number in a mixed radix), with a budget for link types also how many links were
sent as each. For a state, `cost[k, e]` is the least latency of a partial placement that uses these nodes, ends with
kind k, and has placed the layers before boundary e. A state grows by one stage:

    cost'[l, e] = time[l, e] + min over a in [low_l(e), e) of (min over k of cost[k, a] + link[k, l, a]) - time[l, a]

Branch and bound: a cell is pruned when its cost plus the dual bound on its completion (`relaxation.py`) is not below
the incumbent `upper_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.relaxation import Bound, capacities
from morpho.plan.solve.problem import Placement, Problem

FEW_ROWS = 64  # so few rows are quicker at once than kind by kind


@dataclass
class Level:
    """All rows with one number of stages: codes in order, nodes used of each pool, cost of each kind and boundary."""

    codes: np.ndarray  # (rows,)
    digits: np.ndarray  # (rows, pools and counted types)
    cost: np.ndarray  # (rows, kinds, boundaries)

    def keep(self, rows: np.ndarray) -> Level:
        """Only these rows."""
        return Level(self.codes[rows], self.digits[rows], self.cost[rows])


@dataclass
class MultisetDP:
    """One search. `rows` counts what was looked at; `cut` says that rows were dropped without proof.

    That is because of `width`, of `cells`, or of the deadline.
    """

    problem: Problem
    upper_s: float = math.inf
    bound: Bound | None = None
    width: int | None = None
    cells: int = 60_000_000  # of one level, and twice as many of all: 1 GB
    deadline: Deadline = NEVER
    tighten: bool = False  # a plan found makes the upper bound: only better ones are looked for from then on
    rows: int = 0
    cut: bool = False
    levels: list[Level] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem = self.problem
        counts = [int(cap) + 1 for cap in problem.caps]
        # Links of the most exact type are those that remain; the others are counted in further digits.
        extra = [problem.max_stages] * (len(problem.dtypes) - 1) if problem.budget is not None else []
        radix = counts + extra
        if math.prod(radix) < 2**62:
            strides = [math.prod(radix[:position]) for position in range(len(radix))]
        else:  # codes that are only very probably different find plans, and prove nothing
            strides = np.random.default_rng(0).integers(2**40, 2**54, len(radix)).tolist()
            self.cut = True
        self.strides = np.array(strides, dtype=np.int64)
        self.steps = self.strides[problem.pool] * problem.use  # what a stage of a kind adds to a code
        # What each kind of stage, then each counted type, adds to the digits.
        self.marks = np.zeros((problem.kinds + len(extra), len(radix)), dtype=np.int16)
        self.marks[np.arange(problem.kinds), problem.pool] = problem.use
        for position in range(len(extra)):
            self.marks[problem.kinds + position, len(counts) + position] = 1
        self.windows = [Window(problem.low[kind], problem.depth) for kind in range(problem.kinds)]

    def run(self) -> dict[int, tuple[float, Placement]]:
        """The best plan of each number of stages that is better than `upper_s`, as latency and path."""
        found: dict[int, tuple[float, Placement]] = {}
        level: Level | None = self._first()
        while level is not None and len(level.codes):
            self.levels.append(level)
            self.rows += len(level.codes)
            finals = level.cost[:, :, -1]
            least = float(finals.min())
            if least < self.upper_s:
                row, kind = np.unravel_index(int(finals.argmin()), finals.shape)
                found[len(self.levels)] = (least, self._trace(int(row), int(kind)))
                if self.tighten:
                    self.upper_s = least
            level = self._next(level) if len(self.levels) < self.problem.max_stages and not self.expired() else None
        return found

    @property
    def stages(self) -> int:
        """How many stages the states have that are being made."""
        return len(self.levels) + 1

    def expired(self) -> bool:
        """Whether the deadline has passed; what was not looked at then is dropped without proof."""
        self.cut = self.cut or self.deadline.passed()
        return self.deadline.passed()

    def _first(self) -> Level:
        problem = self.problem
        kinds = np.flatnonzero(problem.usable)
        codes = self.steps[kinds]
        cost = np.full((len(kinds), problem.kinds, problem.depth + 1), np.inf)
        for row, kind in enumerate(kinds):
            reach = int(problem.far[kind, 0])
            cost[row, kind, 1:reach + 1] = problem.time[kind, 1:reach + 1] - problem.time[kind, 0]
        return self._prune(Level(codes, self.marks[kinds], cost).keep(np.argsort(codes)))

    def _choices(self, digits: np.ndarray, stages: int) -> list[tuple[int, int, np.ndarray]]:
        """(option, step of the code, rows that can afford it) for the next link."""
        problem = self.problem
        if problem.budget is None:
            return [(0, 0, np.ones(len(digits), dtype=bool))]
        errors = np.array(problem.errors)
        lossy = digits[:, len(problem.caps):]  # (rows, options - 1)
        spent = lossy @ errors[1:] + (stages - 1 - lossy.sum(axis=1)) * errors[0]
        return [(option, 0 if option == 0 else int(self.strides[len(problem.caps) + option - 1]),
                 spent + errors[option] <= problem.budget) for option in range(len(errors))]

    def _counted(self, option: int) -> np.ndarray | int:
        """Digits that an option's link adds; none for the most exact type, or without a budget."""
        return self.marks[self.problem.kinds + option - 1] if option and self.problem.budget is not None else 0

    def _next(self, level: Level) -> Level:
        problem = self.problem
        digits = level.digits
        moves = []
        for option, step, affordable in self._choices(digits, len(self.levels)):
            for kind in range(problem.kinds):
                pool, use = problem.pool[kind], problem.use[kind]
                rows = np.flatnonzero(affordable & (digits[:, pool] + use <= problem.caps[pool]))
                if len(rows):
                    moves.append((option, kind, rows, level.codes[rows] + self.steps[kind] + step))
        if not moves:
            return Level(level.codes[:0], digits[:0], self._empty(0))
        codes, where = np.unique(np.concatenate([move[3] for move in moves]), return_index=True)
        grown = np.concatenate([digits[rows] + self.marks[kind] + self._counted(option)
                                for option, kind, rows, _ in moves])[where]
        held = sum(level.cost.size for level in self.levels)
        fresh = len(codes) * problem.kinds * (problem.depth + 1)
        if fresh > self.cells or held + fresh > 2 * self.cells:
            self.cut = True
            return Level(codes[:0], grown[:0], self._empty(0))
        cost = self._empty(len(codes))
        for option, kind, rows, new in moves:
            if self.expired():
                return Level(codes[:0], grown[:0], self._empty(0))
            extended = self._extend(level.cost, rows, kind, option)
            place = np.searchsorted(codes, new)
            if problem.budget is None:
                cost[place, kind] = extended  # a row is reached by one kind from one row only
            else:
                cost[place, kind] = self._join(cost[place, kind], extended)
        return self._prune(Level(codes, grown, cost))

    def _empty(self, rows: int) -> np.ndarray:
        return np.full((rows, self.problem.kinds, self.problem.depth + 1), np.inf)

    def _join(self, before: np.ndarray, extended: np.ndarray) -> np.ndarray:
        return np.minimum(before, extended)  # type: ignore[no-any-return]

    def _extend(self, cost: np.ndarray, rows: np.ndarray, kind: int, option: int) -> np.ndarray:
        """Cost of one more stage on `kind`, (rows, boundaries)."""
        problem = self.problem
        entry: np.ndarray | None = None
        if len(rows) <= FEW_ROWS:
            entry = (cost[rows] + problem.link[option, :, kind]).min(axis=1)
            entry -= problem.time[kind]
            return self.windows[kind].least(entry) + problem.time[kind]  # type: ignore[no-any-return]
        for before in range(problem.kinds):
            line = problem.link[option, before, kind]
            if not np.isfinite(line).any():
                continue
            reached = cost[rows, before] + line
            entry = reached if entry is None else np.minimum(entry, reached, out=entry)
        if entry is None:
            return np.full((len(rows), problem.depth + 1), np.inf)
        entry -= problem.time[kind]
        return self.windows[kind].least(entry) + problem.time[kind]  # type: ignore[no-any-return]

    def _prune(self, level: Level) -> Level:
        """Drop cells that cannot lead below the upper bound, rows without cells, and what exceeds the width."""
        problem = self.problem
        if self.bound is not None:
            prices, after = self.bound.prices, self.bound.relaxed.after
            paid = (level.digits[:, :len(problem.caps)] @ prices[:-1] + self.stages * prices[-1]
                    - float(capacities(problem) @ prices))  # (rows,)
            reach = level.cost + after + paid[:, None, None]
            level.cost[reach >= self.upper_s] = np.inf
        else:
            reach = level.cost
            level.cost[level.cost >= self.upper_s] = np.inf
        score = np.where(np.isfinite(level.cost), reach, np.inf).min(axis=(1, 2))
        kept = np.flatnonzero(np.isfinite(score))
        if self.width is not None and len(kept) > self.width:
            self.cut = True
            kept = np.sort(kept[np.argpartition(score[kept], self.width)[:self.width]])
        return level if len(kept) == len(level.codes) else level.keep(kept)

    def _trace(self, row: int, kind: int) -> Placement:
        """The path that led to a cell at the end of the chain, found backwards by equality of costs."""
        problem, path = self.problem, []
        end, position = problem.depth, len(self.levels) - 1
        while position > 0:
            cost, code = self.levels[position].cost[row, kind, end], int(self.levels[position].codes[row])
            start, before, row, option = self._came_from(position, code, kind, end, float(cost))
            path.append((kind, start, end, option))
            kind, end, position = before, start, position - 1
        path.append((kind, 0, end, 0))
        return path[::-1]

    def _row_before(self, earlier: Level, code: int, kind: int, option: int) -> int | None:
        counted = option and self.problem.budget is not None
        step = int(self.strides[len(self.problem.caps) + option - 1]) if counted else 0
        source = code - int(self.steps[kind]) - step
        row = int(np.searchsorted(earlier.codes, source))
        return row if row < len(earlier.codes) and earlier.codes[row] == source else None

    def _came_from(self, position: int, code: int, kind: int, end: int, cost: float) -> tuple[int, int, int, int]:
        problem, earlier = self.problem, self.levels[position - 1]
        best = (math.inf, 0, 0, 0, 0)
        for option in range(len(problem.dtypes)):
            row = self._row_before(earlier, code, kind, option)
            if row is None:
                continue
            low = int(problem.low[kind, end])
            # (kinds, starts)
            options = earlier.cost[row, :, low:end] + problem.link[option, :, kind, low:end]
            options = options - problem.time[kind, low:end]
            before, start = np.unravel_index(int(options.argmin()), options.shape)
            miss = abs(float(options[before, start]) + float(problem.time[kind, end]) - cost)
            best = min(best, (miss, int(start) + low, int(before), row, option))
        return best[1:]


class Window:
    """Least value over the allowed starts [low(e), e) of every end e, for many rows at once."""

    def __init__(self, low: np.ndarray, depth: int) -> None:
        ends = np.arange(depth + 1)
        length = ends - low  # (boundaries,)
        self.open = length > 0
        self.whole = bool((low[self.open] == 0).all())
        self.power = np.where(self.open, np.log2(np.maximum(length, 1)).astype(np.int64), 0)
        self.left = np.where(self.open, low, 0)
        self.right = np.where(self.open, ends - (1 << self.power), 0)

    def least(self, values: np.ndarray) -> np.ndarray:
        """(rows, boundaries) of values at starts to (rows, boundaries) at ends; infinite where no start is allowed."""
        result = np.full_like(values, np.inf)
        if self.whole:
            running = np.minimum.accumulate(values, axis=1)
            ends = np.flatnonzero(self.open)
            result[:, ends] = running[:, ends - 1]
            return result
        table, power = values, 0
        while True:
            ends = np.flatnonzero(self.open & (self.power == power))
            if len(ends):
                result[:, ends] = np.minimum(table[:, self.left[ends]], table[:, self.right[ends]])
            if not (self.power > power).any():
                return result
            half = 1 << power
            table = np.minimum(table[:, :-half], table[:, half:])
            power += 1
