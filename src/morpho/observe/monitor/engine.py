"""Counts of the engine as metrics: read on request, and only of parts that are loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from morpho.runtime.metrics import metrics

EVALUATE = "morpho.runtime.plans.evaluate"
CODE = "morpho.backends.code.compiler.code"
STORE = "morpho.runtime.code_cache.store"
OBJECTS = "morpho.runtime.object_cache.cache"
SCHEDULER = "morpho.runtime.tasks.scheduler"
THREADS = "morpho.backends.driver.threads"
POOL = "morpho.runtime.memory.pool"
COMMON = ("hits", "misses", "evictions", "bytes", "limit_bytes", "entries")
PLAN_COUNTS = {"realisations": "Times that lazy values were computed.",
               "cuts": "Lazy programs computed because they had become too deep.", "plans": "Plans made for graphs.",
               "optimised": "Graphs taken through the passes.", "kernels_run": "Kernels run one by one.",
               "host_steps": "Steps run by NumPy between native parts.",
               "fallbacks": "Operations without native code that ran in NumPy.",
               "copies": "Copies of arrays made to read them.", "syncs": "Values that shapes or Python waited for."}


def _loaded(module: str) -> Any:
    return sys.modules.get(module)


def _plan_count(name: str) -> Callable[[], Any]:
    return lambda: getattr(_loaded(EVALUATE).counts, name) if _loaded(EVALUATE) else 0


def _code_count(*names: str) -> Callable[[], Any]:
    def read() -> Any:
        module = _loaded(CODE)
        return {(name,): getattr(module.counters, name) if module else 0 for name in names}

    return read


def _caches() -> dict[str, Mapping[str, Any]]:
    """The figures of every cache that is there, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    if evaluate := _loaded(EVALUATE):
        found["plans"] = evaluate._plans.stats()
    if device := _loaded("morpho.runtime.plans.on_device"):
        found["executables"] = device._executables.stats()
    store = _loaded(STORE)
    if store is not None and (disk := store.open_store()) is not None:
        found["code_disk"] = disk.stats()
    for number, cache in enumerate(sorted(_loaded(OBJECTS).caches, key=id) if _loaded(OBJECTS) else ()):
        name, stats = cache.name or f"cache_{number + 1}", dict(cache.stats())
        found[name] = stats
        if "disk" in stats:
            found[f"{name}_disk"] = stats.pop("disk")
    return found


def _cache_figure(figure: str) -> Callable[[], Any]:
    return lambda: {(name,): stats[figure] for name, stats in _caches().items() if figure in stats}


def _pool_figure(figure: str) -> Callable[[], Any]:
    return lambda: _loaded(POOL).stats()[figure] if _loaded(POOL) else 0


def _tasks(figure: str) -> Callable[[], Any]:
    """Over all schedulers that the process uses by default: sums, or the most of what does not add up."""
    def read() -> Any:
        module = _loaded(SCHEDULER)
        found = [scheduler.stats()[figure] for scheduler in list(module._defaults.values())] if module else []
        return (max if figure in ("threads", "imbalance") else sum)(found or [0])

    return read


def _threads(figure: str) -> Callable[[], Any]:
    return lambda: _loaded(THREADS).engine_statistics()[figure] if _loaded(THREADS) else 0


def register() -> None:
    """Put them into the registry; once is enough."""
    if metrics.find("morpho_plans") is not None:
        return
    for name, about in PLAN_COUNTS.items():
        metrics.observed(f"morpho_{name}", about, _plan_count(name), kind="counter")
    metrics.observed("morpho_code", "Kernels by where their code came from.",
                     _code_count("compiled", "memory_hits", "disk_hits", "plan_hits"), ["from"], "counter")
    metrics.observed("morpho_code_ms", "Milliseconds that code took, by phase.",
                     _code_count("generate_ms", "compile_ms", "load_ms"), ["phase"], "counter")
    for figure in COMMON:
        kind = "counter" if figure in COMMON[:3] else "gauge"
        metrics.observed(f"morpho_cache_{figure}", f"{figure.replace('_', ' ').capitalize()} of caches.",
                         _cache_figure(figure), ["cache"], kind)
    metrics.observed("morpho_cache_corrupt", "Files of caches that were damaged.", _cache_figure("corrupt"), ["cache"],
                     "counter")
    for figure, kind in (("live_bytes", "gauge"), ("free_bytes", "gauge"), ("peak_bytes", "gauge"),
                         ("fragmentation_bytes", "gauge"), ("acquires", "counter"), ("misses", "counter")):
        metrics.observed(f"morpho_pool_{figure}", f"{figure.replace('_', ' ').capitalize()} of the memory pool.",
                         _pool_figure(figure), kind=kind)
    for figure, kind in (("executed", "counter"), ("stolen", "counter"), ("awake", "gauge"), ("threads", "gauge"),
                         ("imbalance", "gauge")):
        metrics.observed(f"morpho_tasks_{figure}", f"{figure.capitalize()} of the task scheduler.", _tasks(figure),
                         kind=kind)
    for figure in ("shared_kernels", "alone_kernels"):
        metrics.observed(f"morpho_{figure}", f"{figure.replace('_', ' ').capitalize()} of the engine's threads.",
                         _threads(figure), kind="counter")
