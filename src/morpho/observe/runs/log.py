"""`metrics.jsonl` of a run: a line of JSON for every step, with the time, what the step took, and now and then what the
process uses.

| field | what |
|---|---|
| `time` | seconds since 1970 |
| `step`, `loss`, `lr`, `held_out` | as in `losses.jsonl` |
| `tokens`, `seconds` | of this step; their quotient is the speed |
| `parts` | seconds of the step by part: `data`, `step`, `check`, `save` |
| `resources` | at most once a second: `rss_bytes`, `cpu_s`, `threads`, `pool_bytes`, hits and misses of `caches` |
| `event` | `begin` or `resume`, with `step` and `process`: a line of its own |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from morpho.observe.monitor.resources import Process
from morpho.runtime.metrics import metrics
from morpho.weights.atomic import append

FILE = "metrics.jsonl"
FLUSH_S = 0.5
RESOURCES_S = 1.0

_step_seconds = metrics.histogram("morpho_train_step_seconds", "Time of a training step.")
_tokens = metrics.counter("morpho_train_tokens", "Tokens that training has read.")
_loss = metrics.gauge("morpho_train_loss", "The loss of the last step.")


def count_step(loss: float, tokens: int, seconds: float) -> None:
    """Count a step among the figures of this process; ranks that write no file do that too."""
    _step_seconds.observe(seconds)
    _tokens.add(tokens)
    _loss.set(loss)


class RunLog:
    """Writes the file; what goes wrong with it is said once, and training goes on.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with RunLog(folder) as log:
    ...     log.step(1, 2.5, 1e-3, tokens=512, seconds=0.1)
    >>> [json.loads(line).get("loss") for line in (folder / FILE).read_text().splitlines()]
    [None, 2.5]
    """

    def __init__(self, folder: Path, begin: int = 0, say: Callable[[str], Any] = lambda text: None,
                 clock: Callable[[], float] = time.time) -> None:
        self.path = Path(folder) / FILE
        self._say, self._clock, self._process = say, clock, Process()
        self._waiting: list[bytes] = []
        self._flushed = self._looked = 0.0
        self._broken = False
        self._add({"event": "resume" if begin else "begin", "step": begin, "process": os.getpid()})
        self._flush()

    def step(self, step: int, loss: float, lr: float, *, tokens: int, seconds: float, held_out: float | None = None,
             parts: Mapping[str, float] | None = None) -> None:
        """One step of training."""
        count_step(loss, tokens, seconds)
        record: dict[str, Any] = {"step": step, "loss": round(loss, 5), "lr": lr, "tokens": tokens,
                                  "seconds": round(seconds, 6)}
        if held_out is not None:
            record["held_out"] = round(held_out, 5)
        if parts:
            record["parts"] = {name: round(value, 6) for name, value in parts.items()}
        now = self._clock()
        if now - self._looked >= RESOURCES_S:
            self._looked = now
            record["resources"] = self._resources()
        self._add(record)
        if now - self._flushed >= FLUSH_S:
            self._flush()

    def _resources(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._process.read())
        pool, hits, misses = (metrics.find(f"morpho_{name}") for name in ("pool_live_bytes", "cache_hits",
                                                                          "cache_misses"))
        if pool is not None:
            found["pool_bytes"] = pool.value()
        if hits is not None and misses is not None:
            missed = misses.values()
            found["caches"] = {name: [count, missed.get((name,), 0)] for (name,), count in hits.values().items()}
        return found

    def _add(self, record: Mapping[str, Any]) -> None:
        if not self._broken:
            line = {"time": round(self._clock(), 3), **record}
            self._waiting.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _flush(self) -> None:
        if self._broken or not self._waiting:
            return
        self._flushed = self._clock()
        try:
            append(self.path, b"".join(self._waiting))
        except OSError as error:
            self._broken = True
            why = getattr(error.__cause__, "strerror", "") or error
            self._say(f"{self.path} cannot be written: {why}; training goes on without it")
        self._waiting.clear()

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        self._process.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()
