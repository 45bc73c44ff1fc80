"""4. R5, R6: throughput over the plan's bound, and communication hidden.

    morpho bench cluster --only throughput

The bound of a plan is taken with the times that its stages were measured to take: what is shown is how well they work
side by side. What is hidden of a link's time is told by the workers' own clocks: a stage that computes or handles
messages all the time waits for nothing.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

from benchmarks.cluster.setup import cut_plan, even_cuts, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster
from morpho.cluster.frontend.times import StageTimes
from morpho.cluster.pipeline.baseline import FAST, Baseline
from morpho.plan import Plan

ROWS_TEXTS = 16
SHIM = {"*": {"latency_s": 2e-3, "bytes_per_s": 1e7}}


def link_seconds(found: Plan) -> float:
    """What a token takes on the slow link."""
    return SHIM["*"]["latency_s"] + found.card.cut_bytes(found.stages[0].end, "f32") / SHIM["*"]["bytes_per_s"]


def hidden(period_s: float, times: StageTimes, link_s: float) -> float:
    """The share of the shorter side, link or stage, that costs nothing: a token comes every `period_s`."""
    busy_s = max((seconds + times.handling().get(node, 0.0) for node, seconds in times.all().items()),
                 default=float("nan"))
    return 1 - max(period_s - busy_s, 0.0) / min(busy_s, link_s)


def _in_one_call(result: ThemeResult, place: Path, count: int, rates: dict[str, float]) -> None:
    """What texts in one call of a stage bring, over the same texts that take turns."""
    found = cut_plan(place, even_cuts(place, 2), local_cluster(2))
    for name, baseline in (("two stages, rows", FAST), ("two stages, turns", Baseline(turns=True))):
        with pipeline(place, found, streams=ROWS_TEXTS, baseline=baseline) as made:
            times = made.fresh_times()
            rates[name] = max(tokens_per_s(made, ROWS_TEXTS, count) for _ in range(2))
            made.hear_times()
            rows = ", ".join(f"{each:.1f}" for each in times.rows().values())
        result.tables[0].rows.append([name, str(ROWS_TEXTS), f"{rates[name]:.1f}", f"{rows} texts in a call"])
        print("  " + ", ".join(result.tables[0].rows[-1]), flush=True)
    gain = rates["two stages, rows"] / rates["two stages, turns"]
    result.notes.append(f"{ROWS_TEXTS} texts, several in a call: {gain:.2f}x "
                        "the rate of one after another")


def run(session: Session) -> ThemeResult:
    """One node, two stages that are equal, two that are not, and two with a slow link between them."""
    result, table = ThemeResult("throughput"), Table("Tokens per second", ["pipeline", "texts", "tokens/s", "bound"])
    result.tables.append(table)
    count, place = (16, folder(6, 128)) if session.quick else (128, folder(12, 512))
    rates = {}
    depth = cut_plan(place, []).card.depth
    cases = {"one node": ([], 1, None), "two stages": (even_cuts(place, 2), 6, None),
             "a third, two thirds": ([depth // 3], 6, None), "three quarters, a quarter": ([3 * depth // 4], 6, None),
             "two stages, slow link": (even_cuts(place, 2), 12, SHIM)}
    for name, (cuts, texts, shims) in cases.items():
        found = cut_plan(place, cuts, local_cluster(len(cuts) + 1))
        with pipeline(place, found, streams=texts, shims=shims) as made:
            times, before = made.fresh_times(), len(made.done)
            rates[name] = tokens_per_s(made, texts, count)
            made.hear_times()
            bound = 1 / max(times.all().values(), default=float("nan"))
            gaps = [b - a for answer in made.done[before:] for a, b in pairwise(answer.times_s)]
        table.rows.append([name, str(texts), f"{rates[name]:.1f}", f"{bound:.1f}"])
        print("  " + ", ".join(table.rows[-1]), flush=True)
        if cuts and shims is None:
            kind, bar = ("two equal stages", 95) if name == "two stages" else (name, 92)
            result.targets.append(Target(f"{kind} over the bound of their times", 100 * rates[name] / bound, bar,
                                         unit=" %"))
        elif cuts:
            result.targets.append(Target("communication hidden: rate with a slow link over the rate without",
                                         100 * rates[name] / rates["two stages"], 90, unit=" %"))
            share = hidden(statistics.fmean(gaps) / texts, times, link_seconds(found))
            result.targets.append(Target("of the link's time, from the workers' clocks", 100 * share, 90, unit=" %"))
    _in_one_call(result, place, count, rates)
    return result
