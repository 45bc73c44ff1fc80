"""6. Memory: the pool, a repeated operation, the planned arena, and chains of small operations.

    morpho bench core --only 6
"""

from __future__ import annotations

import statistics

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session


def run(session: Session) -> ThemeResult:
    """All four parts; one that fails leaves the others standing."""
    result = ThemeResult("memory")
    for part in (pool, loop, arena, chain):
        try:
            part(session, result)
        except ProbeError as error:
            result.errors.append(str(error))
    return result


def keep(result: ThemeResult, name: str, value: float | None) -> float | None:
    """Store a ratio for the gate when there is one."""
    if value:
        result.ratios[name] = value
    return value


def pool(session: Session, result: ThemeResult) -> None:
    """Ten pooled megabytes against ten fresh ones."""
    answer = result.figures["pool"] = probe("pool", threads=session.threads)
    rows = [["pooled", duration(answer["pooled_s"])], ["fresh mmap", duration(answer["fresh_s"])]]
    result.tables.append(Table("acquire 10 MB and touch every page", ["memory", "time"], rows))
    gain = keep(result, "pool vs fresh pages", ratio(answer["fresh_s"], answer["pooled_s"]))
    result.targets.append(Target("pooled 10 MB over fresh pages", gain, 50.0))


def loop(session: Session, result: ThemeResult) -> None:
    """Time and peak of a repeated function of eight steps, processes alternating."""
    answers: dict[str, list[dict[str, float]]] = {"numpy": [], "morpho": []}
    for _ in range(1 if session.quick else 3):
        for library in answers:
            answers[library].append(probe("memory", "loop", library, threads=session.threads))
    result.figures["loop"] = answers
    seconds = {name: statistics.median(one["seconds"] for one in found) for name, found in answers.items()}
    known = all(one["peak_bytes"] is not None for found in answers.values() for one in found)
    peaks = {name: max(one["peak_bytes"] for one in found) if known else None for name, found in answers.items()}
    rows = [[name, duration(seconds[name]), f"{peaks[name] / 1e6:.1f} MB" if known else "-"] for name in answers]
    result.tables.append(Table("eight steps on 16 MB arrays, repeated", ["library", "time", "peak"], rows))
    gain = keep(result, "loop time vs numpy", ratio(seconds["numpy"], seconds["morpho"]))
    share = peaks["morpho"] / peaks["numpy"] if known and peaks["numpy"] else None
    result.targets += [Target("repeated operation over NumPy", gain, 2.5),
                       Target("its peak as a share of NumPy's", share, 0.25, at_least=False)]


def arena(session: Session, result: ThemeResult) -> None:
    """The plan against what liveness makes necessary."""
    answer = result.figures["arena"] = probe("arena", threads=session.threads)
    share = ratio(answer["arena_bytes"], answer["liveness_bytes"])
    rows = [["planned arena", f"{answer['arena_bytes'] / 1e6:.3f} MB"],
            ["alive at once", f"{answer['liveness_bytes'] / 1e6:.3f} MB"]]
    result.tables.append(Table("memory of the intermediates of a graph", ["what", "bytes"], rows))
    result.targets.append(Target("planned arena over the liveness bound", share, 1.10, at_least=False))


def chain(session: Session, result: ThemeResult) -> None:
    """Twenty operations on 1024 elements, three ways."""
    answer = result.figures["chain"] = probe("small_chain", threads=session.threads)
    rows = [[name.removesuffix("_s"), duration(value)] for name, value in answer.items()]
    result.tables.append(Table("twenty operations on 1024 elements", ["how", "time"], rows))
    over_reference = keep(result, "chain vs reference", ratio(answer["reference_s"], answer["compiled_s"]))
    over_numpy = keep(result, "chain vs numpy", ratio(answer["numpy_s"], answer["compiled_s"]))
    result.targets += [Target("compiled chain over the reference interpreter", over_reference, 100.0),
                       Target("compiled chain over plain NumPy", over_numpy, 15.0)]
