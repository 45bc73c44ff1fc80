"""Arena planning: offsets of temporaries in one arena, first fit by lifetime.

>>> plan([Lifetime(100, 0, 1), Lifetime(100, 1, 2), Lifetime(100, 2, 3)])
ArenaPlan(offsets=(0, 128, 0), total=256, bound=256)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
FEW, SHUFFLES = 32, 200  # up to so many temporaries, so many random orders are tried beside the greedy ones


class Lifetime(NamedTuple):
    """Bytes of one temporary and the first and last step that touch it."""

    nbytes: int
    first: int
    last: int


class ArenaPlan(NamedTuple):
    """An offset for each temporary, the arena's size, and the least any plan could need."""

    offsets: tuple[int, ...]
    total: int
    bound: int


def aligned(nbytes: int) -> int:
    return (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive at one step."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        changes[life.first] = changes.get(life.first, 0) + aligned(life.nbytes)
        changes[life.last + 1] = changes.get(life.last + 1, 0) - aligned(life.nbytes)
    alive = most = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


def plan(lifetimes: Sequence[Lifetime]) -> ArenaPlan:
    """The best of a few first-fit orders; each temporary goes to the lowest gap free for its whole life."""
    orders: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-lifetimes[i].nbytes, lifetimes[i].first),
        lambda i: (lifetimes[i].first, -lifetimes[i].nbytes),
        lambda i: (lifetimes[i].first - lifetimes[i].last, -lifetimes[i].nbytes),
        lambda i: (-lifetimes[i].nbytes * (lifetimes[i].last - lifetimes[i].first + 1), lifetimes[i].first),
    ]
    bound = lower_bound(lifetimes)
    best: tuple[int, tuple[int, ...]] | None = None
    for order in orders:
        found = _first_fit(lifetimes, sorted(range(len(lifetimes)), key=order))
        if best is None or found[0] < best[0]:
            best = found
        if best[0] == bound:
            break
    assert best is not None
    shuffler = random.Random(0)
    attempts = SHUFFLES if len(lifetimes) <= FEW and best[0] > bound else 0
    shuffled = list(range(len(lifetimes)))
    for _ in range(attempts):  # first fit in other orders: small arenas are where one bad order shows most
        shuffler.shuffle(shuffled)
        best = min(best, _first_fit(lifetimes, shuffled))
        if best[0] == bound:
            break
    return ArenaPlan(best[1], best[0], bound)


def _first_fit(lifetimes: Sequence[Lifetime], order: list[int]) -> tuple[int, tuple[int, ...]]:
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # where it begins and ends, its first and its last step
    total = 0
    for index in order:
        nbytes, first, last = lifetimes[index]
        size = aligned(nbytes)
        place = 0
        for start, stop in sorted([(start, stop) for start, stop, other, until in placed
                                   if other <= last and first <= until]):
            if place + size <= start:
                break
            place = max(place, stop)
        offsets[index] = place
        placed.append((place, place + size, first, last))
        total = max(total, place + size)
    return total, tuple(offsets)
