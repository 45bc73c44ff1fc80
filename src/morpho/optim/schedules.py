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


class Schedule:
    """What schedules have in common; a new one says what becomes of a rate: `rate(base, step, group)`."""

    def __init__(self, optimizer: Optimizer) -> None:
        _check_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        self.bases: list[float] = []
        self.last_step = 0
        self._set()

    def rate(self, base: float, step: int, group: int) -> float:
        """The learning rate of a group after `step` steps, if it would be `base` without this schedule."""
        raise NotImplementedError

    def step(self) -> None:
        """Go on by one step."""
        if current_trace() is not None:
            raise fail(ArgumentError, type(self).__name__, "a schedule goes on inside a compiled function, which would "
                       "happen once only", "call step() after the compiled function")
        self.last_step += 1
        self._set()

    def _set(self) -> None:
        for group in self.optimizer.groups[len(self.bases):]:  # all at first, later those that were added
            if group.initial is None:
                group.initial = group["lr"]  # what the first schedule found: that of later ones too
            self.bases.append(group.initial)
        for number, (group, base) in enumerate(zip(self.optimizer.groups, self.bases, strict=True)):
            group["lr"] = self.rate(base, self.last_step, number)

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return [group["lr"] for group in self.optimizer.groups]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` goes on."""
        return {"last_step": self.last_step, "bases": list(self.bases)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        if len(saved["bases"]) != len(self.optimizer.groups):
            raise fail(ArgumentError, type(self).__name__, f"the saved state is of {len(saved['bases'])} groups, the "
                                                           f"optimiser has {len(self.optimizer.groups)}")
        self.last_step, self.bases = int(saved["last_step"]), [float(base) for base in saved["bases"]]
        self._set()


def _check_optimizer(name: str, optimizer: Any) -> None:
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


class StepLR(Schedule):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        _positive("StepLR", step_size=step_size)
        check_numbers("StepLR", gamma=gamma)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** (step // self.step_size)


class MultiStepLR(Schedule):
    """Times `gamma` at each of the `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        check_numbers("MultiStepLR", gamma=gamma)
        self.milestones, self.gamma = sorted(check_milestones("MultiStepLR", milestones)), gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, step)


class ConstantLR(Schedule):
    """Times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        check_numbers("ConstantLR", factor=factor, total_iters=total_iters)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.factor if step < self.total_iters else base


class ExponentialLR(Schedule):
    """Times `gamma` at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        check_numbers("ExponentialLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.gamma ** step


class CosineAnnealingLR(Schedule):
    """Along half a cosine from the base down to `eta_min` in `T_max` steps, and up again in as many."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        _positive("CosineAnnealingLR", T_max=T_max)
        check_numbers("CosineAnnealingLR", eta_min=eta_min)
        self.half, self.least = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return self.least + (base - self.least) * (1 + math.cos(math.pi * step / self.half)) / 2


class LinearLR(Schedule):
    """Times a factor that goes in a line from `start_factor` to `end_factor` in `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5) -> None:
        _positive("LinearLR", total_iters=total_iters)
        check_numbers("LinearLR", start_factor=start_factor, end_factor=end_factor)
        self.start, self.end, self.total = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * (self.start + (self.end - self.start) * min(step, self.total) / self.total)


class PolynomialLR(Schedule):
    """Times (1 - step / total_iters) to a power; 0 in the end."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        _positive("PolynomialLR", total_iters=total_iters)
        check_numbers("PolynomialLR", power=power)
        self.total, self.power = total_iters, power
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * (1 - min(step, self.total) / self.total) ** self.power


class LambdaLR(Schedule):
    """Times `lr_lambda(step)`, one for all groups or a list with one for each."""

    def __init__(self, optimizer: Optimizer,
                 lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]) -> None:
        _check_optimizer("LambdaLR", optimizer)
        if not callable(lr_lambda) and not isinstance(lr_lambda, Sequence):
            raise fail(ArgumentError, "LambdaLR", f"lr_lambda={shown(lr_lambda)} is not a function, nor a list of some")
        self.functions = [lr_lambda] * len(optimizer.groups) if callable(lr_lambda) else list(lr_lambda)
        if len(self.functions) != len(optimizer.groups):
            raise fail(ArgumentError, "LambdaLR", f"{len(self.functions)} functions are given for "
                                                  f"{len(optimizer.groups)} groups")
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        return base * self.functions[group](step)


class WarmupCosineLR(Schedule):
    """Up in a line for `warmup` steps, then along half a cosine down to `least` times the base at step `total`.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> schedule = mo.optim.WarmupCosineLR(opt, warmup=1, total=3)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.5, 1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, least: float = 0.0) -> None:
        check_numbers(type(self).__name__, warmup=warmup, total=total, least=least)
        if not 0 <= warmup < total:
            raise fail(ArgumentError, type(self).__name__, f"a warm-up of {warmup} steps does not fit into {total}")
        self.warmup, self.total, self.least = warmup, total, least
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        if step < self.warmup:
            return base * (step + 1) / (self.warmup + 1)
        share = (min(step, self.total) - self.warmup) / (self.total - self.warmup)
        return base * (self.least + (1 - self.least) * self.left(share))

    def left(self, share: float) -> float:
        """What is left of the rate after a share of the decay."""
        return (1 + math.cos(math.pi * share)) / 2


class WarmupLinearLR(WarmupCosineLR):
    """Up in a line for `warmup` steps, then down in a line to `least` times the base at step `total`."""

    def left(self, share: float) -> float:
        return 1 - share
