"""Events with a device's own clock: laid beside the host's. The fake device's runs fast and from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import morpho as mo
from morpho.backends import registry
from morpho.observe.export import perfetto
from morpho.runtime.trace.device_clock import DeviceClock
from tests.backends.delayed import DelayedBackend, DelayedEvent, DelayedExecutable

OFFSET_NS, RATE = 7_000_000_000_000, 1.0002  # a clock that began long ago and gains 200 us a second


class StampedEvent(DelayedEvent):
    """The end of a run that the device stamped, in two parts."""

    found: tuple[tuple[str, int, int], ...] = ()

    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        return self.found


class StampingBackend(DelayedBackend):
    """A fake device with a clock of its own; `truth` is when runs were really made."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.device = f"stamping:{number}"
        self.stamping, self.truth = False, []

    def device_ns(self) -> int:
        return self.of_host(time.perf_counter_ns())

    @staticmethod
    def of_host(host_ns: int) -> int:
        return round(OFFSET_NS + RATE * host_ns)

    def load(self, code: bytes) -> Any:
        return StampingExecutable(super().load(code), self)


class StampingExecutable:
    def __init__(self, plain: DelayedExecutable, backend: StampingBackend) -> None:
        self.plain, self.backend = plain, backend

    def enqueue(self, *args: Any, **more: Any) -> StampedEvent:
        stamping, event, plain = self.backend.stamping, StampedEvent(), self.plain.enqueue(*args, **more)
        begun = time.perf_counter_ns()
        plain.wait()
        ended, middle = time.perf_counter_ns(), (begun + time.perf_counter_ns()) // 2
        if stamping:
            event.found = tuple((name, self.backend.of_host(a), self.backend.of_host(b))
                                for name, a, b in (("load", begun, middle), ("", middle, ended)))
            self.backend.truth += [("load", begun, middle), ("", middle, ended)]
        event.over.set()
        return event


@pytest.fixture
def device() -> Iterator[StampingBackend]:
    made = StampingBackend(0)
    registry.register("stamping", lambda number: made, count=lambda: 1, numbered=True)
    yield made
    registry.unregister("stamping")


def test_a_clock_that_drifts_is_laid_beside_the_host() -> None:
    now = [0]

    def host() -> int:
        now[0] += 100
        return now[0]

    clock = DeviceClock(lambda: StampingBackend.of_host(now[0]), host)
    for _ in range(3):
        clock.look()
        now[0] += 400_000_000
    for moment in (-5_000_000, 1000, 123_456_789, 800_000_000, 1_300_000_000):
        assert abs(clock.host_ns(StampingBackend.of_host(moment)) - moment) <= 200, moment
    assert clock.error_ns == 50 and len(clock.looks) == 3


def test_one_look_gives_the_offset_and_no_rate() -> None:
    clock = DeviceClock(lambda: 1_000_000, lambda: 5000)
    clock.look()
    assert clock.host_ns(1_000_700) == 5700


def test_stamped_runs_are_where_they_were_in_the_trace(device: StampingBackend) -> None:
    """Their spans are the device's own, by name, in the host's time; outside of a profile nothing is stamped."""
    x = mo.ones(64)

    def run() -> None:
        with mo.settings(device="stamping:0"):
            (x + 1).numpy()

    run()
    with mo.profile() as p:
        origin_ns = round(1e9 * p._recorder.started_s)
        for _ in range(3):
            run()
    run()
    stamped = [span for span in p.trace.spans if span.detail.get("clock_error_ns") is not None]
    assert len(stamped) == len(device.truth) >= 4  # the first run of a profile is seen from the host
    assert not device.stamping
    for span, (name, begun, ended) in zip(stamped, device.truth, strict=True):
        slack_s = 1e-9 * (2 * span.detail["clock_error_ns"] + 20_000)
        assert abs(span.start_s - 1e-9 * (begun - origin_ns)) <= slack_s
        assert abs(span.start_s + span.seconds - 1e-9 * (ended - origin_ns)) <= slack_s
        assert span.name == f"stamping:0: {name}" if name else span.name.endswith("nodes")
    tracks = {event["tid"] for event in perfetto.events(p.trace) if str(event["name"]).startswith("device: stamping:0")}
    assert len(tracks) == 1
    assert any(span.detail.get("on_device") and "clock_error_ns" not in span.detail for span in p.trace.spans)
