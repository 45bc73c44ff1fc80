"""Numba: explicit loops as its users write them, without fast-math, a file per class.

A name with "@parallel" is the same function compiled with ``parallel=True``: its outer loops are `prange`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.peers.numba.programs import carried, complex_numbers, integers, ocean, pointwise, sparse, stencils
from benchmarks.peers.prepared import Prepared
from benchmarks.programs import cases

CASES_MODULE = "benchmarks.programs.cases"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for module in (stencils, carried, pointwise, sparse, complex_numbers, integers, ocean)
    for function in module.FUNCTIONS}
to_numpy = cases.as_tuple


def load(threads: int) -> dict[str, str]:
    """Set the threads."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return {"numba": numba.__version__}


def why_not(case: str) -> str | None:
    """Those without a function, and the parallel way of those whose loops are all sequential."""
    name, _, variant = case.partition("@")
    if name not in FUNCTIONS:
        return "not written for Numba"
    return "no parallel loops" if variant and "prange" not in inspect.getsource(FUNCTIONS[name]) else None


@functools.cache
def compiled(case: str) -> Callable[..., Any]:
    """Once per case and version."""
    name, _, variant = case.partition("@")
    return numba.njit(FUNCTIONS[name], parallel=bool(variant), fastmath=False, error_model="numpy")


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile by making the first call."""
    function = compiled(case)
    arguments = (*inputs.values(), *cases.of(case).constants.values())
    function(*arguments)
    return Prepared(function, arguments)
