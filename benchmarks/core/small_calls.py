"""1. Small calls: a compiled f32 add called from Python into ``out=``, then its bandwidth against a triad.

    morpho bench core --only 1
"""

from __future__ import annotations

from benchmarks.harness.compare import best_peer, record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

COST_LIMITS = {256: 0.4, 1024: 0.4, 3072: 0.4, 4096: 0.6, 16384: 0.9}  # Morpho's time / numpy.add's
LARGE = [1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24]
QUICK_LARGE = [1 << 14, 1 << 20]
BYTES_PER_ELEMENT = 12  # two reads and a write of four bytes
TRIADS = ("morpho", "numba", "torch")
TRIAD_SHARE = 0.9


def run(session: Session) -> ThemeResult:
    """Both tables."""
    result = ThemeResult("small_calls")
    small(session, result)
    bandwidth(session, result)
    return result


def small(session: Session, result: ThemeResult) -> None:
    """Nanoseconds per call."""
    peers = [peer for peer in ("morpho", "numpy", "torch") if peer in session.modules]
    table = Table("f32 add into out=, per call from Python", ["n", *peers, "cost vs numpy"])
    for n, limit in COST_LIMITS.items():
        timings = session.measure("add", (n,), peers)
        record(result, f"add {n}", timings)
        cost = ratio(seconds(timings, "morpho"), seconds(timings, "numpy"))
        table.rows.append([str(n), *(duration(seconds(timings, peer)) for peer in peers), times(cost)])
        result.targets.append(Target(f"add n={n}, cost against numpy.add", cost, limit, at_least=False))
    result.tables.append(table)


def bandwidth(session: Session, result: ThemeResult) -> None:
    """GB/s of add against the best triad on the same footprint (Morpho's, Numba's, PyTorch's)."""
    table = Table("bandwidth of add and of the best triad (GB/s)", ["n", "add", "triad", "by", "share"])
    for n in QUICK_LARGE if session.quick else LARGE:
        timings = session.measure_mixed({"add": ("morpho", "add"), **{peer: (peer, "triad") for peer in TRIADS}}, (n,))
        result.figures[f"add and triads {n}"] = {label: timing.as_json() for label, timing in timings.items()}
        result.errors += [f"add and triads {n}: {timing.error}" for timing in timings.values() if timing.error]
        own, best = seconds(timings, "add"), best_peer(timings, own="add")
        triad = seconds(timings, best) if best else None
        share = ratio(triad, own)
        if share:
            result.ratios[f"add bandwidth {n} vs triad"] = share
        table.rows.append([str(n), gigabytes(n, own), gigabytes(n, triad), best or "-", times(share)])
        result.targets.append(Target(f"add n={n}, share of the triad's bandwidth", share, TRIAD_SHARE))
    result.tables.append(table)


def gigabytes(n: int, elapsed: float | None) -> str:
    """Gigabytes moved per second."""
    return "-" if not elapsed else f"{n * BYTES_PER_ELEMENT / elapsed / 1e9:.1f}"
