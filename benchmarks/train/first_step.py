"""The first training step of the GPT in a fresh process, from an empty cache folder and from a warm one, in parts.

    morpho bench train --only first_step

`trace` is Python: following the step, its gradients and the update. `passes` optimise and lower the graph, or read it
from disk, `LLVM` is code made or loaded, `run` the step itself, measured as a later one of the same process; `rest` is
what remains of the first step, with the noise of `run`.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

BOUNDS = {"cold": 3.0, "warm": 0.5}
PARTS = ("trace", "passes", "LLVM", "run", "rest")


def run(session: Session) -> ThemeResult:
    """Pairs of processes on new cache folders: the first is cold, the second warm."""
    try:
        return judge([pair(session) for _ in range(1 if session.quick else 2)])
    except ProbeError as error:
        return ThemeResult("first_step", errors=[str(error)])


def pair(session: Session, size: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Cold, then warm."""
    with tempfile.TemporaryDirectory() as folder:
        return [probe("gpt_first_step", *map(str, size), threads=session.threads, extra={"MORPHO_CACHE_DIR": folder})
                for _ in BOUNDS]


def parts(answer: dict[str, Any]) -> dict[str, float]:
    """Where the seconds of a first step went."""
    spent = answer["compile_ms"]
    passes = 1e-3 * (spent["passes"] + spent["lower"] + spent["plan"])
    code = 1e-3 * spent["code"]
    found = {"trace": answer["trace_s"], "passes": passes, "LLVM": code, "run": answer["later_s"]}
    return {**found, "rest": max(answer["first_s"] - sum(found.values()), 0.0)}


def judge(pairs: list[list[dict[str, Any]]]) -> ThemeResult:
    """Medians of the pairs."""
    result = ThemeResult("first_step")
    table = Table("the first training step of the GPT, in a fresh process",
                  ["cache", "first step", "without run", *PARTS, "import", "building the model", "kernels"])
    result.tables.append(table)
    totals: dict[str, float] = {}
    for index, (state, bound) in enumerate(BOUNDS.items()):
        answers = result.figures[state] = [each[index] for each in pairs]

        def median(pick: Any, answers: list[dict[str, Any]] = answers) -> float:
            return statistics.median(pick(answer) for answer in answers)

        totals[state] = median(lambda one: one["first_s"])
        without = median(lambda one: one["first_s"] - one["later_s"])
        cells = [duration(median(lambda one, part=part: parts(one)[part])) for part in PARTS]
        table.rows.append([state, duration(totals[state]), duration(without), *cells,
                           duration(median(lambda one: one["import_s"])), duration(median(lambda one: one["build_s"])),
                           str(answers[0]["kernels"])])
        result.targets += [Target(f"first step, {state} cache, in all", totals[state], bound, False, " s"),
                           Target(f"first step, {state} cache, without the step itself", without, bound, False, " s")]
    gain = ratio(totals["cold"], totals["warm"])
    if gain:
        result.ratios["warm vs cold"] = gain
    return result
