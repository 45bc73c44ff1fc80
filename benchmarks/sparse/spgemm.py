"""3. Sparse times sparse: the square of a matrix, with columns in order, against SciPy (PyTorch 2.13's ends its
process on these matrices)."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

SHAPES = (("banded", (200_000, 8, 1)), ("random", (200_000, 8, 1)), ("laplacian", (360_000, 5, 1)),
          ("power_law", (50_000, 4, 1)))
QUICK = (("random", (4_000, 5, 1)),)


def run(session: Session) -> ThemeResult:
    """One row per matrix."""
    result = ThemeResult("spgemm")
    peers = [peer for peer in ("morpho", "scipy") if peer in session.modules]
    table = Table("A A for float32, per call", headings("matrix", peers))
    over_scipy = []
    for kind, shape in QUICK if session.quick else SHAPES:
        timings = session.measure(f"spgemm {kind}", shape, peers)
        table.rows.append(row(f"{kind} {shape[0]}", timings, peers, *record(result, kind, timings)))
        gained = ratio(seconds(timings, "scipy"), seconds(timings, "morpho"))
        over_scipy += [gained] if gained else []
    result.tables.append(table)
    result.targets.append(Target("worst over SciPy", min(over_scipy, default=None), 1.5))
    return result
