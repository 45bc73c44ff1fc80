"""2. Sparse times a dense matrix: against SciPy, PyTorch, and Morpho's dense product at 1 % density."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

SHAPES = (("banded", (200_000, 16, 32)), ("power_law", (200_000, 16, 32)), ("random", (200_000, 16, 64)),
          ("laplacian", (250_000, 5, 32)), ("random", (20_000, 200, 128)))
QUICK = (("banded", (4_000, 8, 16)), ("random", (4_000, 8, 16)))
DENSE, QUICK_DENSE = (4_000, 40, 256), (600, 6, 32)  # 1 % of the elements are stored


def run(session: Session) -> ThemeResult:
    """One row per matrix, then sparse against dense."""
    result = ThemeResult("spmm")
    peers = [peer for peer in ("morpho", "scipy", "torch") if peer in session.modules]
    table = Table("A X for float32, per call", headings("matrix", peers))
    over_scipy = []
    for kind, shape in QUICK if session.quick else SHAPES:
        label = f"{kind} {shape[0]} rows of {shape[1]}, {shape[2]} columns"
        timings = session.measure(f"spmm {kind}", shape, peers)
        table.rows.append(row(label, timings, peers, *record(result, label, timings)))
        gained = ratio(seconds(timings, "scipy"), seconds(timings, "morpho"))
        over_scipy += [gained] if gained else []
    both = session.measure_mixed({"sparse": ("morpho", "spmm random"), "dense": ("morpho", "dense random")},
                                 QUICK_DENSE if session.quick else DENSE)
    gain = ratio(seconds(both, "dense"), seconds(both, "sparse"))
    result.tables.append(table)
    bound = 2.0 if session.threads > 1 else 1.2
    result.targets += [Target(f"worst over SciPy, {session.threads} threads", min(over_scipy, default=None), bound),
                       Target("over Morpho's dense product at 1 %", gain, 5.0)]
    return result
