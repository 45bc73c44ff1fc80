"""`mo.monitor` against odd input: numbers of every kind, labels, rules that mean nothing, sinks that hang or answer
rubbish. One metric or one sink that is wrong takes nobody else's figures, alerts or messages away."""

from __future__ import annotations

import json
import math
import socket
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault
from morpho.observe.monitor.alerts import Alerts
from morpho.observe.monitor.delivery import WAITING, Delivery, Webhook
from morpho.observe.monitor.export import Collector
from morpho.observe.monitor.sampling import Sampler
from morpho.runtime.metrics import Metrics
from morpho.runtime.quantiles import bucket_of, middle_of


def test_numbers_of_numpy_count_exactly() -> None:
    made = Metrics()
    bytes_, steps, heat = made.counter("b", ""), made.counter("s", ""), made.gauge("g", "")
    for _ in range(3):
        bytes_.add(np.int8(100))
    steps.add(2**24)
    steps.add(np.float32(1))
    steps.add(np.float32(1))
    heat.set(mo.asarray(2.5))
    assert (bytes_.value(), steps.value(), heat.value()) == (300, 2**24 + 2, 2.5)
    assert (type(bytes_.value()), type(steps.value()), type(heat.value())) == (int, float, float)
    times = made.histogram("h", "")
    times.observe(2**24)
    for _ in range(4):
        times.observe(np.float32(1))
    assert times.value()[1:] == (2**24 + 4, 5)
    assert {type(value) for value in times.quantiles().values()} == {float}


@pytest.mark.parametrize("value", ["x", "3", None, np.array([1, 2]), 10**400, [1], 1j])
def test_what_is_no_number_is_an_error_and_changes_nothing(value: Any) -> None:
    made = Metrics()
    metrics = made.counter("c", ""), made.gauge("g", ""), made.histogram("h", "")
    for metric in metrics:
        change = next(getattr(metric, name) for name in ("add", "set", "observe") if hasattr(metric, name))
        with pytest.raises(ArgumentError, match=f"{metric.name} takes numbers"):
            change(value)
        assert metric.values() == {}
    for value in (math.nan, math.inf):
        with pytest.raises(ArgumentError, match="does not grow by"):
            made.counter("c", "").add(value)


def test_infinite_observations_are_the_largest_and_nan_is_left_out_and_counted() -> None:
    times = Metrics().histogram("h", "")
    for value in (-math.inf, -1e300, 1.0, math.nan, 2.0, 1.7e308, math.inf):
        times.observe(value)
    assert times.quantiles(of=(0.01, 0.5, 0.99)) == {0.01: -math.inf, 0.5: 1.0, 0.99: math.inf}
    window = times.quantiles(of=(0.01, 0.2, 0.6, 0.99), window_s=60)
    assert (window[0.01], window[0.99]) == (-math.inf, math.inf)
    assert window[0.2] == pytest.approx(-1e300, rel=0.0101) and window[0.6] == pytest.approx(2.0, rel=0.0101)
    assert times.value()[2] == 6 and times.left_out == 1
    for size in (5e-324, 1e-300, 1.0, 1e300, 1.7976931348623157e308):
        for value in (size, -size):
            assert abs(middle_of(bucket_of(value)) - value) <= 0.0101 * size + 1e-12


@pytest.mark.parametrize("window_s", [0, -1, 300.5, math.nan, math.inf, "x"])
def test_a_window_that_is_not_kept_is_an_error(window_s: Any) -> None:
    times = Metrics().histogram("h", "")
    times.observe(1.0)
    with pytest.raises(ValueFault, match="window_s"):
        times.quantiles(window_s=window_s)
    with pytest.raises(ValueFault, match="window_s"):
        Alerts().add("a", "h", of="p99", above=1, window_s=window_s)


def test_labels_are_texts_whatever_they_are_given_as() -> None:
    made = Metrics()
    calls = made.counter("c", "", ["status"])
    for status in (200, "200", np.int64(200), "\ud800 \n\"", b"x"):
        calls.add(1, status)  # type: ignore[arg-type]
    assert calls.value("200") == calls.value(200) == 3  # type: ignore[arg-type]
    assert all(isinstance(label, str) for labels in calls.values() for label in labels)
    "".join(label for labels in calls.values() for label in labels).encode()
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    page = CollectorRegistry()
    page.register(Collector(made))
    (family,) = text_string_to_metric_families(generate_latest(page).decode())
    assert {sample.labels["status"]: sample.value for sample in family.samples}["200"] == 3


@pytest.mark.parametrize("labels", [["a b"], ["a", "a"], "kind", ["__x"], [""], ["é"], [5]])
def test_names_of_labels_are_checked(labels: Any) -> None:
    with pytest.raises(ArgumentError, match="label"):
        Metrics().gauge("g", "", labels)


def test_histograms_keep_their_own_labels_and_bounds_for_themselves() -> None:
    for labels in (["le"], ["quantile"]):
        with pytest.raises(ArgumentError, match="label"):
            Metrics().histogram("h", "", labels)
    for bounds in ((2.0, 1.0), (1.0, 1.0), (math.nan,), (1.0, math.inf), ("x",)):
        with pytest.raises(ArgumentError, match="bounds"):
            Metrics().histogram("h", "", bounds=bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, 5, b"a"])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(ArgumentError, match="no name of a metric"):
        Metrics().gauge(name, "")


def test_a_reader_that_gives_rubbish_takes_no_other_figure_away(caplog: pytest.LogCaptureFixture) -> None:
    made = Metrics()
    made.gauge("good", "").set(1)
    text, mixed = made.observed("text", "", lambda: "abc"), made.observed("mixed", "", lambda: {5: 1}, ["a"])
    twins = made.observed("twins", "", lambda: {("x", "y"): 1}, ["a"])
    from prometheus_client import CollectorRegistry, generate_latest

    page = CollectorRegistry()
    page.register(Collector(made))
    assert b"good 1.0" in generate_latest(page)
    assert text.failures == mixed.failures == twins.failures == 1
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 3


def test_a_registry_shows_each_metric_once_however_often_it_is_registered() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    page = CollectorRegistry()
    mo.monitor.prometheus(page)
    mo.monitor.prometheus(page)
    assert generate_latest(page).count(b"# TYPE morpho_pool_live_bytes gauge") == 1


@pytest.mark.parametrize("options", [
    {"above": math.nan}, {"above": "x"}, {"below": None, "above": 1, "for_s": -1}, {"above": 1, "for_s": math.nan},
    {"above": 1, "to": "log"}, {"above": 1, "to": 5}, {"above": 1, "labels": "x"},
])
def test_rules_are_checked_where_they_are_made(options: dict[str, Any]) -> None:
    rules = Alerts()
    with pytest.raises((ArgumentError, ValueFault)):
        rules.add("a", "b", **options)
    rules.check()


def test_a_quantile_of_what_is_no_histogram_is_said(caplog: pytest.LogCaptureFixture) -> None:
    mo.monitor.gauge("test_no_histogram").set(5)
    with pytest.raises(ArgumentError, match="a gauge has no p99"):
        Alerts().add("a", "test_no_histogram", of="p99", above=1)
    rules, seen = Alerts(), []  # type: ignore[var-annotated]
    rules.add("a", "test_later_gauge", of="p99", above=1, to=[seen.append])
    rules.add("b", "test_later_gauge", above=1, to=[seen.append])
    mo.monitor.gauge("test_later_gauge").set(5)
    rules.check(wait=True)
    rules.check(wait=True)
    assert [event["alert"] for event in seen] == ["b"]
    assert sum("a gauge has no p99" in record.getMessage() for record in caplog.records) == 1


def test_a_rule_that_fails_stops_neither_others_nor_the_sampler(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, seen = Alerts(), []  # type: ignore[var-annotated]
    mo.monitor.gauge("test_two_rules").set(5)
    rules.add("broken", "test_two_rules", above=1)
    rules.add("whole", "test_two_rules", above=1, to=[seen.append])
    values = rules._values
    monkeypatch.setattr(rules, "_values", lambda rule: values(rule) if rule.name == "whole" else 1 / 0)
    with Sampler(every_s=60.0, alerts=rules) as sampler:
        sampler.tick()
        sampler.tick()
    rules.check(wait=True)
    assert [event["alert"] for event in seen] == ["whole"]
    assert sum("broken" in record.getMessage() for record in caplog.records) == 1


def test_a_clock_that_starts_at_zero_holds_a_rule_as_long() -> None:
    now, seen = [0.0], []  # type: ignore[var-annotated]
    rules = Alerts(clock=lambda: now[0])
    mo.monitor.gauge("test_from_zero").set(5)
    rules.add("a", "test_from_zero", above=1, for_s=10, to=[seen.append])
    for now[0] in (0.0, 9.0, 10.0):
        rules.check(wait=True)
    assert len(seen) == 1


@pytest.mark.parametrize("url", ["http://", "http://[::1", "https://user:secret@host/x", "http://h:99999/", "http://h:x/",
                                 "http://a b/", "http://h/\n", 5])
def test_addresses_are_checked_where_a_webhook_is_made(url: Any) -> None:
    with pytest.raises(ArgumentError, match="no address"):
        Webhook(url)


@pytest.mark.parametrize("options", [{"tries": 0}, {"timeout_s": 0}, {"timeout_s": math.nan}, {"first_wait_s": -1}])
def test_waits_of_a_webhook_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="|".join(options)):
        Webhook("http://h/", **options)


def test_a_sink_that_hangs_delays_no_other() -> None:
    delivery, seen, go, told = Delivery(), [], threading.Event(), threading.Event()  # type: ignore[var-annotated]
    event = {"alert": "a", "state": "firing", "of": "value", "metric": "m", "labels": [], "value": 2.0, "bound": 1.0}

    def other(event: Any) -> None:
        seen.append(event)
        told.set()

    hangs = lambda event: go.wait(30)
    for _ in range(3):
        delivery.send(hangs, event)
    delivery.send(other, event)
    assert told.wait(20) and not go.is_set()
    dropped = mo.monitor.counter("morpho_alert_deliveries", labels=["outcome"])
    before = dropped.value("dropped")
    for _ in range(WAITING + 10):
        delivery.send(hangs, event)
    assert dropped.value("dropped") - before >= 10
    go.set()
    delivery.drain()
    assert not delivery.busy()


def test_an_answer_that_is_no_http_is_tried_again() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def answer() -> None:
        for reply in (b"\xff\xfe rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(reply)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    outcomes = mo.monitor.counter("morpho_alert_deliveries", labels=["outcome"])
    before = outcomes.value("told")
    delivery = Delivery(sleep=lambda seconds: None)
    delivery.send(Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=20),
                  {"alert": "a", "value": math.inf, "bound": 1.0})
    delivery.drain()
    thread.join(20)
    server.close()
    assert len(asked) == 2 and outcomes.value("told") == before + 1
    body = asked[0].split(b"\r\n\r\n", 1)[1]
    assert not body or json.loads(body, parse_constant=lambda name: pytest.fail(name))["value"] is None
