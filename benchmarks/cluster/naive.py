"""8. The whole path against the naive one, and with each part left out: scalar kernels, copies, uniform split, overlap.

    morpho bench cluster --only naive

Four nodes, one of them three times as fast as the others (the others are slowed down), links of 2 ms by the shim.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cluster.setup import cut_plan, even_cuts, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster
from morpho.cluster.pipeline.baseline import FAST, NAIVE, Baseline
from morpho.plan import solve

NODES, SLOWER, SHIM = 4, 3.0, {"*": {"latency_s": 2e-3, "bytes_per_s": 125e6}}


def run(session: Session) -> ThemeResult:
    """Fast, naive, and the fast one without each part."""
    result, table = ThemeResult("naive"), Table("Tokens per second", ["path", "tokens/s", "over naive"])
    result.tables.append(table)
    count, place = (8, folder(6, 128)) if session.quick else (48, folder(12, 512))
    whole = (FAST, False, 8)  # what is left out, a uniform split, texts at once
    cases = {"naive": (NAIVE, True, 1), "whole": whole, "with scalar kernels": (Baseline(scalar=True), False, 8),
             "with three copies": (Baseline(copies=3), False, 8), "with a uniform split": (FAST, True, 8),
             "without overlap": (Baseline(blocking=True), False, 1)}
    rates = {}
    for name in ("naive", "whole") if session.quick else cases:
        rates[name] = rate(place, *cases[name], count)
    for name, value in rates.items():
        table.rows.append([name, f"{value:.2f}", f"{value / rates['naive']:.1f}x"])
    result.ratios = {name: value / rates["naive"] for name, value in rates.items()}
    result.targets.append(Target("the whole path over the naive one", rates["whole"] / rates["naive"], 20.0))
    return result


def rate(place: object, baseline: Baseline, uniform: bool, streams: int, count: int) -> float:
    """Tokens per second of eight texts, so many at once."""
    nodes = local_cluster(NODES)
    slow = [node.name for node in nodes.nodes[1:]]
    uneven = replace(nodes, nodes=tuple(replace(node, efficiency=1 / SLOWER) if node.name in slow else node
                                        for node in nodes.nodes))
    first = cut_plan(place, even_cuts(place, NODES), uneven)  # type: ignore[arg-type]
    found = first if uniform else solve(first.card, uneven)
    with pipeline(place, found, streams=streams, shims=SHIM, baseline=baseline) as made:  # type: ignore[arg-type]
        made.slow_down(dict.fromkeys(slow, SLOWER))
        return tokens_per_s(made, 8, count)
