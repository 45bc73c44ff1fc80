"""3. Solves: factors in float32 with corrections in float64, against LAPACK's, to the same backward error."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

SIZES, QUICK = (512, 1024, 2048), (256,)


def run(session: Session) -> ThemeResult:
    """A row for each size; the bar is that of the largest."""
    result = ThemeResult("solves")
    ways = {"morpho": ("morpho", "solve refined"), "own blocks": ("morpho", "solve native"),
            "by address": ("morpho", "solve lapack"), "scipy": ("scipy", "solve lapack")}
    labels = [label for label, (peer, _) in ways.items() if peer in session.modules]
    table = Table("float64, one right side, per call; morpho: float32 and corrections", headings("matrix", labels))
    gained = None
    for n in QUICK if session.quick else SIZES:
        timings = session.measure_mixed({label: ways[label] for label in labels}, (n,))
        table.rows.append(row(f"solve {n}", timings, labels, *record(result, f"solve {n}", timings)))
        best = min(filter(None, (seconds(timings, label) for label in ("by address", "scipy"))), default=None)
        gained = ratio(best, seconds(timings, "morpho"))
    result.tables.append(table)
    result.targets.append(Target("mixed precision over LAPACK's, largest size", gained, 1.5))
    return result
