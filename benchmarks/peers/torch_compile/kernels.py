"""torch.compile of the eager functions, constants as frozen parameters of a module: Inductor may pack them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.kernels import cases
from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import kernels as torch_peer
from benchmarks.peers.torch_compile import core as torch_compile_peer

CASES_MODULE = torch_peer.CASES_MODULE
to_numpy = torch_peer.to_numpy


def load(threads: int) -> dict[str, str]:
    """Prove that compiling works; from then on weights are constants."""
    found = torch_compile_peer.load(threads)
    import torch._inductor.config as inductor

    inductor.freezing = True
    return found


class Frozen(torch.nn.Module):
    """A function whose constants are parameters."""

    def __init__(self, function: Callable[..., Any], constants: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.function, self.names = function, tuple(constants)
        for key, value in constants.items():
            self.register_parameter(f"held_{key}", torch.nn.Parameter(value, requires_grad=False))

    def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
        """The function of the arguments and the constants, in their order."""
        return self.function(*arguments, *(getattr(self, f"held_{name}") for name in self.names))


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile for exactly these shapes, with a fresh compiler state."""
    torch._dynamo.reset()
    if name.startswith("gpt2"):
        return called(torch_peer.gpt2(name, inputs, compiled=True))
    given = torch_peer.tensors(name, inputs)
    arguments = cases.of(name).arguments
    constants = {key: value for key, value in given.items() if key not in arguments}
    compiled = torch.compile(Frozen(torch_peer.FUNCTIONS[name], constants).eval(), dynamic=False)
    return called(Prepared(compiled, tuple(given[key] for key in arguments)))


def called(prepared: Prepared) -> Prepared:
    """After a first call, which compiles."""
    prepared.function(*prepared.arguments)
    return prepared
