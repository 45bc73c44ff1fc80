"""The measuring itself: rounds that alternate between peers, and their medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.harness.client import PeerError


class Asks(Protocol):
    """Anything that answers commands as a peer process does."""

    name: str

    def ask(self, command: str, **details: Any) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Entry:
    """A case on a worker, under a label of its own: one worker may run two cases in the same rounds.

    ``shape`` stands for that of the others.
    """

    label: str
    worker: Asks
    case: str
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Pace:
    """How long to measure. The pause lets the threads of the last peer go to sleep (OpenMP spins for a while).

    An entry that has run for ``entry_seconds`` gets no further round: a peer without instructions for a type may take a
    minute where others take a tenth of a second.
    """

    rounds: int = 15
    round_seconds: float = 0.01
    pause_seconds: float = 0.01
    entry_seconds: float = 10.0


@dataclass
class Timing:
    """Seconds per call of one peer on one case, or why there are none."""

    peer: str
    rounds: list[float] = field(default_factory=list)
    calls: int = 0
    error_share: float | None = None
    answer: Any = None  # what the case's checked call gave, in short, where its cases say so
    error: str | None = None

    @property
    def seconds(self) -> float | None:
        """The median over the rounds."""
        return statistics.median(self.rounds) if self.rounds and not self.error else None

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "seconds": self.seconds}


def schedule(labels: list[str], rounds: int) -> Iterator[str]:
    """Whose turn it is: every entry once per round, each round begun by the next one."""
    for round_number in range(rounds):
        shift = round_number % len(labels) if labels else 0
        yield from labels[shift:] + labels[:shift]


def measure(entries: list[Entry], shape: tuple[int, ...], pace: Pace) -> dict[str, Timing]:
    """Time entries in alternating rounds. One that fails is reported in its timing; the others go on."""
    timings = {entry.label: prepare(entry, shape if entry.shape is None else entry.shape, pace) for entry in entries}
    ready = {entry.label: entry for entry in entries if timings[entry.label].error is None}
    for label in schedule(list(ready), pace.rounds):
        if timings[label].error is None and sum(timings[label].rounds) * timings[label].calls < pace.entry_seconds:
            run_round(ready[label], timings[label], pace)
    for worker in {id(entry.worker): entry.worker for entry in ready.values()}.values():
        with suppress(PeerError):  # a process that died has nothing left to drop
            worker.ask("drop")
    return timings


def prepare(entry: Entry, shape: tuple[int, ...], pace: Pace) -> Timing:
    """Let a worker compile, check its result and choose its number of calls."""
    timing = Timing(entry.worker.name)
    try:
        reply = entry.worker.ask("prepare", label=entry.label, case=entry.case, shape=list(shape),
                                 round_seconds=pace.round_seconds)
        timing.calls, timing.error_share = reply["calls"], reply["error_share"]
        timing.answer = reply.get("answer")
    except PeerError as error:
        timing.error = str(error)
    return timing


def run_round(entry: Entry, timing: Timing, pace: Pace) -> None:
    """One round of one entry; afterwards wait until its threads sleep, or they would spin beside the next peer."""
    time.sleep(pace.pause_seconds)
    try:
        timing.rounds.append(entry.worker.ask("round", label=entry.label, calls=timing.calls)["seconds"])
        entry.worker.settle()
    except PeerError as error:
        timing.error = str(error)
