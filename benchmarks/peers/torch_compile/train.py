"""`torch.compile` of the model with its loss, forward and backward (Inductor; it needs a C++ compiler)."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import gpt as gpt_torch
from benchmarks.peers.torch import train as torch_peer
from benchmarks.peers.torch_compile import core as torch_compile_peer

CASES_MODULE = torch_peer.CASES_MODULE
to_numpy = torch_peer.to_numpy


def load(threads: int) -> dict[str, str]:
    """Prove that compiling works at all."""
    versions = torch_compile_peer.load(threads)
    torch.set_grad_enabled(True)
    return versions


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile for exactly these shapes."""
    if name != "gpt_step":
        raise KeyError(name)
    torch._dynamo.reset()
    return torch_peer.STEPS.prepared(*gpt_torch.prepare(name, inputs, compiled=True))
