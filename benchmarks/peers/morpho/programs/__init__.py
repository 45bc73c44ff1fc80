"""Morpho: every program a function given to ``mo.compile``, a file per class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.peers.morpho.programs import (
    carried,
    complex_numbers,
    dense,
    integers,
    ocean,
    pointwise,
    sparse,
    stencils,
)
from benchmarks.peers.prepared import Prepared
from benchmarks.programs import cases

CASES_MODULE = "benchmarks.programs.cases"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for module in (dense, stencils, carried, pointwise, sparse, complex_numbers, integers, ocean)
    for function in module.FUNCTIONS}


def load(threads: int) -> dict[str, str]:
    """Versions; Morpho takes the number of threads from the affinity of the worker."""
    return {"morpho": getattr(mo, "__version__", "unknown")}


def why_not(case: str) -> str | None:
    """Those without a function."""
    return None if case in FUNCTIONS else "not written for Morpho"


def callable_of(case: str, inputs: dict[str, np.ndarray]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The compiled function, which has not been called yet, and its arguments."""
    constants = cases.of(case).constants
    function = functools.partial(FUNCTIONS[case], **constants) if constants else FUNCTIONS[case]
    return mo.compile(function), tuple(mo.asarray(array) for array in inputs.values())


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile by making the first call."""
    function, arguments = callable_of(case, inputs)
    function(*arguments)
    return Prepared(function, arguments)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Tensors to arrays."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(tensor.numpy() for tensor in results)
