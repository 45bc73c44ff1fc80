"""Measured peaks of this machine: fused multiply-adds and bytes read per second, kept beside the compiled code.

The figures bound what any kernel can reach (`cost.estimate.Profile`); `explain()` compares kernels with them.
"""

from __future__ import annotations

import ctypes
import logging
import time
from functools import cache, partial
from typing import Any

from morpho.backends.code.compiler import code
from morpho.backends.code.emit import Emitter, defined
from morpho.backends.driver import threads
from morpho.base.dtypes import DType, float32
from morpho.base.machine import Isa
from morpho.base.target import current_isa
from morpho.cost.estimate import Profile
from morpho.runtime import thresholds
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans.evaluate import make_plan, run_plan

log = logging.getLogger("morpho")
CHAINS = 24  # independent sums: enough to hide the latency of an fma on every machine known here
ROUNDS = 200_000  # iterations of the FMA loop
SWEEP_BYTES = 256 << 20  # bytes read by the bandwidth probe: beyond any last-level cache
PIECES = 32  # parts of a sweep timed by themselves: each shorter than what a scheduler takes away at a time
WHOLE, IN_PIECES = 2, 3  # sweeps


def machine_profile(anew: bool = False) -> Profile:
    """Rates of this machine with the threads in force; measured in about 0.2 s the first time, then read from disk.

    >>> profile = machine_profile()
    >>> profile.flops_per_s > 1e8 and profile.bytes_per_s > 1e8
    True
    """
    return _measured(threads.wanted_threads(), current_isa().name, anew)


@cache
def _measured(count: int, isa: str, anew: bool) -> Profile:
    key = thresholds.profile_key(count, isa)
    row = None if anew else thresholds.stored_row(key)
    if row is None:
        row = [fma_peak(float32) * count, read_bandwidth(count)]
        thresholds.store_row(key, "", row)
    return Profile(key, row[0], row[1])


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
    return (defined(f"void @peak(i64 %rounds, ptr %out) nounwind {wide}", e.text(), "\n  ret void")
            + "\n".join(sorted(e.declarations)) + "\n")


def read_bandwidth(count: int = 0, nbytes: int = 0) -> float:
    """Bytes per second of a plain sum over memory far larger than the caches, on `count` threads.

    Whole sweeps say it on a machine that is otherwise idle. Where other processes want the cores, each of those has
    time in it in which nobody here ran; then the better pieces of a sweep say it: the one that five of a hundred beat.
    The FMA loop is that short anyway, and its peak beside a tenth of the bandwidth makes every kernel one of memory.
    """
    from morpho.ir.graph import Graph
    from morpho.ir.node import build

    nbytes = nbytes or SWEEP_BYTES

    def sweep(part: int) -> Any:
        node = build("parameter", index=0, shape=(64, part // 4 // 64), dtype=float32)
        plan = make_plan(Graph((build("max", node, axes=(1,)),)), True, 1)
        return lambda place: run_plan(plan, [block.address + place], [result.address], {})

    piece = nbytes // PIECES
    block, result = pool().acquire(nbytes), pool().acquire(64 * 4)
    ctypes.memset(block.address, 0, nbytes)
    whole, one = sweep(nbytes), sweep(piece)
    whole_s = min(_timed(lambda: whole(0)) for _ in range(WHOLE))
    one(0)
    places = range(0, nbytes - piece + 1, piece)
    times = sorted(_timed(partial(one, place)) for _ in range(IN_PIECES) for place in places)
    return max(nbytes / whole_s, piece / times[len(times) // 20])


def _timed(function: Any) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started

