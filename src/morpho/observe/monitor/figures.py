"""Metrics by name, in the registry of the process, and all of them as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.checks import check_texts
from morpho.runtime.metrics import SECONDS, Counter, Gauge, Histogram, Metric, Observed, metrics

WINDOW_S = 60.0


def counter(name: str, help: str = "", labels: Sequence[str] = ()) -> Counter:
    """A number that grows; the same one for the same name.

    >>> import morpho as mo
    >>> mo.monitor.counter("steps_made", "Steps.").add(3)
    >>> mo.monitor.counter("steps_made").value()
    3
    """
    return metrics.counter(name, help, labels)


def gauge(name: str, help: str = "", labels: Sequence[str] = ()) -> Gauge:
    """A number that is set.

    >>> import morpho as mo
    >>> mo.monitor.gauge("oven_celsius").set(180.0)
    """
    return metrics.gauge(name, help, labels)


def histogram(name: str, help: str = "", labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS) -> Histogram:
    """Observations, in buckets up to `bounds`, with quantiles of the last 1000 and of up to 300 seconds.

    >>> import morpho as mo
    >>> baked = mo.monitor.histogram("baking_seconds")
    >>> for seconds in (1.0, 2.0, 3.0, 4.0):
    ...     baked.observe(seconds)
    >>> baked.quantiles()
    {0.5: 2.0, 0.95: 4.0, 0.99: 4.0}
    >>> baked.mean(), baked.median(), baked.std(), baked.min(), baked.max()
    (2.5, 2.5, 1.118033988749895, 1.0, 4.0)
    """
    return metrics.histogram(name, help, labels, bounds)


def observed(name: str, help: str, read: Callable[[], Any], labels: Sequence[str] = (),
             kind: str = "gauge") -> Observed:
    """A number that `read()` gives when somebody asks; with labels, a mapping of tuples of them to numbers.

    >>> import morpho as mo
    >>> queue = [1, 2, 3]
    >>> mo.monitor.observed("waiting", "Orders in the queue.", lambda: len(queue)).value()
    3
    """
    return metrics.observed(name, help, read, labels, kind)


def snapshot(*names: str, window_s: float = WINDOW_S) -> dict[str, Any]:
    """All metrics, or those of some names, as plain data that JSON holds: kind, help and a list of values by labels.
    Of histograms: count, sum, and quantiles of the last 1000 and of the last `window_s` seconds.

    >>> import morpho as mo
    >>> mo.monitor.gauge("shelves").set(4)
    >>> mo.monitor.snapshot("shelves")
    {'shelves': {'kind': 'gauge', 'help': '', 'values': [{'labels': {}, 'value': 4}]}}
    """
    for name in names:
        check_texts("monitor", name=name)
    return {metric.name: {"kind": metric.kind, "help": metric.help, "values": _values(metric, window_s)}
            for metric in metrics.all() if not names or metric.name in names}


def _values(metric: Metric, window_s: float) -> list[dict[str, Any]]:
    found = []
    for labels, value in sorted(metric.values().items()):
        row: dict[str, Any] = {"labels": dict(zip(metric.labels, labels))}
        if isinstance(metric, Histogram):
            _, total, count = value
            row |= {"count": count, "sum": total, "last": _named(metric.quantiles(*labels)),
                    "window": _named(metric.quantiles(*labels, window_s=window_s))}
        else:
            row["value"] = value if math.isfinite(value) else None
        found.append(row)
    return found


def _named(quantiles: dict[float, float]) -> dict[str, float | None]:
    """p50, p95, p99; None where there were no observations."""
    return {f"p{100 * q:g}": value if math.isfinite(value) else None for q, value in quantiles.items()}
