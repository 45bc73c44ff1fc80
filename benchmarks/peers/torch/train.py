"""PyTorch, eager: modules, `backward()` and its own optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.peers.prepared import Prepared
from benchmarks.peers.torch import core as torch_peer
from benchmarks.peers.torch import gpt as gpt_torch
from benchmarks.peers.torch import resnet as resnet_torch
from benchmarks.peers.two_steps import TwoSteps
from benchmarks.train import mlp

CASES_MODULE = "benchmarks.train.cases"
STEPS = TwoSteps()


def load(threads: int) -> dict[str, str]:
    """As for inference, but with gradients."""
    versions = torch_peer.load(threads)
    torch.set_grad_enabled(True)
    return versions


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """A plain training step, which returns the loss."""
    if name in ("gpt_step", "gpt_step_bf16"):
        return STEPS.prepared(*gpt_torch.prepare(name, inputs))
    if name == "resnet_step":
        return STEPS.prepared(*resnet_torch.prepare(name, inputs))
    if name != "mlp_step":
        raise KeyError(name)
    width = inputs["weight1"].shape[0]
    layers = [torch.nn.Linear(width, width) for _ in range(2)]
    for number, layer in enumerate(layers, 1):
        layer.weight.data = torch.from_numpy(np.ascontiguousarray(inputs[f"weight{number}"].T))
        layer.bias.data = torch.from_numpy(inputs[f"bias{number}"].copy())
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    optimiser = torch.optim.SGD(model.parameters(), lr=mlp.LEARNING_RATE)

    def step(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(x), classes)
        loss.backward()
        optimiser.step()
        return loss

    return Prepared(step, (torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["classes"])))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """The losses of the first and of the checked step."""
    return tuple(loss.detach().float().numpy() for loss in STEPS.losses(result))
