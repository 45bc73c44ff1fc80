"""1. Disagreements of the exact search with brute force: none over 10,000 random problems.

    morpho bench plan --only exactness            # 10,000; some two minutes
"""

from __future__ import annotations

from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan.brute_force import compare

INSTANCES, QUICK, SEED = 10_000, 500, 1


def run(session: Session) -> ThemeResult:
    """Both objectives, all constraints."""
    result = ThemeResult("exactness")
    count = QUICK if session.quick else INSTANCES
    wrong = compare(count, SEED)
    result.tables.append(Table("Exact search against all orders, subsets and cuts", ["instances", "disagreements"],
                               [[str(count), str(len(wrong))]]))
    result.targets.append(Target("disagreements with brute force", float(len(wrong)), 0.0, False, ""))
    result.errors += wrong[:5]
    result.figures["instances"] = count
    return result
