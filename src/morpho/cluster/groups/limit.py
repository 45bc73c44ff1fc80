"""Bounds for what must not take for ever: MPI's agreement of survivors, and calls that block inside MPI."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

AGREE_S = 60.0  # what survivors have to agree on who is left
_MORE_S = 15.0  # what MPI has to end a call whose group was revoked


def leave() -> NoReturn:
    """End this process as a death that the others survive: mpiexec ends all ranks where one ends with a status other
    than 0, and none where one is killed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Let this process end if what it does takes longer: for the others it is then dead, which they can deal with, and
    who started it may start it again. What hangs inside MPI cannot be interrupted in any other way.

    >>> with limited(60.0, "adding"):
    ...     1 + 1
    2
    """
    def end() -> None:
        print(f"[group] {what} took longer than {seconds:g} s: this process ends, so that nobody waits for it",
              file=sys.stderr, flush=True)
        leave()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Waited:
    """Seconds that this process has waited for others. Time in which the process itself did not run (it was stopped by
    a signal, its machine slept) is no reason to blame them: the count begins anew after a gap of half a timeout.

    >>> waited = Waited(60.0)
    >>> waited.seconds() < 60.0
    True
    """

    def __init__(self, timeout_s: float) -> None:
        self.since = self._last = time.monotonic()
        self._gap_s = max(timeout_s / 2, 0.5)

    def seconds(self) -> float:
        now = time.monotonic()
        if now - self._last > self._gap_s:
            self.since = now
        self._last = now
        return now - self.since


class Watch:
    """Calls that block inside MPI, by thread: since when, for how long at most, and of which group. One that takes
    longer is ended by revoking its group, which `overdue` does; where that does not help, this process ends."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[float, float, Any, str]] = {}
        self._shortest_s = 0.0

    def begin(self, timeout_s: float) -> None:
        """Have a thread look at the calls, if none does as often."""
        if timeout_s <= 0 or 0 < self._shortest_s <= timeout_s:
            return
        first, self._shortest_s = not self._shortest_s, timeout_s
        if first:
            threading.Thread(target=self._look, name="morpho-watch", daemon=True).start()

    def _look(self) -> None:
        warned: dict[int, tuple[float, float]] = {}  # which call of a thread was ended, and when
        clock = Waited(self._shortest_s)
        while True:
            time.sleep(min(max(self._shortest_s / 8, 0.05), 5.0))
            clock.seconds()
            now = time.monotonic()
            for thread, (since, timeout_s, group, what) in self.calls.copy().items():
                if not 0 < timeout_s < now - max(since, clock.since):
                    continue
                ended = warned.get(thread)
                if ended is None or ended[0] != since:
                    warned[thread] = since, now
                    if group.overdue(what, thread):
                        continue
                elif now - ended[1] < _MORE_S:
                    continue
                print(f"[group] rank {group.rank} waited {now - since:.0f} s in {what}, which cannot be interrupted: "
                      "this process ends. Hint: the setting collective_timeout is how long a rank waits",
                      file=sys.stderr, flush=True)
                leave()


watch = Watch()
