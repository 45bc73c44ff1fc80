"""1. Tuned against the defaults, the same function in turns: never slower, and how much faster.

    morpho bench tune --only gains
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import morpho as mo
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session
from benchmarks.tune.programs import SLICE_S, own_choices, pairs, programs
from morpho.cost.tuned_choices import NO_CHOICES
from morpho.runtime import thresholds

NO_WORSE = 0.98  # of the medians of single programs: noise of pairs


def run(session: Session) -> ThemeResult:
    """Tune each program, then compare."""
    result = ThemeResult("gains")
    table = Table("Tuned against the defaults", ["program", "default", "tuned", "speed-up", "choices"])
    result.tables.append(table)
    budget_s, rounds = (2.0, 9) if session.quick else (20.0, 31)
    ratios = []
    with mo.settings(threads=session.threads), own_choices():
        for name, (function, args) in programs(session.quick).items():
            report = mo.tune(function, *args, budget_s=budget_s)
            if not report.switched:  # the same code as before, whatever times say
                table.rows.append([name, "", "", "1.00x", "default"])
                ratios.append(1.0)
                continue
            ratio, seconds = compared(function, args, rounds)
            ratios.append(ratio)
            result.ratios[name] = ratio
            chosen = "; ".join(one.row.choice.said() for one in report.switched if one.row) or "default"
            table.rows.append([name, *(f"{1e6 * one:.1f} us" for one in seconds), f"{ratio:.2f}x", chosen])
            result.figures[name] = {"ratio": ratio, "found": [one.line() for one in report.found]}
    result.targets += [Target("geometric mean over the defaults", geometric_mean(ratios), 1.0),
                       Target("the worst program", min(ratios), NO_WORSE)]
    return result


def compared(function: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> tuple[float, tuple[float, float]]:
    """How many times faster a function is with the choices in force than without, and its least times."""
    compiled = mo.compile(function)
    tuned = thresholds.current()

    def timed(forced: Any) -> Callable[[], float]:
        def once() -> float:
            with thresholds.using(forced):
                compiled(*args)
                started, count = time.perf_counter(), 0
                while count == 0 or time.perf_counter() - started < SLICE_S:
                    compiled(*args)
                    count += 1
                return (time.perf_counter() - started) / count

        return once

    found = pairs(timed(replace(tuned, choices=NO_CHOICES)), timed(tuned), rounds)
    return (statistics.median(default / chosen for default, chosen in found),
            (min(default for default, _ in found), min(chosen for _, chosen in found)))
