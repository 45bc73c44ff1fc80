"""Results of the tuner, kept beside the compiled code: one JSON file, for its owner alone, with a checksum.

The file says which machine and which version of the kernels it is for; on another one it is left alone. Export and
import are the same format: `morpho tune --export FILE`, `morpho tune --import FILE`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from morpho.base import distribution, settings
from morpho.base.errors import ArgumentError, MorphoError, ValueFault, fail
from morpho.base.machine import machine
from morpho.cost.dispatch_thresholds import KERNELS
from morpho.cost.tuned_choices import NO_CHOICES, Choice, Choices, choice_from_row

log = logging.getLogger("morpho")
FORMAT = "morpho tuned choices 1"
FILE = "tuned.json"
MOST_BYTES, MOST_ROWS = 16 << 20, 20_000


@dataclass(frozen=True)
class Row:
    """One stored choice, what it gained when it was found, and by how many pairs of times."""

    choice: Choice
    gain: float
    pairs: int = 0

    def as_json(self) -> dict[str, Any]:
        """As it is written."""
        return {"choice": self.choice.row(), "gain": round(self.gain, 4), "pairs": self.pairs}


@dataclass(frozen=True)
class Table:
    """All that a file holds."""

    fingerprint: dict[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def choices(self) -> Choices:
        """The choices alone."""
        return Choices.of({key: row.choice for key, row in self.rows.items()})


def fingerprint() -> dict[str, Any]:
    """The machine and the version that choices hold for.

    >>> sorted(fingerprint())
    ['architecture', 'caches', 'cores', 'cpu', 'features', 'kernels', 'version']
    """
    here = machine()
    features = hashlib.sha256(" ".join(sorted(here.features)).encode()).hexdigest()[:16]
    return {"cpu": here.cpu_name, "architecture": here.architecture, "cores": here.cores,
            "caches": [here.l1_bytes, here.l2_bytes, here.l3_bytes], "features": features,
            "version": distribution.version(), "kernels": KERNELS}


def path() -> Path:
    """Where the choices of this machine are kept."""
    return settings.get().cache_path / FILE


# -- the file ----------------------------------------------------------------------------------------------------------
def dumped(table: Table) -> str:
    """A table as text, with a checksum over all the rest."""
    content = {"format": FORMAT, "fingerprint": table.fingerprint,
               "choices": {key: row.as_json() for key, row in sorted(table.rows.items())}}
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1, sort_keys=True) + "\n"


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parsed(text: str, source: str) -> Table:
    """A table from text; an error that says what is wrong with `source`, never half of it."""
    def refuse(problem: str) -> MorphoError:
        return fail(ValueFault, "tune", f"{source} {problem}", "run `morpho tune` again, or delete the file", line="")

    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        raise refuse("is not JSON") from None
    if not isinstance(loaded, dict) or loaded.get("format") != FORMAT:
        raise refuse("holds no choices of the tuner")
    checksum = loaded.pop("checksum", None)
    rows, known = loaded.get("choices"), loaded.get("fingerprint")
    if checksum != _checksum(loaded):
        raise refuse("is damaged: its checksum is another one")
    if loaded.keys() != {"format", "fingerprint", "choices"} or not isinstance(rows, dict) \
            or not isinstance(known, dict) or len(rows) > MOST_ROWS:
        raise refuse("is not laid out as the tuner writes it")
    found = {}
    for key, row in rows.items():
        choice = choice_from_row(row.get("choice")) if isinstance(row, dict) else None
        gain, pairs = (row.get("gain"), row.get("pairs")) if isinstance(row, dict) else (None, None)
        fine = isinstance(gain, int | float) and 0 < gain < 1e6 and type(pairs) is int and 0 <= pairs < 1 << 40
        if choice is None or not fine or len(key) > 400:
            raise refuse(f"has an odd row {key[:80]!r}")
        assert isinstance(gain, int | float) and isinstance(pairs, int)
        found[key] = Row(choice, float(gain), pairs)
    return Table(known, found)


def read_file(file: Path) -> Table:
    """The table in a file."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise fail(ValueFault, "tune", f"{file} is larger than any file of the tuner's", line="")
        return parsed(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise fail(ArgumentError, "tune", f"{file} cannot be read: {error.strerror}", line="") from None
    except UnicodeDecodeError:
        raise fail(ValueFault, "tune", f"{file} is not text", line="") from None


def write_file(file: Path, table: Table) -> None:
    """Write whole or not at all, for the owner alone."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(dumped(table))
        os.replace(scratch, file)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise fail(ArgumentError, "tune", f"{file} cannot be written: {error.strerror}", line="") from None


# -- what is in force --------------------------------------------------------------------------------------------------
_in_memory: dict[str, Row] = {}  # of a process without a cache on disk


def kept() -> Table:
    """The choices kept for this machine and version; none where there is no file, or a damaged one, which is said."""
    return _kept(settings.get().cache_path / FILE if settings.get().cache else None)


@lru_cache(maxsize=8)
def _kept(file: Path | None) -> Table:
    here = Table(fingerprint())
    if file is None:
        return Table(here.fingerprint, dict(_in_memory))
    if not file.exists():
        return here
    try:
        found = read_file(file)
    except (ValueFault, ArgumentError) as error:
        log.warning("%s (the defaults are used; said once)", error)
        return here
    return found if found.fingerprint == here.fingerprint else here


def in_force() -> Choices:
    """Choices for the settings in force: none with `tune="off"`."""
    return NO_CHOICES if settings.get().tune == "off" else kept().choices


def keep(rows: dict[str, Row], dropped: set[str] = frozenset()) -> Table:  # type: ignore[assignment]
    """Add rows to those kept, and drop some; in memory alone where there is no cache on disk."""
    file = path() if settings.get().cache else None
    _kept.cache_clear()  # another process may have written meanwhile
    before = _kept(file)
    merged = {key: row for key, row in (before.rows | rows).items() if key not in dropped and not row.choice.is_default}
    table = Table(before.fingerprint, merged)
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(file, table)
    else:
        _in_memory.clear()
        _in_memory.update(merged)
    _kept.cache_clear()
    return table


def forget() -> None:
    """Drop all choices of this machine."""
    _in_memory.clear()
    _kept.cache_clear()
    path().unlink(missing_ok=True)


def export(file: Path) -> int:
    """Write the choices of this machine to a file; how many there are."""
    table = kept()
    if not table.rows:
        raise fail(ArgumentError, "tune", "no choice is kept for this machine: nothing was tuned, or the defaults won",
                   "run `morpho tune SCRIPT` first", line="")
    write_file(file, table)
    return len(table.rows)


def take(file: Path, force: bool = False) -> int:
    """Import the choices of a file; how many. Those of another machine or version only if forced: they are right
    anywhere, but may be slow here."""
    table = read_file(file)
    here = fingerprint()
    others = [name for name in here if table.fingerprint.get(name) != here[name]]
    if others and not force:
        name = others[0]
        raise fail(ArgumentError, "tune", f"{file} is from another machine or version: its {name} is "
                                          f"{table.fingerprint.get(name)!r}, here it is {here[name]!r}",
                   "run `morpho tune` here, or add --force: results stay the same, speed may not", line="")
    keep(table.rows)
    return len(table.rows)
