"""Rules that divide by the root of past squared gradients: RMSprop, Adagrad, NAdam."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers
from morpho.optim.optimizer import Optimizer, ParamGroup, Slots, at_least_zero, zeros_for
from morpho.optim.rules import as_factor, check_betas
from morpho.tensor.state.variable import Parameter


class RMSprop(Optimizer):
    """The gradient over the root of a mean of its squares.

    `alpha` says how long the mean remembers, `eps` is added to the root; `centered` takes the square of the mean
    gradient off first, `momentum` adds a part of the last change; `weight_decay` times the value is added to the
    gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.RMSprop([w], lr=0.01).step(); round(w.item(), 4)
    0.9
    """

    defaults: dict[str, Any] = {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0,
                                "centered": False}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("RMSprop", group, "lr", "weight_decay", "eps", "momentum")
        check_numbers("RMSprop", 0, 1.0000001, alpha=group["alpha"])

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        kept = ["square", *(["mean"] if group["centered"] else []), *(["momentum"] if group["momentum"] else [])]
        return {name: zeros_for(parameter) for name in kept}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        alpha, new = group["alpha"], {}
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        new["square"] = moment = alpha * slots["square"] + (1 - alpha) * gradient * gradient
        if group["centered"]:
            new["mean"] = slots["mean"] + (1 - alpha) * (gradient - slots["mean"])
            moment = mo.maximum(moment - mo.square(new["mean"]), 0.0)  # rounding alone makes it negative
        change = gradient / (mo.sqrt(moment) + group["eps"])
        if "momentum" in slots:
            new["momentum"] = change = as_factor(group.momentum_now(), value) * slots["momentum"] + change
        return value - rate * change, new


class Adagrad(Optimizer):
    """The gradient over the root of the sum of all its squares so far.

    `lr_decay` makes the rate lr / (1 + (n - 1) * lr_decay) at step n, `initial_accumulator_value` is where the sum
    begins, `eps` is added to the root; `weight_decay` times the value is added to the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Adagrad([w], lr=0.25).step(); round(w.item(), 4)
    0.75
    """

    defaults: dict[str, Any] = {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "initial_accumulator_value": 0.0,
                                "eps": 1e-10}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Adagrad", group, *self.defaults)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"sum": zeros_for(parameter) + float(group["initial_accumulator_value"])}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        if group["lr_decay"]:
            rate = rate / (1 + (count - 1) * group["lr_decay"]).astype(value.dtype)
        total = slots["sum"] + gradient * gradient
        return value - rate * (gradient / (mo.sqrt(total) + group["eps"])), {"sum": total}


class NAdam(Optimizer):
    """Adam that looks a step ahead, as Nesterov's momentum does.

    `betas`, `eps` and `weight_decay` are Adam's, `momentum_decay` says how fast the first beta grows to its value; with
    `decoupled_weight_decay` the decay is AdamW's.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.NAdam([w], lr=0.5).step(); round(w.item(), 4)
    0.4...
    """

    defaults: dict[str, Any] = {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0,
                                "momentum_decay": 4e-3, "decoupled_weight_decay": False}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("NAdam", group, "lr", "weight_decay", "eps", "momentum_decay")
        check_betas("NAdam", group)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"mean": zeros_for(parameter), "square": zeros_for(parameter),
                "product": mo.ones((), dtype=mo.float64)}  # of all first betas so far

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        first, second = group.momentum_now(), group["betas"][1]
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            value = value * (1 - rate * group["weight_decay"])
        elif group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * value
        mean = as_factor(first, value) * slots["mean"] + as_factor(1 - first, value) * gradient
        square = second * slots["square"] + (1 - second) * gradient * gradient
        now, ahead = (first * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (count, count + 1))
        product = slots["product"] * now
        root = mo.sqrt(square / (1 - second ** count).astype(value.dtype)) + group["eps"]
        fresh = rate * ((1 - now) / (1 - product)).astype(value.dtype)
        old = rate * (ahead / (1 - product * ahead)).astype(value.dtype)
        return (value - (fresh * gradient + old * mean) / root,
                {"mean": mean, "square": square, "product": product})
