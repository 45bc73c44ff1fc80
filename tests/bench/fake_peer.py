"""A peer for tests: what it does wrong is named in the environment variable FAKE_FAULT."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.peers.prepared import Prepared

FAULT = os.environ.get("FAKE_FAULT", "")


def load(threads: int) -> dict[str, str]:
    """Be there, or be missing."""
    if FAULT == "missing":
        raise ImportError("No module named 'fake'")
    return {"fake": "1.0"}


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Right, wrong, or the end of the process."""
    if FAULT == "crash":
        os._exit(7)
    print("a peer that prints must not disturb the protocol")
    return a - b if FAULT == "wrong" else a + b


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Only ``add``."""
    return Prepared({"add": add}[case], tuple(inputs.values()))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """One array."""
    return (result,)
