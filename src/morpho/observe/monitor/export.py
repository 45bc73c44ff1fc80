"""The registry for other tools, through their own libraries: Prometheus and OpenTelemetry (the extra `monitor`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from weakref import WeakSet

from morpho.base.checks import shown
from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.runtime.metrics import Histogram, Metric, Metrics, metrics
from morpho.weights.errors import MissingExtra

_shown_on: WeakSet[Any] = WeakSet()  # registries of prometheus_client that show ours


def _needs(library: str, error: ImportError) -> MorphoError:
    return fail(MissingExtra, "monitor", f"this needs {library}: {error}", install("monitor"))


class Collector:
    """Collector for prometheus_client: every metric as it is at that moment, but for those in `without`."""

    def __init__(self, registry: Metrics = metrics, without: Collection[str] = ()) -> None:
        self._registry, self._without = registry, frozenset(without)

    def collect(self) -> Iterator[Any]:
        """Families of samples, as the library wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in self._registry.all():
            if metric.name in self._without:
                continue
            if isinstance(metric, Histogram):
                yield self._histogram(HistogramMetricFamily(metric.name, metric.help, labels=metric.labels), metric)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.values().items():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> list[Any]:
        """Nothing in advance: metrics come as the program goes on."""
        return []

    @staticmethod
    def _histogram(family: Any, metric: Histogram) -> Any:
        for labels, (counts, total, _) in metric.values().items():
            seen, buckets = 0, []
            for bound, count in zip((*metric.bounds, "+Inf"), counts, strict=True):
                seen += count
                buckets.append((str(bound), seen))
            family.add_metric(labels, buckets, total)
        return family


def prometheus(registry: Any = None) -> None:
    """Register with prometheus_client, by default its own registry: whatever shows that now shows Morpho's metrics too.

    >>> import morpho as mo
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> shown = CollectorRegistry()
    >>> mo.monitor.prometheus(shown)
    >>> b"morpho_pool_live_bytes" in generate_latest(shown)
    True
    """
    try:
        from prometheus_client import REGISTRY
    except ImportError as error:
        raise _needs("prometheus-client", error) from None
    page = REGISTRY if registry is None else registry
    if not hasattr(page, "register"):
        raise fail(ArgumentError, "monitor", f"registry={shown(page)} is no registry of prometheus_client")
    if page not in _shown_on:  # twice is a page that Prometheus refuses
        page.register(Collector())
        _shown_on.add(page)


def prometheus_text() -> str:
    """All metrics in Prometheus' text format.

    >>> import morpho as mo
    >>> mo.monitor.gauge("cellar_celsius", "Cool.").set(12.0)
    >>> "cellar_celsius 12.0" in mo.monitor.prometheus_text()
    True
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise _needs("prometheus-client", error) from None
    page = CollectorRegistry()
    page.register(Collector())
    return str(generate_latest(page).decode())


def opentelemetry(provider: Any = None) -> None:
    """Offer every metric, also those made later, to OpenTelemetry: as observable counters and gauges of the meter
    `morpho`; of histograms count, sum, and a gauge with the quantiles of the last 1000. `provider` is a MeterProvider,
    by default the global one, which knows where they go.

    >>> import morpho as mo
    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    >>> reader = InMemoryMetricReader()
    >>> mo.monitor.opentelemetry(MeterProvider([reader]))
    >>> found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    >>> "morpho_pool_live_bytes" in {one.name for one in found}
    True
    """
    try:
        from opentelemetry.metrics import get_meter
    except ImportError as error:
        raise _needs("opentelemetry-api", error) from None
    if provider is not None and not hasattr(provider, "get_meter"):
        raise fail(ArgumentError, "monitor", f"provider={shown(provider)} is no MeterProvider of OpenTelemetry")
    meter = get_meter("morpho") if provider is None else provider.get_meter("morpho")

    def offer(metric: Metric) -> None:
        for name, kind, read in _instruments(metric):
            make = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
            make(name, callbacks=[read], description=metric.help)

    for metric in metrics.all():
        offer(metric)
    metrics.when_new.append(offer)


def _instruments(metric: Metric) -> list[tuple[str, str, Any]]:
    """(name, kind, callback) of each instrument of a metric."""
    from opentelemetry.metrics import Observation

    def named(labels: tuple[str, ...], **more: Any) -> dict[str, Any]:
        return {**dict(zip(metric.labels, labels)), **more}

    if not isinstance(metric, Histogram):
        return [(metric.name, metric.kind, lambda options: [
            Observation(value, named(labels)) for labels, value in metric.values().items()])]
    histogram = metric
    return [
        (f"{metric.name}_count", "counter", lambda options: [
            Observation(value[2], named(labels)) for labels, value in histogram.values().items()]),
        (f"{metric.name}_sum", "counter", lambda options: [
            Observation(value[1], named(labels)) for labels, value in histogram.values().items()]),
        (f"{metric.name}_quantile", "gauge", lambda options: [
            Observation(value, named(labels, quantile=q)) for labels in histogram.values()
            for q, value in histogram.quantiles(*labels).items()]),
    ]
