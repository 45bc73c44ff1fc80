"""Moving while it runs: measured times of the stages go to `plan.adapt`, and the layers to where they should be.

Where no move pays yet, `plan.trend` says where the load of each node is heading: a cut is moved ahead of a load that
grows, if the same forecasts were right so far. At most one move per cool-down; a move that did not help is undone, and
the next one waits twice as long.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from morpho.plan import Plan, adapt, trend

BETTER = 0.98  # a move has helped if the slowest stage takes less than this share of what it took
MOST_ROWS = 32  # looks that are remembered
LEAST_ROWS = 5  # of them, before a trend is believed
MOST_ERROR = 0.10  # of the forecasts so far, relative: what is less regular than that is no trend
STEADY = 1.15  # looks that differ by less than this factor say the same
MOST_WINDOWS = 4  # looks that are compared
LEAST_CHANGE = 0.05  # a forecast that is no further from now is no news


class Movable(Protocol):
    """A pipeline whose layers can move between nodes."""

    plan: Plan

    def recent_stage_times(self) -> Mapping[str, float]:
        """Seconds of each stage for a token, since the last time they were asked for."""
        ...

    def recut(self, plan: Plan) -> None: ...


@dataclass
class Adapting:
    """Decides when a pipeline is cut anew. `look` is one decision; `start` looks again and again. `ahead_s` is how far
    a load is predicted, by default a cool-down; 0 only reacts."""

    pipeline: Movable
    every_s: float = 2.0
    cool_down_s: float = 10.0
    minimum_gain: float = 0.1
    ahead_s: float | None = None
    moves: list[dict[str, Any]] = field(default_factory=list)
    _moved_s: float = field(default=float("-inf"), init=False)
    _before: tuple[Plan, float] | None = field(default=None, init=False)  # the plan before the last move, its period
    _paces: list[tuple[float, dict[str, float]]] = field(default_factory=list, init=False)  # seconds per unit of work
    _windows: dict[str, list[float]] = field(default_factory=dict, init=False)  # times of a token between looks
    _windows_of: Plan | None = field(default=None, init=False)  # the plan they were measured with
    _over: threading.Event = field(default_factory=threading.Event, init=False)

    def look(self, now: float | None = None) -> str:
        """Decide; what was decided and why, or an empty text where there is nothing to say yet."""
        now = time.monotonic() if now is None else now
        recent = self.pipeline.recent_stage_times()
        self._remember(now, recent)
        measured = self._measured(recent)
        if {stage.node for stage in self.pipeline.plan.stages} != set(measured):
            return ""  # not enough has been measured since the last move
        period = max(measured.values())
        if now - self._moved_s < self.cool_down_s:
            return ""
        if self._before is not None:
            before, its_period = self._before
            self._before = None
            if period > its_period * BETTER:
                self.cool_down_s *= 2
                return self._move(before, now, "undone: it did not help", period, remember=False)
        found = adapt(self.pipeline.plan, measured, minimum_gain=self.minimum_gain)
        if found.changed:
            return self._move(found.plan, now, found.reason, period, remember=True)
        expected = self.expected(measured)
        if expected:
            early = adapt(self.pipeline.plan, {**measured, **expected}, minimum_gain=self.minimum_gain)
            if early.changed:
                grown = max({**measured, **expected}.values())  # what would come without the move
                return self._move(early.plan, now, f"ahead of the load: {early.reason}", grown, remember=True)
        return found.reason

    def _measured(self, recent: Mapping[str, float]) -> dict[str, float]:
        """Times of stages to decide by: those since the last look where the look before it said about the same, as a
        window in which a load changes says something in between; where they never agree, the median of three."""
        if self._windows_of is not self.pipeline.plan:
            self._windows_of, self._windows = self.pipeline.plan, {}
        found = {}
        for node, seconds in recent.items():
            self._windows[node] = [*self._windows.get(node, [])[1 - MOST_WINDOWS:], seconds]
        for node, times in self._windows.items():
            steady = [max(pair) <= STEADY * min(pair) for pair in pairwise(times)]
            if steady and steady[-1]:
                found[node] = times[-1]
            elif len(times) == MOST_WINDOWS and not any(steady):
                found[node] = statistics.median(times[1:])
        return found

    def _remember(self, now: float, recent: Mapping[str, float]) -> None:
        """Note what a unit of work takes on each node: that can be compared over cuts."""
        row = {stage.node: recent[stage.node] / work for stage in self.pipeline.plan.stages
               if stage.node in recent and (work := self._work(stage.start, stage.end)) > 0}
        if row and (not self._paces or now > self._paces[-1][0]):
            self._paces = [*self._paces[-MOST_ROWS + 1:], (now, row)]

    def _work(self, start: int, end: int) -> float:
        return sum(layer.decode_bytes + layer.decode_flops for layer in self.pipeline.plan.card.layers[start:end])

    def expected(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Times of stages a while ahead, of nodes whose load is surely on its way: whose trend was right so far."""
        ahead_s = self.cool_down_s if self.ahead_s is None else self.ahead_s
        if len(self._paces) < LEAST_ROWS or ahead_s <= 0:
            return {}
        found = {}
        guesses = trend(self._paces, ahead_s)
        for stage in self.pipeline.plan.stages:
            guess, work = guesses.get(stage.node), self._work(stage.start, stage.end)
            if guess is None or guess.error > MOST_ERROR:
                continue
            seconds = guess.value * work
            if abs(seconds / measured[stage.node] - 1.0) > max(LEAST_CHANGE, 2 * guess.error):
                found[stage.node] = seconds
        return found

    def _move(self, plan: Plan, now: float, reason: str, period: float, remember: bool) -> str:
        self._before = (self.pipeline.plan, period) if remember else None
        self._moved_s = now
        self.moves.append({"reason": reason, "period_s": period,
                           "stages": [(stage.node, stage.start, stage.end) for stage in plan.stages]})
        self.pipeline.recut(plan)
        return reason

    def start(self) -> Adapting:
        """Look every so often, on a thread of its own, until `stop`."""
        def run() -> None:
            while not self._over.wait(self.every_s):
                self.look()

        threading.Thread(target=run, daemon=True).start()
        return self

    def stop(self) -> None:
        """No more looks."""
        self._over.set()
