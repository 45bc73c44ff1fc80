"""7. R11: predicted against measured, over plans and clusters: what the ledger says after runs of many.

    morpho bench cluster --only predictions

Each cut is predicted twice: from a calibration on two placements that are not among those predicted
(`cluster.frontend.calibrating`), and from the times that its own stages took just before, in short texts, as `plan
measure` goes by what runs did. Workers are kept on cores of their own. A second of tokens is an accident: every pair is
predicted and measured in several rounds, each prediction just before its measurement, and the medians are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster.setup import PROMPT, cut_plan, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.calibrating import calibrated
from morpho.cluster.frontend.history import predicted
from morpho.cluster.frontend.local import local_cluster

LATENCIES_S, TEXTS, ROUNDS = (0.0, 1e-3, 3e-3, 1e-2), (1, 6), 3


def run(session: Session) -> ThemeResult:
    """Cuts and latencies, one text at a time and many."""
    result = ThemeResult("predictions")
    table = Table("Predicted and measured", ["cut", "latency", "texts", "predicted", "measured", "error",
                                             "calibrated elsewhere"])
    result.tables.append(table)
    count, place = (12, folder(6, 128)) if session.quick else (48, folder(12, 512))
    latencies = LATENCIES_S[1:2] if session.quick else LATENCIES_S[:session.count or None]
    depth = len(cut_plan(place, [2]).card.layers)
    cuts = [depth // 2] if session.quick else [depth // 3, depth // 2, 2 * depth // 3]
    rows = list[dict[str, Any]]()
    for latency_s in latencies:
        for row in measure(place, cuts, latency_s, count, 1 if session.quick else ROUNDS):
            for name in ("predicted", "predicted_before"):
                row[name.replace("predicted", "error")] = row["rate"] / row[name] - 1
            rows.append(row)
            table.rows.append([str(row["cut"]), f"{latency_s * 1e3:g} ms", str(row["texts"]),
                               f"{row['predicted']:.1f} tokens/s", f"{row['rate']:.1f} tokens/s",
                               f"{100 * row['error']:+.1f} %", f"{100 * row['error_before']:+.1f} %"])
            print("  " + ", ".join(table.rows[-1]), flush=True)
    result.figures["rows"] = rows
    for name, how in (("error", "from its stages' times"), ("error_before", "calibrated on other placements")):
        sizes = np.abs([row[name] for row in rows])
        result.targets += [
            Target(f"mean error over {len(rows)} pairs, {how}", 100 * float(sizes.mean()), 5.0, False, " %"),
            Target(f"worst error, {how}", 100 * float(sizes.max()), 10.0, False, " %")]
    return result


def measure(place: Path, cuts: list[int], latency_s: float, count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """One cluster: calibrated, then each cut's rates with few texts and with many, and what was predicted of them:
    medians of some rounds."""
    nodes = local_cluster(2)
    late = tuple(tuple(each + latency_s for each in row) for row in nodes.latency_s)
    first = cut_plan(place, [cuts[0]], replace(nodes, latency_s=late))
    found = list[dict[str, Any]]()
    with pipeline(place, first, streams=max(TEXTS), shims={"*": {"latency_s": latency_s}}, pin=True) as made:
        for _ in range(rounds):
            elsewhere = calibrated(made, texts=max(TEXTS), tokens=count, prompt_tokens=len(PROMPT))
            for cut in cuts:
                made.recut(cut_plan(place, [cut], elsewhere.cluster))
                here = calibrated(made, texts=max(TEXTS), tokens=max(count // 2, 10), prompt_tokens=len(PROMPT),
                                  as_it_is=True)
                for texts in TEXTS:
                    said = {name: predicted(cut_plan(place, [cut], each.cluster), texts, len(PROMPT), count,
                                            each.overheads)["tokens_per_s"]
                            for name, each in (("predicted", here), ("predicted_before", elsewhere))}
                    found.append({"cut": cut, "texts": texts, "rate": tokens_per_s(made, texts, count), **said})
    for cut, texts in product(cuts, TEXTS):
        several = [each for each in found if (each["cut"], each["texts"]) == (cut, texts)]
        yield {"cut": cut, "latency_s": latency_s, "texts": texts, "each": several,
               **{name: statistics.median(each[name] for each in several)
                  for name in ("rate", "predicted", "predicted_before")}}
