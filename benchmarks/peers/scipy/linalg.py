"""SciPy's linear algebra, as its users call it; solves and eigenvalues are NumPy's where these are faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import scipy.linalg

from benchmarks.linalg import cases
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.linalg.cases"


def load(threads: int) -> dict[str, str]:
    """Versions; threads follow the environment of the worker."""
    return {"scipy": scipy.__version__, "numpy": np.__version__}


def prepare(case: str, inputs: cases.Arrays) -> Prepared:
    """By the computation, the first word of a case."""
    computation = case.split()[0]
    functions: dict[str, Any] = {
        "cholesky": np.linalg.cholesky, "lu": scipy.linalg.lu, "qr": np.linalg.qr, "solve": np.linalg.solve,
        "eig": np.linalg.eig, "schur": lambda a: scipy.linalg.schur(a, output="complex"),
        "ldl": lambda a: scipy.linalg.ldl(a)[:2], "sqrtm": scipy.linalg.sqrtm, "logm": scipy.linalg.logm}
    return Prepared(functions[computation], tuple(inputs[name] for name in ("a", "b") if name in inputs))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """All factors."""
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else (np.asarray(result),)
