"""Schedules that go round: one cycle up and down, and cosines that begin anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from morpho.base.checks import as_whole, check_numbers, shown
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer
from morpho.optim.schedules import LRScheduler, check_optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Along half a cosine from the base down to `eta_min` in `T_0` steps, then anew from the base in `T_mult` times as
    many, and so on.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> schedule = mo.optim.CosineAnnealingWarmRestarts(opt, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0) -> None:
        name = "CosineAnnealingWarmRestarts"
        for key, number in (("T_0", T_0), ("T_mult", T_mult)):
            if (as_whole(number) or 0) < 1:
                raise fail(ArgumentError, name, f"{key}={shown(number)} is not a positive whole number")
        check_numbers(name, eta_min=eta_min)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        length = self.T_0
        if self.T_mult == 1:
            step %= length
        while step >= length:  # as many turns as there were restarts
            step, length = step - length, length * self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * step / length)) / 2


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to `max_lr` in the share `pct_start` of `total_steps`, then down to the first rate
    divided by `final_div_factor`; with `three_phase` down to the first rate in as many steps as up, and then further.

    max_lr: one for all groups, or a list with one for each.
    total_steps: of the whole cycle, or `epochs` times `steps_per_epoch`.
    anneal_strategy: "cos" or "linear".
    cycle_momentum: the momentum, or the first of the betas, goes from `max_momentum` down to `base_momentum` and back.
        It is a state then, like the rate: a compiled step follows it without being compiled again.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=0.1, momentum=0.9)
    >>> schedule = mo.optim.OneCycleLR(opt, max_lr=1.0, total_steps=5, pct_start=0.4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr() + [opt.param_groups[0]["momentum"]]
    ...     if schedule.last_epoch < 4: schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.04, 0.95, 1.0, 0.85, 0.75, 0.875, 0.25, 0.925, 0.0, 0.95]
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
                 epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float | Sequence[float] = 0.85, max_momentum: float | Sequence[float] = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False) -> None:
        name = "OneCycleLR"
        check_optimizer(name, optimizer)
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = (as_whole(epochs) or 0) * (as_whole(steps_per_epoch) or 0)
        if (as_whole(total_steps) or 0) < 1:
            raise fail(ArgumentError, name, f"total_steps={shown(total_steps)} is not a positive whole number",
                       "say total_steps, or epochs and steps_per_epoch")
        check_numbers(name, 0, pct_start=pct_start, div_factor=div_factor, final_div_factor=final_div_factor)
        if pct_start > 1 or not div_factor or not final_div_factor:
            raise fail(ArgumentError, name, f"pct_start={pct_start} is more than 1, or one of div_factor={div_factor} "
                                            f"and final_div_factor={final_div_factor} is 0")
        if anneal_strategy not in ("cos", "linear"):
            raise fail(ArgumentError, name, f"anneal_strategy {anneal_strategy!r} is unknown", "use 'cos' or 'linear'")
        self.total_steps: int = int(total_steps)  # type: ignore[arg-type]
        self.pct_start, self.anneal_strategy, self.three_phase = pct_start, anneal_strategy, three_phase
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        groups = len(optimizer.param_groups)
        self.max_lrs = _per_group(name, "max_lr", max_lr, groups)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums = _per_group(name, "base_momentum", base_momentum, groups)
            self.max_momentums = _per_group(name, "max_momentum", max_momentum, groups)
            self._begin_cycle(name, optimizer)
        super().__init__(optimizer)

    @staticmethod
    def _begin_cycle(name: str, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            if group.momentum_name is None or (group.momentum_name == "momentum" and not group["momentum"]):
                raise fail(ArgumentError, name, f"{type(optimizer).__name__} has no momentum to cycle",
                           "say cycle_momentum=False, or give the optimiser a momentum")
        for group in optimizer.param_groups:
            group.cycle_momentum()

    def _phases(self) -> list[tuple[float, int, int]]:
        """The step at which each phase ends, and the levels it goes between: 0 the first rate, 1 the highest, 2 the
        last."""
        up = self.pct_start * self.total_steps - 1
        if self.three_phase:
            return [(up, 0, 1), (2 * up, 1, 0), (self.total_steps - 1, 0, 2)]
        return [(up, 0, 1), (self.total_steps - 1, 1, 2)]

    def _along(self, levels: Sequence[float], step: int) -> float:
        """Where a quantity with these levels is."""
        begin = 0.0
        for end, low, high in self._phases():
            if step <= end or end >= self.total_steps - 1:
                share = (step - begin) / (end - begin) if end != begin else 1.0
                if self.anneal_strategy == "cos":
                    return levels[high] + (levels[low] - levels[high]) * (1 + math.cos(math.pi * share)) / 2
                return levels[low] + (levels[high] - levels[low]) * share
            begin = end
        raise AssertionError("the last phase ends with the cycle")

    def rate(self, base: float, step: int, group: int) -> float:
        if step >= self.total_steps:
            raise fail(ArgumentError, "OneCycleLR", f"step {step} is beyond the {self.total_steps} of the cycle",
                       "step the schedule once per optimiser step, total_steps - 1 times")
        most = self.max_lrs[group % len(self.max_lrs)]
        first = most / self.div_factor
        return self._along((first, most, first / self.final_div_factor), step)

    def _set(self) -> None:
        super()._set()
        if not self.cycle_momentum:
            return
        for number, group in enumerate(self.optimizer.param_groups):
            least, most = (found[number % len(found)] for found in (self.base_momentums, self.max_momentums))
            now = self._along((most, least, most), self.last_epoch)
            group.cycle_momentum()
            if group.momentum_name == "betas":
                group["betas"] = (now, *group["betas"][1:])
            else:
                group["momentum"] = now


def _per_group(name: str, what: str, value: Any, groups: int) -> list[float]:
    """One number for all groups, or one for each."""
    numbers = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value] * groups
    check_numbers(name, 0, **{f"{what}[{i}]" if len(numbers) > 1 else what: one for i, one in enumerate(numbers)})
    if len(numbers) != groups:
        raise fail(ArgumentError, name, f"{len(numbers)} numbers of {what} are given for {groups} groups")
    return [float(number) for number in numbers]
