"""PyTorch, eager, for programs whose steps are whole arrays; loops over elements are not written for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch.programs import arrays, dense, stencils
from benchmarks.programs import cases

CASES_MODULE = "benchmarks.programs.cases"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for module in (dense, stencils, arrays) for function in module.FUNCTIONS}


def load(threads: int) -> dict[str, str]:
    """Set the threads, switch gradients off."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return {"torch": torch.__version__}


def why_not(case: str) -> str | None:
    """Those without a function."""
    return None if case in FUNCTIONS else "not written for PyTorch"


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Eager functions need no preparation."""
    function = functools.partial(FUNCTIONS[case], **cases.of(case).constants)
    return Prepared(function, tuple(torch.from_numpy(np.array(array)) for array in inputs.values()))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Tensors to arrays."""
    return tuple(tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,)))
