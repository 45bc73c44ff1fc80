"""Tuning beside a program that runs: `MORPHO_TUNE=background`. One thread, one hundredth of the time.

Plans are noted when they are made. The thread explores their problems in turns: every slot of work is a sample of a
search, asked of a ration, so that exploring, compiling included, stays within its share of the time that has passed.
What is found is published once per plan: publishing means that functions are planned anew at their next call. Choices
in force are looked at again every now and then, and go if the default is faster.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from morpho.base import settings
from morpho.runtime import thresholds
from morpho.runtime.tuner import store
from morpho.runtime.tuner.sequential import Ration
from morpho.runtime.tuner.tuner import Tuned, Tuner

log = logging.getLogger("morpho")
SHARE = 0.01
COMPILE_S = 0.05  # what a sample is thought to take, where its kernel may have to be compiled
LONGEST_WAIT_S = 5.0
BOX_S = 2.0  # of exploring, for one plan
LOOK_AGAIN_S = 900.0
MOST_WAITING = 64


class Background:
    """The thread and what waits for it. `clock` and `sleep` stand for time in tests."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter,
                 sleep: Callable[[float], Any] = time.sleep, share: float = SHARE) -> None:
        self.clock, self.sleep = clock, sleep
        self.ration = Ration(share, clock())
        self.waiting: list[weakref.ref[Any]] = []
        self.looked: dict[str, float] = {}  # problem -> when it was looked at
        self.found: list[Tuned] = []
        self.is_over = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def note(self, plan: Any) -> None:
        """A plan was made: explore it when there is time."""
        if not plan.native or self.is_over:
            return
        with self._lock:
            if len(self.waiting) < MOST_WAITING:
                self.waiting.append(weakref.ref(plan))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="morpho-tuner", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self.is_over:
            if not self.step():
                self._pause(0.2)

    def step(self) -> bool:
        """Explore the next plan; whether there was one."""
        with self._lock:
            plan = self.waiting.pop(0)() if self.waiting else None
        if plan is None:
            return False
        try:
            with settings.of(plan.chosen):
                self.explore(plan)
        except Exception as error:  # a thread of its own: nobody else would hear of it
            log.warning("the tuner gave up a program: %s", error)
        return True

    def explore(self, plan: Any) -> list[Tuned]:
        """Explore the problems of a plan, paused as the ration wants it, and publish what is better."""
        self.pay(COMPILE_S)
        began = self.clock()
        problems = [problem for key, problem in plan.lowered.problems.items()
                    if began - self.looked.get(key, float("-inf")) > LOOK_AGAIN_S]
        self.ration.spend(self.clock() - began)
        if not problems:
            return []
        tuner = Tuner(thresholds.current(), BOX_S / self.ration.share, clock=self._paced)
        self._last_s = self.clock()
        found = tuner.tune(problems, plan.constants, store.kept().rows)
        self.ration.spend(self.clock() - self._last_s)
        for problem in problems:
            self.looked[problem.key] = self.clock()
        self.publish(found)
        return found

    def publish(self, found: list[Tuned]) -> None:
        """Keep what is new, drop what was rolled back; only then programs are planned anew."""
        known = store.kept().rows
        rows = {one.key: one.row for one in found if one.row is not None and known.get(one.key) != one.row}
        dropped = {one.key for one in found if one.rolled_back}
        self.found += found
        if rows or dropped:
            store.keep(rows, dropped)
            thresholds.tuned_anew()

    def _paced(self) -> float:
        """The clock that the tuner reads: between two looks at it work was done, which is paid for before the next."""
        now_s = self.clock()
        self.ration.spend(now_s - self._last_s)
        if self.is_over:
            return float("inf")
        self.pay(COMPILE_S)
        self._last_s = self.clock()
        return self._last_s

    def pay(self, ahead_s: float = 0.0) -> None:
        """Sleep until what was spent, and what is about to be, is no more than its share."""
        while not self.is_over:
            wait_s = self.ration.waits_s(self.clock(), ahead_s)
            if wait_s <= 0.0:
                return
            self._pause(min(wait_s, LONGEST_WAIT_S))

    def _pause(self, seconds: float) -> None:
        self.sleep(seconds)

    def stop(self) -> None:
        """No more looks; a sample on its way ends first."""
        self.is_over = True


_one: Background | None = None
_made = threading.Lock()


def note(plan: Any) -> None:
    """A plan was made under `tune="background"`."""
    global _one
    with _made:
        if _one is None:
            _one = Background()
            atexit.register(_one.stop)
    _one.note(plan)
