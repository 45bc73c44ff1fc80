"""LBFGS, and rules and schedules that change a momentum: what values of PyTorch do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import optim
from morpho.base.errors import ArgumentError


def rosenbrock(weights: mo.nn.Parameter, opt: Any) -> Callable[[], Any]:
    def closure() -> Any:
        opt.zero_grad()
        x, y = weights[0], weights[1]
        loss = (1 - x) ** 2 + 100 * (y - x * x) ** 2
        loss.backward()
        return loss

    return closure


def start() -> mo.nn.Parameter:
    return mo.nn.Parameter(mo.asarray(np.array([-1.2, 1.0])))


def test_lbfgs_finds_the_bottom_of_a_valley() -> None:
    weights = start()
    opt = optim.LBFGS([weights], max_iter=60, tolerance_change=1e-15, line_search_fn="strong_wolfe")
    first = opt.step(rosenbrock(weights, opt))
    np.testing.assert_allclose(weights.numpy(), [1.0, 1.0], atol=1e-6)
    assert first.item() == pytest.approx(24.2)  # the loss before the first step
    away = mo.nn.Parameter(mo.asarray(np.array([3.0])))
    up = optim.LBFGS([away], maximize=True, line_search_fn="strong_wolfe")

    def hill() -> Any:
        up.zero_grad()
        loss = -((away - 1.0) ** 2).sum()
        loss.backward()
        return loss

    up.step(hill)
    np.testing.assert_allclose(away.numpy(), [1.0], atol=1e-8)


def test_lbfgs_goes_on_from_a_saved_state() -> None:
    """With the bits of a run that was never interrupted."""
    def run(opt: Any, weights: Any, steps: int) -> None:
        for _ in range(steps):
            opt.step(rosenbrock(weights, opt))

    whole, parted = start(), start()
    run(optim.LBFGS([whole], max_iter=3, lr=0.5, history_size=3), whole, 4)
    opt = optim.LBFGS([parted], max_iter=3, lr=0.5, history_size=3)
    run(opt, parted, 2)
    saved = opt.state_dict()
    later = optim.LBFGS([parted])
    later.load_state_dict(saved)
    run(later, parted, 2)
    assert later.param_groups[0]["history_size"] == 3 and later.state_dict()["count"] == 8
    np.testing.assert_array_equal(parted.numpy(), whole.numpy())
    with pytest.raises(ArgumentError, match="other parameters"):
        optim.LBFGS([mo.nn.Parameter([1.0])]).load_state_dict(saved)


def test_a_closure_is_called_before_any_step() -> None:
    weights = mo.nn.Parameter([2.0])
    opt = optim.SGD([weights], lr=0.25)

    def closure() -> Any:
        loss = (weights * weights).sum()
        loss.backward()
        return loss

    assert opt.step(closure).item() == 4.0 and weights.item() == 1.0


def test_a_cycled_momentum_compiles_nothing() -> None:
    """Rates and momentum change at every step; the program stays, and does what an eager step does."""
    for make in (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), lambda p: optim.AdamW(p, lr=0.1),
                 lambda p: optim.RMSprop(p, momentum=0.5), lambda p: optim.NAdam(p)):
        ends = []
        for compiled in (False, True):
            weights = mo.nn.Parameter(mo.asarray(np.array([1.0, -2.0])))
            opt = make([weights])
            schedule = optim.OneCycleLR(opt, max_lr=0.2, total_steps=6)

            def step(weights: Any = weights, opt: Any = opt) -> Any:
                loss = (weights ** 2).sum()
                loss.backward()
                opt.step()
                opt.zero_grad()
                return loss

            call = mo.compile(step) if compiled else step
            for _ in range(5):
                call()
                schedule.step()
            ends.append(weights.numpy(copy=True))
            assert not compiled or call.stats["recompiles"] == 0
        np.testing.assert_array_equal(*ends)
    group = opt.param_groups[0]
    assert group["betas"][0] == pytest.approx(0.95) and group["betas"][1] == 0.999


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda p: optim.RMSprop(p, alpha=2.0), "alpha=2.0 is not"), (lambda p: optim.RMSprop(p, momentum=-1), "momentum"),
    (lambda p: optim.Adagrad(p, lr_decay=-1), "lr_decay=-1 is not"), (lambda p: optim.NAdam(p, betas=(1, 2)), "betas"),
    (lambda p: optim.NAdam(p, momentum_decay="x"), "momentum_decay='x'"),
    (lambda p: optim.LBFGS(p, max_iter=0), "max_iter=0 is not a positive"),
    (lambda p: optim.LBFGS(p, line_search_fn="armijo"), "use None or 'strong_wolfe'"),
    (lambda p: optim.LBFGS([{"params": p}, {"params": [mo.nn.Parameter([1.0])]}]), "one group"),
    (lambda p: optim.LBFGS(p).step(), r"write opt\.step\(closure\)"),
    (lambda p: optim.LBFGS(p).step(lambda: mo.asarray(1.0)), "leaves no gradient"),
    (lambda p: mo.compile(lambda x: optim.LBFGS(p).step(lambda: x))(mo.ones(1)), "outside of it"),
    (lambda p: optim.OneCycleLR(optim.SGD(p), 1.0, 5), "no momentum to cycle.*cycle_momentum=False"),
    (lambda p: optim.OneCycleLR(optim.Adam(p), 1.0), "total_steps=None"),
    (lambda p: optim.OneCycleLR(optim.Adam(p), [1.0, 2.0], 5), "2 numbers of max_lr are given for 1 groups"),
    (lambda p: optim.OneCycleLR(optim.Adam(p), 1.0, 5, pct_start=2), "pct_start=2 is more than 1"),
    (lambda p: optim.OneCycleLR(optim.Adam(p), 1.0, 5, anneal_strategy="log"), "use 'cos' or 'linear'"),
    (lambda p: optim.OneCycleLR(p, 1.0, 5), "list is not an optimiser"),
    (lambda p: optim.OneCycleLR(optim.Adam(p), 1.0, 1).step(), "step 1 is beyond the 1 of the cycle"),
    (lambda p: optim.CosineAnnealingWarmRestarts(optim.Adam(p), 0), "T_0=0 is not"),
    (lambda p: optim.CosineAnnealingWarmRestarts(optim.Adam(p), 2, 1.5), "T_mult=1.5 is not"),
]


@pytest.mark.parametrize(("call", "text"), WRONG)
def test_wrong_arguments(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call([mo.nn.Parameter([1.0])])
