"""7. R11: predicted against measured, over plans and clusters: what the ledger says after runs of many.

    morpho bench cluster --only predictions

The machine is calibrated before, on two placements that are not among those predicted (`cluster.frontend.calibrating`);
what is predicted are other cuts of the same model, and links that are slower. Each pair is said when it is measured.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.cluster.setup import PROMPT, cut_plan, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.calibrating import Calibration, calibrated
from morpho.cluster.frontend.history import predicted
from morpho.cluster.frontend.local import local_cluster
from morpho.plan import Plan

LATENCIES_S, CONTEXT, TEXTS = (0.0, 1e-3, 3e-3, 1e-2), 256, (1, 6)


def run(session: Session) -> ThemeResult:
    """Cuts and latencies, one text at a time and many."""
    result = ThemeResult("predictions")
    table = Table("Predicted and measured", ["cut", "latency", "texts", "predicted", "measured", "error"])
    result.tables.append(table)
    count, place = (12, folder(6, 128)) if session.quick else (64, folder(12, 512))
    depth = len(cut_plan(place, [2]).card.layers)
    cuts = [depth // 2] if session.quick else [depth // 3, depth // 2, 2 * depth // 3]
    found = calibrated(str(place), local_cluster(2), texts=max(TEXTS), tokens=count, prompt_tokens=len(PROMPT),
                       context=CONTEXT, threads=1)
    print(f"  calibrated: {found.overheads}", flush=True)
    errors, rows = [], list[dict[str, Any]]()
    for latency_s in LATENCIES_S[1:2] if session.quick else LATENCIES_S:
        for cut in cuts:
            late = [[each + latency_s for each in row] for row in found.cluster.latency_s]
            plan = cut_plan(place, [cut], replace(found.cluster, latency_s=tuple(map(tuple, late))))
            for row in measure(plan, found, latency_s, count, place):
                errors.append(row["rate"] / row["predicted"] - 1)
                rows.append({"cut": cut, "latency_s": latency_s, **row})
                table.rows.append([str(cut), f"{latency_s * 1e3:g} ms", str(row["texts"]),
                                   f"{row['predicted']:.1f} tokens/s", f"{row['rate']:.1f} tokens/s",
                                   f"{100 * errors[-1]:+.1f} %"])
                print("  " + ", ".join(table.rows[-1]) + f"  {row}", flush=True)
    result.figures.update({"errors": errors, "rows": rows, "calibration": [dict(each) for each in found.seen]})
    sizes = np.abs(errors)
    result.targets += [Target(f"mean error over {len(errors)} pairs", 100 * float(sizes.mean()), 5.0, False, " %"),
                       Target("worst error", 100 * float(sizes.max()), 10.0, False, " %")]
    return result


def measure(plan: Plan, found: Calibration, latency_s: float, count: int, place: Any) -> list[dict[str, Any]]:
    """One pipeline: its rates with few texts and with many, what was predicted, and what its stages took."""
    rows = []
    with pipeline(place, plan, streams=max(TEXTS), shims={"*": {"latency_s": latency_s}}) as made:
        for texts in TEXTS:
            times, before = made.fresh_times(), len(made.done)
            rate = tokens_per_s(made, texts, count)
            made.hear_times()
            gaps = [b - a for answer in made.done[before:] for a, b in pairwise(answer.times_s)]
            said = predicted(plan, texts, len(PROMPT), count, found.overheads)
            rows.append({"texts": texts, "rate": rate, "predicted": said["tokens_per_s"], "token_s":
                         statistics.fmean(gaps), "predicted_token_s": said["token_s"], "stage_s": times.stages(),
                         "predicted_stage_s": said["stage_s"], "handling_s": times.handling(),
                         "prompt_s": times.prompts()})
    return rows
