"""3. Annealing with one second on up to 12 nodes: how far above the optimum over 200 seeded problems.

    morpho bench plan --only annealing
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan.instances import cpu_seconds, instance
from morpho.base.errors import MorphoError
from morpho.plan import solve

INSTANCES, QUICK = 200, 10


def run(session: Session) -> ThemeResult:
    """Both objectives, sizes of 3 to 12 nodes and 16 to 96 layers."""
    result = ThemeResult("annealing")
    table = Table("Annealing above the optimum", ["objective", "instances", "median", "95 %", "worst", "time"])
    result.tables.append(table)
    for objective in ("throughput", "latency"):
        above, times = [], []
        for number in range(QUICK if session.quick else INSTANCES):
            rng = np.random.default_rng([3, number])
            card, cluster = instance(number, int(rng.integers(16, 97)), [1] * int(rng.integers(3, 13)), number % 2 == 1)
            try:
                best = solve(card, cluster, "optimal", objective)
            except MorphoError:
                continue
            # The default number of moves, which takes less than a second: the same walk on every machine.
            seconds, found = cpu_seconds(
                lambda: solve(card, cluster, "annealing", objective, seed=number, bound=False))  # noqa: B023
            times.append(seconds)
            above.append(100 * (found.objective_value_s / best.objective_value_s - 1))
        median, high = (float(np.percentile(above, share)) for share in (50, 95))
        table.rows.append([objective, str(len(above)), f"{median:.2f} %", f"{high:.2f} %", f"{max(above):.2f} %",
                           duration(float(np.median(times)))])
        result.figures[objective] = above
        result.targets += [Target(f"{objective}: median above the optimum", median, 0.5, False, " %"),
                           Target(f"{objective}: 95th percentile", high, 3.0, False, " %"),
                           Target(f"{objective}: median time", float(np.median(times)), 1.0, False, " s")]
    return result
