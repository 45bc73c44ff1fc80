"""All programs by name; their inputs, the same in every process, and the check against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs import carried, complex_numbers, dense, integers, ocean, pointwise, sparse, stencils
from benchmarks.programs.program import Arrays, Program, Shape

SEED = 20261117
CLASSES: dict[str, dict[str, Program]] = {
    "dense": dense.PROGRAMS, "stencils": stencils.PROGRAMS, "carried": carried.PROGRAMS,
    "pointwise": pointwise.PROGRAMS, "sparse": sparse.PROGRAMS, "complex_numbers": complex_numbers.PROGRAMS,
    "integers": integers.PROGRAMS, "ocean": ocean.PROGRAMS}
PROGRAMS: dict[str, Program] = {name: program for programs in CLASSES.values() for name, program in programs.items()}


def of(name: str) -> Program:
    """The program of a name; a variant after "@", such as "@parallel", is another way to compute the same."""
    return PROGRAMS[name.partition("@")[0]]


def make_inputs(name: str, shape: Shape) -> Arrays:
    """The arguments of a program, in order."""
    return of(name).inputs(np.random.default_rng(SEED), *shape)


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    """One or several results as a tuple of arrays."""
    return tuple(np.asarray(one) for one in (result if isinstance(result, (tuple, list)) else (result,)))


def widened(array: np.ndarray) -> np.ndarray:
    """In double precision, where it is in single."""
    return array.astype({np.float32: np.float64, np.complex64: np.complex128}.get(array.dtype.type, array.dtype))


def check(name: str, inputs: Arrays, results: tuple[np.ndarray, ...]) -> float:
    """The worst error as a share of what is allowed; ValueError when above 1. The largest value is the measure."""
    program = of(name)
    expected = as_tuple(program.definition(*(widened(array) for array in inputs.values()), **program.constants))
    if len(results) != len(expected):
        raise ValueError(f"{name}: {len(results)} results, expected {len(expected)}")
    worst = 0.0
    for result, right in zip(results, expected, strict=True):
        if np.shape(result) != np.shape(right):
            raise ValueError(f"{name}: result of shape {np.shape(result)}, expected {np.shape(right)}")
        if not np.size(right):
            continue
        allowed = program.absolute + program.relative * np.max(np.abs(right))
        worst = float(np.maximum(worst, np.max(np.abs(widened(np.asarray(result)) - right)) / allowed))
    if not worst <= 1.0:
        raise ValueError(f"{name}: wrong result, {worst:.3g} times the allowed error")
    return worst
