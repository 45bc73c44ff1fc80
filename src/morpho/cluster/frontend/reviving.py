"""Workers that died are started again: one by one on this machine, all together over several.

Over several hosts MPI ends everything with a machine that is lost, and starts no process that joins those there are:
the frontend, which has every request and every token, starts all workers anew on the machines that can be reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from morpho.base.errors import MorphoError
from morpho.plan import Plan

LOOK_EVERY_S = 0.5
MOST_BEGINNINGS = 3  # of a pipeline whose workers did not all come to their first meeting
CRASH = "*** End of error message ***"  # Open MPI's last word about a process that crashed
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # between attempts: twice as long each time


class Revivable(Protocol):
    """A pipeline whose workers may die and be started again."""

    plan: Plan
    processes: dict[str, int]

    @property
    def is_ready(self) -> bool: ...

    @property
    def failure(self) -> str: ...

    def restore(self, node: str) -> None: ...

    def start_again(self, nodes: list[str]) -> None: ...


class Reviving:
    """Starts workers again. `look` is one decision, `start` looks again and again; `restarts` is how often all of them
    may be started anew after they ended."""

    def __init__(self, pipeline: Revivable, reachable: Callable[[str], bool] | None = None, restarts: int = 0) -> None:
        self.pipeline, self.reachable, self.restarts = pipeline, reachable, restarts
        self._tries: dict[str, tuple[int, float]] = {}  # of each node, and when the next is due
        self._left, self._restarted_s = restarts, float("-inf")
        self._lock, self._over = threading.Lock(), threading.Event()
        self._beginnings = 0

    def lacks(self, missing: list[str]) -> bool:
        """Of a first meeting: whether somebody who was started is missing, so that all are started again. A worker that
        crashed before anybody asked for a text is no loss to live with, and a plan that rounds on its links would make
        another text with fewer of them."""
        if not missing or self._beginnings + 1 >= MOST_BEGINNINGS:
            return False
        self._beginnings += 1
        threading.Thread(target=self.start_again, daemon=True).start()  # who tells this is the old workers' reader
        return True

    def crashed(self, said: str) -> bool:
        """Of workers that all ended before their first meeting, as one that crashes takes the others along: whether
        that was a crash, as there is one inside MPI in some fifty starts, so that all are started again."""
        return CRASH in said and self.lacks([node.name for node in self.pipeline.plan.cluster.nodes])

    def look(self, now: float | None = None) -> list[str]:
        """Start those that are gone and whose time has come; who was started."""
        now, pipeline = time.monotonic() if now is None else now, self.pipeline
        if not pipeline.is_ready or pipeline.failure:
            return []
        found = []
        for node in [node.name for node in pipeline.plan.cluster.nodes]:
            count, due = self._tries.get(node, (0, 0.0))
            if node in pipeline.processes:
                if count and now > due + LONGEST_WAIT_S:
                    del self._tries[node]  # it lives: what was is forgotten
            elif not count:
                self._tries[node] = (1, now + FIRST_WAIT_S)
            elif now >= due:
                self._tries[node] = (count + 1, now + min(FIRST_WAIT_S * 2 ** count, LONGEST_WAIT_S))
                if self.reachable is None or self.reachable(node):
                    found.append(node)
                    pipeline.restore(node)
                    break  # the others when this one is there
        return found

    def start_again(self, counted: bool = False) -> bool:
        """Start all workers anew on the machines that can be reached; whether that was done. What is `counted` happens
        `restarts` times at most, unless workers lived for a while in between."""
        with self._lock:
            now = time.monotonic()
            if now > self._restarted_s + LONGEST_WAIT_S:
                self._left = self.restarts
            if self._over.is_set() or (counted and self._left < 1):
                return False
            self._left, self._restarted_s = self._left - counted, now
            names = [node.name for node in self.pipeline.plan.cluster.nodes]
            there = [name for name in names if self.reachable is None or self.reachable(name)]
            if not there:
                return False
            self.pipeline.start_again(there)
            return True

    def start(self) -> Reviving:
        """Look every so often, on a thread of its own, until `stop`."""
        def run() -> None:
            while not self._over.wait(LOOK_EVERY_S):
                try:
                    self.look()
                except MorphoError:
                    return  # the pipeline is closed

        threading.Thread(target=run, daemon=True).start()
        return self

    def stop(self) -> None:
        """No more looks."""
        self._over.set()
