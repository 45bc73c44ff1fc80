"""The metric registry: numbers that a running process counts, by name and label, for whoever looks.

Counters only grow, gauges are set, histograms have buckets. Names and help texts follow Prometheus, so that a server
can show them as they are; adding to one costs a dictionary lookup under a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, TypeVar

from morpho.base.errors import ArgumentError, fail
from morpho.base.python.fork_safe import ForkSafe

SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)  # upper bounds of buckets


class Metric(ForkSafe):
    """One name with a value for each combination of labels."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__()
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._values: dict[tuple[str, ...], Any] = {}

    def _change(self, labels: tuple[str, ...], value: float, add: bool) -> None:
        if len(labels) != len(self.labels):
            raise fail(ArgumentError, "metrics", f"{self.name} has the labels {self.labels}, not {len(labels)} of them")
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + value if add else value

    def value(self, *labels: str) -> Any:
        """The number under these labels, 0 where nothing was counted."""
        with self._lock:
            return self._values.get(labels, 0)

    def values(self) -> dict[tuple[str, ...], Any]:
        """All numbers, by their labels."""
        with self._lock:
            return dict(self._values)


class Counter(Metric):
    """A number that grows."""

    kind = "counter"

    def add(self, amount: float = 1, *labels: str) -> None:
        """Count some more."""
        if amount < 0:
            raise fail(ArgumentError, "metrics", f"the counter {self.name} does not go down by {-amount}")
        self._change(labels, amount, True)


class Gauge(Metric):
    """A number that is set."""

    def set(self, value: float, *labels: str) -> None:
        """The number now."""
        self._change(labels, value, False)


class Histogram(Metric):
    """How many observations were at most each bound; values are (counts, sum, count)."""

    kind = "histogram"

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)

    def observe(self, value: float, *labels: str) -> None:
        """One observation."""
        place = bisect_left(self.bounds, value)
        with self._lock:
            counts, total, count = self._values.get(labels) or ([0] * (len(self.bounds) + 1), 0.0, 0)
            counts = [*counts[:place], counts[place] + 1, *counts[place + 1:]]
            self._values[labels] = counts, total + value, count + 1


Kind = TypeVar("Kind", bound=Metric)


class Metrics(ForkSafe):
    """The registry: a name is made once, and asking again gives the same metric.

    >>> known = Metrics()
    >>> known.counter("steps", "Training steps.").add(2)
    >>> known.counter("steps", "Training steps.").value()
    2
    """

    def __init__(self) -> None:
        super().__init__()
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """A number that grows."""
        return self._made(Counter, name, help, labels)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that is set."""
        return self._made(Gauge, name, help, labels)

    def histogram(self, name: str, help: str, labels: Sequence[str] = ()) -> Histogram:
        """Observations in buckets."""
        return self._made(Histogram, name, help, labels)

    def all(self) -> list[Metric]:
        """Every metric, by name."""
        with self._lock:
            return [self._metrics[name] for name in sorted(self._metrics)]

    def _made(self, kind: type[Kind], name: str, help: str, labels: Sequence[str]) -> Kind:
        made = kind(name, help, labels)
        with self._lock:
            found = self._metrics.setdefault(name, made)
        if not isinstance(found, kind) or found.labels != made.labels:
            raise fail(ArgumentError, "metrics", f"{name} is a {found.kind} with labels {found.labels} already")
        return found


metrics = Metrics()
