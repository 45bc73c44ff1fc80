"""Schedules: the learning rate as a function of the number of steps. Each is a formula of the step, so that a run which
is taken up again has the same bits; `step()` after every `optimizer.step()`, or after every epoch.

>>> w = mo.nn.Parameter([1.0])
>>> opt = mo.optim.SGD([w], lr=1.0)
>>> schedule = mo.optim.StepLR(opt, step_size=2, gamma=0.1)
>>> rates = []
>>> for _ in range(4):
...     rates += schedule.get_last_lr(); schedule.step()
>>> rates
[1.0, 1.0, 0.1, 0.1]

The rate lives in a state: a compiled step follows it without being compiled again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from morpho.base.checks import check_numbers, shown
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer
from morpho.tensor.state.trace import current_trace


class LRScheduler:
    """Base of schedules; a new one defines its rate: `rate(base, step, group)`.

    >>> class Halved(mo.optim.LRScheduler):
    ...     def rate(self, base, step, group):
    ...         return base / 2**step
    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = Halved(opt)
    >>> for _ in range(2):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer) -> None:
        check_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        self.base_lrs: list[float] = []
        self.last_epoch = 0
        self._set()

    def rate(self, base: float, step: int, group: int) -> float:
        """The learning rate of a group after `step` steps, if it would be `base` without this schedule."""
        raise NotImplementedError

    def step(self) -> None:
        """Go on by one step."""
        if current_trace() is not None:
            raise fail(ArgumentError, type(self).__name__, "a schedule goes on inside a compiled function, which would "
                       "happen once only", "call step() after the compiled function")
        self.last_epoch += 1
        self._set()

    def _set(self) -> None:
        for group in self.optimizer.param_groups[len(self.base_lrs):]:  # all at first, later those that were added
            if group.initial is None:
                group.initial = group["lr"]  # what the first schedule found: that of later ones too
            self.base_lrs.append(group.initial)
        for number, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = self.rate(base, self.last_epoch, number)

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` goes on."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        if len(saved["base_lrs"]) != len(self.optimizer.param_groups):
            raise fail(ArgumentError, type(self).__name__, f"the saved state is of {len(saved['base_lrs'])} groups, "
                                                           f"the optimiser has {len(self.optimizer.param_groups)}")
        self.last_epoch, self.base_lrs = int(saved["last_epoch"]), [float(base) for base in saved["base_lrs"]]
        self._set()


def check_optimizer(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise fail(ArgumentError, name, f"{type(optimizer).__name__} is not an optimiser")


def _positive(name: str, **numbers: Any) -> None:
    for key, number in numbers.items():
        check_numbers(name, **{key: number})
        if not number > 0:
            raise fail(ArgumentError, name, f"{key}={number!r} is not a positive number")


def check_milestones(name: str, milestones: Any) -> list[int]:
    """Numbers of steps, as a list."""
    if not isinstance(milestones, Sequence) or isinstance(milestones, str):
        raise fail(ArgumentError, name, f"milestones={shown(milestones)} is not a list of steps")
    check_numbers(name, 0, **{f"milestones[{i}]": milestone for i, milestone in enumerate(milestones)})
    return list(milestones)


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` steps.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.StepLR(opt, step_size=2, gamma=0.5)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        _positive("StepLR", step_size=step_size)
        check_numbers("StepLR", gamma=gamma)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the `milestones`.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.MultiStepLR(opt, [1, 3], gamma=0.5)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        check_numbers("MultiStepLR", gamma=gamma)
        self.milestones, self.gamma = sorted(check_milestones("MultiStepLR", milestones)), gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, step)


class ConstantLR(LRScheduler):
    """Times `factor` for the first `total_iters` steps.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.ConstantLR(opt, factor=0.5, total_iters=2)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        check_numbers("ConstantLR", factor=factor, total_iters=total_iters)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.factor if step < self.total_iters else base


class ExponentialLR(LRScheduler):
    """Times `gamma` at every step.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.ExponentialLR(opt, gamma=0.5)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(3)]
    [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        check_numbers("ExponentialLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** step


class CosineAnnealingLR(LRScheduler):
    """Along half a cosine from the base down to `eta_min` in `T_max` steps, and up again in as many.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.CosineAnnealingLR(opt, T_max=2)
    >>> [round((schedule.get_last_lr()[0], schedule.step())[0], 3) for _ in range(3)]
    [1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        _positive("CosineAnnealingLR", T_max=T_max)
        check_numbers("CosineAnnealingLR", eta_min=eta_min)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class LinearLR(LRScheduler):
    """Times a factor that goes in a line from `start_factor` to `end_factor` in `total_iters` steps.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.LinearLR(opt, start_factor=0.5, total_iters=2)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(3)]
    [0.5, 0.75, 1.0]
    """

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5) -> None:
        _positive("LinearLR", total_iters=total_iters)
        check_numbers("LinearLR", start_factor=start_factor, end_factor=end_factor)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        done = min(step, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class PolynomialLR(LRScheduler):
    """Times (1 - step / total_iters) to a power; 0 in the end.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.PolynomialLR(opt, total_iters=4)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        _positive("PolynomialLR", total_iters=total_iters)
        check_numbers("PolynomialLR", power=power)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return float(base * (1 - min(step, self.total_iters) / self.total_iters) ** self.power)


class LambdaLR(LRScheduler):
    """Times `lr_lambda(step)`, one for all groups or a list with one for each.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.LambdaLR(opt, lambda step: 1 / (1 + step))
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(2)]
    [1.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer,
                 lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]) -> None:
        check_optimizer("LambdaLR", optimizer)
        if not callable(lr_lambda) and not isinstance(lr_lambda, Sequence):
            raise fail(ArgumentError, "LambdaLR", f"lr_lambda={shown(lr_lambda)} is not a function, nor a list of some")
        self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups) if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != len(optimizer.param_groups):
            raise fail(ArgumentError, "LambdaLR", f"{len(self.lr_lambdas)} functions are given for "
                                                  f"{len(optimizer.param_groups)} groups")
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.lr_lambdas[group](step)


class WarmupCosineLR(LRScheduler):
    """Up in a line for `warmup_iters` steps, then along half a cosine down to `end_factor` times the base at step
    `total_iters`.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> schedule = mo.optim.WarmupCosineLR(opt, warmup_iters=1, total_iters=3)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.5, 1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, warmup_iters: int, total_iters: int, end_factor: float = 0.0) -> None:
        check_numbers(type(self).__name__, warmup_iters=warmup_iters, total_iters=total_iters,
                      end_factor=end_factor)
        if not 0 <= warmup_iters < total_iters:
            raise fail(ArgumentError, type(self).__name__, f"a warm-up of {warmup_iters} steps does not fit into "
                                                           f"{total_iters}")
        self.warmup_iters, self.total_iters, self.end_factor = warmup_iters, total_iters, end_factor
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        if step < self.warmup_iters:
            return base * (step + 1) / (self.warmup_iters + 1)
        share = (min(step, self.total_iters) - self.warmup_iters) / (self.total_iters - self.warmup_iters)
        return base * (self.end_factor + (1 - self.end_factor) * self.left(share))

    def left(self, share: float) -> float:
        """Share of the rate left after a share of the decay."""
        return (1 + math.cos(math.pi * share)) / 2


class WarmupLinearLR(WarmupCosineLR):
    """Up in a line for `warmup_iters` steps, then down in a line to `end_factor` times the base at step
    `total_iters`.

    >>> opt = mo.optim.SGD([mo.nn.Parameter(mo.ones(1))], lr=1.0)
    >>> schedule = mo.optim.WarmupLinearLR(opt, warmup_iters=2, total_iters=4)
    >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
    [0.3333333333333333, 0.6666666666666666, 1.0, 0.5, 0.0]
    """

    def left(self, share: float) -> float:
        return 1 - share
