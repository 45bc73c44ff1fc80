"""6. What compiling GPT-2 takes, cold and from disk, each in a fresh process, and how many kernels it becomes.

    morpho bench kernels --only gpt2_compile
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.kernels.board import lacking
from benchmarks.models import gpt2

COMPILING = ("passes", "lower", "code")  # of f.stats["compile_ms"]; packing of the weights is told apart


def run(session: Session) -> ThemeResult:
    """Two processes on a new cache folder: the first is cold, the second finds the code on disk."""
    result = ThemeResult("gpt2_compile")
    if lacking(session, result, "gpt2_forward"):
        return result
    try:
        pairs = [pair_of_processes(session) for _ in range(1 if session.quick else 3)]
    except ProbeError as error:
        result.errors.append(str(error))
        return result
    table = Table("compiling GPT-2's forward pass, 1 x 128", ["state", "compile", "packing", "first call", "kernels"])
    medians: dict[str, float] = {}
    for index, state in enumerate(("cold", "from disk")):
        answers = result.figures[state] = [pair[index] for pair in pairs]
        medians[state] = statistics.median(compile_ms(one) for one in answers)
        packing = [one["compile_ms"]["pack"] for one in answers if "pack" in one["compile_ms"]]
        first = statistics.median(one["first_s"] for one in answers)
        packed = f"{statistics.median(packing):.1f} ms" if packing else "-"
        table.rows.append([state, f"{medians[state]:.1f} ms", packed, f"{first * 1e3:.1f} ms",
                           str(answers[0]["kernels"])])
    result.tables.append(table)
    gain = ratio(medians["cold"], medians["from disk"])
    if gain:
        result.ratios["from disk vs cold"] = gain
    each = pairs[0][0]["kernels"] / gpt2.SMALL.layers  # embedding and head counted among the blocks
    result.targets = [Target("compiling GPT-2, cold", medians["cold"], 600.0, False, " ms"),
                      Target("compiling GPT-2, from disk", medians["from disk"], 50.0, False, " ms"),
                      Target("kernels per block", each, 8.0, False, "")]
    return result


def compile_ms(answer: dict[str, Any]) -> float:
    """The milliseconds of compiling alone."""
    return sum(answer["compile_ms"].get(part, 0.0) for part in COMPILING)


def pair_of_processes(session: Session) -> list[dict[str, Any]]:
    """Cold, then warm."""
    with tempfile.TemporaryDirectory() as folder:
        return [probe("gpt2_compile", threads=session.threads, extra={"MORPHO_CACHE_DIR": folder}) for _ in range(2)]
