"""Training: the same bits with one seed, eager and compiled, by one thread and by two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn


def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Dropout2d(0.2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16, 3))


def train(seed: int, compiled: bool, threads: int = 2, steps: int = 3) -> list[Any]:
    """Losses, then all values, after a few steps."""
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    with mo.settings(threads=threads):
        model = small_net()
        opt = mo.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
            loss = nn.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        call = mo.compile(step) if compiled else step
        found = []
        for _ in range(steps):
            x, y = rng.standard_normal((5, 1, 4, 4)).astype(np.float32), rng.integers(0, 3, 5)
            found.append(call(mo.asarray(x), mo.asarray(y)).numpy(copy=True))
        return found + [tensor.numpy(copy=True) for tensor in model.state_dict().values()]


@pytest.fixture(scope="module")
def plain() -> list[Any]:
    return train(7, compiled=False)


@pytest.mark.parametrize(("compiled", "threads"), [(False, 2), (True, 2), (True, 1)])
def test_one_seed_gives_the_same_bits(plain: list[Any], compiled: bool, threads: int) -> None:
    again = train(7, compiled, threads)
    assert len(again) == len(plain) and all(np.array_equal(a, b) for a, b in zip(plain, again, strict=True))


def test_another_seed_gives_others(plain: list[Any]) -> None:
    assert not np.array_equal(train(8, compiled=False, steps=1)[0], plain[0])


def test_a_recurrent_model_learns(seed: int) -> None:
    """Whether a sequence holds more ones than zeros."""
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    rnn, head = nn.RNN(1, 8), nn.Linear(8, 1)
    parameters = [*rnn.parameters(), *head.parameters()]
    opt = mo.optim.Adam(parameters, lr=0.03)

    @mo.compile
    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        loss = nn.binary_cross_entropy_with_logits(head(rnn(x)[0][-1])[:, 0], y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    losses = []
    for _ in range(60):
        bits = rng.integers(0, 2, (3, 32, 1))
        losses.append(step(mo.asarray(bits.astype(np.float32) - 0.5),
                           mo.asarray((bits.sum((0, 2)) > 1).astype(np.float32))).item())
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5]), losses
