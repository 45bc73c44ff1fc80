"""The caches' policy against S3-FIFO as its paper has it (Yang and others, SOSP 2023, algorithm 1), written from the
pseudocode with plain lists: nothing of `code_cache/policy.py` is used but three of its numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.observe.cache_traces import zipf
from morpho.runtime.code_cache.policy import GHOST_SHARE, MOST_USES, SMALL_SHARE, Shelf


class S3Fifo:
    """Queues S, M and G with the head at index 0. `read` says whether it was a hit."""

    def __init__(self, size: int, small: float = 0.1, ghosts: float = 0.9, most: int = 3, again: int = 2,
                 one_move: bool = False) -> None:
        self.size, self.small_size, self.ghost_size = size, max(1, int(size * small)), max(1, int(size * ghosts))
        self.most, self.again = most, again  # the largest freq; the freq from which on S's tail goes to M
        self.one_move = one_move  # look anew at which queue is too long after every move, not after every eviction
        self.s: list[int] = []
        self.m: list[int] = []
        self.g: list[int] = []
        self.freq: dict[int, int] = {}

    def read(self, x: int) -> bool:
        if x in self.freq:
            self.freq[x] = min(self.freq[x] + 1, self.most)
            return True
        if x in self.g:
            self.g.remove(x)
            queue = self.m
        else:
            queue = self.s
        while len(self.s) + len(self.m) >= self.size:
            self.evict()
        queue.insert(0, x)
        self.freq[x] = 0
        return False

    def evict(self) -> None:
        if len(self.s) > self.small_size or not self.m:
            self.evict_s()
        else:
            self.evict_m()

    def evict_s(self) -> None:
        evicted = False
        while not evicted and self.s:
            t = self.s.pop()
            if self.freq[t] >= self.again:
                self.m.insert(0, t)
                self.freq[t] = 0
                evicted = self.one_move
            else:
                self.g.insert(0, t)
                del self.g[self.ghost_size:]
                del self.freq[t]
                evicted = True

    def evict_m(self) -> None:
        evicted = False
        while not evicted and self.m:
            t = self.m.pop()
            if self.freq[t] > 0:
                self.m.insert(0, t)
                self.freq[t] -= 1
                evicted = self.one_move
            else:
                del self.freq[t]
                evicted = True


def shelf_hits(trace: list[int], size: int) -> list[bool]:
    """What the caches' own policy hits, for keys of one size."""
    shelf: Shelf[int, None] = Shelf(size)
    hits = []
    for key in trace:
        entry = shelf.entries.get(key)
        hits.append(entry is not None)
        if entry is None:
            shelf.add(key, None, 1)
        else:
            entry.uses = min(entry.uses + 1, MOST_USES)
    return hits


def ours(size: int) -> S3Fifo:
    return S3Fifo(size, SMALL_SHARE, GHOST_SHARE, MOST_USES, again=1, one_move=True)


def mixed(rng: np.random.Generator, length: int) -> list[int]:
    """Popular keys, runs of strangers, a loop and popularity that moves, in turns of random length."""
    trace: list[int] = []
    while len(trace) < length:
        count = int(rng.integers(20, 400))
        kind = rng.integers(4)
        if kind == 0:
            trace += zipf(count, float(rng.uniform(0.6, 1.4)))
        elif kind == 1:
            trace += range(10**6 + len(trace), 10**6 + len(trace) + count)
        elif kind == 2:
            trace += [500 + i % int(rng.integers(10, 150)) for i in range(count)]
        else:
            trace += (rng.integers(0, 60, count) + len(trace) // 500).tolist()
    return trace[:length]


@pytest.mark.parametrize("size", [8, 50, 51, 100, 333])
def test_the_policy_is_that_of_the_paper(size: int, rng: np.random.Generator) -> None:
    """Hit by hit, with the caches' numbers (used once again is enough to stay), and with queues looked at after every
    move."""
    trace = mixed(rng, 6000)
    simulated = ours(size)
    assert shelf_hits(trace, size) == [simulated.read(key) for key in trace]


TRACES: dict[str, Callable[[np.random.Generator], list[int]]] = {
    "zipf 0.8": lambda rng: zipf(20_000, 0.8), "zipf 1.1": lambda rng: zipf(20_000, 1.1),
    "mixed": lambda rng: mixed(rng, 20_000)}


@pytest.mark.parametrize("name", TRACES)
def test_the_numbers_chosen_lose_nothing_against_those_of_the_paper(name: str, rng: np.random.Generator) -> None:
    """The pseudocode to the letter: a tenth for newcomers, ghosts of nine tenths, uses up to 3, twice used to stay."""
    trace = TRACES[name](rng)
    paper = S3Fifo(200)
    literal = sum(paper.read(key) for key in trace)
    assert sum(shelf_hits(trace, 200)) >= 0.95 * literal > 0
