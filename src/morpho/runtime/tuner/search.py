"""The search of the tuner: from the default to better choices, one knob at a time, each step by a sequential test.

A round times the holder and every challenger that is still in, in an order drawn anew, so that nothing that repeats
(another process, a timer) can favour one of them. The best of those that are surely faster becomes the holder, and its
neighbours challenge it. At the end the holder meets the default once more, on pairs of its own: only what is surely
faster by the full margin is kept. Pure but for the `time` it is given, so that it is tested with a simulated clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from morpho.runtime.tuner.sequential import Duel

Way = TypeVar("Way")
MARGIN = 0.10  # what a switch must gain, at least
STEP = 0.03  # what a step on the way must gain
ERROR = 0.01  # how often a problem may be switched to what does not gain the margin
MOST_STEPS = 3
HOPELESS, HOPELESS_PAIRS = 0.6, 2  # a way that takes 1 / 0.6 as long as the holder in so many pairs is not tried on


@dataclass
class Found(Generic[Way]):
    """Result of a search for a problem: the default if nothing was surely better."""

    way: Way
    gain: float  # over the default, by the median of the last pairs; 1 of the default
    tried: int = 0
    pairs: int = 0
    reason: str = ""
    steps: list[tuple[Way, float]] = field(default_factory=list)


class Search(Generic[Way]):
    """Looks for a faster way of one problem. `time(way)` gives seconds of a call; `neighbours(way)` what may be tried
    next; `is_over()` when time is up."""

    def __init__(self, default: Way, neighbours: Callable[[Way], Sequence[Way]], time: Callable[[Way], float],
                 is_over: Callable[[], bool] = lambda: False, margin: float = MARGIN, error: float = ERROR,
                 step: float = STEP, seed: int = 0) -> None:
        self.default, self.neighbours, self.time, self.is_over = default, neighbours, time, is_over
        self.margin, self.error, self.step = margin, error, step
        self.random = random.Random(seed)
        self.tried = self.pairs = 0

    def run(self) -> Found[Way]:
        """Search, then judge: the default, or what is surely faster than it by the margin."""
        holder, steps, seen = self.default, [], {self.default}
        for _ in range(MOST_STEPS):
            others = [way for way in self.neighbours(holder) if way not in seen]
            seen.update(others)
            if not others or self.is_over():
                break
            winner = self._round_robin(holder, others)
            if winner is None:
                break
            holder, gain = winner
            steps.append((holder, gain))
        if holder == self.default:
            return self._found(self.default, 1.0, "time was up" if self.is_over() else "nothing was surely faster")
        return self._judged(holder, steps)

    def _round_robin(self, holder: Way, others: Sequence[Way]) -> tuple[Way, float] | None:
        """The best of those that are surely faster than the holder."""
        duels = {way: Duel(self.step, self.error / len(others), most_pairs=60) for way in others}
        self.tried += len(others)
        open_ = list(others)
        while open_ and not self.is_over():
            times = self._timed([holder, *open_])
            if times is None:
                break
            for way in open_:
                duels[way].feed(times[holder], times[way])
            self.pairs += len(open_)
            open_ = [way for way in open_ if duels[way].verdict == "open" and not _is_hopeless(duels[way])]
        faster = [way for way in others if duels[way].verdict == "faster"]
        if not faster:
            return None
        if len(faster) > 1:
            self._settle(holder, faster, duels)
        best = max(faster, key=lambda way: duels[way].gain)
        return best, duels[best].gain

    def _settle(self, holder: Way, faster: list[Way], duels: dict[Way, Duel]) -> None:
        """A few more rounds among the winners: the first to be sure need not be the best."""
        for _ in range(8):
            if self.is_over():
                return
            times = self._timed([holder, *faster])
            if times is None:
                return
            for way in faster:
                duels[way].feed(times[holder], times[way])
            self.pairs += len(faster)

    def _judged(self, holder: Way, steps: list[tuple[Way, float]]) -> Found[Way]:
        """The holder against the default, on new pairs: those it was chosen by flatter it."""
        duel = Duel(self.margin, self.error)
        while duel.verdict == "open" and not self.is_over():
            times = self._timed([self.default, holder])
            if times is None:
                break
            duel.feed(times[self.default], times[holder])
            self.pairs += 1
        if duel.verdict == "faster":
            return self._found(holder, duel.gain, "surely faster", steps)
        reason = "time was up" if duel.verdict == "open" else "gained less than the margin"
        return self._found(self.default, 1.0, reason, steps)

    def _timed(self, ways: list[Way]) -> dict[Way, float] | None:
        """Seconds of each, in an order that is drawn; None where one was stopped in the middle."""
        order = list(ways)
        self.random.shuffle(order)
        times = {way: self.time(way) for way in order}
        return times if all(map(math.isfinite, times.values())) else None

    def _found(self, way: Way, gain: float, reason: str, steps: list[tuple[Way, float]] | None = None) -> Found[Way]:
        return Found(way, gain, self.tried, self.pairs, reason, steps or [])


def _is_hopeless(duel: Duel) -> bool:
    return duel.pairs >= HOPELESS_PAIRS and max(duel.ratios) < HOPELESS
