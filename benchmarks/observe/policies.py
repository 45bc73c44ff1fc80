"""Policies to compare on traces of keys of equal size: each gives its hits as a share of the requests."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Sequence

from morpho.runtime.code_cache.policy import MOST_USES, Shelf

Trace = Sequence[int]


def s3_fifo(trace: Trace, capacity: int) -> float:
    """Morpho's: the code that the caches run."""
    shelf: Shelf[int, None] = Shelf(capacity)
    hits = 0
    for key in trace:
        entry = shelf.entries.get(key)
        if entry is None:
            shelf.add(key, None, 1)
        else:
            hits += 1
            entry.uses = min(entry.uses + 1, MOST_USES)
    return hits / len(trace)


def lru(trace: Trace, capacity: int) -> float:
    """The least recently used leaves."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in trace:
        if key in cached:
            hits += 1
            cached.move_to_end(key)
        else:
            cached[key] = None
            if len(cached) > capacity:
                cached.popitem(last=False)
    return hits / len(trace)


def w_tiny_lfu(trace: Trace, capacity: int, window_share: float = 0.01) -> float:
    """W-TinyLFU (Einziger and others, 2017): a window of newcomers, a main part of probation and protected, and the
    frequencies of the last ten times the capacity, halved in between, to say who is let in. Counted exactly here; a
    count-min sketch in practice is a little worse."""
    window_limit = max(1, int(capacity * window_share))
    main_limit = max(1, capacity - window_limit)
    protected_limit = int(main_limit * 0.8)
    window: OrderedDict[int, None] = OrderedDict()
    probation: OrderedDict[int, None] = OrderedDict()
    protected: OrderedDict[int, None] = OrderedDict()
    seen: Counter[int] = Counter()
    hits = since = 0
    for key in trace:
        seen[key] += 1
        since += 1
        if since >= 10 * capacity:
            seen = Counter({one: times // 2 for one, times in seen.items() if times > 1})
            since //= 2
        if key in window:
            hits += 1
            window.move_to_end(key)
        elif key in protected:
            hits += 1
            protected.move_to_end(key)
        elif key in probation:
            hits += 1
            del probation[key]
            protected[key] = None
            if len(protected) > protected_limit:
                probation[protected.popitem(last=False)[0]] = None
        else:
            window[key] = None
            if len(window) > window_limit:
                _admit(window.popitem(last=False)[0], probation, protected, main_limit, seen)
    return hits / len(trace)


def _admit(candidate: int, probation: OrderedDict[int, None], protected: OrderedDict[int, None], limit: int,
           seen: Counter[int]) -> None:
    """Let what left the window into the main part, if it is asked for more often than who would leave for it."""
    if len(probation) + len(protected) < limit:
        probation[candidate] = None
        return
    victims = probation or protected
    victim = next(iter(victims))
    if seen[candidate] > seen[victim]:
        del victims[victim]
        probation[candidate] = None


def best_static(trace: Trace, capacity: int) -> float:
    """The best set of keys that is chosen once, with the whole trace known, and there from the first request on."""
    return sum(times for _, times in Counter(trace).most_common(capacity)) / len(trace)


def belady(trace: Trace, capacity: int) -> float:
    """Belady's MIN, which knows the future: whatever is needed last leaves, or is not kept at all."""
    never = len(trace)
    following, last = [0] * len(trace), dict[int, int]()
    for place in range(len(trace) - 1, -1, -1):
        following[place] = last.get(trace[place], never)
        last[trace[place]] = place
    cached: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    hits = 0
    for place, key in enumerate(trace):
        if key in cached:
            hits += 1
        elif len(cached) >= capacity:
            while cached.get(heap[0][1]) != -heap[0][0]:
                heapq.heappop(heap)
            if following[place] >= -heap[0][0]:
                continue
            del cached[heapq.heappop(heap)[1]]
        cached[key] = following[place]
        heapq.heappush(heap, (-following[place], key))
    return hits / len(trace)
