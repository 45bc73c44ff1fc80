"""5. What-if and N-1: a changed cluster within 1 s, all plans without one of 12 nodes within 5 s.

    morpho bench plan --only what_if
"""

from __future__ import annotations

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan.clusters import DEVICES, LINKS, device
from benchmarks.plan.instances import cpu_seconds
from morpho.plan import Cluster, ModelCard, failures, mbit_per_s, solve, what_if


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
    first, second, sixth = (machines.nodes[number].name for number in (0, 1, 5))
    changes = {"drop a node": f"drop {sixth}", "a wider link": f"link {first}-{second} 10Gbit/s",
               "more memory": f"{second} memory 64GB"}
    table = Table("12 nodes, 70B in 4 bits", ["question", "objective", "time"])
    result.tables.append(table)
    for objective in ("throughput", "latency"):
        plan = solve(card, machines, objective=objective)
        for name, change in changes.items():
            seconds, (answer,) = cpu_seconds(lambda: what_if(plan, change))  # noqa: B023
            assert answer.plan is not None and answer.plan.optimal, answer.problem
            table.rows.append([name, objective, duration(seconds)])
            result.targets.append(Target(f"{name}, {objective}", seconds, 1.0, False, " s"))
        seconds, found = cpu_seconds(lambda: failures(plan))  # noqa: B023
        assert all(failure.plan is None or failure.plan.optimal for failure in found)
        table.rows.append(["all N-1 plans", objective, duration(seconds)])
        result.targets.append(Target(f"all N-1 plans, {objective}", seconds, 5.0, False, " s"))
    return result
