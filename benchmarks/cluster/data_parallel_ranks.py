"""A rank of `data_parallel.py`: seconds a step takes alone, together, and without the reductions; seconds they take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.cluster.processes import report
from morpho import cluster
from morpho.cluster.groups.one import OneGroup
from morpho.runtime.groups.registry import stood_still


def main(width: int, layers: int, rows: int, steps: int) -> None:
    """Measure, in turn and in step with the other ranks."""
    world = cluster.init()
    mo.nn.seed(0)
    x = mo.asarray(np.random.default_rng(world.rank).normal(size=(rows, width)).astype(np.float32))
    together, replica = step_of(width, layers, world)
    alone, _ = step_of(width, layers, OneGroup())
    count = sum(int(parameter.size) for parameter in replica.parameters())
    gradient = np.zeros(count, np.float32)
    found: dict[str, list[float]] = {"together": [], "alone": [], "unsynchronised": [], "reduction": []}

    def unsynchronised() -> None:
        with replica.no_sync():
            together(x).item()

    still: list[float] = []
    for _ in range(steps + 1):
        before = stood_still.value()
        for name, call in (("together", lambda: together(x).item()), ("alone", lambda: alone(x).item()),
                           ("unsynchronised", unsynchronised), ("reduction", lambda: world.all_reduce(gradient))):
            found[name].append(timed(world, call))
        still.append(stood_still.value() - before)  # only the first of the four has buckets
    report(rank=world.rank, gradient_bytes=4 * count, still=float(np.median(still[1:])),
           **{name: float(np.median(seconds[1:])) for name, seconds in found.items()})


def timed(world: Any, call: Callable[[], Any]) -> float:
    world.barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def step_of(width: int, layers: int, group: Any) -> tuple[Any, Any]:
    """A compiled training step of a plain network."""
    model = mo.nn.Sequential(*[layer for _ in range(layers) for layer in (mo.nn.Linear(width, width), mo.nn.GELU())])
    replica = cluster.DistributedDataParallel(model, group=group, bucket_bytes=4 * width * width * 2)
    rule = mo.optim.SGD(model.parameters(), lr=1e-3)

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        loss = mo.mean(mo.square(replica(x)))
        loss.backward()
        rule.step()
        rule.zero_grad()
        return loss

    return step, replica


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
