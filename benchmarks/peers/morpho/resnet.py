"""Morpho's ResNet-18 and its training step as one compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.train import resnet_cases as cases


def prepare(case: str, inputs: dict[str, np.ndarray]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The compiled step and its arguments."""
    model = mo.models.create("resnet18", width=len(inputs["conv1.weight"]), num_classes=len(inputs["fc.bias"])).train()
    weights = {name: mo.asarray(array, copy=True) for name, array in cases.weights_of(inputs).items()}
    model.load_state_dict({**model.state_dict(), **weights})
    opt = mo.optim.SGD(model.parameters(), lr=cases.LEARNING_RATE, momentum=cases.MOMENTUM)

    @mo.compile
    def step(model: Any, opt: Any, x: mo.Tensor, classes: mo.Tensor) -> mo.Tensor:
        loss = mo.cross_entropy(model(x), classes)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    x, classes = (mo.asarray(inputs[key], copy=True).realise() for key in ("x", "classes"))
    return step, (model, opt, x, classes)
