"""7. R11: predicted against measured, over plans and clusters: what the ledger says after runs of many.

    morpho bench cluster --only predictions

Nodes have the measured times of their stages (as `plan.adapt` puts them in after a first run); what is predicted is
another cut of the same model, and other links.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.cluster.setup import cut_plan, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.history import predicted
from morpho.cluster.frontend.local import local_cluster
from morpho.plan.replan.repartition import measured_cluster

LATENCIES_S = (0.0, 1e-3, 3e-3, 1e-2)


def run(session: Session) -> ThemeResult:
    """Cuts and latencies, one text at a time and many."""
    result, table = ThemeResult("predictions"), Table("Predicted and measured", ["cut", "latency", "texts", "error"])
    result.tables.append(table)
    count, place = (12, folder(6, 128)) if session.quick else (64, folder(12, 512))
    depth = len(cut_plan(place, [2]).card.layers)
    cuts = [depth // 2] if session.quick else [depth // 3, depth // 2, 2 * depth // 3]
    base, errors = local_cluster(2), []
    first = cut_plan(place, [depth // 2], base)
    with pipeline(place, first) as made:
        tokens_per_s(made, 2, count)
        base = measured_cluster(first, made.stage_times())
    for cut in cuts:
        for latency_s in LATENCIES_S[1:2] if session.quick else LATENCIES_S:
            late = tuple((latency_s,) * 2 for _ in range(2))
            found = cut_plan(place, [cut], replace(base, latency_s=late))
            with pipeline(place, found, streams=6, shims={"*": {"latency_s": latency_s}}) as made:
                for texts in (1, 6):
                    rate = tokens_per_s(made, texts, count)
                    errors.append(rate / predicted(found, texts)["tokens_per_s"] - 1)
                    table.rows.append([str(cut), f"{latency_s * 1e3:g} ms", str(texts), f"{100 * errors[-1]:+.1f} %"])
    result.figures["errors"] = errors
    sizes = np.abs(errors)
    result.targets += [Target(f"mean error over {len(errors)} pairs", 100 * float(sizes.mean()), 5.0, False, " %"),
                       Target("worst error", 100 * float(sizes.max()), 10.0, False, " %")]
    return result
