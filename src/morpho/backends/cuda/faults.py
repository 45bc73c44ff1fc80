"""Faults that kernels report, and the errors they become: at the end of a run, or when somebody waits."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from morpho.backends.base import Event
from morpho.backends.code.kernel_abi import FAULT_ENDLESS, FAULT_INDEFINITE, FAULT_SINGULAR
from morpho.backends.cuda.driver.interface import Device
from morpho.base.errors import IndexFault, MorphoError, ValueFault, fail
from morpho.program.program import Step

SAID = {FAULT_SINGULAR: "singular matrix", FAULT_INDEFINITE: "matrix is not positive definite",
        FAULT_ENDLESS: "the factorisation did not converge"}


class RunEvent:
    """The end of a run. Faults that kernels reported become errors here, once."""

    def __init__(self, event: Event, faults: Any, steps: Sequence[Step], held: Any,
                 before: Sequence[RunEvent] = ()) -> None:
        self.event, self.faults, self.steps, self.held = event, faults, steps, held
        self.before = before  # runs that wrote what this one read, and may have failed
        self.error: MorphoError | None = None
        self.over = self.seen = False

    def done(self) -> bool:
        """Whether it is over."""
        return self.over or self.event.done()

    def wait(self) -> None:
        """Return when it is over; raise what failed, here or in a run whose values this one read."""
        if not self.over:
            self.event.wait()
            self._settle()
        self.seen = True
        if self.error is None:
            for run in self.before:
                run.wait()
            self.before = ()
        else:
            raise self.error

    def suspects(self) -> Sequence[RunEvent]:
        """The runs behind values of this one that reported a fault, or may yet."""
        if not self.over and (self.faults is not None or self.before) and self.event.done():
            self._settle()
        if self.error is not None or self.faults is not None:
            return (self, *self.before)
        if self.over and self.before:
            self.before = suspects_of(self.before)
        return self.before

    def _settle(self) -> None:
        faults = self.faults
        error = None if faults is None else fault_error(faults, self.steps)
        if error is not None:
            self.error = error
        self.over, self.held, self.faults = True, None, None  # last: another thread may be here


def suspects_of(events: Iterable[Any]) -> Sequence[RunEvent]:
    """Runs with a fault, or perhaps one, among these and those that they read from."""
    return tuple(dict.fromkeys([run for event in events if type(event) is RunEvent for run in event.suspects()]))


class FaultWords:
    """Some words of a slab."""

    def __init__(self, slab: Any, first: int, count: int) -> None:
        self.slab, self.first, self.count = slab, first, count  # which is memory as long as somebody has a part of it
        self.address, self.array = slab.address + 4 * first, slab.array[first:first + count]


class FaultSlabs:
    """The words of all programs' faults, side by side: a look at the device asks few long arrays whether anything is
    there, however many programs are loaded (300 of them, asked one by one, took 50 us a look)."""

    WORDS = 4096

    def __init__(self, host_words: Callable[[int], Any]) -> None:
        self.host_words = host_words
        self.slabs: list[Any] = []
        self.used = self.WORDS  # of the last slab
        self.free: dict[int, list[tuple[Any, int]]] = {}  # by how many words
        self.lock = threading.Lock()

    def take(self, count: int) -> FaultWords:
        """So many words, all zero."""
        with self.lock:
            if known := self.free.get(count):
                slab, first = known.pop()
            else:
                if self.used + count > self.WORDS:
                    self.slabs.append(self.host_words(max(count, self.WORDS)))
                    self.used = 0
                slab, first = self.slabs[-1], self.used
                self.used += count
        words = FaultWords(slab, first, count)
        words.array[:] = 0
        return words

    def give(self, words: FaultWords) -> None:
        """Take words back that no program writes any more."""
        words.array[:] = 0
        self.free.setdefault(words.count, []).append((words.slab, words.first))  # one step: finalisers take no locks

    def any(self) -> bool:
        """Whether a fault waits in any of them."""
        return any(slab.array.any() for slab in self.slabs)


class StandingFaults:
    """Words that all native calls of a program report faults in, looked at whenever somebody waits for the device."""

    def __init__(self, slabs: FaultSlabs, steps: Sequence[Step], gpu: Device) -> None:
        words = slabs.take(len(steps))
        self.words, self.steps, self.gpu, self.address = words, steps, gpu, words.address
        weakref.finalize(self, slabs.give, words).atexit = False

    def error(self) -> MorphoError | None:
        """The error of a fault that nobody has seen; work that was queued must be over."""
        if not self.words.array.any():
            return None
        found = fault_error(self.words.array, self.steps)
        self.words.array[:] = 0
        return found


def fault_error(faults: Any, steps: Sequence[Step]) -> MorphoError | None:
    """Error of the first step with a status."""
    for step, status in zip(steps, faults, strict=True):
        if status:
            words = next((text for bit, text in SAID.items() if status & bit), None)
            if words is not None:
                return fail(ValueFault, step.label, words, line=step.origin)
            return fail(IndexFault, step.label, "an index lies outside its axis", line=step.origin)
    return None
