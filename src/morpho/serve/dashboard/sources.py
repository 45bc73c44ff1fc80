"""Data of the dashboard, read from files and from this process when a page asks."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from morpho.cluster.frontend import history, status
from morpho.observe.monitor import alerts, snapshot
from morpho.observe.monitor.ranks import read_ranks
from morpho.observe.monitor.sampling import Sampler
from morpho.observe.runs.known import folders as known_folders
from morpho.observe.runs.log import FILE
from morpho.observe.runs.reading import RunReader, RunRecord

MOST_RUNS = 200
MOST_COMPARED = 6
LEDGER_ROWS = 50
SAMPLES = 240


class Sources:
    """Runs of `folders` (runs, or folders that hold some; none: all that this machine remembers), and, with a
    `sampler`, the figures of this process; `ranks` is a folder that ranks tell how they stand."""

    def __init__(self, folders: Sequence[Path] = (), sampler: Sampler | None = None,
                 ranks: Path | None = None) -> None:
        self._folders, self._sampler = [Path(folder) for folder in folders], sampler
        self._ranks = ranks
        self._readers: dict[Path, RunReader] = {}
        self._read: dict[Path, tuple[Any, RunRecord]] = {}  # by what changes when a run goes on

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _places(self) -> list[Path]:
        """Folders of runs; ids of a page choose among them, so that no id leads elsewhere."""
        if not self._folders:
            return known_folders()[:MOST_RUNS]
        found: dict[Path, None] = {}
        for folder in self._folders:
            inside = [folder, *sorted(one for one in folder.iterdir() if one.is_dir())] if folder.is_dir() else []
            for one in inside:
                if (one / FILE).is_file() or (one / "losses.jsonl").is_file():
                    found[one.resolve()] = None
        return list(found)[:MOST_RUNS]

    def _run(self, folder: Path) -> RunRecord | None:
        try:
            source = folder / FILE if (folder / FILE).is_file() else folder / "losses.jsonl"
            stat = source.stat()
        except OSError:
            return None
        mark = (source, stat.st_size, stat.st_mtime_ns)
        if self._read.get(folder, (None,))[0] != mark:
            record = self._readers.setdefault(folder, RunReader(folder)).read()
            if record is None:
                return None
            self._read[folder] = mark, record
        return self._read[folder][1]

    def runs(self) -> dict[str, Any]:
        """A summary of every run, the latest first."""
        found = [(folder, run) for folder in self._places() if (run := self._run(folder)) is not None]
        found.sort(key=lambda pair: pair[1].ended or 0.0, reverse=True)
        return {"runs": [{"id": run_id(folder), **run.summary()} for folder, run in found], "now": time.time()}

    def curves(self, ids: Sequence[str]) -> dict[str, Any]:
        """Points of the runs with these ids."""
        by_id = {run_id(folder): folder for folder in self._places()}
        chosen = [one for one in ids if one in by_id][:MOST_COMPARED]
        return {"curves": {one: run.curves() for one in chosen if (run := self._run(by_id[one])) is not None}}

    # -- this process --------------------------------------------------------------------------------------------------
    def live(self) -> dict[str, Any]:
        """Figures of this process, where it is the one that works, with the samples of its resources."""
        if self._sampler is None:
            return {"process": None, "metrics": {}, "samples": [], "alerts": []}
        return {"process": os.getpid(), "metrics": snapshot(), "samples": list(self._sampler.history)[-SAMPLES:],
                "alerts": alerts.firing()}

    def ranks(self) -> dict[str, Any]:
        """Reports of the ranks that this process started."""
        return {"ranks": [] if self._ranks is None else read_ranks(self._ranks)}

    # -- pipelines -----------------------------------------------------------------------------------------------------
    def cluster(self) -> dict[str, Any]:
        """Pipelines that run here: stages in the order of their layers, links between them, and who hangs."""
        rows = history.rows()
        return {"pipelines": [_pipeline(run, rows) for run in status.running()]}

    def ledger(self) -> dict[str, Any]:
        """Predictions and results of pipeline runs, the latest first, and the error of each node."""
        rows = history.rows()
        return {"rows": [{"time": row.get("time"), "model": row.get("model"), "stages": row.get("stages", []),
                          "streams": row.get("streams"), "errors": history.errors(row),
                          **{name: {key: row[name].get(key) for key in history.QUANTITIES}
                             for name in ("predicted", "measured")}} for row in rows[:-LEDGER_ROWS - 1:-1]],
                "corrections": history.corrections(rows)}


def run_id(folder: Path) -> str:
    """A short name of a run's folder for addresses."""
    return hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _pipeline(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    workers = run.get("workers", {})
    model = Path(str(run.get("model", ""))).name
    stages = sorted(({"node": node, **worker, "late_s": max(0.0, time.time() - worker.get("said", 0.0))}
                     for node, worker in workers.items()),
                    key=lambda stage: (not stage.get("layers"), (stage.get("layers") or [0])[0]))
    held = [stage["node"] for stage in stages if stage.get("layers")]
    known: dict[str, int] = next((row["predicted"].get("link_bytes_per_token", {}) for row in reversed(rows)
                  if Path(str(row.get("model", ""))).name == model), {})
    links = [{"from": a, "to": b, "bytes_per_token": known.get(f"{a} -> {b}")} for a, b in pairwise(held)]
    return {"model": model, "epoch": run.get("epoch"), "texts": run.get("texts"), "stages": stages, "links": links,
            "problems": status.diagnosis(run)}
