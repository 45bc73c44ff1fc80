"""PyTorch's CSR tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.peers.prepared import Prepared
from benchmarks.sparse import cases

CASES_MODULE = "benchmarks.sparse.cases"


def load(threads: int) -> dict[str, str]:
    """Set the threads, switch gradients off."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    return {"torch": torch.__version__}


def network(a: Any, x: torch.Tensor) -> torch.Tensor:
    """120 layers."""
    for _ in range(cases.LAYERS):
        x = torch.relu(a @ x)
    return x


def prepare(case: str, inputs: cases.Arrays) -> Prepared:
    """By the computation, the first word of a case."""
    computation = case.split()[0]
    count = len(inputs["indptr"]) - 1
    data, indices, indptr = (torch.from_numpy(part) for part in cases.split(inputs))
    a = torch.sparse_csr_tensor(indptr, indices, data, size=(count, count))
    functions = {"spmv": lambda a, x: a @ x, "spmm": lambda a, x: a @ x, "spgemm": lambda a: a @ a, "network": network}
    given = (a,) if computation == "spgemm" else (a, torch.from_numpy(inputs["x"]))
    return Prepared(functions[computation], given)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """A dense result, or the parts of a sparse one."""
    if result.layout is torch.sparse_csr:
        return tuple(part.numpy() for part in (result.values(), result.col_indices(), result.crow_indices()))
    return (result.numpy(),)
