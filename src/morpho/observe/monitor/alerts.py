"""Alerts: a metric beyond a bound for a while, told to whoever wants to know, and told again when it is over.

They are looked at by the sampler's thread (`mo.monitor.sample()`), or by `mo.monitor.alerts.check()`. What they set off
(callbacks, log, webhooks) runs in a thread of its own: the program never waits for it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.observe.monitor.delivery import Delivery, Sink, Webhook, delivery
from morpho.runtime.metrics import Histogram, Metric, check_window, metrics, number

_log = logging.getLogger("morpho")
QUANTILE_NAMES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_fired = metrics.counter("morpho_alerts", "Alerts that began, by name.", ["alert"])


@dataclass(frozen=True)
class Alert:
    """A rule. `of` is `value`, `rate` (of growth a second, between two looks), or `p50`, `p95`, `p99` of a histogram:
    over the last 1000, or over `window_s` seconds. `to` are functions of the event, webhooks, or `"log"`.

    >>> from morpho.observe.monitor import Alert
    >>> Alert("hot", "oven_celsius", above=200.0).is_beyond(230.0)
    True
    """

    name: str
    metric: str
    above: float | None = None
    below: float | None = None
    of: str = "value"
    labels: tuple[str, ...] | None = None  # None: any
    for_s: float = 0.0
    window_s: float | None = None
    to: tuple[Sink, ...] = ("log",)

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise fail(ArgumentError, "monitor", f"the alert {self.name!r} needs one bound", "give above= or below=")
        if self.of not in ("value", "rate", *QUANTILE_NAMES):
            raise fail(ArgumentError, "monitor", f"of={self.of!r} is unknown", "use value, rate, p50, p95 or p99")
        bound = number(f"the bound of the alert {self.name!r}", self.above if self.above is not None else self.below)
        if bound != bound:
            raise fail(ValueFault, "monitor", f"the bound of the alert {self.name!r} is NaN, which nothing passes")
        if not (isinstance(self.for_s, int | float) and 0 <= self.for_s < math.inf):
            raise fail(ValueFault, "monitor", f"for_s must be 0 or more, and is {self.for_s!r}")
        if self.window_s is not None:
            check_window("monitor", self.window_s)
        metric = metrics.find(self.metric)
        if metric is not None:
            self.check_kind(metric)

    def check_kind(self, metric: Metric) -> None:
        """Raise where the rule asks for quantiles of what has none."""
        if self.of in QUANTILE_NAMES and not isinstance(metric, Histogram):
            raise fail(ArgumentError, "monitor", f"the alert {self.name!r}: a {metric.kind} has no {self.of}",
                       "use of='value' or 'rate', or a histogram")

    def is_beyond(self, value: float) -> bool:
        """Whether a value passes the bound."""
        return value > self.above if self.above is not None else value < self.below  # type: ignore[operator]


class _State:
    __slots__ = ("firing", "since")

    def __init__(self) -> None:
        self.since: float | None = None  # when the value went beyond the bound
        self.firing = False


class Alerts:
    """Rules that are looked at together. `clock` is for tests.

    >>> from morpho.observe.monitor import Alerts, gauge
    >>> seen = []
    >>> rules = Alerts()
    >>> rules.add("hot", "oven", above=200.0, to=[seen.append])
    >>> gauge("oven").set(230.0)
    >>> rules.check(wait=True)
    >>> seen[0]["alert"], seen[0]["state"], seen[0]["value"]
    ('hot', 'firing', 230.0)
    """

    def __init__(self, deliver: Delivery = delivery, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules: dict[str, Alert] = {}
        self._failed: set[int] = set()  # rules that failed, which is said once
        self._states: dict[tuple[str, tuple[str, ...]], _State] = {}
        self._before: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}  # (time, value), for rates
        self._deliver, self._clock = deliver, clock
        self._lock = threading.Lock()

    def add(self, name: str, metric: str, *, above: float | None = None, below: float | None = None, of: str = "value",
            labels: Sequence[str] | None = None, for_s: float = 0.0, window_s: float | None = None,
            to: Sequence[Sink] = ("log",)) -> None:
        """A rule; one of the same name is replaced. See `Alert`."""
        for option, given in (("labels", labels), ("to", to)):
            if isinstance(given, str) or not (given is None or isinstance(given, Sequence)):
                raise fail(ArgumentError, "monitor", f"{option}={given!r} is no list", f"write {option}=[{given!r}]")
        made = Alert(name, metric, above, below, of, None if labels is None else tuple(map(str, labels)), for_s,
                     window_s, tuple(to))
        for sink in made.to:
            if not (callable(sink) or isinstance(sink, Webhook) or sink == "log"):
                raise fail(ArgumentError, "monitor", f"to={sink!r} is nobody to tell",
                           "give a function, mo.monitor.Webhook(url) or 'log'")
        with self._lock:
            self._rules[name] = made

    def remove(self, name: str) -> None:
        """Forget a rule."""
        with self._lock:
            self._rules.pop(name, None)
            self._states = {key: state for key, state in self._states.items() if key[0] != name}

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that are on: name and labels."""
        with self._lock:
            return [{"alert": name, "labels": list(labels)} for (name, labels), state in self._states.items()
                    if state.firing]

    def check(self, wait: bool = False) -> None:
        """Look at every rule; with `wait` return when what it set off is told."""
        with self._lock:
            rules = list(self._rules.values())
        for rule in rules:
            try:
                for labels, value in self._values(rule):
                    if not math.isnan(value):
                        self._look(rule, labels, value)
            except Exception as error:  # one rule takes no other away
                if id(rule) not in self._failed:
                    self._failed.add(id(rule))
                    _log.warning("[monitor] the alert %s cannot be looked at: %s", rule.name, error)
        if wait:
            self._deliver.drain()

    def _values(self, rule: Alert) -> list[tuple[tuple[str, ...], float]]:
        metric = metrics.find(rule.metric)
        if metric is None:
            return []
        rule.check_kind(metric)
        found = metric.values()
        chosen = [labels for labels in found if rule.labels is None or labels == rule.labels]
        if isinstance(metric, Histogram):
            quantile = QUANTILE_NAMES.get(rule.of)
            if quantile is not None:
                return [(labels, metric.quantiles(*labels, of=(quantile,), window_s=rule.window_s)[quantile])
                        for labels in chosen]
            found = {labels: value[2] for labels, value in found.items()}  # how many there were
        if rule.of == "rate":
            return [(labels, self._rate(rule, labels, float(found[labels]))) for labels in chosen]
        return [(labels, float(found[labels])) for labels in chosen]

    def _rate(self, rule: Alert, labels: tuple[str, ...], value: float) -> float:
        now, key = self._clock(), (rule.name, labels)
        then, before = self._before.get(key, (now, value))
        self._before[key] = now, value
        return (value - before) / (now - then) if now > then else math.nan

    def _look(self, rule: Alert, labels: tuple[str, ...], value: float) -> None:
        now = self._clock()
        with self._lock:
            state = self._states.setdefault((rule.name, labels), _State())
            beyond = rule.is_beyond(value)
            if not beyond:
                state.since = None
            elif state.since is None:
                state.since = now
            turned_on = state.since is not None and not state.firing and now - state.since >= rule.for_s
            turned_off = state.firing and not beyond
            if not (turned_on or turned_off):
                return
            state.firing = turned_on
        if turned_on:
            _fired.add(1, rule.name)
        event = {"alert": rule.name, "state": "firing" if turned_on else "resolved", "metric": rule.metric,
                 "of": rule.of, "labels": list(labels), "value": value,
                 "bound": rule.above if rule.above is not None else rule.below, "time": time.time()}
        for sink in rule.to:
            self._deliver.send(sink, event)


alerts = Alerts()


def alert(name: str, metric: str, **options: Any) -> None:
    """A rule among those of the process, `mo.monitor.alerts`; see `Alert` for the options.

    >>> import morpho as mo
    >>> mo.monitor.alert("slow requests", "morpho_http_seconds", of="p99", above=0.5, window_s=60, for_s=10)
    >>> mo.monitor.alerts.remove("slow requests")
    """
    alerts.add(name, metric, **options)
