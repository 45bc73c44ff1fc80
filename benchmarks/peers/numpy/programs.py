"""NumPy: the definitions themselves."""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.peers.prepared import Prepared
from benchmarks.programs import cases

CASES_MODULE = "benchmarks.programs.cases"
to_numpy = cases.as_tuple


def load(threads: int) -> dict[str, str]:
    """The version."""
    return {"numpy": np.__version__}


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """As defined."""
    program = cases.of(case)
    return Prepared(functools.partial(program.definition, **program.constants), tuple(inputs.values()))
