"""5. What-if and N-1: a changed cluster within 1 s, all plans without one of 12 nodes within 5 s.

    morpho bench plan --only what_if
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.plan.clusters import DEVICES, LINKS, device
from benchmarks.plan.instances import cpu_seconds
from benchmarks.report import duration
from benchmarks.results import Table, Target, ThemeResult
from benchmarks.session import Session
from morpho.plan import Cluster, ModelCard, mbit_per_s, solve


def office() -> Cluster:
    """Twelve nodes, no two of them alike."""
    kinds = [*DEVICES, "laptop"]
    nodes = [device(kind, f"{kind}-{i}", 1 + 0.01 * i) for i, kind in enumerate(kinds)]
    speed, delay = LINKS["gigabit"]
    return Cluster.uniform(nodes, mbit_per_s(speed), delay * 1e-3)


def run(session: Session) -> ThemeResult:
    """70B in 4 bits on the office, both objectives."""
    result = ThemeResult("what_if")
    card, machines = ModelCard.from_config("llama-70b", context=4096, dtype="q4"), office()
    wider = replace(machines, bandwidth_bytes_per_s=tuple(
        tuple(mbit_per_s(10_000) if {i, j} == {0, 1} else value for j, value in enumerate(row))
        for i, row in enumerate(machines.bandwidth_bytes_per_s)))
    changes = {"drop a node": machines.without([machines.nodes[5].name]), "a wider link": wider}
    table = Table("12 nodes, 70B in 4 bits", ["question", "objective", "time"])
    result.tables.append(table)
    for objective in ("throughput", "latency"):
        for name, changed in changes.items():
            seconds, _ = cpu_seconds(lambda: solve(card, changed, objective=objective))  # noqa: B023
            table.rows.append([name, objective, duration(seconds)])
            result.targets.append(Target(f"{name}, {objective}", seconds, 1.0, False, " s"))
        seconds, _ = cpu_seconds(lambda: [solve(card, machines.without([node.name]), objective=objective)  # noqa: B023
                                          for node in machines.nodes])
        table.rows.append(["all N-1 plans", objective, duration(seconds)])
        result.targets.append(Target(f"all N-1 plans, {objective}", seconds, 5.0, False, " s"))
    return result
