"""Cases that are measured already: kept in the file of `--json` as they come, so that a run that was stopped, or had
no more time, goes on where it was (`--resume`)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import Timing


class BadKept(ValueError):
    """A file to go on with that is none: one sentence."""


def key_of(labels: dict[str, tuple[str, str]], shape: tuple[int, ...], shapes: dict[str, tuple[int, ...]] | None,
           threads: int, quick: bool) -> str:
    """What tells one measurement from another.

    >>> key_of({"own": ("morpho", "lu native")}, (64,), None, 2, False)
    '[{"own": ["morpho", "lu native"]}, [64], {}, 2, false]'
    """
    return json.dumps([labels, shape, shapes or {}, threads, quick])


class Kept:
    """Timings by key. `within_s`: no further case is begun after that; 0: no such limit."""

    def __init__(self, path: Path | None = None, resume: bool = False, within_s: float = 0.0) -> None:
        self.path, self.found = path, _read(path) if resume and path is not None else {}
        self.left = 0  # cases that were not begun
        self.deadline = time.monotonic() + within_s if within_s else None

    def get(self, key: str) -> dict[str, Timing] | None:
        """Timings of a case: kept ones, none at all where the time is over, None where it is to be measured."""
        if key in self.found:
            return {label: Timing(**{name: value for name, value in one.items() if name != "seconds"})
                    for label, one in self.found[key].items()}
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.left += 1
            return {}
        return None

    def add(self, key: str, timings: dict[str, Timing]) -> None:
        """Keep a case, unless no peer was there or one failed in it: the next time may be another."""
        if self.path is None or not timings or any(timing.error for timing in timings.values()):
            return
        self.found[key] = {label: timing.as_json() for label, timing in timings.items()}
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps({"kept": self.found}) + "\n")
        os.replace(part, self.path)


def _read(path: Path) -> dict[str, Any]:
    """What a file has; nothing where there is none yet."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())["kept"]
        assert isinstance(found, dict)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise BadKept(f"[bench] {path} has no measurements to go on with: leave out --resume to begin anew.") from None
    return found
