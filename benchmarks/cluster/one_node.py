"""R7: the plan for one text against the best single node that fits, in turn on the same machine.

    morpho bench cluster --only one_node
"""

from __future__ import annotations

import statistics

from benchmarks.cluster.setup import cut_plan, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster, local_plan

ROUNDS = 5


def run(session: Session) -> ThemeResult:
    """Workers of both are there at once, and sleep while the others compute."""
    count, place = (16, folder(6, 128)) if session.quick else (64, folder(12, 512))
    chosen = local_plan(place, 2, objective="latency")
    rates: dict[str, list[float]] = {"one node": [], "the plan for one text": []}
    with pipeline(place, cut_plan(place, [], local_cluster(1))) as single, pipeline(place, chosen) as planned:
        for _ in range(2 if session.quick else ROUNDS):
            for name, made in zip(rates, (single, planned), strict=True):
                rates[name].append(tokens_per_s(made, 1, count))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    result = ThemeResult("one_node")
    title = f"Tokens per second, one text; the plan has {len(chosen.stages)} stages"
    table = Table(title, ["pipeline", "median", "all"])
    table.rows += [[name, f"{medians[name]:.1f}", " ".join(f"{each:.1f}" for each in found)]
                   for name, found in rates.items()]
    result.tables.append(table)
    share = 100 * medians["the plan for one text"] / medians["one node"]
    result.targets.append(Target("the plan for one text over the best single node", share, 98, unit=" %"))
    return result
