"""Running pipelines, for `morpho cluster status` and `doctor`: each frontend keeps a small file up to date."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.cluster.workers.reports import is_running, is_stopped

LATE_S = 3.0  # a worker that has said nothing for so long is late


def folder() -> Path:
    """Where the files are."""
    return settings.get().cache_path / "cluster" / "running"


@functools.cache
def _unwritten(place: str, why: str) -> None:
    """Said once: this is written twice a second."""
    logging.getLogger("morpho").warning("[cluster] %s cannot be written (%s): status and doctor do not see this "
                                        "process", place, why)


def write(data: Mapping[str, Any]) -> None:
    """Say what this process's pipeline does. Where the folder cannot be written nobody is told, and texts go on."""
    if not settings.get().cache:
        return
    place = folder()
    part = place / f"{os.getpid()}.part"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps({**data, "frontend": os.getpid(), "time": time.time()}))
        part.replace(place / f"{os.getpid()}.json")
    except OSError as error:
        _unwritten(str(place), str(error))


def workers(processes: Mapping[str, int], layers: Mapping[str, list[int]], statistics: Mapping[str, Mapping[str, Any]],
            now: float) -> dict[str, dict[str, Any]]:
    """The rows of workers for `write`."""
    keys = ("doing", "idle_s", "streams", "sent_bytes", "memory_bytes", "kv_bytes", "tokens", "compute_s")
    return {node: {"process": process, "layers": layers.get(node, []),
                   **{key: statistics.get(node, {}).get(key, "") for key in keys},
                   "said": statistics.get(node, {}).get("time", now)} for node, process in processes.items()}


def stages(nodes: Iterable[str], alive: Container[str], processes: Mapping[str, int], layers: Mapping[str, list[int]],
           statistics: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All nodes of a plan, those that are gone among them.

    >>> [(row["node"], row["alive"], row["layers"]) for row in stages(["a", "b"], ["a"], {"a": 7}, {"a": [0, 6]}, {})]
    [('a', True, [0, 6]), ('b', False, [])]
    """
    keys = ("doing", "streams", "kv_bytes", "memory_bytes", "sent_bytes")
    return [{"node": node, "alive": node in alive, "process": processes.get(node) if node in alive else None,
             "layers": layers.get(node, []) if node in alive else [],
             **{key: statistics.get(node, {}).get(key, 0) if node in alive else 0 for key in keys}} for node in nodes]


def clear() -> None:
    """This process's pipeline is over."""
    try:
        (folder() / f"{os.getpid()}.json").unlink(missing_ok=True)
    except OSError:
        pass  # it cannot have been written either


def running() -> list[dict[str, Any]]:
    """Running pipelines; files of frontends that are gone are removed."""
    found = []
    for file in sorted(folder().glob("*.json")) if folder().exists() else ():
        try:
            data = json.loads(file.read_text())
            alive = is_running(int(data["frontend"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if alive:
            found.append(data)
        else:
            file.unlink(missing_ok=True)
    return found


def diagnosis(run: Mapping[str, Any], now: float | None = None) -> list[str]:
    """Sentences that say who hangs and who waits for whom; none where all is well.

    >>> run = {"workers": {"a": {"process": 0, "said": 0.0, "doing": "waiting for tokens from b", "streams": 1}}}
    >>> diagnosis(run, now=10.0)
    ['a (process 0) has said nothing for 10 s; it was waiting for tokens from b']
    """
    now = time.time() if now is None else now
    found = []
    for node, worker in run["workers"].items():
        if worker["process"] and is_stopped(worker["process"]):
            found.append(f"{node} (process {worker['process']}) is stopped by a signal")
        elif now - worker["said"] > LATE_S:
            found.append(f"{node} (process {worker['process']}) has said nothing for {now - worker['said']:.0f} s; it "
                         f"was {worker['doing']}")
        elif (worker.get("idle_s") or 0) > LATE_S and worker.get("streams"):  # "": it has reported nothing yet
            found.append(f"{node} (process {worker['process']}) is {worker['doing']} since {worker['idle_s']:.0f} s, "
                         f"with {worker['streams']} texts on their way")
    return found
