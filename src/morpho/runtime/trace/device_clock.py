"""A device's clock beside the host's: looks at both, and a line through them.

A look reads the host, the device, and the host again; the device was read somewhere in between, so half of that is how
wrong it may be. The tightest of several is kept. Between two looks the device's clock is taken to run evenly, which is
what crystals do for seconds; beyond them it goes on as between the outermost two.

>>> device = iter(range(5_000_000, 9_000_000, 1000))
>>> host = iter(range(0, 9_000_000, 500))
>>> clock = DeviceClock(lambda: next(device), lambda: next(host))
>>> clock.look(); clock.look()
>>> clock.host_ns(5_010_000) - clock.host_ns(5_009_000), clock.error_ns
(1000, 250)
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

TIMES = 8  # both clocks are read at a look; the tightest counts
LEAST_APART_NS = 1_000_000  # of the device: looks closer than this say nothing of the rate


class Look(NamedTuple):
    """The device's clock at a moment of the host's, with how wrong that may be."""

    device_ns: int
    host_ns: int
    error_ns: int


class DeviceClock:
    """Nanoseconds of a device's clock as those of `time.perf_counter_ns`. `read` gives the device's clock now, whatever
    it counts from."""

    def __init__(self, read: Callable[[], int], host: Callable[[], int] = time.perf_counter_ns) -> None:
        self._read, self._host = read, host
        self.looks: list[Look] = []

    def look(self) -> None:
        """Read both clocks; the tightest of a few readings."""
        found = []
        for _ in range(TIMES):
            before = self._host()
            device = int(self._read())
            after = self._host()
            found.append(Look(device, (before + after) // 2, (after - before + 1) // 2))
        best = min(found, key=lambda look: look.error_ns)
        if not self.looks or best.device_ns > self.looks[-1].device_ns:
            self.looks.append(best)

    @property
    def error_ns(self) -> int:
        """How wrong a time of the host may be, as far as the looks tell."""
        return max((look.error_ns for look in self.looks), default=0)

    def host_ns(self, device_ns: int) -> int:
        """A moment of the device's clock in the host's."""
        before = bisect_right(self.looks, device_ns, key=lambda look: look.device_ns) - 1
        number = max(0, min(before, len(self.looks) - 2))
        first, last = self.looks[number], self.looks[min(number + 1, len(self.looks) - 1)]
        apart = last.device_ns - first.device_ns
        rate = (last.host_ns - first.host_ns) / apart if apart >= LEAST_APART_NS else 1.0
        return round(first.host_ns + (device_ns - first.device_ns) * rate)
