"""1. Sparse times a vector, on matrices beyond the cache: time against SciPy and PyTorch, share of the bandwidth."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.sparse import cases

SHAPE, QUICK_SHAPE = (2_000_000, 12, 1), (40_000, 12, 1)
FLOATS = 100_000_000


def run(session: Session) -> ThemeResult:
    """One row per kind of matrix."""
    result = ThemeResult("spmv")
    peers = [peer for peer in ("morpho", "scipy", "torch") if peer in session.modules]
    shape = QUICK_SHAPE if session.quick else SHAPE
    table = Table("A x for float32 and int32 indices, per call", [*headings("matrix", peers), "of bandwidth"])
    floats = 1_000_000 if session.quick else FLOATS
    bandwidth = session.measure("bandwidth all", (floats,), ["morpho"])
    rate = ratio(4 * floats, seconds(bandwidth, "morpho"))
    over_best, shares = [], []
    for kind in cases.KINDS:
        timings = session.measure(f"spmv {kind}", shape, peers)
        ratios = record(result, kind, timings)
        mine, share = seconds(timings, "morpho"), None
        over_best += [ratios[1]] if ratios[1] else []
        if mine and rate:
            share = cases.stored_bytes(cases.make_inputs(f"spmv {kind}", shape)) / mine / rate
            shares.append(share)
        table.rows.append([*row(kind, timings, peers, *ratios), f"{share:.0%}" if share else "-"])
    result.tables.append(table)
    result.targets += [Target("worst over the best of SciPy and PyTorch", min(over_best, default=None), 1.2),
                       Target("least share of the measured bandwidth", min(shares, default=None), 0.85, unit="")]
    return result
