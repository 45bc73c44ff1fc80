"""10. Sorting: values and indices, numbers of 32 and 64 bits in random order, against NumPy and PyTorch.

    morpho bench core --only sorting --threads 1

One line is one thread's work, whoever sorts it.
"""

from __future__ import annotations

from benchmarks.core.cases import SORTS
from benchmarks.harness.compare import headings, record, row
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session

SIZES = (1000, 16384, 1 << 20)
COMPARED = ("morpho", "numpy", "torch")


def run(session: Session) -> ThemeResult:
    """One row per function, dtype and length."""
    result = ThemeResult("sorting")
    peers = [peer for peer in COMPARED if peer in session.modules]
    table = Table("sorting a line of numbers, per call", headings("function", peers))
    over_numpy: dict[str, list[float]] = {"sort": [], "argsort": []}
    for label, (name, _) in SORTS.items():
        for size in SIZES[1:2] if session.quick else SIZES:
            timings = session.measure(f"sorting {label}", (size,), peers)
            ratios = record(result, f"{label} {size}", timings)
            over_numpy[name] += [ratios[0]] if ratios[0] else []
            table.rows.append(row(f"{label} {size}", timings, peers, *ratios))
    result.tables.append(table)
    for name, ratios_there in over_numpy.items():
        result.targets.append(Target(f"{name} over NumPy, geometric mean", geometric_mean(ratios_there), 1.0))
    return result
