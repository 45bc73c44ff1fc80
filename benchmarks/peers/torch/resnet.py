"""ResNet-18 as a plain PyTorch module, with torchvision's names, and its training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.train import resnet_cases as cases


def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    """Without a bias: a norm follows."""
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Block(nn.Module):
    """Two convolutions with their norms, and the residual."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.downsample = None
        if inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Four stages of two blocks."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(cases.CHANNELS, width, 7, 2), nn.BatchNorm2d(width)
        inputs = width
        for stage in range(cases.STAGES):
            outputs = width << stage
            blocks = [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(cases.STAGES):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def prepare(case: str, inputs: dict[str, np.ndarray]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments."""
    model = ResNet18(len(inputs["conv1.weight"]), len(inputs["fc.bias"])).train()
    missing, extra = model.load_state_dict({name: torch.from_numpy(array)
                                            for name, array in cases.weights_of(inputs).items()}, strict=False)
    if extra or any("running" not in name and "tracked" not in name for name in missing):
        raise ValueError(f"the weights do not fit: {missing} {extra}")
    opt = torch.optim.SGD(model.parameters(), lr=cases.LEARNING_RATE, momentum=cases.MOMENTUM)

    def step(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        loss = functional.cross_entropy(model(x), classes)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    return step, (torch.from_numpy(inputs["x"]), torch.from_numpy(inputs["classes"]))
