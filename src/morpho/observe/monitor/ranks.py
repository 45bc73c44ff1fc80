"""Figures of ranks for whoever shows them together: each writes a small file now and then into a folder they share.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with RankReport(folder, rank=1, every_s=60.0):
...     [row] = read_ranks(folder)
>>> row["rank"], row["rss_bytes"] > 1 << 20, row["late_s"] < 60
(1, True, True)
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from morpho.observe.monitor.alerts import Alerts
from morpho.observe.monitor.sampling import Sampler
from morpho.runtime.metrics import Histogram, metrics

EVERY_S = 2.0
MOST_RANKS = 1024
MOST_BYTES = 1 << 16  # of a file that is read
COUNTED = {"loss": "morpho_train_loss", "tokens": "morpho_train_tokens", "pool_bytes": "morpho_pool_live_bytes",
           "collective_calls": "morpho_collective_calls", "collective_bytes": "morpho_collective_bytes",
           "cache_hits": "morpho_cache_hits", "cache_misses": "morpho_cache_misses", "ranks_lost": "morpho_ranks_lost"}
NUMBERS = ("time", "process", "cpu_cores", "rss_bytes", "threads", "step_p50_s", "step_p95_s", *COUNTED)


class Told(Protocol):
    """Receiver of figures."""

    def tell(self, row: Mapping[str, Any]) -> None: ...


def write_row(folder: Path, row: Mapping[str, Any]) -> None:
    """Keep what a rank says in a folder; the file is moved into place whole."""
    path = folder / f"rank-{row['rank']}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row), encoding="utf-8")
    part.replace(path)


class RankReport:
    """Tells the figures of this process every `every_s` seconds, in a thread of its own, until the block is left: to a
    folder or an `Inbox`. Where that fails the rank goes on; whoever reads sees that it is late.
    """

    def __init__(self, place: Path | Told, rank: int, every_s: float = EVERY_S,
                 clock: Callable[[], float] = time.time) -> None:
        self._tell = partial(write_row, place) if isinstance(place, Path) else place.tell
        self.rank = rank
        self._every_s, self._clock = every_s, clock
        self._sampler = Sampler(every_s, Alerts())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="morpho-rank-report", daemon=True)

    def __enter__(self) -> RankReport:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._sampler.stop()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.write()

    def write(self) -> None:
        """Say how it stands, now."""
        try:
            self._tell(self.row())
        except OSError:
            pass

    def row(self) -> dict[str, Any]:
        """The figures: resources, training, collectives and caches."""
        sample = self._sampler.tick()
        steps = metrics.find("morpho_train_step_seconds")
        quantiles = steps.quantiles(window_s=60.0) if isinstance(steps, Histogram) and steps.values() else {}
        found = {"rank": self.rank, "host": socket.gethostname(), "process": os.getpid(), "time": self._clock(),
                 **{name: sample.get(name) for name in ("cpu_cores", "rss_bytes", "threads")},
                 "step_p50_s": quantiles.get(0.5), "step_p95_s": quantiles.get(0.95),
                 **{name: _sum(metric) for name, metric in COUNTED.items()}}
        return {name: value for name, value in found.items() if value is not None}


def _sum(name: str) -> float | None:
    """A metric's value over all its labels, None where nobody counted yet."""
    metric = metrics.find(name)
    values = {} if metric is None else metric.values()
    return sum(value for value in values.values() if isinstance(value, int | float)) if values else None


def read_ranks(folder: Path, now: float | None = None) -> list[dict[str, Any]]:
    """Last reports of the ranks of a folder, in their order; `late_s` is how long ago. What is no rank's file is left
    out, and so is a field that is no number."""
    now = time.time() if now is None else now
    found = []
    for file in sorted(Path(folder).glob("rank-*.json"))[:MOST_RANKS]:
        try:
            if file.is_symlink() or file.stat().st_size > MOST_BYTES:
                continue
            told = json.loads(file.read_bytes())
            row: dict[str, Any] = {"rank": int(told["rank"]), "host": str(told.get("host", ""))[:200]}
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
        row |= {name: told[name] for name in NUMBERS
                if type(told.get(name)) in (int, float) and abs(told[name]) < 1e300 and not math.isnan(told[name])}
        found.append({**row, "late_s": max(0.0, now - row.get("time", 0.0))})
    return sorted(found, key=lambda row: row["rank"])
