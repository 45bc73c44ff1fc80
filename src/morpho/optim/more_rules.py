"""Further rules under PyTorch's names: Adadelta, Adamax, RAdam, ASGD, Rprop, Muon; and two schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer, ParamGroup, Slots, at_least_zero, zeros_for
from morpho.optim.rules import check_betas
from morpho.optim.schedules import LRScheduler
from morpho.tensor.state.variable import Parameter


def _decayed(value: mo.Tensor, gradient: mo.Tensor, group: ParamGroup) -> mo.Tensor:
    return gradient + group["weight_decay"] * value if group["weight_decay"] else gradient


class Adadelta(Optimizer):
    """Steps as large as the root of past squared steps over that of past squared gradients.

    `rho` is the share that means of squares keep, `eps` is added under both roots; `weight_decay` times the value is
    added to the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Adadelta([w]).step(); round(w.item(), 3)
    0.997
    """

    defaults: dict[str, Any] = {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Adadelta", group, "lr", "rho", "eps", "weight_decay")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"square": zeros_for(parameter), "delta": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        gradient, rho, eps = _decayed(value, gradient, group), group["rho"], group["eps"]
        square = rho * slots["square"] + (1 - rho) * gradient * gradient
        step = mo.sqrt(slots["delta"] + eps) / mo.sqrt(square + eps) * gradient
        return value - rate * step, {"square": square, "delta": rho * slots["delta"] + (1 - rho) * step * step}


class Adamax(Optimizer):
    """Adam with the largest past gradient in place of the root of mean squares.

    `betas` are the shares that the mean and the largest size keep, `eps` is added to the size; `weight_decay` times the
    value is added to the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Adamax([w], lr=0.5).step(); round(w.item(), 3)
    0.5
    """

    defaults: dict[str, Any] = {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Adamax", group, "lr", "eps", "weight_decay")
        check_betas("Adamax", group)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"mean": zeros_for(parameter), "most": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        gradient, (first, second) = _decayed(value, gradient, group), group["betas"]
        mean = first * slots["mean"] + (1 - first) * gradient
        most = mo.maximum(second * slots["most"], mo.abs(gradient) + group["eps"])
        return value - rate / (1 - first ** count).astype(value.dtype) * mean / most, {"mean": mean, "most": most}


class RAdam(Optimizer):
    """Adam whose first steps, where the mean of squares is not yet to be trusted, are plain momentum.

    `betas` are the shares that means of gradients and squares keep, `eps` is added to the root. `weight_decay` times
    the value is added to the gradient, or with `decoupled_weight_decay` taken from the value.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.RAdam([w], lr=0.1).step(); round(w.item(), 3)
    0.8
    """

    defaults: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0,
                                "decoupled_weight_decay": False}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("RAdam", group, "lr", "eps", "weight_decay")
        check_betas("RAdam", group)

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"mean": zeros_for(parameter), "square": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        first, second = group["betas"]
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            value = value * (1 - rate * group["weight_decay"])
        else:
            gradient = _decayed(value, gradient, group)
        mean = first * slots["mean"] + (1 - first) * gradient
        square = second * slots["square"] + (1 - second) * gradient * gradient
        limit, power = 2 / (1 - second) - 1, second ** count
        length = limit - 2 * count * power / (1 - power)
        safe = mo.maximum(length, 5.0)
        factor = mo.sqrt((safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe))
        fair = mean / (1 - first ** count).astype(value.dtype)
        scaled = (factor * mo.sqrt(1 - power)).astype(value.dtype) / (mo.sqrt(square) + group["eps"])
        return value - rate * fair * mo.where(length > 5, scaled, 1.0), {"mean": mean, "square": square}


class ASGD(Optimizer):
    """SGD whose rate falls and whose values are averaged, in the slot `mean`.

    The rate of step k is lr / (1 + `lambd` * lr * k) ** `alpha`, and values shrink by `lambd` times the rate; averages
    begin at step `t0`. `weight_decay` times the value is added to the gradient.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.ASGD([w], lr=0.25).step(); round(w.item(), 3)
    0.5
    """

    defaults: dict[str, Any] = {"lr": 1e-2, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0.0}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("ASGD", group, "lr", "lambd", "alpha", "weight_decay")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"mean": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        gradient, lambd, before = _decayed(value, gradient, group), group["lambd"], count - 1
        now = rate / ((1 + lambd * rate.astype(mo.float64) * before) ** group["alpha"]).astype(value.dtype)
        moved = value * (1 - lambd * now) - now * gradient
        share = (1 / mo.maximum(before - group["t0"], 1.0)).astype(value.dtype)
        return moved, {"mean": mo.where(share == 1, moved, slots["mean"] + (moved - slots["mean"]) * share)}


class Rprop(Optimizer):
    """Steps of each element's own size, which grows while the sign of its gradient stays.

    `etas` are the factors by which a step shrinks and grows, `step_sizes` the smallest and the largest step.

    >>> w = mo.nn.Parameter([1.0])
    >>> (w * w).sum().backward(); mo.optim.Rprop([w], lr=0.25).step(); w.item()
    0.75
    """

    defaults: dict[str, Any] = {"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0)}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Rprop", group, "lr")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"before": zeros_for(parameter), "size": zeros_for(parameter) + float(group["lr"])}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        (less, more), (least, most) = group["etas"], group["step_sizes"]
        turn = gradient * slots["before"]
        size = mo.clip(slots["size"] * mo.where(turn > 0, more, mo.where(turn < 0, less, 1.0)), least, most)
        gradient = mo.where(turn < 0, mo.zeros_like(gradient), gradient)
        return value - mo.sign(gradient) * size, {"before": gradient, "size": size}


class Muon(Optimizer):
    """Momentum whose matrices are made orthogonal by five steps of Newton and Schulz; for matrices alone.

    `momentum` (with `nesterov` looked at one step ahead) is made orthogonal by `ns_steps` Newton-Schulz steps with
    `ns_coefficients`, and `eps` added to its norm. `adjust_lr_fn` scales the rate by the shape ("original",
    "match_rms_adamw"); `weight_decay` times the rate is taken from values.

    >>> w = mo.nn.Parameter([[1.0, 0.0], [0.0, 1.0]])
    >>> (w * w).sum().backward(); mo.optim.Muon([w], lr=0.1, weight_decay=0.0).step(); w.shape
    (2, 2)
    """

    defaults: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "eps": 1e-7,
                                "ns_coefficients": (3.4445, -4.775, 2.0315), "ns_steps": 5, "adjust_lr_fn": None}

    def check(self, group: ParamGroup) -> None:
        at_least_zero("Muon", group, "lr", "weight_decay", "momentum")
        if any(one.ndim != 2 for one in group.params):
            raise fail(ArgumentError, "Muon", "a parameter is no matrix", "give other parameters to mo.optim.AdamW")

    def slots(self, parameter: Parameter, group: ParamGroup) -> Slots:
        return {"momentum": zeros_for(parameter)}

    def update(self, value: mo.Tensor, gradient: mo.Tensor, slots: Slots, rate: mo.Tensor, group: ParamGroup,
               count: mo.Tensor) -> tuple[mo.Tensor, Slots]:
        share = group["momentum"]
        held = share * slots["momentum"] + (1 - share) * gradient
        x = (1 - share) * gradient + share * held if group["nesterov"] else held
        rows, columns = (int(size) for size in value.shape)
        x = x.T if rows > columns else x
        x = x / mo.maximum(mo.linalg.vector_norm(x), group["eps"])
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            square = x @ x.T
            x = a * x + (b * square + c * square @ square) @ x
        x = x.T if rows > columns else x
        factor = 0.2 * max(rows, columns) ** 0.5 if group["adjust_lr_fn"] == "match_rms_adamw" else \
            max(1.0, rows / columns) ** 0.5
        return value * (1 - rate * group["weight_decay"]) - rate * factor * x, {"momentum": held}


class MultiplicativeLR(LRScheduler):
    """Times what a function of the step gives, step after step.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.MultiplicativeLR(opt, lambda step: 0.5)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(3)]
    [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
                 last_epoch: int = -1) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        function = self.lr_lambda if callable(self.lr_lambda) else self.lr_lambda[group]
        for number in range(1, step + 1):
            base *= function(number)
        return base


class CyclicLR(LRScheduler):
    """Up from `base_lr` to `max_lr` and down again, again and again.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.CyclicLR(opt, 0.0, 1.0, step_size_up=2, cycle_momentum=False)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, base_lr: float | Sequence[float], max_lr: float | Sequence[float],
                 step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
                 gamma: float = 1.0, scale_fn: Callable[[Any], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9,
                 last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise fail(ArgumentError, "CyclicLR", f"mode {mode!r} is unknown", "triangular, triangular2 or exp_range")
        if cycle_momentum:
            raise fail(ArgumentError, "CyclicLR", "the momentum does not go along", "write cycle_momentum=False")
        self.base_lr, self.max_lr, self.mode, self.gamma, self.scale_fn = base_lr, max_lr, mode, gamma, scale_fn
        self.up, self.down = step_size_up, step_size_up if step_size_down is None else step_size_down
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        low, high = (one if isinstance(one, float | int) else one[group] for one in (self.base_lr, self.max_lr))
        cycle, place = divmod(step, self.up + self.down)
        height = place / self.up if place <= self.up else 1 - (place - self.up) / self.down
        number = cycle + 1 if self.scale_mode == "cycle" else step
        if self.scale_fn is not None:
            scale = self.scale_fn(number)
        else:
            scale = {"triangular": 1.0, "triangular2": 0.5 ** cycle, "exp_range": self.gamma ** step}[self.mode]
        return low + (high - low) * height * scale
