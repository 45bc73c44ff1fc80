"""Where runs are: the folders that trained on this machine, a line each in the user's cache."""

from __future__ import annotations

import json
import time
from pathlib import Path

from morpho.base import settings
from morpho.weights.atomic import append, write_bytes

MOST_BYTES = 1 << 20


def list_path() -> Path:
    """The file of folders."""
    return settings.get().cache_path / "runs.jsonl"


def remember(folder: Path) -> None:
    """A run begins in this folder. Where the list cannot be written the run is not in it, and that is all."""
    if not settings.get().cache:
        return
    path = list_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > MOST_BYTES:  # the older half goes
            lines = path.read_bytes().splitlines(keepends=True)
            write_bytes(path, b"".join(lines[len(lines) // 2:]))
        append(path, json.dumps({"folder": str(folder.resolve()), "time": time.time()}).encode() + b"\n")
    except OSError:
        pass


def folders() -> list[Path]:
    """Folders of runs that still exist, the latest first."""
    try:
        content = list_path().read_bytes()
    except OSError:
        return []
    found: dict[Path, None] = {}
    for line in reversed(content.splitlines()):
        try:
            folder = Path(json.loads(line)["folder"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if folder not in found and folder.is_dir():
            found[folder] = None
    return list(found)
