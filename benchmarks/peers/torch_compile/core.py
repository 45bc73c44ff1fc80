"""torch.compile of the eager functions (Inductor; it needs a C++ compiler)."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import core as torch_peer

to_numpy = torch_peer.to_numpy


def load(threads: int) -> dict[str, str]:
    """Prove that compiling works at all, so that a missing compiler is told once and not per case."""
    found = torch_peer.load(threads)
    try:
        torch.compile(lambda x: x + 1.0)(torch.zeros(8))
    except Exception as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ImportError(f"torch.compile does not work here: {first_line}") from error
    return found


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile for exactly these shapes, with a fresh compiler state."""
    function = torch_peer.CASES[case]
    torch._dynamo.reset()
    compiled = torch.compile(function, dynamic=False)
    arguments = tuple(torch.from_numpy(array) for array in inputs.values())
    compiled(*arguments)
    return Prepared(compiled, arguments)
