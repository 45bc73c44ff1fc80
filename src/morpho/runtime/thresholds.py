"""Which dispatch thresholds are in force, and what is kept of measurements beside the compiled code.

Measured by `morpho doctor --measure` alone; else the defaults of `cost/dispatch_thresholds.py` hold.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from morpho.backends.driver import threads
from morpho.base import settings
from morpho.base.machine import machine
from morpho.base.target import current_isa
from morpho.cost.dispatch_thresholds import KERNELS, DispatchThresholds, defaults_for, from_row
from morpho.cost.tuned_choices import Choices
from morpho.ir.op import listeners
from morpho.runtime.tuner import store as tuned

log = logging.getLogger("morpho")


# -- what is kept of measurements: pairs of positive numbers, by machine and what was measured -------------------------
def profile_key(count: int | None = None, isa: str | None = None) -> str:
    """The machine, its instruction set and number of threads."""
    return f"{machine().cpu_name}/{isa or current_isa().name}/{count or threads.wanted_threads()}"


def _stored() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        loaded = json.loads((settings.get().cache_path / "profile.json").read_text(encoding="utf-8"))
        return loaded if isinstance(loaded, dict) else {}
    return {}


def stored_row(key: str, what: str = "") -> list[float] | None:
    """Two figures measured before, or None; the machine's own rates have no further name."""
    row = _stored().get(f"{key} {what}".strip())
    fine = isinstance(row, list) and len(row) == 2 and all(isinstance(n, float) and n > 0 for n in row)
    return row if fine else None


def store_row(key: str, what: str, row: list[float]) -> None:
    """Keep two figures beside the compiled code, where there is such a place."""
    _store(f"{key} {what}".strip(), row)


def _store(name: str, row: Any) -> None:
    if not settings.get().cache:
        return
    path = settings.get().cache_path / "profile.json"
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = _stored() | {name: row}
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            scratch.write_text(json.dumps(known, indent=1), encoding="utf-8")
            os.replace(scratch, path)  # whole or not at all
        except OSError:
            scratch.unlink(missing_ok=True)
            raise


# -- dispatch thresholds: measured by `morpho doctor --measure` alone, else the defaults -------------------------------
_forced: contextvars.ContextVar[DispatchThresholds | None] = contextvars.ContextVar("morpho_thresholds", default=None)


def current() -> DispatchThresholds:
    """Those in force here: of a block of `using`, else what was measured on this machine for the instruction set and
    the number of threads, else the defaults. Nothing is measured here."""
    return _forced.get() or _in_force(settings.get())


def _in_force(chosen: settings.Settings) -> DispatchThresholds:
    """Thresholds of this machine, with the tuner's choices."""
    found = _kept(chosen) or defaults_for(current_isa().vector_bits)
    choices = _choices(chosen)
    return _joined(found, choices) if choices.rows else found


@lru_cache(maxsize=64)
def _choices(chosen: settings.Settings) -> Choices:
    return tuned.in_force()


@lru_cache(maxsize=64)
def _joined(found: DispatchThresholds, choices: Choices) -> DispatchThresholds:
    return replace(found, choices=choices)


def tuned_anew() -> None:
    """The tuner has other choices: programs made from now on follow them."""
    _choices.cache_clear()
    _tell()


@lru_cache(maxsize=64)
def _kept(chosen: settings.Settings) -> DispatchThresholds | None:
    row = _stored().get(_stored_key())
    if row is None:
        return None
    found = from_row(row)
    if found is None:
        log.warning("the dispatch thresholds in %s are damaged and left alone; `morpho doctor --measure` makes them "
                    "anew (said once)", settings.get().cache_path / "profile.json")
    return found


def _stored_key() -> str:
    """In profile.json, where the thresholds' older name stays: what was measured must still be found."""
    return f"{profile_key()} crossovers of kernels {KERNELS}"


def store(found: DispatchThresholds) -> None:
    """Keep what was measured; programs made from now on follow it, in this process and in later ones."""
    _store(_stored_key(), found.row())
    _kept.cache_clear()
    _tell()


def is_measured() -> bool:
    """Whether this machine has been measured."""
    return _kept(settings.get()) is not None


@contextlib.contextmanager
def using(chosen: DispatchThresholds) -> Iterator[None]:
    """Other thresholds for a block: to measure each way of computing, and for tests."""
    token = _forced.set(chosen)
    _tell()
    try:
        yield
    finally:
        _forced.reset(token)
        _tell()


def _tell() -> None:
    """Other thresholds may mean other code, as other passes do: native entries look again."""
    for listener in listeners:
        listener()
