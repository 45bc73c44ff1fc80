"""Runs read back: every step once, with its speed and parts, however often the run was stopped and resumed."""

from __future__ import annotations

import json
import math
import os
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from morpho.observe.runs.log import FILE

LIVE_S = 30.0  # a run that wrote so recently is running
MOST_BYTES = 256 << 20
MOST_SETTINGS_BYTES = 1 << 20
MOST_POINTS = 400  # of a curve
PARTS = ("data", "step", "check", "save")


@dataclass(frozen=True)
class RunRecord:
    """One run: its settings and its steps, ascending."""

    folder: Path
    settings: dict[str, Any]
    steps: list[dict[str, Any]] = field(repr=False)
    begun: float | None
    ended: float | None  # when it last wrote

    @property
    def is_live(self) -> bool:
        """Whether it is running, as far as its file tells."""
        planned = self.settings.get("steps")
        done = bool(self.steps) and isinstance(planned, int) and self.steps[-1]["step"] >= planned
        return self.ended is not None and not done and time.time() - self.ended < LIVE_S

    def summary(self) -> dict[str, Any]:
        """Summary of a run for a table."""
        held = [record["held_out"] for record in self.steps if "held_out" in record]
        best = min((loss for loss in held if not math.isnan(loss)), default=None)
        speeds = [speed for record in self.steps[1:] if (speed := _speed(record)) is not None]  # the first compiles
        return {"folder": str(self.folder), "name": self.folder.name, "begun": self.begun, "ended": self.ended,
                "live": self.is_live, "step": self.steps[-1]["step"] if self.steps else 0,
                "steps": self.settings.get("steps"), "loss": _recent(self.steps),
                "held_out": held[-1] if held else None, "best_held_out": best,
                "tokens_per_s": statistics.median(speeds) if speeds else None,
                "seconds": sum(record.get("seconds", 0.0) for record in self.steps), "settings": self.settings}

    def curves(self, most: int = MOST_POINTS) -> dict[str, Any]:
        """Points for pictures, at most so many of each: [step, value] of losses and speeds, [time, value] of memory
        and threads, and the last parts of a step."""
        groups = list(_grouped(self.steps, most))
        resources = [(record["time"], record["resources"]) for record in self.steps
                     if "resources" in record and "time" in record]
        resources = resources[::max(1, len(resources) // most)]
        return {
            "loss": [[group[-1]["step"], _mean(one["loss"] for one in group)] for group in groups],
            "held_out": [[one["step"], one["held_out"]] for one in self.steps if "held_out" in one][-most:],
            "lr": [[group[-1]["step"], group[-1].get("lr")] for group in groups],
            "tokens_per_s": [[group[-1]["step"], _mean(speeds)] for group in groups
                             if (speeds := [speed for one in group if (speed := _speed(one)) is not None])],
            "rss_bytes": [[when, found["rss_bytes"]] for when, found in resources if "rss_bytes" in found],
            "pool_bytes": [[when, found["pool_bytes"]] for when, found in resources if "pool_bytes" in found],
            "threads": [[when, found["threads"]] for when, found in resources if "threads" in found],
            "caches": resources[-1][1].get("caches", {}) if resources else {},
            "parts": self.parts(),
        }

    def parts(self, last: int = 100) -> dict[str, float]:
        """Mean seconds of a step by part, over the last steps."""
        recent = [record["parts"] for record in self.steps[-last:] if "parts" in record]
        if not recent:
            return {}
        return {name: _mean(float(parts.get(name, 0.0)) for parts in recent) for name in PARTS}


def read_run(folder: Path) -> RunRecord | None:
    """The run of a folder, from `metrics.jsonl`, or from `losses.jsonl` of earlier versions; None where there is
    neither."""
    return RunReader(folder).read()


class RunReader:
    """A run's file, read as it grows: lines that were read are not read again. Of a file larger than `MOST_BYTES` the
    end is read, so that its first steps are missing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, threading.Lock()
        self._begin(())

    def _begin(self, file: tuple[object, ...]) -> None:
        self._file, self._offset = file, 0
        self._steps: dict[int, dict[str, Any]] = {}
        self._begun: float | None = None
        self._ended: float | None = None

    def read(self) -> RunRecord | None:
        """The run as it is now; None where there is no file."""
        path = self.folder / FILE
        source = path if path.is_file() else self.folder / "losses.jsonl"
        try:
            if not source.is_file():  # a pipe or a device has no end
                return None
            with self._lock, source.open("rb") as handle:
                self._read_on(source, handle)
                steps = [self._steps[number] for number in sorted(self._steps)]
                return RunRecord(self.folder, _settings(self.folder), steps, self._begun, self._ended)
        except OSError:
            return None

    def _read_on(self, source: Path, handle: BinaryIO) -> None:
        found = os.fstat(handle.fileno())
        file = (source, found.st_dev, found.st_ino)
        if file != self._file or found.st_size < self._offset:
            self._begin(file)
        if self._offset:
            handle.seek(self._offset - 1)
            if handle.read(1) != b"\n":  # written anew, and longer
                self._begin(file)
        cut = found.st_size - self._offset > MOST_BYTES
        handle.seek(found.st_size - MOST_BYTES if cut else self._offset)
        if cut:
            handle.readline()
        start = handle.tell()
        content = handle.read(MOST_BYTES)
        self._offset = start + content.rfind(b"\n") + 1  # what follows may go on, and is read again
        for record in _lines(content):
            self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        when = record.get("time")
        if when is not None:
            self._begun, self._ended = self._begun or when, when
        if "event" in record:
            first = record["step"]  # the others are made again
            self._steps = {number: known for number, known in self._steps.items() if number <= first}
        elif "loss" in record:
            self._steps[record["step"]] = record


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Lines that are records; a half one at the end is of a step that is being written."""
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_count(record.get("step")):
            yield {name: value for name, value in record.items() if _fits(name, value)}


_NUMBERS = ("time", "loss", "held_out", "lr", "tokens", "seconds")
_MOST = 1 << 60


def _fits(name: str, value: Any) -> bool:
    """Whether a field has the kind of value that a run writes there; what has not is left out. A loss may be nan."""
    if name in ("loss", "held_out"):
        return _is_number(value)
    if name in _NUMBERS:
        return _is_number(value) and math.isfinite(value)
    if name == "parts":
        return isinstance(value, dict) and all(_is_number(each) and math.isfinite(each) for each in value.values())
    if name == "resources":
        return isinstance(value, dict) and all(key == "caches" or (_is_number(each) and math.isfinite(each))
                                               for key, each in value.items())
    return True


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_count(abs(value) if type(value) is int else value)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _settings(folder: Path) -> dict[str, Any]:
    try:
        path = folder / "run.json"
        if not path.is_file() or path.stat().st_size > MOST_SETTINGS_BYTES:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))["settings"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _speed(record: dict[str, Any]) -> float | None:
    tokens, seconds = record.get("tokens"), record.get("seconds")
    return tokens / seconds if tokens and seconds else None


def _mean(values: Iterable[float]) -> float:
    """nan where a sum has no value: of infinities, or beyond a float."""
    try:
        return statistics.fmean(values)
    except (ValueError, OverflowError):
        return math.nan


def _recent(steps: Sequence[dict[str, Any]]) -> float | None:
    """The mean loss of the last steps."""
    return _mean(record["loss"] for record in steps[-20:]) if steps else None


def _grouped(steps: Sequence[dict[str, Any]], most: int) -> Iterator[Sequence[dict[str, Any]]]:
    """Steps in at most so many groups, each of neighbours."""
    count = min(most, len(steps))
    for number in range(count):
        yield steps[number * len(steps) // count:(number + 1) * len(steps) // count]
