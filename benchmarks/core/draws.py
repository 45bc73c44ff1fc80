"""11. Random numbers: a million of each kind against NumPy's generator and PyTorch's.

    morpho bench core --only draws --threads 1

Morpho's are functions of a key and a position, the same on every machine; NumPy's and PyTorch's are those of a stream.
"""

from __future__ import annotations

from benchmarks.core.cases import DRAWS
from benchmarks.harness.compare import headings, record, row
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

SIZES = (16384, 1 << 20)
COMPARED = ("morpho", "numpy", "torch")


def run(session: Session) -> ThemeResult:
    """One row per distribution and count."""
    result = ThemeResult("draws")
    peers = [peer for peer in COMPARED if peer in session.modules]
    table = Table("random numbers of float32 (permutation: int64), per call", headings("distribution", peers))
    for name in DRAWS:
        for size in SIZES[:1] if session.quick else SIZES:
            timings = session.measure(f"random {name}", (size,), peers)
            ratios = record(result, f"{name} {size}", timings)
            table.rows.append(row(f"{name} {size}", timings, peers, *ratios))
            result.targets.append(Target(f"{name} {size} over NumPy", ratios[0] or 0.0, 1.0))
    result.tables.append(table)
    return result
