"""8. Functions of one or two numbers, each alone: exp, sin, pow, argmax, sort, ... against NumPy, PyTorch and JAX.

    morpho bench core --only functions

A call takes 16384 float32 numbers, which fit the second-level cache and stay on one thread.
"""

from __future__ import annotations

from benchmarks.core.cases import FUNCTIONS
from benchmarks.harness.compare import headings, record, row
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session

ELEMENTS = 16384
QUICK = ("exp", "sin", "pow", "remainder")
COMPARED = ("morpho", "numpy", "torch", "jax")


def run(session: Session) -> ThemeResult:
    """One row per function."""
    result = ThemeResult("functions")
    peers = [peer for peer in COMPARED if peer in session.modules]
    table = Table(f"functions of {ELEMENTS} float32 numbers, per call", headings("function", peers))
    over_numpy: list[float] = []
    for name in QUICK if session.quick else FUNCTIONS:
        timings = session.measure(f"function {name}", (ELEMENTS,), peers)
        ratios = record(result, name, timings)
        over_numpy += [ratios[0]] if ratios[0] else []
        table.rows.append(row(name, timings, peers, *ratios))
    result.tables.append(table)
    result.targets.append(Target("geometric mean over NumPy", geometric_mean(over_numpy), 2.0))
    return result
