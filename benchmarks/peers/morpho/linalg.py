"""Morpho's linear algebra as compiled functions: in blocks of its own, or LAPACK called by its address."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from benchmarks.linalg import cases
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.linalg.cases"
HAS_NATIVE = ("cholesky", "lu", "qr", "solve")


def load(threads: int) -> dict[str, str]:
    """Versions; threads follow the affinity of the worker."""
    mo.linalg.solve  # noqa: B018
    return {"morpho": mo.__version__}


def why_not(case: str) -> str | None:
    """Not all have a way of Morpho's own."""
    computation, way = case.split()
    return "LAPACK's alone" if way == "native" and computation not in HAS_NATIVE else None


def prepare(case: str, inputs: cases.Arrays) -> Prepared:
    """By the computation, the first word of a case, and the way, the second."""
    computation, way = case.split()
    given = tuple(mo.asarray(inputs[name]) for name in ("a", "b") if name in inputs)
    if way == "refined":
        return Prepared(mo.compile(lambda a, b: mo.linalg.solve_refined(a, b).x), given)
    function = getattr(mo.linalg, computation)
    options = {"algorithm": "native" if way == "native" else "auto"} if computation in HAS_NATIVE else {}
    if computation == "ldl":
        return Prepared(mo.compile(lambda a: _outer(*function(a))), given)
    return Prepared(mo.compile(lambda *given: function(*given, **options)), given)


def _outer(p: Any, lower: Any, blocks: Any) -> tuple[Any, Any]:
    """With rows where the matrix has them, as SciPy gives them."""
    return p @ lower, blocks


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """All factors."""
    return tuple(part.numpy() for part in result) if isinstance(result, tuple) else (result.numpy(),)
