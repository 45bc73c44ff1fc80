"""What tests of the scheduler share: a limit for waits, and a worker that is kept busy, a task that fails."""

from __future__ import annotations

import threading

from morpho.tensor.tools.tasks import Future, Scheduler

LIMIT_S = 60  # of a wait that should be short: a hang becomes a failure


def held(scheduler: Scheduler) -> tuple[threading.Event, Future]:
    """A worker kept busy until the event is set."""
    begun, gate = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert gate.wait(LIMIT_S)

    future = scheduler.submit(hold, name="holder")
    assert begun.wait(LIMIT_S)
    return gate, future


def divide(a: float, b: float) -> float:
    return a / b
