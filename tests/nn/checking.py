"""Gradients of modules against differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo

STEP = 1e-6
Array = Any


def check_gradients(function: Callable[..., Any], inputs: Sequence[Array], parameters: Sequence[mo.nn.Parameter],
                    rng: np.random.Generator, backend: str = "cpu", tolerance: float = 2e-7) -> None:
    """The gradients of sum(function(*inputs) * weights), with respect to every input of floats and every parameter,
    against central differences along random directions, one for each of them. Gradients run as native code
    unless another backend is named, differences by NumPy."""
    leaves = [mo.asarray(x) for x in inputs]
    floats = [i for i, leaf in enumerate(leaves) if leaf.dtype is mo.float64]
    for i in floats:
        leaves[i].requires_grad_()
    result = function(*leaves)
    weights = mo.asarray(rng.standard_normal(tuple(result.shape)))
    (result * weights).sum().backward()
    targets = [*(leaves[i] for i in floats), *parameters]
    with mo.settings(device=backend):
        mo.realise(*[target.grad for target in targets if target.grad is not None])
    gradients = [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in targets]

    def value(changes: list[Array]) -> float:
        moved = list(inputs)
        for i, change in zip(floats, changes, strict=False):
            moved[i] = inputs[i] + change
        for parameter, old, change in zip(parameters, olds, changes[len(floats):], strict=True):
            parameter.assign(old + change)
        with mo.settings(device="reference"), mo.no_grad():
            return float((function(*[mo.asarray(x) for x in moved]) * weights).sum().item())

    olds = [parameter.numpy(copy=True) for parameter in parameters]
    for number, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        ways = [[sign * STEP * direction if i == number else np.zeros(g.shape) for i, g in enumerate(gradients)]
                for sign in (1, -1)]
        numeric = (value(ways[0]) - value(ways[1])) / (2 * STEP)
        found = float(np.sum(gradient * direction))
        scale = 1 + np.sum(np.abs(gradient * direction))
        assert abs(found - numeric) <= tolerance * scale, (number, found, numeric)
    for parameter, old in zip(parameters, olds, strict=True):
        parameter.assign(old)
