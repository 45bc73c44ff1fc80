"""The measuring of a class of programs: rows, ratios to each peer, what is asked of the class."""

from __future__ import annotations

from benchmarks.harness.compare import best_peer, record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.session import Session
from benchmarks.programs.program import Program

OTHERS = ("numpy", "jax", "numba", "torch")
QUICK = 2  # programs of a class in a quick run
WORST, CARRIED_OVER_NUMBA, CARRIED_OVER_JAX = 0.7, 1.0, 1.2
LOOPS = ("carried",)  # classes whose loops carry state
OVER_BEST: dict[str, float] = {}  # of all classes that ran, for the summary


def labels(name: str, session: Session) -> dict[str, tuple[str, str]]:
    """Who takes part: those that have a way; Numba's parallel one only where there are threads for it."""
    found = {}
    for peer in ("morpho", *OTHERS):
        if peer in session.modules and session.worker(peer) and session.why_not(peer, name) is None:
            found[peer] = (peer, name)
    if session.threads > 1 and "numba" in found and session.why_not("numba", f"{name}@parallel") is None:
        found["numba_parallel"] = ("numba", f"{name}@parallel")
    return found


def measure(theme: str, programs: dict[str, Program], session: Session) -> ThemeResult:
    """A row per program: Morpho's time, and each peer's time as a multiple of it."""
    result = ThemeResult(theme)
    compared = [*OTHERS, "numba_parallel"] if session.threads > 1 else list(OTHERS)
    table = Table(f"{theme}, {session.threads} thread(s): Morpho's time, and how many times longer the others take",
                  ["program", "morpho", *compared, "vs best", "best peer"])
    over: dict[str, list[float]] = {peer: [] for peer in (*compared, "best")}
    for name in list(programs)[:QUICK] if session.quick else programs:
        timings = session.measure_mixed(labels(name, session), programs[name].large)
        _, over_best = record(result, name, timings)
        own = seconds(timings, "morpho")
        ratios = {peer: ratio(seconds(timings, peer), own) for peer in compared} | {"best": over_best}
        for peer, value in ratios.items():
            over[peer] += [value] if value else []
        if over_best:
            OVER_BEST[name] = over_best
        table.rows.append([name, duration(own), *(times(ratios[peer]) for peer in compared), times(over_best),
                           best_peer(timings) or "-"])
    result.tables.append(table)
    result.targets = targets(theme, over)
    return result


def targets(theme: str, over: dict[str, list[float]]) -> list[Target]:
    """Nothing far behind the best; loops as fast as Numba's and faster than JAX's."""
    found = [Target(f"{theme} over the best peer, geometric mean", geometric_mean(over["best"]), 1.0),
             Target(f"{theme} over the best peer, worst", min(over["best"], default=None), WORST)]
    if theme in LOOPS:
        found += [Target("loops over Numba, geometric mean", geometric_mean(over["numba"]), CARRIED_OVER_NUMBA),
                  Target("loops over JAX, geometric mean", geometric_mean(over["jax"]), CARRIED_OVER_JAX)]
    return found
