"""Feasibility by dominance: the furthest boundary that every multiset of nodes reaches within a period.

Where a link takes as long at every cut, one number per (multiset, last kind) says all: the furthest boundary reached.
A later start never ends earlier, so only the furthest matters. One subtlety: a node that cannot take even the next
layer would pass activations on without computing. `strict` forbids that (what it finds is a plan), the relaxed form
allows it (what it refutes has no plan); where they differ, and where cuts differ, sets of boundaries decide.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.problem import Placement, Problem

DENSE_ROWS = 4_000_000


@lru_cache(maxsize=8)
def _lattice(caps: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Strides, codes by number of nodes used, and digits of all codes: the same for every period tried."""
    radix = np.array([cap + 1 for cap in caps], dtype=np.int64)
    strides = np.array([math.prod(radix[:position].tolist()) for position in range(len(radix))], dtype=np.int64)
    codes = np.arange(math.prod(radix.tolist()), dtype=np.int64)
    small = np.int8 if max(caps) < 64 else np.int16  # sums of two stay within it
    digits = np.stack([(codes // stride % base).astype(small) for stride, base in zip(strides, radix)])
    total = digits.sum(axis=0, dtype=np.int64)
    order = np.argsort(total, kind="stable")
    edges = np.searchsorted(total[order], np.arange(int(total.max()) + 2))
    return strides, [order[a:b] for a, b in pairwise(edges)], digits


def frontier_search(problem: Problem, strict: bool, deadline: Deadline = NEVER) -> Placement | None:
    """A path through the whole chain within the limits of the problem, by furthest boundaries; see the module."""
    strides, by_count, digits = _lattice(tuple(int(cap) for cap in problem.caps))
    steps = strides[problem.pool] * problem.use  # what a stage of a kind adds to a code
    kinds, depth = problem.kinds, problem.depth
    allowed = np.isfinite(problem.best_link[:, :, 1:-1]).any(axis=2) if depth > 1 else np.zeros((kinds, kinds), bool)
    far = problem.far.copy()
    if strict:
        far = np.where(far > np.arange(depth + 1), far, 0)
        far[:, depth] = 0
    dtype = np.uint8 if depth < 256 else np.int32
    far = far.astype(dtype)
    best = np.zeros((kinds, digits.shape[1]), dtype=dtype)  # 0: not reached
    for kind in range(kinds):
        if problem.usable[kind]:
            best[kind, steps[kind]] = far[kind, 0]
    most = problem.max_stages if (problem.use == 1).all() else len(by_count) - 1
    for count in range(1, most + 1):
        codes = by_count[count]
        done = np.argwhere(best[:, codes] == depth)
        if len(done):
            return _trace(best, far, allowed, steps, int(done[0, 0]), int(codes[done[0, 1]]))
        if count == most:
            break
        here = best[:, codes]  # (kinds, rows)
        for kind in range(kinds):
            deadline.check()
            pool, use = problem.pool[kind], problem.use[kind]
            room = digits[pool, codes] + use <= problem.caps[pool]
            start = np.zeros(len(codes), dtype=dtype)
            for before in np.flatnonzero(allowed[:, kind]):
                np.maximum(start, here[before], out=start)
            end = np.where(start > 0, far[kind][start], 0)  # type: ignore[operator]
            best[kind, codes[room] + steps[kind]] = end[room]
    return None


def _trace(best: np.ndarray, far: np.ndarray, allowed: np.ndarray, steps: np.ndarray, kind: int, code: int
           ) -> Placement:
    path: Placement = []
    end = int(best[kind, code])
    while True:
        code -= int(steps[kind])
        if code == 0:
            path.append((kind, 0, end, 0))
            return path[::-1]
        before = max(np.flatnonzero(allowed[:, kind]), key=lambda other: int(best[other, code]))
        start = int(best[before, code])
        path.append((kind, start, end, 0))
        kind, end = int(before), start


def relaxed_feasible(problem: Problem, most: int = DENSE_ROWS, deadline: Deadline = NEVER) -> bool | None:
    """False where furthest boundaries prove that there is no plan; None where there are too many multisets to tell."""
    if math.prod(int(cap) + 1 for cap in problem.caps) > most:
        return None
    return frontier_search(problem, strict=False, deadline=deadline) is not None
