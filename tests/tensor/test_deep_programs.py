"""A lazy tensor that a loop carries on is computed when its program has become deep; the bits are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.ir.node import live_nodes
from morpho.runtime.plans.evaluate import counts
from morpho.tensor import core, steps
from morpho.tensor.autodiff import arguments


def descend(turns: int, settle: bool) -> Any:
    """Gradient descent outside of compile, as users write it first."""
    x = mo.asarray(np.linspace(0.1, 1, 20, dtype=np.float32), copy=True)
    for _ in range(turns):
        x = x - 0.01 * mo.grad(lambda x: mo.sum(mo.sin(x) ** 2 + x * x))(x)
        x = x.realise() if settle else x
    return x


@pytest.fixture
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tensors of other tests whose gradients somebody may still ask for, which keep every program whole."""
    monkeypatch.setattr(core, "tracked", {})


@pytest.mark.usefixtures("nobody_asks")
def test_gradient_descent_does_not_grow() -> None:
    """Few programs, few nodes alive, and the bits of a loop that computes every step."""
    before, done, plans, nodes = counts.cuts, counts.realisations, counts.plans, live_nodes()
    with mo.settings(record=False):
        lazy = descend(80, False)
    # where its operations were met often in this process they are computed one by one, and nothing becomes deep
    assert counts.cuts - before >= 3 or counts.realisations - done >= 40
    assert counts.plans - plans <= 4
    assert live_nodes() - nodes < 2000
    assert lazy.numpy().tobytes() == descend(80, True).numpy().tobytes()
    runs = steps.counts.runs
    assert lazy.numpy().tobytes() == descend(80, False).numpy().tobytes()
    assert steps.counts.runs - runs >= 79  # recorded: what came before is computed at each step


@pytest.mark.usefixtures("nobody_asks")
def test_a_chain_without_gradients_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.Tensor.cut, "__defaults__", (50,))
    before = counts.cuts
    x = start = mo.asarray(np.linspace(0, 1, 10, dtype=np.float32), copy=True)
    with mo.settings(record=False):
        for _ in range(200):
            x = x * 1.01 + 0.5
    assert counts.cuts > before
    expected = start
    for _ in range(200):
        expected = (expected * 1.01 + 0.5).realise()
    assert x.numpy().tobytes() == expected.numpy().tobytes()


def test_what_must_stay_whole_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces, differentiated functions, and values whose gradients somebody may ask for."""
    monkeypatch.setattr(core.Tensor.cut, "__defaults__", (20,))
    monkeypatch.setattr(arguments, "DEEP", 20)

    def chain(x: Any) -> Any:
        for _ in range(40):
            x = mo.sin(x) + x * 0.5
        return mo.sum(x)

    x, before = mo.ones(5), counts.cuts
    mo.grad(chain)(x).numpy()
    mo.grad(lambda x: mo.sum(mo.grad(chain)(x)))(x).numpy()
    mo.compile(chain)(x)
    mo.vmap(chain)(mo.ones((3, 5))).numpy()
    wanted = mo.ones(5).requires_grad_()
    chain(wanted).backward()
    assert counts.cuts == before
    assert wanted.grad.numpy() == pytest.approx(mo.grad(chain)(x).numpy())


def test_nodes_know_their_depth() -> None:
    x = mo.ones(3).realise()
    assert (mo.sin(x) + x).node.depth == 2 and x.node.depth == 0
