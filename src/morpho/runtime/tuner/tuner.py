"""Tuning a program: each of its problems by itself, the slowest first, within a time box."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.cost.tuned_choices import NO_CHOICES, PLAIN, Choice, Problem
from morpho.runtime.tuner import space
from morpho.runtime.tuner.device_slices import DeviceSlice
from morpho.runtime.tuner.search import Search
from morpho.runtime.tuner.sequential import Watch
from morpho.runtime.tuner.slices import Slice, Unsliced, seconds_of
from morpho.runtime.tuner.store import Row

SAMPLE_S = 4e-4  # a time is that of as many calls as take so long
LEAST_SHARE = 0.01  # of a program's time: what takes less is not worth the search
LEAST_S = 2e-6  # a call: what takes less is mostly the call itself
WATCH_PAIRS = 24
REACH = 3  # how many times its share of the time a problem may take, where others took less


@dataclass(frozen=True)
class Tuned:
    """Result for one problem. `row` is None where the default stays; `rolled_back` where a choice of before
    went."""

    key: str
    default_s: float
    row: Row | None
    reason: str
    tried: int = 0
    rolled_back: bool = False

    def line(self) -> str:
        """For people."""
        chosen = "default" if self.row is None else f"{self.row.choice.said()}, {self.row.gain:.2f}x"
        return f"{self.key}: {chosen} ({self.reason}; {self.tried} tried)"


@dataclass
class Tuner:
    """Explores problems until the time is up. `clock` and `sample` stand for time in tests."""

    thresholds: DispatchThresholds
    budget_s: float
    anew: bool = False  # also problems that have a choice already
    seed: int = 0
    clock: Callable[[], float] = time.perf_counter
    tell: Callable[[Tuned], None] = lambda found: None
    sample: Callable[[Slice, Choice], float] | None = None
    device: str = ""  # another one than the CPU

    def seconds(self, part: Slice, choice: Choice) -> float:
        """Seconds of a call of a problem with a choice."""
        if self.sample is not None:
            return self.sample(part, choice)
        if isinstance(part, DeviceSlice):
            return part.seconds(choice, SAMPLE_S)
        return seconds_of(part.call(choice), SAMPLE_S, self.clock)

    def tune(self, problems: Iterable[Problem], constants: Collection[int], known: Mapping[str, Row]) -> list[Tuned]:
        """Explore problems of one program, the slowest first; those that cannot run by themselves are left out."""
        ends_s = self.clock() + self.budget_s
        waiting = self.ranked(problems, constants)
        found = []
        for number, (part, seconds) in enumerate(waiting):
            now_s = self.clock()
            if now_s >= ends_s:
                break
            left_s = sum(other for _, other in waiting[number:])
            share_s = (ends_s - now_s) * min(1.0, REACH * seconds / left_s)
            result = self.tune_one(part, seconds, min(ends_s, now_s + share_s), known.get(part.problem.key))
            found.append(result)
            self.tell(result)
        return found

    def ranked(self, problems: Iterable[Problem], constants: Collection[int]) -> list[tuple[Slice, float]]:
        """Slices with the time of their defaults, the slowest first, without those that do not matter."""
        found = []
        for problem in problems:
            if not space.neighbours(problem, PLAIN) or (problem.kind == "device") != bool(self.device):
                continue
            try:
                part = DeviceSlice(problem, self.device) if self.device else Slice(
                    problem, constants, replace(self.thresholds, choices=NO_CHOICES))
                seconds = self.seconds(part, PLAIN)
            except Unsliced:
                continue
            found.append((part, seconds))
        total = sum(seconds for _, seconds in found)
        worth = [(part, seconds) for part, seconds in found
                 if seconds >= LEAST_S and seconds >= LEAST_SHARE * total]
        return sorted(worth, key=lambda pair: -pair[1])

    def tune_one(self, part: Slice, default_s: float, ends_s: float, before: Row | None) -> Tuned:
        """One problem: a choice of before is looked at again, else the default's neighbours are explored."""
        key = part.problem.key

        def sample(choice: Choice) -> float:
            return self.seconds(part, choice)

        if before is not None and not self.anew:
            if self.is_slower(sample, before.choice, ends_s):
                return Tuned(key, default_s, None, "rolled back: the default is faster now", 1, rolled_back=True)
            return Tuned(key, default_s, before, "found before, and no slower than the default now", 1)
        search = Search(PLAIN, lambda choice: self.offered(part, choice, ends_s), sample,
                        lambda: self.clock() >= ends_s, seed=self.seed)
        result = search.run()
        row = None if result.way == PLAIN else Row(result.way, result.gain, result.pairs)
        return Tuned(key, default_s, row, result.reason, result.tried, rolled_back=row is None and before is not None)

    def offered(self, part: Slice, choice: Choice, ends_s: float = math.inf) -> list[Choice]:
        """Neighbours that compile and, byte for byte, compute what the default does: one that did not would be a bug,
        and must never be taken."""
        found = []
        for other in space.neighbours(part.problem, choice):
            if self.clock() >= ends_s:  # each is compiled
                break
            if part.bits(other) == part.bits(PLAIN):
                found.append(other)
        return found

    def is_slower(self, sample: Callable[[Choice], float], choice: Choice, ends_s: float) -> bool:
        """Whether a choice is surely slower than the default by now."""
        watch = Watch()
        while watch.pairs < WATCH_PAIRS and not watch.rolls_back and self.clock() < ends_s:
            if watch.pairs % 2:
                chosen_s, default_s = sample(choice), sample(PLAIN)
            else:
                default_s, chosen_s = sample(PLAIN), sample(choice)
            if not math.isfinite(default_s + chosen_s):
                break  # stopped in the middle
            watch.feed(default_s, chosen_s)
        return watch.rolls_back
