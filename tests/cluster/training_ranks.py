"""A small model trained by data parallel ranks, some of which kill or stop themselves:
`python training_ranks.py RANK:STEP:kill RANK:STEP:stop`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho import cluster
from morpho.cluster.parallel.replicas import digest, states_of
from morpho.runtime.groups.group import Group

STEPS, ROWS = 5, 20


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The global batch of a step, the same on every rank."""
    rng = np.random.default_rng(step)
    return rng.normal(size=(ROWS, 5)).astype(np.float32), rng.normal(size=(ROWS, 3)).astype(np.float32)


def small_model(dropout: float = 0.0) -> mo.nn.Module:
    mo.nn.seed(0)
    layers = [mo.nn.Linear(5, 7), mo.nn.ReLU(), *([mo.nn.Dropout(dropout)] if dropout else []), mo.nn.Linear(7, 3)]
    return mo.nn.Sequential(*layers)


def train(group: Group, *, before: Callable[[int], Any] = lambda step: None, dropout: float = 0.0, model: Any = None,
          rule: Any = mo.optim.AdamW, trainer: Any = cluster.Trainer, **options: Any) -> tuple[list[float], str, int]:
    """Losses, a digest of all state, and how many ranks are left; `before(step)` is called within each step."""
    model = small_model(dropout) if model is None else model
    optimiser = rule(model.parameters(), lr=0.1)

    def loss_of(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        return mo.mean(mo.square(model(x) - y))

    made = trainer(model, optimiser, loss_of, group, clip=1.0, **options)
    losses = []
    for step in range(STEPS):
        before(step)
        losses.append(made.step(*batch(step)))
    made.finish()
    return losses, digest(states_of(model, optimiser)), made.group.size


if __name__ == "__main__":
    world = cluster.init()
    deaths = sys.argv[1:]

    def perhaps_die(step: int) -> None:
        if f"{world.rank}:{step}:kill" in deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        if f"{world.rank}:{step}:stop" in deaths:
            os.kill(os.getpid(), signal.SIGSTOP)

    found = train(world, before=perhaps_die, dropout=0.1)
    print("result", world.rank, found[2], found[1], *found[0], flush=True)
