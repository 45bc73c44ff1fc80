"""Optimisers and schedules under PyTorch's names take PyTorch's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

torch = pytest.importorskip("torch")
W = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], np.float32)
RULES: dict[str, dict[str, Any]] = {
    "Adadelta": {"lr": 0.5, "weight_decay": 0.1}, "Adamax": {"lr": 0.1}, "RAdam": {"lr": 0.1}, "ASGD": {"lr": 0.1},
    "Rprop": {"lr": 0.1}, "Muon": {"lr": 0.1},
}


@pytest.mark.parametrize("name", RULES)
def test_steps(name: str) -> None:
    theirs = torch.nn.Parameter(torch.tensor(W))
    rule = getattr(torch.optim, name)([theirs], **RULES[name])
    with mo.settings(level=0):
        ours = mo.nn.Parameter(W)
        own = getattr(mo.optim, name)([ours], **RULES[name])
        for _ in range(7):
            for weight, optimizer in ((theirs, rule), (ours, own)):
                optimizer.zero_grad()
                (weight ** 4).sum().backward()
                optimizer.step()
        tolerance = 3e-2 if name == "Muon" else 1e-4  # PyTorch's products are of bfloat16
        np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_schedules() -> None:
    for make in (lambda xp, opt: xp.CyclicLR(opt, 0.1, 1.0, 3, 5, mode="triangular2", cycle_momentum=False),
                 lambda xp, opt: xp.CyclicLR(opt, 0.1, 1.0, 2, mode="exp_range", gamma=0.9, cycle_momentum=False),
                 lambda xp, opt: xp.MultiplicativeLR(opt, lambda step: 0.9 + step / 100)):
        theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        ours = mo.optim.SGD([mo.nn.Parameter([1.0])], lr=1.0)
        first, second = make(torch.optim.lr_scheduler, theirs), make(mo.optim.lr_scheduler, ours)
        for _ in range(20):
            assert second.get_last_lr() == pytest.approx(first.get_last_lr())
            theirs.step()
            first.step()
            second.step()
