"""Runs, pipelines and predictions to look at, as files that Morpho writes."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from morpho.cluster.frontend import history, status
from morpho.observe.runs.log import RunLog


def written_run(folder: Path, steps: int = 200, lr: float = 1e-3, begun: float = 1.7e9, planned: int = 200,
                **settings: Any) -> Path:
    """A run as `morpho train` writes it, with a loss that falls faster for a larger rate."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"settings": {"steps": planned, "lr": lr, "layers": 4, **settings}}))
    now = [begun]
    with RunLog(folder, clock=lambda: now[0]) as log:
        for step in range(1, steps + 1):
            now[0] += 0.25
            loss = 1.2 + 4 * math.exp(-step * lr * 20) + 0.1 * math.sin(step * 1.7)
            log.step(step, loss, lr, tokens=2048, seconds=0.2 + 0.02 * math.sin(step),
                     held_out=loss + 0.15 if step % 25 == 0 else None,
                     parts={"data": 0.02, "step": 0.18, "check": 0.03 if step % 25 == 0 else 0.0, "save": 0.005})
    return folder


def written_cluster(worker: int | None = None) -> None:
    """A pipeline of three stages and a spare, and two runs in the ledger, in the cache folder of the settings."""
    now = time.time()
    workers = {name: {"process": worker or os.getpid(), "layers": layers, "doing": doing, "idle_s": 0.1, "streams": 2,
                      "sent_bytes": 12_000_000, "memory_bytes": 900 << 20, "kv_bytes": 1 << 20, "tokens": 100,
                      "compute_s": 0.5, "said": now}
               for name, layers, doing in (("alpha", [0, 9], "computing"), ("beta", [9, 20], "waiting for alpha"),
                                           ("gamma", [20, 30], "computing"), ("delta", [], "spare: no layers"))}
    status.write({"model": "/models/smollm2", "epoch": 3, "texts": 2, "workers": workers})
    rows = []
    for age, slower in ((86_400, 1.05), (600, 1.4)):
        said = {"first_token_s": 0.2, "token_s": 0.02, "tokens_per_s": 90.0,
                "link_bytes_per_token": {"alpha -> beta": 2304, "beta -> gamma": 2304},
                "stage_s": {"alpha": 0.006, "beta": 0.007}}
        did = {"first_token_s": 0.2 * slower, "token_s": 0.02 * slower, "tokens_per_s": 90 / slower,
               "stage_s": {"alpha": 0.006 * slower}}
        rows.append({"time": now - age, "model": "smollm2", "stages": [["alpha", 0, 9], ["beta", 9, 20]], "streams": 4,
                     "predicted": said, "measured": did})
    path = history.ledger_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def written_ranks(folder: Path) -> None:
    """Two ranks of which one is slower, one that has gone silent and tells nonsense, and files that are no rank's."""
    folder.mkdir(parents=True)
    now = time.time()
    for rank in (0, 1):
        told = {"rank": rank, "host": "<b>vm</b>", "process": 4000 + rank, "time": now, "cpu_cores": 0.9,
                "rss_bytes": 200 << 20, "threads": 4, "pool_bytes": 1 << 20, "loss": 2.25, "tokens": 4096,
                "step_p50_s": 0.2 + 0.1 * rank, "step_p95_s": 0.4, "collective_calls": 120, "collective_bytes": 9 << 20,
                "cache_hits": 90, "cache_misses": 10}
        (folder / f"rank-{rank}.json").write_text(json.dumps(told))
    (folder / "rank-2.json").write_text('{"rank": 2, "time": 5, "loss": "high", "cpu_cores": 1e999, "rss_bytes": [1]}')
    for name, text in (("rank-7.json", "{"), ("rank-8.json", "[1]"), ("rank-9.json", '{"rank": null}'), ("notes", "x")):
        (folder / name).write_text(text)
    (folder / "rank-10.json").symlink_to(folder / "rank-0.json")
