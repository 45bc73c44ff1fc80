"""Workers of this machine that are stopped or silent are ended: for the others they are then dead, which they notice at
once. MPI has heartbeats of its own, but not between workers that were started at different times, and they are off for
workers of this machine (`Job`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from morpho.cluster.workers.reports import end_process, is_stopped

EVERY_S, STOPPED_S, SILENT_S = 0.1, 0.8, 15.0


def watch(closed: threading.Event, watched: Callable[[], Mapping[str, tuple[int, float]]],
          silent: Callable[[str], None]) -> None:
    """Look again and again until all is closed: `watched` gives process and last sign of each node, `silent` is told
    who is ended."""
    stopped: dict[int, float] = {}
    while not closed.wait(EVERY_S):
        now = time.monotonic()
        for node, (process, heard_s) in watched().items():
            since = stopped.setdefault(process, now) if is_stopped(process) else None
            if since is None:
                stopped.pop(process, None)
            if (since is not None and now - since >= STOPPED_S) or now - heard_s > SILENT_S:
                silent(node)
                end_process(process)
