"""Quantiles of a stream of observations in bounded memory: of the last 1000, exactly, and of a window of time, to 1 %.

A window is made of slots of five seconds; each counts its observations in buckets whose bounds grow by 2 %, as DDSketch
does (Masson and others, VLDB 2019), so that slots add up and the middle of a bucket is within 1 % of what fell into it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

QUANTILES = (0.5, 0.95, 0.99)
LAST = 1000  # observations kept as they are
SLOT_S = 5.0
SLOTS = 61  # 300 seconds, and the slot that is being filled
LONGEST_S = SLOT_S * (SLOTS - 1)
_GROWTH = math.log(1.02)
_LEAST = 1e-12  # what is nearer to zero counts as zero
_LOG_LEAST = math.log(_LEAST)
_LOG_MOST = 709.78  # of the largest float
_MIDDLE = math.log(2 / (1 + math.exp(_GROWTH)))  # from a bucket's upper bound to what is as near to both
ZERO = 0
INFINITE = 1 << 40  # beyond the bucket of every float


def bucket_of(value: float) -> int:
    """The bucket of a number: 0 is zero, negative numbers have negative ones."""
    size = abs(value)
    if not size > _LEAST:  # NaN too
        return ZERO
    if size == math.inf:
        place = INFINITE
    else:
        place = 1 + max(0, math.ceil((math.log(size) - _LOG_LEAST) / _GROWTH))
    return place if value > 0 else -place


def middle_of(bucket: int) -> float:
    """The number that stands for a bucket.

    >>> abs(middle_of(bucket_of(0.37)) / 0.37 - 1) <= 0.01
    True
    """
    if bucket == ZERO:
        return 0.0
    if abs(bucket) == INFINITE:
        return math.copysign(math.inf, bucket)
    size = math.exp(min(_LOG_LEAST + (abs(bucket) - 1) * _GROWTH + _MIDDLE, _LOG_MOST))
    return math.copysign(size, bucket)


class Series:
    """The observations under one set of labels; whoever has it locks."""

    __slots__ = ("counts", "last", "slots", "sum", "total")

    def __init__(self, buckets: int) -> None:
        self.counts, self.sum, self.total = [0] * buckets, 0.0, 0
        self.last: deque[float] = deque(maxlen=LAST)
        self.slots: deque[tuple[int, dict[int, int]]] = deque(maxlen=SLOTS)  # (number of the slot, counts by bucket)

    def add(self, value: float, place: int, now: float) -> None:
        """One observation, in the bucket `place` of the histogram."""
        self.counts[place] += 1
        self.sum += value
        self.total += 1
        self.last.append(value)
        number = int(now / SLOT_S)
        if not self.slots or self.slots[-1][0] != number:
            self.slots.append((number, {}))
        counts, bucket = self.slots[-1][1], bucket_of(value)
        counts[bucket] = counts.get(bucket, 0) + 1

    def totals(self) -> tuple[list[int], float, int]:
        """(counts by bucket of the histogram, sum, count) of all time."""
        return list(self.counts), self.sum, self.total

    def window(self, seconds: float, now: float) -> dict[int, int]:
        """Counts by bucket over the last `seconds`, whole slots."""
        first = int((now - seconds) / SLOT_S)
        found: dict[int, int] = {}
        for number, counts in self.slots:
            if number >= first:
                for bucket, count in counts.items():
                    found[bucket] = found.get(bucket, 0) + count
        return found


def quantiles_of(ordered: Sequence[float], of: Sequence[float]) -> dict[float, float]:
    """Quantiles of sorted numbers: the least that so large a share of them does not pass (nearest rank)."""
    count = len(ordered)
    return {q: ordered[max(0, math.ceil(q * count) - 1)] if count else math.nan for q in of}


def quantiles_of_buckets(counts: Mapping[int, int], of: Sequence[float]) -> dict[float, float]:
    """The same of counts by bucket.

    >>> found = quantiles_of_buckets({bucket_of(2.0): 98, bucket_of(9.0): 2}, (0.5, 0.99))
    >>> round(found[0.5], 1), round(found[0.99], 1)
    (2.0, 9.0)
    """
    total = sum(counts.values())
    found = dict.fromkeys(of, math.nan)
    for q in of if total else ():
        wanted, seen = max(1, math.ceil(q * total)), 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen >= wanted:
                found[q] = middle_of(bucket)
                break
    return found
