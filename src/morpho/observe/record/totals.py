"""Native events summed up as they come: exact totals by step and program, and the first events for a timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from morpho.backends.driver.timed_code import KIND_BITS, Kind
from morpho.runtime.trace.rings import Batch

MOST_EVENTS = 100_000  # kept for the timeline
IN_TIME = 0.2  # of a call: a helper that comes later, or never, says nothing about how the work was divided
MOST_TAILS = 4096  # calls of a step whose waiting is kept
LOW = 0.15  # of the calls may end evenly by accident, where another process held a thread up
FAST = 0.25  # of the calls: those that other processes disturbed least


@dataclass
class Sum:
    """All events about one thing."""

    calls: int = 0
    ticks: int = 0
    numbers: int = 0  # the sum of what their last words say
    busy_ticks: int = 0  # of threads that worked on it together
    shared_ticks: int = 0  # of its own time while they did
    helped: int = 0  # calls that a helper came to in time
    tails: list[tuple[int, float]] = field(default_factory=list)  # of those: ticks, and threads' waiting as a multiple
    least_ticks: int = 1 << 62

    @property
    def sure_tail(self) -> float:
        """How long threads wait for the last one in any case, as a multiple of a call's time: in nearly all calls, and
        in the fastest, which nothing disturbed."""
        if not self.tails:
            return 0.0
        waits = sorted(wait for _, wait in self.tails)
        quick = sorted(wait for _, wait in sorted(self.tails)[:max(1, int(FAST * len(waits)))])
        return min(waits[int(LOW * len(waits))], quick[(len(quick) - 1) // 2])


@dataclass
class Totals:
    """Totals of the events drained so far."""

    programs: dict[tuple[int, int], Sum] = field(default_factory=dict)  # (thread, table) -> its runs
    steps: dict[tuple[int, int], Sum] = field(default_factory=dict)  # (thread, row) -> its runs
    events: list[tuple[int, np.ndarray]] = field(default_factory=list)  # (thread, events) as they came
    kept: int = 0
    dropped: int = 0
    _waiting: list[np.ndarray] = field(default_factory=list)  # work of helpers whose step has not ended yet

    def add(self, batches: Iterable[Batch]) -> None:
        """Sum up what was drained."""
        shared: list[np.ndarray] = []
        for thread, events in batches:
            kinds = events[:, 3] & ((1 << KIND_BITS) - 1)
            self._sum(self.programs, thread, events[kinds == Kind.RUN])
            self._sum(self.steps, thread, events[(kinds == Kind.STEP) | (kinds == Kind.LAUNCH)])
            shared.append(self._own_work(thread, events, kinds))
            helpers = events[(kinds == Kind.WORK) & (events[:, 3] >> KIND_BITS != 0)]
            if len(helpers):
                self._waiting.append(helpers)
            self._keep(thread, events)
        self._match(np.concatenate(shared) if shared else np.empty((0, 5), np.int64))

    @staticmethod
    def _sum(into: dict[tuple[int, int], Sum], thread: int, events: np.ndarray) -> None:
        if not len(events):
            return
        pointers, which = np.unique(events[:, 2], return_inverse=True)
        took = events[:, 1] - events[:, 0]
        calls = np.bincount(which)
        ticks = np.bincount(which, took)
        numbers = np.bincount(which, events[:, 3] >> KIND_BITS)
        least = np.full(len(pointers), 1 << 62, np.int64)
        np.minimum.at(least, which, took)
        for i, pointer in enumerate(pointers.tolist()):
            found = into.setdefault((thread, pointer), Sum())
            found.calls += int(calls[i])
            found.ticks += int(ticks[i])
            found.numbers += int(numbers[i])
            found.least_ticks = min(found.least_ticks, int(least[i]))

    def _own_work(self, thread: int, events: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """The caller's part of divided steps: its end is followed by that of the step. Rows of such steps' beginnings
        and ends, pointers, threads, and how long the caller waited at the end."""
        places = np.flatnonzero((kinds == Kind.WORK) & (events[:, 3] >> KIND_BITS == 0))
        places = places[places + 1 < len(events)]
        places = places[(kinds[places + 1] == Kind.STEP) | (kinds[places + 1] == Kind.LAUNCH)]
        work, steps = events[places], events[places + 1]
        for pointer in np.unique(steps[:, 2]).tolist():
            mine = steps[:, 2] == pointer
            found = self.steps[thread, pointer]
            found.busy_ticks += int((work[mine, 1] - work[mine, 0]).sum())
            found.shared_ticks += int((steps[mine, 1] - steps[mine, 0]).sum())
        threads = np.full(len(steps), thread, np.uint64).view(np.int64)
        return np.stack([steps[:, 0], steps[:, 1], steps[:, 2], threads, steps[:, 1] - work[:, 1]], axis=1)

    def _match(self, shared: np.ndarray) -> None:
        """Give helpers' work to the step that was being divided when it began: the pool divides one at a time. Then see
        how long threads waited at the end of each."""
        if not len(shared):
            return
        shared = shared[np.argsort(shared[:, 0])]
        tails, took = shared[:, 4].astype(np.float64), np.maximum(shared[:, 1] - shared[:, 0], 1)
        came = np.zeros(len(shared), bool)
        if self._waiting:
            work = np.concatenate(self._waiting)
            place = np.searchsorted(shared[:, 0], work[:, 0], "right") - 1
            inside = (place >= 0) & (work[:, 0] <= shared[place, 1])
            place = place[inside]
            came[place[work[inside, 0] - shared[place, 0] <= IN_TIME * took[place]]] = True
            tails += np.bincount(place, np.maximum(shared[place, 1] - work[inside, 1], 0), len(shared))
            owners, which = np.unique(shared[place][:, 2:4], axis=0, return_inverse=True)
            ticks = np.bincount(which.ravel(), work[inside, 1] - work[inside, 0], len(owners))
            for (pointer, thread), busy in zip(owners.tolist(), ticks.tolist(), strict=True):
                self.steps[thread & (2**64 - 1), pointer].busy_ticks += int(busy)
            later = work[~inside & (work[:, 0] > shared[-1, 1])]  # their step's end comes with the next drain
            self._waiting = [later] if len(later) else []
        shares, ticks_of, shared = (tails / took)[came], took[came], shared[came]
        owners, which = np.unique(shared[:, 2:4], axis=0, return_inverse=True)
        for number, (pointer, thread) in enumerate(owners.tolist()):
            found = self.steps[thread & (2**64 - 1), pointer]
            mine = shares[which.ravel() == number]
            found.helped += len(mine)
            room = max(0, MOST_TAILS - len(found.tails))
            found.tails += zip(ticks_of[which.ravel() == number][:room].tolist(), mine[:room].tolist(), strict=True)

    def _keep(self, thread: int, events: np.ndarray) -> None:
        room = max(0, MOST_EVENTS - self.kept)
        if room:
            self.events.append((thread, events[:room].copy()))
        self.kept += min(room, len(events))
        self.dropped += max(0, len(events) - room)
