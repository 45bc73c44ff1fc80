"""Moving while it runs: measured times of the stages go to `plan.adapt`, and the layers to where they should be.

At most one move per cool-down; a move that did not help is undone, and the next one waits twice as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from morpho.plan import Plan, adapt

LEAST_TOKENS = 8  # of a stage, before its time is believed
BETTER = 0.98  # a move has helped if the slowest stage takes less than this share of what it took


class Movable(Protocol):
    """What can be cut anew: a `Pipeline`."""

    plan: Plan

    def stage_times(self) -> Mapping[str, float]: ...

    def recut(self, plan: Plan) -> None: ...


@dataclass
class Adapting:
    """Decides when a pipeline is cut anew. `look` is one decision; `start` looks again and again."""

    pipeline: Movable
    every_s: float = 2.0
    cool_down_s: float = 10.0
    minimum_gain: float = 0.1
    moves: list[dict[str, Any]] = field(default_factory=list)
    _moved_s: float = field(default=float("-inf"), init=False)
    _before: tuple[Plan, float] | None = field(default=None, init=False)  # the plan before the last move, its period
    _over: threading.Event = field(default_factory=threading.Event, init=False)

    def look(self, now: float | None = None) -> str:
        """Decide; what was decided and why, or an empty text where there is nothing to say yet."""
        now = time.monotonic() if now is None else now
        measured = dict(self.pipeline.stage_times())
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
        if not found.changed:
            return found.reason
        return self._move(found.plan, now, found.reason, period, remember=True)

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
