"""Optimisers, clipping and schedules against PyTorch's, in float64 over 20 steps; skipped where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo

torch = pytest.importorskip("torch", reason="PyTorch is not installed: optimisers are not compared with it")

STEPS = 20
SHAPES = ((5, 3), (3,), (2, 4, 3), ())


def losses(values: list[Any], step: int, where: Any) -> Any:
    """Some function of all parameters whose gradients change in size and sign from step to step; the numbers are
    tensors, so that one program serves all steps."""
    size, speed = (where.asarray(number, dtype=where.float64) for number in (1.0 + 0.2 * (step % 5), 1.0 + step % 3))
    total = 0.0
    for number, value in enumerate(values):
        total = total + ((value * value - 0.3 * value) * (1.0 + 0.1 * number)).sum() * size
        total = total + where.sin(value * speed).sum()
    return total


def both(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    starts = [rng.normal(size=shape) for shape in SHAPES]
    ours = [mo.nn.Parameter(mo.asarray(start)) for start in starts]
    theirs = [torch.nn.Parameter(torch.tensor(start, dtype=torch.float64)) for start in starts]
    return ours, theirs


def assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)


RULES = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True}),
    ("Adam", {"lr": 0.02}),
    ("Adam", {"lr": 0.02, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
    ("AdamW", {"lr": 0.02, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.02, "weight_decay": 0.0, "maximize": True}),
    ("Adafactor", {"lr": 0.05}),
    ("Adafactor", {"lr": 0.05, "weight_decay": 0.1, "d": 2.0, "eps": (1e-4, 1e-2), "beta2_decay": -0.6}),
]


@pytest.mark.parametrize(("name", "settings"), RULES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(RULES)])
def test_rules(name: str, settings: dict[str, Any], rng: np.random.Generator) -> None:
    """Every setting, on parameters of 0 to 3 axes; one of them rests in some steps."""
    ours, theirs = both(rng)
    mine = getattr(mo.optim, name)(ours, **settings)
    other = getattr(torch.optim, name)(theirs, **settings)

    @mo.compile
    def train(step: int) -> None:
        losses(ours, step, mo).backward()
        mine.step()
        mine.zero_grad()

    for step in range(STEPS):
        losses(theirs if step % 3 else theirs[1:], step, torch).backward()
        other.step()
        other.zero_grad()
        if step == 4:  # the same as one native function
            train(step)
        else:
            losses(ours if step % 3 else ours[1:], step, mo).backward()
            mine.step()
            mine.zero_grad()
    assert_equal(ours, theirs)


def test_groups_and_clipping(rng: np.random.Generator) -> None:
    """Settings per group, gradients clipped by norm, by the largest and by value."""
    ours, theirs = both(rng)
    mine = mo.optim.AdamW([{"params": ours[:2], "lr": 0.1}, {"params": ours[2:], "weight_decay": 0.0}], lr=0.01)
    other = torch.optim.AdamW([{"params": theirs[:2], "lr": 0.1}, {"params": theirs[2:], "weight_decay": 0.0}], lr=0.01)
    for step in range(STEPS):
        losses(theirs, step, torch).backward()
        losses(ours, step, mo).backward()
        if step % 3 == 0:
            found = mo.optim.clip_grad_norm(ours, 1.5)
            assert abs(found.item() - torch.nn.utils.clip_grad_norm_(theirs, 1.5).item()) < 1e-9
        elif step % 3 == 1:
            found = mo.optim.clip_grad_norm(ours, 0.7, norm_type=mo.inf)
            assert abs(found.item() - torch.nn.utils.clip_grad_norm_(theirs, 0.7, float("inf")).item()) < 1e-9
        else:
            mo.optim.clip_grad_value(ours, 0.5)
            torch.nn.utils.clip_grad_value_(theirs, 0.5)
        mine.step()
        other.step()
        mine.zero_grad()
        other.zero_grad()
    assert_equal(ours, theirs)


def warm_up(s: Any, opt: Any, decay: Callable[[], Any]) -> Any:
    return s.SequentialLR(opt, [s.LinearLR(opt, 1 / 5, 1.0, 4), decay()], [4])


SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda s, opt: s.StepLR(opt, 3, 0.5),
    "multi": lambda s, opt: s.MultiStepLR(opt, [2, 7, 7, 11], 0.3),
    "constant": lambda s, opt: s.ConstantLR(opt, 0.25, 4),
    "exponential": lambda s, opt: s.ExponentialLR(opt, 0.9),
    "cosine": lambda s, opt: s.CosineAnnealingLR(opt, 6, 0.001),
    "linear": lambda s, opt: s.LinearLR(opt, 0.2, 0.7, 8),
    "polynomial": lambda s, opt: s.PolynomialLR(opt, 12, 2.0),
    "lambda": lambda s, opt: s.LambdaLR(opt, [lambda n: 0.9 ** n, lambda n: 1 / (1 + n)]),
    "sequence": lambda s, opt: s.SequentialLR(opt, [s.LinearLR(opt, 0.1, 1.0, 4), s.CosineAnnealingLR(opt, 9),
                                                    s.ExponentialLR(opt, 0.8)], [4, 13]),
    "chain": lambda s, opt: s.ChainedScheduler([s.LinearLR(opt, 0.5, 1.0, 5), s.ExponentialLR(opt, 0.9),
                                                s.StepLR(opt, 4, 0.5)]),
    "plateau": lambda s, opt: s.ReduceLROnPlateau(opt, "min", 0.5, 2, cooldown=1, min_lr=0.002),
    "plateau of more": lambda s, opt: s.ReduceLROnPlateau(opt, "max", 0.5, 1, threshold=0.05, threshold_mode="abs"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str, rng: np.random.Generator) -> None:
    """The rates of two groups over 20 steps."""
    ours, theirs = both(rng)
    mine = mo.optim.SGD([{"params": ours[:1]}, {"params": ours[1:], "lr": 0.5}], lr=0.1)
    other = torch.optim.SGD([{"params": theirs[:1]}, {"params": theirs[1:], "lr": 0.5}], lr=0.1)
    schedule, their_schedule = SCHEDULES[name](mo.optim, mine), SCHEDULES[name](torch.optim.lr_scheduler, other)
    for step in range(STEPS):
        rates = [group["lr"] for group in other.param_groups]
        np.testing.assert_allclose(schedule.get_last_lr(), rates, rtol=1e-9, atol=1e-12, err_msg=f"step {step}")
        assert [group.rate.value.item() for group in mine.param_groups] == schedule.get_last_lr()
        other.step()
        measure = [float(rng.normal() * 0.1 + 1 / (1 + step))] if "plateau" in name else []
        schedule.step(*measure)
        their_schedule.step(*measure)


def test_warm_up(rng: np.random.Generator) -> None:
    """Warm-up with a decay is PyTorch's sequence of the two."""
    for name, decay in (("WarmupCosineLR", lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12, 0.0)),
                        ("WarmupLinearLR", lambda opt: torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.0, 12))):
        ours, theirs = both(rng)
        mine, other = mo.optim.SGD(ours, lr=0.3), torch.optim.SGD(theirs, lr=0.3)
        schedule = getattr(mo.optim, name)(mine, warmup_iters=4, total_iters=16)
        their_schedule = warm_up(torch.optim.lr_scheduler, other, lambda opt=other, decay=decay: decay(opt))
        for step in range(16):
            rate = other.param_groups[0]["lr"]
            np.testing.assert_allclose(schedule.get_last_lr()[0], rate, rtol=1e-9, atol=1e-12, err_msg=f"step {step}")
            other.step()
            schedule.step()
            their_schedule.step()
