"""8. The whole path against the naive one, and with each part left out: scalar kernels, copies, uniform split, overlap.

    morpho bench cluster --only naive
    python -m benchmarks.cluster.naive whole "without overlap"       # only these paths, in this order

Four nodes, one of them three times as fast as the others (the others are slowed down), links of 2 ms by the shim. Each
path is said when it is measured; the slow ones make fewer tokens, as a rate is asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cluster.setup import cut_plan, even_cuts, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster
from morpho.cluster.pipeline.baseline import FAST, NAIVE, Baseline
from morpho.plan import solve

NODES, SLOWER, SHIM = 4, 3.0, {"*": {"latency_s": 2e-3, "bytes_per_s": 125e6}}


@dataclass(frozen=True)
class Case:
    """A path: what is left out, a uniform split, texts at once, and how much is asked of it."""

    baseline: Baseline = FAST
    uniform: bool = False
    streams: int = 8
    texts: int = 8
    tokens: int = 32


CASES = {
    "whole": Case(),
    "naive": Case(NAIVE, True, 1, texts=1, tokens=12),
    "with scalar kernels": Case(Baseline(scalar=True), tokens=8),
    "with three copies": Case(Baseline(copies=3)),
    "with a uniform split": Case(uniform=True),
    "with one text in a call": Case(Baseline(turns=True)),
    "without overlap": Case(Baseline(blocking=True), streams=1, texts=2),
}


def run(session: Session) -> ThemeResult:
    """Fast, naive, and the fast one without each part."""
    result, table = ThemeResult("naive"), Table("Tokens per second", ["path", "tokens/s", "over naive"])
    result.tables.append(table)
    rates = rates_of(("whole", "naive") if session.quick else [*CASES], session.quick)
    for name, value in rates.items():
        table.rows.append([name, f"{value:.2f}", f"{value / rates['naive']:.1f}x"])
    result.ratios = {name: value / rates["naive"] for name, value in rates.items()}
    result.targets.append(Target("the whole path over the naive one", rates["whole"] / rates["naive"], 20.0))
    return result


def rates_of(names: Sequence[str], quick: bool = False) -> dict[str, float]:
    """Tokens per second of paths, each said when it is measured."""
    place, rates = folder(6, 128) if quick else folder(12, 512), dict[str, float]()
    for name in names:
        rates[name] = rate(place, CASES[name])
        print(f"  {name}: {rates[name]:.2f} tokens/s", flush=True)
    return rates


def rate(place: Path, case: Case) -> float:
    """Tokens per second of texts, so many at once."""
    nodes = local_cluster(NODES)
    slow = [node.name for node in nodes.nodes[1:]]
    uneven = replace(nodes, nodes=tuple(replace(node, efficiency=1 / SLOWER) if node.name in slow else node
                                        for node in nodes.nodes))
    first = cut_plan(place, even_cuts(place, NODES), uneven)
    found = first if case.uniform else solve(first.card, uneven)
    with pipeline(place, found, streams=case.streams, shims=SHIM, baseline=case.baseline) as made:
        made.slow_down(dict.fromkeys(slow, SLOWER))
        return tokens_per_s(made, case.texts, case.tokens)


def main() -> int:
    """Some of the paths, where there is no time for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", choices=CASES)
    parser.add_argument("--quick", action="store_true", help="a small model")
    given = parser.parse_args()
    rates_of(given.paths, given.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
