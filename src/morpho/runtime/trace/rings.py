"""Rings of native events: one per thread, filled by the driver's timed twin, emptied from Python.

A writer never waits. A reader that comes too late finds by a ring's head how many events were written over, and counts
them as lost; it never takes half of one.
"""

from __future__ import annotations

import ctypes
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from morpho.backends.driver.timed_code import EVENT_WORDS, RecorderField, RingField

RINGS = 128  # threads that can write; a ring's memory is only touched once its thread writes
RING_EVENTS = 1 << 16  # of a ring: 2 MiB


class Batch(NamedTuple):
    """Events of one thread: rows of first and last time stamp, pointer, and number and kind."""

    thread: int  # as `threading.get_ident` names it
    events: np.ndarray


class Rings:
    """The rings of this process and how far each was read."""

    def __init__(self, rings: int = RINGS, ring_events: int = RING_EVENTS) -> None:
        self.ring_events = ring_events
        self._words = int(RingField.EVENTS) + EVENT_WORDS * ring_events
        self._memory = np.zeros((rings, self._words), np.int64)
        self._read = [0] * rings
        self.lost = 0
        self.fullest = 0.0  # of the rings when they were last emptied, as a share
        self._library: Any = ctypes.CDLL(None)
        self._key: ctypes.c_uint32 | None = None
        self.table = np.zeros(int(RecorderField.SIZE), np.int64)
        for field, name in ((RecorderField.GET, "pthread_getspecific"), (RecorderField.SET, "pthread_setspecific"),
                            (RecorderField.SELF, "pthread_self"), (RecorderField.CLOCK, "clock_gettime")):
            self.table[field] = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0
        self.table[RecorderField.RINGS] = rings
        self.table[RecorderField.RING_TABLE] = self._memory.ctypes.data
        self.table[RecorderField.RING_WORDS] = self._words
        self.table[RecorderField.MASK] = ring_events - 1
        self.restart()

    def restart(self) -> None:
        """Take the rings back from all threads, those that are gone too: a new key, under which none has one."""
        key = ctypes.c_uint32()
        self._library.pthread_key_create(ctypes.byref(key), None)
        old, self._key = self._key, key
        self.table[RecorderField.KEY] = key.value
        for number in range(min(int(self.table[RecorderField.TAKEN]), len(self._read))):
            self._memory[number, RingField.HEAD] = self._read[number] = 0
        self.table[RecorderField.TAKEN] = self.table[RecorderField.LOST] = self.lost = 0
        if old is not None:
            self._library.pthread_key_delete(old)

    @property
    def address(self) -> int:
        """Of the table that native code finds the rings by."""
        return int(self.table.ctypes.data)

    def drain(self) -> list[Batch]:
        """The events written since the last time, oldest first in every thread."""
        found = []
        self.fullest = 0.0
        for number in range(min(int(self.table[RecorderField.TAKEN]), len(self._read))):
            events = self._drain(number)
            if len(events):
                self.fullest = max(self.fullest, len(events) / self.ring_events)
                found.append(Batch(int(self._memory[number, RingField.THREAD]) & (2**64 - 1), events))
        self.lost += int(self.table[RecorderField.LOST])
        self.table[RecorderField.LOST] = 0
        return found

    def _drain(self, number: int) -> np.ndarray:
        ring, size = self._memory[number], self.ring_events
        rows = ring[int(RingField.EVENTS):].reshape(size, EVENT_WORDS)
        head = int(ring[RingField.HEAD])
        first = max(self._read[number], head - size)
        low, high = first % size, head % size
        whole = head - first < size and low <= high
        taken = rows[low:high].copy() if whole else np.concatenate([rows[low:], rows[:high]])
        # What was written meanwhile may have gone over the oldest of these; the slot being written is one of them too.
        safe = max(first, min(head, int(ring[RingField.HEAD]) - size + 1)) if head - first else first
        self.lost += safe - self._read[number] if safe > self._read[number] else 0
        self._read[number] = head
        return taken[safe - first:]


@cache
def rings() -> Rings:
    """Rings of this process; native code may write to them at any time after it got their address."""
    return Rings()


class Calibration(NamedTuple):
    """Ticks of the twin's clock at a moment of Python's."""

    ticks: int
    nanoseconds: int


def calibrate(now: Any) -> Calibration:
    """The two clocks side by side: the tightest of several looks."""
    best = None
    for _ in range(16):
        before = time.perf_counter_ns()
        ticks = now()
        after = time.perf_counter_ns()
        if best is None or after - before < best[0]:
            best = after - before, Calibration(int(ticks), (before + after) // 2)
    assert best is not None
    return best[1]


def converter(start: Calibration, end: Calibration) -> Any:
    """A function from ticks, also arrays of them, to nanoseconds of `time.perf_counter_ns` after `start`."""
    elapsed = end.ticks - start.ticks
    rate = (end.nanoseconds - start.nanoseconds) / elapsed if elapsed > 0 else 1.0
    return lambda ticks: (ticks - start.ticks) * rate
