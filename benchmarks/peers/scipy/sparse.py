"""SciPy's sparse matrices, as its users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import scipy.sparse

from benchmarks.peers.prepared import Prepared
from benchmarks.sparse import cases

CASES_MODULE = "benchmarks.sparse.cases"


def load(threads: int) -> dict[str, str]:
    """The version; its sparse products have one thread."""
    return {"scipy": scipy.__version__}


def network(a: Any, x: np.ndarray) -> np.ndarray:
    """120 layers."""
    for _ in range(cases.LAYERS):
        x = a @ x
        np.maximum(x, 0, out=x)
    return x


def prepare(case: str, inputs: cases.Arrays) -> Prepared:
    """By the computation, the first word of a case."""
    computation = case.split()[0]
    count = len(inputs["indptr"]) - 1
    a = scipy.sparse.csr_array(cases.split(inputs), shape=(count, count))
    functions = {"spmv": lambda a, x: a @ x, "spmm": lambda a, x: a @ x, "spgemm": lambda a: a @ a, "network": network}
    given = (a,) if computation == "spgemm" else (a, inputs["x"])
    return Prepared(functions[computation], given)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """A dense result, or the parts of a sparse one."""
    return (result.data, result.indices, result.indptr) if scipy.sparse.issparse(result) else (result,)
