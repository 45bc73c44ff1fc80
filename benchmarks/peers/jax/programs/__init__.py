"""JAX on the CPU in double precision, every program one jitted function, a file per class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.jax.programs import (
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
    """Versions; the number of threads is set by the environment and the affinity of the worker."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # every call is waited for: this is its faster way
    return {"jax": jax.__version__, "jaxlib": jax.lib.__version__}


def why_not(case: str) -> str | None:
    """Those without a function."""
    return None if case in FUNCTIONS else "not written for JAX"


def callable_of(case: str, inputs: dict[str, np.ndarray]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The jitted function, which has not been called yet, and its arguments."""
    compiled = jax.jit(functools.partial(FUNCTIONS[case], **cases.of(case).constants))
    return (lambda *values: jax.block_until_ready(compiled(*values)),
            tuple(jnp.asarray(array) for array in inputs.values()))


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile by making the first call."""
    function, arguments = callable_of(case, inputs)
    function(*arguments)
    return Prepared(function, arguments)


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Arrays of JAX to arrays of NumPy."""
    return cases.as_tuple(result)
