"""Morpho's sparse matrices: products and networks as compiled functions of a matrix, sparse products at once."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from benchmarks.peers.prepared import Prepared
from benchmarks.sparse import cases

CASES_MODULE = "benchmarks.sparse.cases"


def load(threads: int) -> dict[str, str]:
    """Versions; threads follow the affinity of the worker."""
    mo.sparse.matmul  # noqa: B018
    return {"morpho": mo.__version__}


def network(a: Any, x: Any) -> Any:
    """120 layers, ReLU in the epilogue of each."""
    for _ in range(cases.LAYERS):
        x = mo.relu(a @ x)
    return x


def square(a: Any) -> Any:
    """A A, now."""
    found = a @ a
    mo.realise(found.data, found.indices, found.indptr)
    return found


def prepare(case: str, inputs: cases.Arrays) -> Prepared:
    """By the computation, the first word of a case."""
    computation = case.split()[0]
    if computation == "bandwidth":
        return Prepared(mo.compile(lambda x: mo.max(x)), (mo.asarray(inputs["x"]),))
    if computation == "dense":
        return Prepared(mo.compile(lambda a, x: a @ x), (mo.asarray(cases.as_dense(inputs)), mo.asarray(inputs["x"])))
    count = len(inputs["indptr"]) - 1
    a = mo.sparse.csr(*cases.split(inputs), (count, count))
    if computation == "spgemm":
        return Prepared(square, (a,))
    functions = {"spmv": lambda a, x: a @ x, "spmm": lambda a, x: a @ x, "network": network}
    return Prepared(mo.compile(functions[computation]), (a, mo.asarray(inputs["x"])))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """A dense result, or the parts of a sparse one."""
    if mo.sparse.is_sparse(result):
        return tuple(part.numpy() for part in (result.data, result.indices, result.indptr))
    return (result.numpy(),)
