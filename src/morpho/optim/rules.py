"""The rules: SGD, Adam, AdamW, Lion, and those of `root_mean_square.py`. Each is what it keeps for a parameter and how
it changes it; the numbers that all elements share are computed once, those that come from powers of the betas in
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import morpho as mo
from morpho.base.checks import shown
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer, ParamGroup, Slots, at_least_zero, zeros_for
from morpho.tensor.state.variable import Parameter


def check_betas(name: str, group: ParamGroup) -> None:
    betas = group["betas"]
    fits = isinstance(betas, Sequence) and len(betas) == 2 and all(isinstance(beta, Real) for beta in betas)
    if not fits or not all(0 <= beta < 1 for beta in betas):
        raise fail(ArgumentError, name, f"betas={shown(betas)} are not two numbers in [0, 1)")


def as_factor(number: Any, like: mo.Tensor) -> Any:
    """A number of the group as a factor of tensors: Python's as it is, a tensor in their dtype."""
    return number.astype(like.dtype) if isinstance(number, mo.Tensor) else number


class SGD(Optimizer):
    """value - lr * gradient; with momentum, the gradient and a part of the last change.

    `momentum` is that part, `dampening` what is taken off the new gradient then, `nesterov` looks a step ahead;
    `weight_decay` times the value is added to the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.SGD([w], lr=0.25).step(); w.numpy()
    array([0.5], dtype=float32)
    """

    defaults = {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("SGD", group, "lr", "weight_decay", "momentum", "dampening")
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise fail(ArgumentError, "SGD", "nesterov needs a momentum and no dampening")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"momentum": zeros_for(parameter)} if group["momentum"] else {}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        if not slots:
            return value - rate * gradient, {}
        added, momentum = gradient, as_factor(group.momentum_now(), value)
        if group["dampening"]:  # the first gradient is whole
            added = (1 - group["dampening"] * (count != 1).astype(mo.float64)).astype(value.dtype) * gradient
        moved = momentum * slots["momentum"] + added
        direction = gradient + momentum * moved if group["nesterov"] else moved
        return value - rate * direction, {"momentum": moved}


class Adam(Optimizer):
    """Adam: the mean of the gradients over the root of the mean of their squares.

    `betas` say how long both means remember, `eps` is added to the root; `weight_decay` times the value is added to the
    gradient. `amsgrad` divides by the largest mean of squares so far.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Adam([w], lr=0.5).step(); round(w.item(), 6)
    0.5
    """

    defaults: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
    decoupled = False

    def check(self, group: ParamGroup) -> None:
        at_least_zero(type(self).__name__, group, "lr", "weight_decay", "eps")
        check_betas(type(self).__name__, group)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        slots = {"mean": zeros_for(parameter), "square": zeros_for(parameter)}
        return {**slots, "largest": zeros_for(parameter)} if group["amsgrad"] else slots

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        first, second = group.momentum_now(), group["betas"][1]
        if group["weight_decay"] and self.decoupled:
            value = value * (1 - rate * group["weight_decay"])
        elif group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        mean = as_factor(first, value) * slots["mean"] + as_factor(1 - first, value) * gradient
        square = second * slots["square"] + (1 - second) * gradient * gradient
        # mean / (1 - first^n) over sqrt(square / (1 - second^n)) + eps, with the numbers taken out: one division
        scale = mo.sqrt(1 - second ** count)
        step = rate * (scale / (1 - first ** count)).astype(value.dtype)
        least = (scale * group["eps"]).astype(value.dtype)
        changed = {"mean": mean, "square": square}
        if group["amsgrad"]:
            changed["largest"] = mo.maximum(slots["largest"], square)
        root = mo.sqrt(changed["largest"] if group["amsgrad"] else square)
        return value - step * (mean / (root + least)), changed


class AdamW(Adam):
    """Adam with the decay of weights apart from the gradient: the value is multiplied by 1 - lr * weight_decay first.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.AdamW([w], lr=0.5, weight_decay=0.0).step(); round(w.item(), 6)
    0.5
    """

    defaults = {**Adam.defaults, "weight_decay": 0.01}
    decoupled = True


class Lion(Optimizer):
    """The sign of a mean of gradients: one slot per parameter, every element moves by lr.

    `betas` say how much of the mean is in the sign and how long it remembers; `weight_decay` is that of AdamW.

    >>> w = mo.nn.Parameter([1.0, -1.0])
    >>> (w * w).sum().backward(); mo.optim.Lion([w], lr=0.5).step(); w.numpy()
    array([ 0.5, -0.5], dtype=float32)
    """

    defaults = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Lion", group, "lr", "weight_decay")
        check_betas("Lion", group)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"mean": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        first, second = group["betas"]
        if group["weight_decay"]:
            value = value * (1 - rate * group["weight_decay"])
        direction = mo.sign(first * slots["mean"] + (1 - first) * gradient)
        return value - rate * direction, {"mean": second * slots["mean"] + (1 - second) * gradient}
