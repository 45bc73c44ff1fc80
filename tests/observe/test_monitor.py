"""`mo.monitor`: figures and their quantiles, alerts and whom they tell, export, and what sampling costs."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.observe.monitor.delivery import WAITING, Delivery, Webhook
from morpho.observe.monitor.engine import PLAN_COUNTS
from morpho.observe.monitor.export import Collector
from morpho.observe.monitor.resources import Gpus, Process
from morpho.observe.monitor.sampling import EVERY_S, Sampler
from morpho.runtime import metrics as registry
from morpho.runtime.metrics import Histogram, Metrics
from morpho.runtime.plans.evaluate import Counts
from morpho.runtime.quantiles import QUANTILES, SLOT_S, bucket_of, middle_of


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- figures -----------------------------------------------------------------------------------------------------------
def test_quantiles_of_the_last_thousand_are_exact(rng: np.random.Generator) -> None:
    seen = Histogram("h", "")
    drawn = rng.exponential(size=2500)
    for value in drawn:
        seen.observe(value)
    ordered = np.sort(drawn[-1000:])
    assert seen.quantiles() == {0.5: ordered[499], 0.95: ordered[949], 0.99: ordered[989]}
    counts, total, count = seen.value()
    assert count == 2500 == sum(counts) and total == pytest.approx(drawn.sum())
    assert np.isnan(list(Histogram("empty", "").quantiles().values())).all()


def test_quantiles_of_a_window_are_within_a_hundredth_and_forget(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(registry, "monotonic", clock)
    seen = Histogram("h", "", ["kind"])
    old, new = rng.lognormal(3, 2, 3000), rng.lognormal(-3, 2, 5000)
    for value in old:
        seen.observe(value, "a")
    clock.now += 100
    for value in new:
        seen.observe(value, "a")
    for window, values in ((60, new), (200, np.concatenate([old, new]))):
        found = seen.quantiles("a", window_s=window)
        for q in QUANTILES:
            exact = np.sort(values)[int(np.ceil(q * len(values))) - 1]
            assert found[q] == pytest.approx(exact, rel=0.0101)
    clock.now += 300 + 2 * SLOT_S
    assert np.isnan(list(seen.quantiles("a", window_s=60).values())).all()


@pytest.mark.parametrize("value", [1e-9, 0.37, 1.0, 123.4, 1e12, -5.0, 0.0])
def test_a_bucket_stands_for_what_fell_into_it(value: float) -> None:
    assert middle_of(bucket_of(value)) == pytest.approx(value, rel=0.0101)


def test_memory_of_a_histogram_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(registry, "monotonic", clock)
    seen = Histogram("h", "")
    for step in range(20_000):
        clock.now += 0.5
        seen.observe(1 + step % 7)
    series = seen._values[()]
    assert len(series.last) == 1000 and len(series.slots) <= 61
    assert sum(len(counts) for _, counts in series.slots) <= 61 * 7


def test_names_and_labels_are_checked() -> None:
    made = Metrics()
    made.counter("c", "", ["a"]).add(1, "x")
    for call, said in ((lambda: made.gauge("c", ""), "already"), (lambda: made.counter("c d", ""), "no name"),
                       (lambda: made.counter("c", "", ["a"]).add(1), "labels"),
                       (lambda: made.counter("c", "", ["a"]).add(-1, "x"), "does not go down"),
                       (lambda: made.histogram("h", "").observe(1.0, "x"), "labels")):
        with pytest.raises(ArgumentError, match=said):
            call()


def test_the_engine_is_in_the_registry() -> None:
    import morpho.runtime.groups.group  # noqa: F401  (collectives count from here on)

    before = mo.monitor.snapshot()
    f = mo.compile(lambda x: mo.gelu(x * 3.25 + 1).sum())
    f(mo.ones((7, 11)))
    store = mo.cache(memory="1MiB", name="shown_here")
    store.put("a", 1), store.get("a"), store.get("b")
    after = mo.monitor.snapshot()

    def value(found: dict[str, Any], name: str, **labels: str) -> Any:
        return next(row["value"] for row in found[name]["values"] if row["labels"] == labels)

    assert value(after, "morpho_plans") > value(before, "morpho_plans")
    assert value(after, "morpho_pool_acquires") >= value(before, "morpho_pool_acquires")
    assert value(after, "morpho_cache_hits", cache="shown_here") == 1
    assert value(after, "morpho_cache_misses", cache="shown_here") == 1
    assert {"morpho_code", "morpho_tasks_executed", "morpho_shared_kernels", "morpho_collective_calls",
            "morpho_fallbacks"} <= set(after)
    numbers = {field.name for field in fields(Counts) if field.type == "int"} - {"growing", "longest"}
    assert numbers == set(PLAN_COUNTS), "a count of the engine is not shown"
    json.dumps(after, allow_nan=False)


def test_a_reader_that_fails_takes_no_other_figure_away(caplog: pytest.LogCaptureFixture) -> None:
    made = mo.monitor.observed("test_broken", "Always fails.", lambda: 1 / 0)
    for _ in range(3):
        assert "morpho_plans" in mo.monitor.snapshot()
    assert made.failures == 3
    assert [record.getMessage() for record in caplog.records if "test_broken" in record.getMessage()] \
        == ["[metrics] test_broken cannot be read"]
    made.read = lambda: 0


# -- alerts ------------------------------------------------------------------------------------------------------------
def test_an_alert_holds_for_a_while_fires_once_and_ends() -> None:
    clock, seen = Clock(), []  # type: ignore[var-annotated]
    rules, gauge = mo.monitor.Alerts(Delivery(), clock), mo.monitor.gauge("test_heat", "", ["oven"])
    rules.add("hot", "test_heat", above=200, for_s=10, to=[seen.append])
    steps = [(150, []), (250, []), (260, []), (150, []), (250, []), (250, ["firing"]), (300, ["firing"]),
             (199, ["firing", "resolved"])]
    for number, (heat, states) in enumerate(steps):
        clock.now += 6 if number != 5 else 12
        gauge.set(heat, "left")
        gauge.set(20, "right")
        rules.check(wait=True)
        if number < 5:  # at 260 it was beyond for 6 seconds only
            assert seen == []
        assert [event["state"] for event in seen] == states, number
    assert seen[0]["labels"] == ["left"] and seen[0]["bound"] == 200 and seen[0]["value"] == 250
    assert rules.firing() == []


def test_alerts_of_rates_and_quantiles_and_below() -> None:
    clock, seen = Clock(), []  # type: ignore[var-annotated]
    rules = mo.monitor.Alerts(Delivery(), clock)
    counter, times = mo.monitor.counter("test_orders"), mo.monitor.histogram("test_times")
    rules.add("busy", "test_orders", of="rate", above=5, to=[seen.append])
    rules.add("slow", "test_times", of="p95", above=1.0, to=[seen.append])
    rules.add("idle", "test_orders", below=1, to=[seen.append])
    rules.add("absent", "no_such_metric", above=1, to=[seen.append])
    counter.add(0)
    rules.check(wait=True)
    assert [event["alert"] for event in seen] == ["idle"]
    clock.now += 10
    counter.add(100)
    for _ in range(100):
        times.observe(2.0)
    rules.check(wait=True)
    assert sorted((event["alert"], event["state"]) for event in seen[1:]) == [
        ("busy", "firing"), ("idle", "resolved"), ("slow", "firing")]


@pytest.mark.parametrize(("options", "said"), [
    ({}, "one bound"), ({"above": 1, "below": 0}, "one bound"), ({"above": 1, "of": "p12"}, "unknown"),
    ({"above": 1, "to": ["mail"]}, "nobody to tell"),
])
def test_a_rule_that_means_nothing_is_an_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        mo.monitor.alert("a", "b", **options)
    with pytest.raises(ArgumentError, match="no address"):
        Webhook("file:///etc/passwd")


def test_a_callback_that_raises_or_hangs_stops_neither_the_program_nor_others(caplog: pytest.LogCaptureFixture) -> None:
    delivery, seen, go = Delivery(), [], threading.Event()  # type: ignore[var-annotated]

    def bad(event: Any) -> None:
        raise RuntimeError("of its own")

    event = {"alert": "a", "state": "firing", "of": "value", "metric": "m", "labels": [], "value": 2.0, "bound": 1.0}
    def slow(event: Any) -> None:
        go.wait(30)
        seen.append(event)

    delivery.send(bad, event)
    delivery.send("log", event)
    dropped = mo.monitor.counter("morpho_alert_deliveries", labels=["outcome"])
    before = dropped.value("dropped")
    for _ in range(WAITING + 10):  # it hangs: this does not wait
        delivery.send(slow, event)
    assert dropped.value("dropped") - before >= 8
    go.set()
    delivery.drain()
    assert len(seen) >= WAITING - 2
    assert any("could not be told" in record.message for record in caplog.records)
    assert any("value of m is 2, the bound is 1" in record.getMessage() for record in caplog.records
               if record.levelno == logging.WARNING)


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[Any], list[int]]]:
    """An address, what came there, and the statuses it answers with in turn (200 when there are none left)."""
    got: list[Any] = []
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.headers["X-Key"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            status = statuses.pop(0) if statuses else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", self.path)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", got, statuses
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("answers", "tries", "waits", "outcome"), [
    ([], 1, 0, "told"), ([500, 503, 429], 4, 3, "told"), ([500] * 9, 5, 4, "lost"), ([404], 1, 0, "refused"),
    ([302], 1, 0, "refused"),
])
def test_a_webhook_is_tried_again_with_longer_waits(
    endpoint: tuple[str, list[Any], list[int]], answers: list[int], tries: int, waits: int, outcome: str
) -> None:
    url, got, statuses = endpoint
    statuses += answers
    slept: list[float] = []
    outcomes = mo.monitor.counter("morpho_alert_deliveries", labels=["outcome"])
    before = outcomes.value(outcome)
    delivery = Delivery(sleep=slept.append)
    delivery.send(Webhook(url, headers={"X-Key": "k"}), {"alert": "a", "value": 1})
    delivery.drain()
    assert got == [("k", {"alert": "a", "value": 1})] * tries
    assert outcomes.value(outcome) == before + 1
    assert len(slept) == waits and all(0.8 * 2 ** n <= wait <= 1.2 * 2 ** n for n, wait in enumerate(slept))


# -- sampling ----------------------------------------------------------------------------------------------------------
def test_a_sample_is_one_read_of_the_process() -> None:
    """At 5 seconds a sample, 0.1 % of a core is 5 ms a sample: one short read and a few assignments stay far below."""
    process, gpus = Process(), Gpus(library=object())  # a driver without NVML's functions: no GPU
    sampler = Sampler(EVERY_S, mo.monitor.Alerts(), process, gpus)
    for _ in range(50):
        sampler.tick()
    assert process.reads == 50 and gpus.calls == 1
    assert sampler.own_cpu_s > 0 and len(sampler.history) == 50
    found = sampler.history[-1]
    assert found["rss_bytes"] > 10 << 20 and found["threads"] >= 1 and found["cpu_s"] > 0 and found["gpus"] == []
    sampler.stop()


def test_the_thread_samples_and_ends_and_has_alerts_looked_at() -> None:
    told = threading.Event()
    rules = mo.monitor.Alerts()
    rules.add("there", "morpho_process_rss_bytes", above=1, to=[lambda event: told.set()])
    with Sampler(0.01, rules) as sampler:
        assert told.wait(30)
    count = len(sampler.history)
    assert count >= 1 and not any(thread.name == "morpho-sampler" for thread in threading.enumerate())
    with pytest.raises(ArgumentError):
        Sampler(0)


def test_a_forked_child_reads_its_own_figures() -> None:
    process = Process()
    before = process.read()  # CPU seconds of a child begin at 0
    child = os.fork()
    if not child:
        ok = False
        try:
            ok = process.read()["cpu_s"] < before["cpu_s"] / 2
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class FakeNvml:
    """NVML with two GPUs, the second of which does not tell its power."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, device: Any) -> int:
        device._obj.value = number + 1
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.used, memory._obj.total = 1000 * (device.value or 0), 80_000
        return 0

    def nvmlDeviceGetUtilizationRates(self, device: Any, rates: Any) -> int:
        rates._obj.gpu = 42
        return 0

    def nvmlDeviceGetPowerUsage(self, device: Any, power: Any) -> int:
        power._obj.value = 123_000
        return 0 if device.value == 1 else 3


def test_gpus_are_asked_through_nvml() -> None:
    gpus = Gpus(FakeNvml())
    sampler = Sampler(5.0, mo.monitor.Alerts(), Process(), gpus)
    sampler.tick()
    assert gpus.calls == 4 + 6
    sample = sampler.tick()
    assert gpus.calls == 4 + 12  # three a GPU, nothing looked up again
    assert sample["gpus"] == [{"used_bytes": 1000, "total_bytes": 80_000, "utilisation": 0.42, "power_w": 123.0},
                              {"used_bytes": 2000, "total_bytes": 80_000, "utilisation": 0.42}]
    assert mo.monitor.gauge("morpho_gpu_used_bytes", labels=["gpu"]).value("1") == 2000
    sampler.stop()


# -- export ------------------------------------------------------------------------------------------------------------
def test_prometheus_reads_what_was_counted() -> None:
    client = pytest.importorskip("prometheus_client", reason="the extra monitor is not installed")
    from prometheus_client.parser import text_string_to_metric_families

    made = Metrics()
    made.counter("served", "Cakes.", ["kind"]).add(3, 'plum "x"')
    made.gauge("heat", "Celsius.").set(1.5)
    times = made.histogram("times", "Seconds.", bounds=(0.1, 1.0))
    for value in (0.05, 0.5, 5.0):
        times.observe(value)
    shown = client.CollectorRegistry()
    shown.register(Collector(made, without=["heat"]))
    families = {family.name: family for family in
                text_string_to_metric_families(client.generate_latest(shown).decode())}
    assert "heat" not in families
    assert [(s.labels, s.value) for s in families["served"].samples] == [({"kind": 'plum "x"'}, 3)]
    found = {(s.name, s.labels.get("le")): s.value for s in families["times"].samples}
    assert found == {("times_bucket", "0.1"): 1, ("times_bucket", "1.0"): 2, ("times_bucket", "+Inf"): 3,
                     ("times_count", None): 3, ("times_sum", None): 5.55}


def test_opentelemetry_reads_what_was_counted_also_of_later_metrics() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra monitor is not installed")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    mo.monitor.opentelemetry(MeterProvider([reader]))
    mo.monitor.counter("test_otel_later", "Later.", ["kind"]).add(4, "a")
    times = mo.monitor.histogram("test_otel_times")
    times.observe(2.0)
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]  # type: ignore[union-attr]
             for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert found["test_otel_later"] == [({"kind": "a"}, 4)]
    assert found["test_otel_times_count"] == [({}, 1)] and found["test_otel_times_sum"] == [({}, 2.0)]
    assert ({"quantile": 0.99}, 2.0) in found["test_otel_times_quantile"]
