"""4. Latency: cold and warm first calls in fresh processes, the optimiser on 300 nodes, a thousand lengths.

    morpho bench core --only 4
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.session import Session

MILLISECOND = 1e3


def run(session: Session) -> ThemeResult:
    """All three parts; one that fails leaves the others standing."""
    result = ThemeResult("latency")
    for part in (first_calls, optimiser, lengths):
        try:
            part(session, result)
        except ProbeError as error:
            result.errors.append(str(error))
    return result


def first_calls(session: Session, result: ThemeResult) -> None:
    """Cold (empty cache folder) and warm (from disk), each in a fresh process, with start-up and without."""
    table = Table("first call of a fused kernel, fresh process", ["state", "first call", "second call"])
    medians: dict[str, float] = {}
    for mode in ("", "started"):
        runs = [pair_of_processes(session, mode) for _ in range(2 if session.quick else 5)]
        for state, index in (("cold", 0), ("warm from disk", 1)):
            name = f"{state}, {'after start-up' if mode else 'start-up included'}"
            answers = [pair[index] for pair in runs]
            medians[name] = statistics.median(answer["first_s"] for answer in answers)
            second = statistics.median(answer["second_s"] for answer in answers)
            table.rows.append([name, duration(medians[name]), duration(second)])
            result.figures[name] = answers
    result.tables.append(table)
    cold, warm = (medians[f"{state}, after start-up"] for state in ("cold", "warm from disk"))
    result.targets += [Target("cold kernel, after start-up", cold * MILLISECOND, 30.0, False, " ms"),
                       Target("warm from disk, after start-up", warm * MILLISECOND, 5.0, False, " ms")]
    gain = ratio(cold, warm)
    if gain:
        result.ratios["warm vs cold"] = gain


def pair_of_processes(session: Session, mode: str) -> list[dict[str, Any]]:
    """Two processes one after the other on a new cache folder: the first is cold, the second warm."""
    arguments = [mode] if mode else []
    with tempfile.TemporaryDirectory() as folder:
        return [probe("first_call", *arguments, threads=session.threads, extra={"MORPHO_CACHE_DIR": folder})
                for _ in range(2)]


def optimiser(session: Session, result: ThemeResult) -> None:
    """The sum of the passes' times."""
    with tempfile.TemporaryDirectory() as folder:  # a hit on a whole graph would skip the passes
        answer = probe("optimise_graph", threads=session.threads, extra={"MORPHO_CACHE_DIR": folder})
    result.figures["optimise"] = answer
    rows = [[name, f"{value:.2f} ms"] for name, value in answer["passes_ms"].items()]
    result.tables.append(Table(f"passes on a graph of {answer['nodes']} nodes", ["pass", "time"], rows))
    result.targets.append(Target("optimising some 300 nodes", answer["optimise_s"] * MILLISECOND, 100.0, False, " ms"))


def lengths(session: Session, result: ThemeResult) -> None:
    """Recompiles over a thousand lengths, and dynamic against fixed code."""
    answer = probe("dynamic_lengths", threads=session.threads)
    result.figures["dynamic"] = answer
    rows = [[n, times(value)] for n, value in answer["dynamic_over_fixed"].items()]
    title = f"{answer['lengths']} lengths, {duration(answer['seconds_per_call'])} a call: dynamic / fixed time"
    result.tables.append(Table(title, ["n", "dynamic / fixed"], rows))
    result.targets.append(Target("recompiles over 1000 lengths", float(answer["recompiles"]), 0.0, False, ""))
    mean = geometric_mean(list(answer["dynamic_over_fixed"].values()))
    if mean:
        result.ratios["dynamic vs fixed"] = 1.0 / mean
