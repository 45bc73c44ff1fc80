"""The rules: SGD, Adam, AdamW. Each is what it keeps for a parameter and how it changes it."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.optim.optimizer import Group, Optimizer, Slots
from morpho.tensor.variable import Parameter


class SGD(Optimizer):
    """value - lr * gradient; with momentum, the gradient and a part of the last change.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.SGD([w], lr=0.25).step(); w.numpy()
    array([0.5], dtype=float32)
    """

    defaults = {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}

    def slots(self, parameter: Parameter, group: Group) -> Slots:
        return {"momentum": mo.zeros_like(parameter)} if group["momentum"] else {}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: Group,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        if not group["momentum"]:
            return value - rate * gradient, {}
        added = mo.where(count == 1, gradient, (1 - group["dampening"]) * gradient)  # the first one is whole
        moved = group["momentum"] * slots["momentum"] + added
        direction = gradient + group["momentum"] * moved if group["nesterov"] else moved
        return value - rate * direction, {"momentum": moved}


class Adam(Optimizer):
    """Adam: the mean of the gradients over the root of the mean of their squares.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Adam([w], lr=0.5).step(); w.numpy()
    array([0.5], dtype=float32)
    """

    defaults: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    decoupled = False

    def slots(self, parameter: Parameter, group: Group) -> Slots:
        return {"mean": mo.zeros_like(parameter), "square": mo.zeros_like(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: Group,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        first, second = group["betas"]
        if group["weight_decay"] and self.decoupled:
            value = value - rate * group["weight_decay"] * value
        elif group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        mean = first * slots["mean"] + (1 - first) * gradient
        square = second * slots["square"] + (1 - second) * gradient * gradient
        step = rate / (1 - first ** count)
        scale = mo.sqrt(1 - second ** count)
        return value - step * mean / (mo.sqrt(square) / scale + group["eps"]), {"mean": mean, "square": square}


class AdamW(Adam):
    """Adam with the decay of weights apart from the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.AdamW([w], lr=0.5, weight_decay=0.0).step(); w.numpy()
    array([0.5], dtype=float32)
    """

    defaults = {**Adam.defaults, "weight_decay": 0.01}
    decoupled = True
