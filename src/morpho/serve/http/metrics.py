"""Figures for Prometheus: those of the engines are read when somebody asks, times are counted as they pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

from morpho.observe.monitor.export import Collector
from morpho.runtime.metrics import metrics as of_process
from morpho.serve.hosting.registry import Registry

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
GAUGES = {"running": "sequences that make tokens or read their prompt", "waiting": "requests in the queue",
          "batch_size": "rows of the last step", "pages_used": "pages of the KV cache that sequences hold",
          "pages_cached": "pages of the KV cache kept for prompts that begin alike",
          "pages_total": "pages of the KV cache"}
COUNTERS = {"steps": "steps of the engine", "prompt_tokens": "tokens of prompts that were computed",
            "generated_tokens": "tokens that were made", "prefix_hits": "tokens of prompts found in the KV cache",
            "evictions": "cached pages given to others", "preemptions": "sequences that are computed again",
            "drafted": "tokens guessed by prompt lookup", "accepted": "guessed tokens that were right",
            "finished": "requests that ended by themselves", "cancelled": "requests that were cancelled",
            "rejected": "requests that found the queue full", "errors": "requests that failed",
            "recompiles": "functions compiled after the first of their kind"}


_servers: WeakSet[Registry] = WeakSet()


def _figure(key: str) -> Callable[[], Any]:
    def read() -> dict[tuple[str, ...], Any]:
        found = [served for registry in _servers for served in registry.loaded() if served.engine is not None]
        return {(served.name,): served.engine.stats().to_dict()[key] for served in found}  # type: ignore[union-attr]

    return read


for _key, _about in {**GAUGES, **COUNTERS}.items():  # the same in the registry of the process, for whoever looks there
    of_process.observed(f"morpho_{_key}", _about, _figure(_key), ["model"], "gauge" if _key in GAUGES else "counter")


class _Counting:
    """Prometheus's own counters of a server."""

    def __init__(self, registry: Registry) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self.collected = CollectorRegistry()
        self.collected.register(_Engines(registry))
        self.collected.register(Collector(without=[f"morpho_{key}" for key in (*GAUGES, *COUNTERS)]))
        self.requests = Counter("morpho_http_requests", "requests by route and status", ("route", "status"),
                                registry=self.collected)
        self.seconds = Histogram("morpho_http_request_seconds", "time of whole requests", ("route",),
                                 buckets=SECONDS, registry=self.collected)
        self.first = Histogram("morpho_time_to_first_token_seconds", "from the request to its first token",
                               ("model",), buckets=SECONDS, registry=self.collected)
        self.each = Histogram("morpho_time_per_output_token_seconds", "mean time between the tokens of a request",
                              ("model",), buckets=SECONDS, registry=self.collected)


class Metrics:
    """The figures of one server, and those of its process."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._lock = registry, threading.Lock()
        self._made: Any = None
        _servers.add(registry)

    def prepare(self) -> Any:
        """Load the counters: the library is imported when the first request has been answered, or before, by whoever
        has time."""
        with self._lock:
            if self._made is None:
                self._made = _Counting(self._registry)
            return self._made

    @property
    def _counting(self) -> _Counting:
        made: _Counting = self._made or self.prepare()
        return made

    def request(self, route: str, status: int, took_s: float) -> None:
        self._counting.requests.labels(route, str(status)).inc()
        self._counting.seconds.labels(route).observe(took_s)

    def first_token(self, model: str, took_s: float) -> None:
        self._counting.first.labels(model).observe(took_s)

    def per_token(self, model: str, took_s: float) -> None:
        self._counting.each.labels(model).observe(took_s)

    def text(self) -> tuple[bytes, str]:
        """(the page that Prometheus reads, its content type)."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._counting.collected), CONTENT_TYPE_LATEST


STAGES = {"alive": "1 while the worker lives", "layers": "layers that the worker holds",
          "streams": "texts on their way through the worker", "kv_bytes": "bytes of keys and values at the worker",
          "memory_bytes": "most memory the worker had", "sent_bytes": "bytes the worker sent to the next stage"}


def _stages(said: list[tuple[str, list[dict[str, Any]]]]) -> Iterator[Any]:
    """The workers of pipelines."""
    from prometheus_client.core import GaugeMetricFamily

    for key, about in STAGES.items():
        gauge = GaugeMetricFamily(f"morpho_stage_{key}", about, labels=["model", "node"])
        for name, stages in said:
            for stage in stages:
                span = stage["layers"]
                value = (span[1] - span[0] if span else 0) if key == "layers" else int(stage[key])
                gauge.add_metric([name, stage["node"]], value)
        if gauge.samples:
            yield gauge


class _Engines:
    """Figures of the engines at the moment of a request."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        loaded = [(served.name, served.engine) for served in self._registry.loaded() if served.engine is not None]
        stats = [(name, engine.stats().to_dict(), engine.alive) for name, engine in loaded]
        for key, about in GAUGES.items():
            gauge = GaugeMetricFamily(f"morpho_{key}", about, labels=["model"])
            for name, said, _ in stats:
                gauge.add_metric([name], said[key])
            yield gauge
        usage = GaugeMetricFamily("morpho_kv_usage_ratio", "share of the KV cache's pages in use", labels=["model"])
        alive = GaugeMetricFamily("morpho_engine_alive", "1 while the engine runs", labels=["model"])
        for name, said, lives in stats:
            usage.add_metric([name], said["pages_used"] / max(said["pages_total"], 1))
            alive.add_metric([name], int(lives))
        yield usage
        yield alive
        for key, about in COUNTERS.items():
            counter = CounterMetricFamily(f"morpho_{key}", about, labels=["model"])
            for name, said, _ in stats:
                counter.add_metric([name], said[key])
            yield counter
        yield from _stages([(name, engine.stages()) for name, engine in loaded])
        yield GaugeMetricFamily("morpho_models_loaded", "models in memory", value=len(self._registry.loaded()))
        yield CounterMetricFamily("morpho_model_evictions", "models given up for others",
                                  value=self._registry.evictions)
        yield CounterMetricFamily("morpho_model_reloads", "models loaded anew as their files changed",
                                  value=self._registry.reloads)

    def describe(self) -> list[Any]:
        return []
