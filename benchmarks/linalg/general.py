"""2. Eigenvalues, the Schur form, L D L^T, roots and logarithms: LAPACK by its address, against NumPy and SciPy."""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row
from benchmarks.harness.results import Table, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.linalg.cases import few_rounds

COMPUTATIONS = ("eig", "schur", "ldl", "sqrtm", "logm")
SIZES, QUICK = (64, 256, 512), (48,)


def run(session: Session) -> ThemeResult:
    """A row for each computation and size."""
    result = ThemeResult("general")
    peers = [peer for peer in ("morpho", "scipy") if peer in session.modules]
    table = Table("float64, per call", headings("matrix", peers))
    for computation in COMPUTATIONS:
        for n in QUICK if session.quick else SIZES:
            timings = session.measure(f"{computation} lapack", (n,), peers, few_rounds(n))
            name = f"{computation} {n}"
            table.rows.append(row(name, timings, peers, *record(result, name, timings)))
    result.tables.append(table)
    return result
