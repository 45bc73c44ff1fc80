"""10. All programs that ran before: the geometric mean over the best peer of each, and those furthest behind.

    morpho bench programs --only carried,summary
"""

from __future__ import annotations

from benchmarks.harness.report import times
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session
from benchmarks.programs.board import OVER_BEST, WORST

GOAL = 1.3


def run(session: Session) -> ThemeResult:
    """From what the classes left."""
    behind = sorted((value, name) for name, value in OVER_BEST.items() if value < WORST)
    table = Table(f"{len(behind)} of {len(OVER_BEST)} programs below {WORST}x of their best peer",
                  ["program", "vs best"], [[name, times(value)] for value, name in behind])
    overall = Target("all programs over the best peer, geometric mean", geometric_mean([*OVER_BEST.values()]), GOAL)
    return ThemeResult("summary", tables=[table], targets=[overall])
