"""4. Backward errors on matrices that are hard: Hilbert's, graded, repeated eigenvalues, nearly singular.

Multiples of n eps |a|; LAPACK's bounds are small multiples of it. Nothing is timed, and no peer is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.linalg.cases import residual

L = mo.linalg


def hard(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Symmetric ones, so that every factorisation takes them."""
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    grades = 10.0 ** -np.linspace(0, 12, n)
    middle = rng.standard_normal((n, n))
    return {"Hilbert": 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0),
            "graded": grades[:, None] * (middle + middle.T + 4 * np.sqrt(n) * np.eye(n)) * grades,
            "repeated": (q * np.repeat([1.0, 2.0], [n - n // 2, n // 2])) @ q.T,
            "nearly singular": (q * np.append(np.ones(n - 1), 1e-14)) @ q.T}


def ways(native: bool) -> dict[str, Any]:
    """What factors each computation, as `cases.residual` takes them."""
    how = {"algorithm": "native"} if native else {}
    found: dict[str, Any] = {"lu": lambda a, b: L.lu(a, **how), "qr": lambda a, b: L.qr(a, **how),
                             "solve": lambda a, b: (L.solve(a, b, **how),)}
    if not native:
        found |= {"eig": lambda a, b: L.eig(a), "schur": lambda a, b: L.schur(a),
                  "ldl": lambda a, b: ((parts := L.ldl(a)).P @ parts.L, parts.D)}
    return found


def run(session: Session) -> ThemeResult:
    """A row for each computation, a column for each matrix."""
    n, rng = 64 if session.quick else 200, np.random.default_rng(3)
    matrices, result = hard(n, rng), ThemeResult("errors")
    table = Table(f"backward errors of {n} rows, in n eps |a|", ["way", *matrices])
    b, worst = rng.standard_normal(n), 0.0
    for native in (False, True):
        for computation, function in ways(native).items():
            cells = []
            for name, a in matrices.items():
                parts = function(mo.asarray(a), mo.asarray(b))
                found = residual(computation, {"a": a, "b": b}, tuple(part.numpy() for part in parts))
                result.figures[f"{computation} {'native' if native else 'lapack'} {name}"] = found
                worst = max(worst, found)
                cells.append(f"{found:.2g}")
            table.rows.append([f"{computation}, {'own blocks' if native else 'LAPACK'}", *cells])
    result.tables.append(table)
    result.targets.append(Target("largest backward error", worst, 1.0, at_least=False, unit=" n eps |a|"))
    return result
