"""1. Cholesky, LU and QR: Morpho's own blocks and LAPACK by its address, against NumPy and SciPy."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row, seconds
from benchmarks.harness.results import Table, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.linalg.cases import few_rounds

COMPUTATIONS = ("cholesky", "lu", "qr")
SIZES, QUICK = (512, 1024, 2048), (192,)
MOST_OWN = {"qr": 512}  # its panels grow to programs that take minutes to compile: 12 s of processor time at 512


def run(session: Session) -> ThemeResult:
    """A row for each computation and size. There is no bar: blocks of Morpho's own promise bits, LAPACK's speed."""
    result = ThemeResult("factors")
    ways = {"morpho": ("morpho", "native"), "by address": ("morpho", "lapack"), "scipy": ("scipy", "lapack")}
    labels = [label for label, (peer, _) in ways.items() if peer in session.modules]
    table = Table("float64, per call; morpho: its own blocks", headings("matrix", labels))
    for computation in COMPUTATIONS:
        for n in QUICK if session.quick else SIZES:
            able = [label for label in labels if label != "morpho" or n <= MOST_OWN.get(computation, n)]
            timings = session.measure_mixed({label: (ways[label][0], f"{computation} {ways[label][1]}")
                                             for label in able}, (n,), few_rounds(n))
            name = f"{computation} {n}"
            table.rows.append(row(name, timings, labels, *record(result, name, timings)))
            over = ratio(seconds(timings, "scipy"), seconds(timings, "by address"))
            if over:
                result.ratios[f"{name} by address vs scipy"] = over
    result.tables.append(table)
    return result
