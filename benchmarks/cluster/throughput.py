"""4. R5, R6, R7: throughput over the plan's bound, communication hidden, and never slower than the best single node.

    morpho bench cluster --only throughput

The bound of a plan is taken with the times that its stages were measured to take: what is shown is how well they work
side by side. Two cores: two stages of one thread each.
"""

from __future__ import annotations

from benchmarks.cluster.setup import cut_plan, even_cuts, folder, pipeline, tokens_per_s
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.frontend.local import local_cluster, local_plan

SHIM = {"*": {"latency_s": 2e-3, "bytes_per_s": 1e7}}


def run(session: Session) -> ThemeResult:
    """One node, two equal ones, and two with a slow link between them."""
    result, table = ThemeResult("throughput"), Table("Tokens per second", ["pipeline", "texts", "tokens/s", "bound"])
    result.tables.append(table)
    count, place = (16, folder(6, 128)) if session.quick else (128, folder(12, 512))
    rates = {}
    cases = {"one node": ([], 1, None), "two stages": (even_cuts(place, 2), 6, None),
             "two stages, slow link": (even_cuts(place, 2), 12, SHIM)}
    for name, (cuts, texts, shims) in cases.items():
        found = cut_plan(place, cuts, local_cluster(len(cuts) + 1))
        with pipeline(place, found, streams=texts, shims=shims) as made:
            rates[name] = tokens_per_s(made, texts, count)
            bound = 1 / max(made.stage_times().values(), default=float("nan"))
        table.rows.append([name, str(texts), f"{rates[name]:.1f}", f"{bound:.1f}"])
        if cuts and shims is None:
            share = 100 * rates[name] / bound
            result.targets.append(Target("two equal stages over the bound of their times", share, 95, unit=" %"))
        elif cuts:
            result.targets.append(Target("communication hidden: rate with a slow link over the rate without",
                                         100 * rates[name] / rates["two stages"], 90, unit=" %"))
    chosen = local_plan(place, 2, objective="latency")
    with pipeline(place, chosen) as made:
        single = tokens_per_s(made, 1, count)
    share = 100 * single / rates["one node"]
    result.targets.append(Target("the plan for one text over the best single node", share, 98, unit=" %"))
    return result
