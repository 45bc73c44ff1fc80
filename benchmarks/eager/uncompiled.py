"""1. Programs that nobody compiled, in turn with eager PyTorch and NumPy, in this process and on one thread.

    morpho bench eager

A time is the processor's of this thread; the first run, in which Morpho compiles, stands beside the later ones.
"""

from __future__ import annotations

import importlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.eager.programs import PROGRAMS, WITHOUT_NUMPY
from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.session import Session

ROUNDS, SECONDS = 5, 0.3
FIRST = ("chain of 100", "64 x 64: product, tanh, sum", "Kalman filter, 40 turns", "training step with AdamW",
         "step of a small GPT", "session of 200 cells")


def run(session: Session) -> ThemeResult:
    """A row for each program; ratios above 1 say that Morpho takes less time."""
    os.environ.setdefault("MORPHO_THREADS", "1")
    libraries = _libraries()
    result = ThemeResult("uncompiled")
    table = Table("microseconds of each run; plans: compiled by the first run, the second and the third",
                  ["program", "operations", "first, ms", "plans", *libraries, "over torch", "over numpy"])
    over: dict[str, list[float]] = {name: [] for name in libraries if name != "morpho"}
    for name, make in PROGRAMS.items():
        programs = {library: make(*given) for library, given in libraries.items()
                    if library != "numpy" or name not in WITHOUT_NUMPY}
        calls = {library: call for library, (_, call) in programs.items()}
        first, plans = _first(calls["morpho"])
        values = {library: call() for library, call in calls.items()}
        if name not in WITHOUT_NUMPY and any(not math.isclose(value, values["morpho"], rel_tol=1e-3, abs_tol=1e-3)
                                             for value in values.values()):
            result.errors.append(f"{name}: results differ: {values}")
        seconds = _seconds(calls, 1 if session.quick else ROUNDS)
        ratios = {library: ratio(seconds.get(library), seconds["morpho"]) for library in over}
        for library, value in ratios.items():
            if value is not None:
                over[library].append(value)
                result.ratios[f"{name} over {library}"] = value
        result.figures[name] = {"seconds": seconds, "first_s": first, "plans": plans}
        table.rows.append([name, str(programs["morpho"][0]), f"{first * 1e3:.0f}", " ".join(map(str, plans)),
                           *[f"{seconds[library] * 1e6:.0f}" if library in seconds else "-" for library in libraries],
                           *[f"{ratios[peer]:.2f}x" if ratios.get(peer) else "-" for peer in ("torch", "numpy")]])
    result.tables.append(table)
    _first_times(result, "torch" in libraries)
    if over.get("torch"):
        result.targets.append(Target("geometric mean over eager PyTorch", geometric_mean(over["torch"]), 1.2))
    return result


def _first_times(result: ThemeResult, has_torch: bool) -> None:
    """First runs in processes of their own: with nothing on disk, with what that left there, and PyTorch's."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, library in (("cold", "morpho"), ("warm", "morpho"), ("torch", "torch")):
            if library == "torch" and not has_torch:
                continue
            try:
                found[name] = probe("first_uncompiled", library, *FIRST, threads=1, extra={"MORPHO_CACHE_DIR": folder})
            except ProbeError as error:
                result.errors.append(str(error))
    table = Table("milliseconds of processor time of the first run: nothing on disk, programs on disk",
                  ["program", "cold", "warm from disk", "torch"])
    for name in FIRST:
        table.rows.append([name, *[f"{found[kind][name] * 1e3:.0f}" if kind in found else "-"
                                   for kind in ("cold", "warm", "torch")]])
    result.figures["first runs"] = found
    result.tables.append(table)


def _libraries() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Each library that is installed, and what makes a tensor of an array."""
    mo = importlib.import_module("morpho")
    found: dict[str, tuple[Any, Callable[[Any], Any]]] = {"morpho": (mo, mo.asarray)}
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        found["torch"] = torch, torch.tensor
    except ImportError:
        pass
    numpy = importlib.import_module("numpy")
    return found | {"numpy": (numpy, numpy.asarray)}


def _first(call: Callable[[], Any]) -> tuple[float, list[int]]:
    from morpho.tensor.steps import counts

    plans, started, first = [], time.perf_counter(), 0.0
    for number in range(3):
        before = counts.plans
        call()
        plans.append(counts.plans - before)
        first = first if number else time.perf_counter() - started
    return first, plans


def _seconds(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median over rounds of the median time of a run, the libraries in turn."""
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times: list[float] = []
            end = time.perf_counter() + SECONDS
            while len(times) < 3 or time.perf_counter() < end:
                started = time.thread_time()
                call()
                times.append(time.thread_time() - started)
            medians[name].append(statistics.median(times))
    return {name: statistics.median(times) for name, times in medians.items()}
