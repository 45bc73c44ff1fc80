"""What this machine can do, measured: fused multiply-adds and bytes read per second, kept beside the compiled code.

The figures bound what any kernel can reach (`cost.estimate.Profile`); `explain()` compares kernels with them.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import json
import logging
import os
import time
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from morpho.backends.cpu.codegen.emit import Emitter
from morpho.backends.cpu.compiler import code
from morpho.backends.cpu.driver import threads
from morpho.base import settings
from morpho.base.dtypes import DType, float32
from morpho.base.machine import Isa, machine
from morpho.base.target import current_isa
from morpho.cost.dispatch_thresholds import KERNELS, Crossovers, from_row, usual
from morpho.cost.estimate import Profile
from morpho.ir.op import listeners
from morpho.runtime.memory.pool import pool

log = logging.getLogger("morpho")
CHAINS = 24  # independent sums: enough to hide the latency of an fma on every machine known here
ROUNDS = 200_000
SWEEP_BYTES = 256 << 20


def machine_profile(anew: bool = False) -> Profile:
    """Rates of this machine with the threads in force; measured in about 0.2 s the first time, then read from disk.

    >>> profile = machine_profile()
    >>> profile.flops_per_s > 1e8 and profile.bytes_per_s > 1e8
    True
    """
    return _measured(threads.wanted_threads(), current_isa().name, anew)


@cache
def _measured(count: int, isa: str, anew: bool) -> Profile:
    key = profile_key(count, isa)
    row = None if anew else stored_row(key)
    if row is None:
        row = [fma_peak(float32) * count, read_bandwidth(count)]
        store_row(key, "", row)
    return Profile(key, row[0], row[1])


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


# -- crossovers: measured by `morpho doctor --measure` alone, else the defaults ----------------------------------------
_forced: contextvars.ContextVar[Crossovers | None] = contextvars.ContextVar("morpho_crossovers", default=None)


def crossovers() -> Crossovers:
    """Those in force here: of a block of `using`, else what was measured on this machine for the instruction set and
    the number of threads, else the defaults. Nothing is measured here."""
    return _forced.get() or _kept_crossovers(settings.get()) or usual(current_isa().vector_bits)


@lru_cache(maxsize=64)
def _kept_crossovers(chosen: settings.Settings) -> Crossovers | None:
    row = _stored().get(_crossovers_key())
    if row is None:
        return None
    found = from_row(row)
    if found is None:
        log.warning("the crossovers in %s are damaged and left alone; `morpho doctor --measure` makes them anew (said "
                    "once)", settings.get().cache_path / "profile.json")
    return found


def _crossovers_key() -> str:
    return f"{profile_key()} crossovers of kernels {KERNELS}"


def store_crossovers(found: Crossovers) -> None:
    """Keep what was measured; programs made from now on follow it, in this process and in later ones."""
    _store(_crossovers_key(), found.row())
    _kept_crossovers.cache_clear()
    _tell()


def crossovers_measured() -> bool:
    """Whether this machine has been measured."""
    return _kept_crossovers(settings.get()) is not None


@contextlib.contextmanager
def using(chosen: Crossovers) -> Iterator[None]:
    """Other crossovers for a block: to measure each way of computing, and for tests."""
    token = _forced.set(chosen)
    _tell()
    try:
        yield
    finally:
        _forced.reset(token)
        _tell()


def _tell() -> None:
    """Other crossovers may mean other code, as other passes do: native entries look again."""
    for listener in listeners:
        listener()


def fma_peak(dtype: DType = float32) -> float:
    """Operations per second of one core on registers alone, two per fma."""
    isa = current_isa()
    lanes = isa.lanes(dtype.itemsize)
    (address,) = code.native_functions(f"peak {dtype.name}", lambda: _peak_text(dtype, isa), ("peak",), isa)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address)
    out = (ctypes.c_char * (CHAINS * lanes * dtype.itemsize))()
    best = min(_timed(lambda: function(ROUNDS, out)) for _ in range(5))
    return 2.0 * ROUNDS * CHAINS * lanes / best


def _peak_text(dtype: DType, isa: Isa) -> str:
    e = Emitter(isa.lanes(dtype.itemsize))
    element = dtype.llvm
    starts = [e.constant(0, element)] * CHAINS
    factor, term = e.constant(0.999, element), e.constant(0.001, element)
    with e.loop(0, e.argument("%rounds", "i64", 1), carried=starts) as loop:
        loop.next(*[e.fma(factor, term, value) for value in loop.values])
    for number, value in enumerate(loop.values):
        e.store(value, e.offset("%out", element, number * value.lanes))
    wide = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
    return (f"define void @peak(i64 %rounds, ptr %out) nounwind {wide} {{\nentry:\n{e.text()}\n  ret void\n}}\n"
            + "\n".join(sorted(e.declarations)) + "\n")


def read_bandwidth(count: int = 0, nbytes: int = SWEEP_BYTES) -> float:
    """Bytes per second of a plain sum over memory far larger than the caches, on `count` threads."""
    from morpho.ir.graph import Graph
    from morpho.ir.node import build
    from morpho.runtime.plans.evaluate import make_plan, run_plan

    elements = nbytes // 4
    node = build("parameter", index=0, shape=(64, elements // 64), dtype=float32)
    plan = make_plan(Graph((build("max", node, axes=(1,)),)), True, 1)
    block, result = pool().acquire(nbytes), pool().acquire(64 * 4)
    ctypes.memset(block.address, 0, nbytes)
    return nbytes / min(_timed(lambda: run_plan(plan, [block.address], [result.address], {})) for _ in range(5))


def _timed(function: Any) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started

