"""Schedules made of schedulers, and the one that follows a measure of success."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from morpho.base.checks import check_numbers
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import Optimizer
from morpho.optim.schedules import LRScheduler, check_milestones
from morpho.tensor.state.trace import current_trace


def _check_optimizer(name: str, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler]) -> None:
    if not schedulers:
        raise fail(ArgumentError, name, "there is no schedule to put together")
    for schedule in schedulers:
        if not isinstance(schedule, LRScheduler):
            raise fail(ArgumentError, name, f"{type(schedule).__name__} is not a formula of the step")
        if schedule.optimizer is not (optimizer or schedulers[0].optimizer):
            raise fail(ArgumentError, name, "the schedulers are of different optimisers")


class SequentialLR(LRScheduler):
    """One schedule after another; each begins at its milestone, counting from 0.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> first, second = mo.optim.LinearLR(opt, 0.5, total_iters=2), mo.optim.ExponentialLR(opt, 0.5)
    >>> schedule = mo.optim.SequentialLR(opt, [first, second], milestones=[2])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr(); schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        _check_optimizer("SequentialLR", optimizer, schedulers)
        check_milestones("SequentialLR", milestones)
        if len(milestones) != len(schedulers) - 1 or list(milestones) != sorted(milestones):
            raise fail(ArgumentError, "SequentialLR", f"{len(schedulers)} schedulers have {len(schedulers) - 1} "
                                                      f"ascending milestones between them, not {list(milestones)}")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        number = bisect_right(self.milestones, step)
        return self.schedulers[number].rate(base, step - (self.milestones[number - 1] if number else 0), group)


class ChainedScheduler(LRScheduler):
    """Several schedulers at once: each is applied to what the one before it gives.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> schedule = mo.optim.ChainedScheduler([mo.optim.ConstantLR(opt, 0.5, 1), mo.optim.ExponentialLR(opt, 0.5)])
    >>> rates = []
    >>> for _ in range(3):
    ...     rates += schedule.get_last_lr(); schedule.step()
    >>> rates
    [0.5, 0.5, 0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        _check_optimizer("ChainedScheduler", None, schedulers)
        self.schedulers = list(schedulers)
        super().__init__(schedulers[0].optimizer)

    def rate(self, base: float, step: int, group: int) -> float:
        for schedule in self.schedulers:
            base = schedule.rate(base, step, group)
        return base


class ReduceLROnPlateau:
    """Times `factor` when a measure has not become better for more than `patience` steps: `schedule.step(loss)`.

    Better is less by the share `threshold` (`mode="max"`: more; `threshold_mode="abs"`: by that much). After a change
    `cooldown` steps are not counted, and no rate goes below `min_lr`.

    >>> opt = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
    >>> schedule = mo.optim.ReduceLROnPlateau(opt, factor=0.5, patience=1)
    >>> for loss in (1.0, 1.0, 1.0):
    ...     schedule.step(loss)
    >>> opt.param_groups[0]["lr"]
    0.5
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0.0,
                 eps: float = 1e-8) -> None:
        name = "ReduceLROnPlateau"
        if not isinstance(optimizer, Optimizer):
            raise fail(ArgumentError, name, f"{type(optimizer).__name__} is not an optimiser")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise fail(ArgumentError, name, f"mode={mode!r}, threshold_mode={threshold_mode!r} are unknown",
                       "use 'min' or 'max', 'rel' or 'abs'")
        check_numbers(name, factor=factor)
        check_numbers(name, 0, patience=patience, threshold=threshold, cooldown=cooldown, min_lr=min_lr, eps=eps)
        if not 0 < factor < 1:
            raise fail(ArgumentError, name, f"factor={factor} does not lie between 0 and 1")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps = min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.waiting = self.last_epoch = 0

    def step(self, measure: Any) -> None:
        """Look at a new measure: a number or a 0-dimensional tensor."""
        if current_trace() is not None:
            raise fail(ArgumentError, "ReduceLROnPlateau", "it needs the value of its measure",
                       "call step() after the compiled function")
        current = float(measure)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.bad = current, 0
        else:
            self.bad += 1
        if self.waiting > 0:
            self.waiting, self.bad = self.waiting - 1, 0
        if self.bad > self.patience:
            for group in self.optimizer.param_groups:
                less = max(group["lr"] * self.factor, self.min_lr)
                if group["lr"] - less > self.eps:
                    group["lr"] = less
            self.waiting, self.bad = self.cooldown, 0

    def _is_better(self, current: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * current < sign * self.best * (1 - sign * self.threshold)
        return sign * current < sign * self.best - self.threshold

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` goes on; the rates are in the optimiser's."""
        best = None if math.isinf(self.best) else self.best  # JSON has no infinities
        return {"best": best, "bad": self.bad, "waiting": self.waiting, "last_epoch": self.last_epoch}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        worst = math.inf if self.mode == "min" else -math.inf
        self.best = worst if saved["best"] is None else float(saved["best"])
        self.bad, self.waiting, self.last_epoch = (int(saved[key]) for key in ("bad", "waiting", "last_epoch"))
