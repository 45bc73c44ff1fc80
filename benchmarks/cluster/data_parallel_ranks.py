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
from morpho.backends.lowering import lower_buckets
from morpho.cluster.groups.one import OneGroup
from morpho.runtime.groups.registry import stood_still


def main(width: int, layers: int, rows: int, steps: int) -> None:
    """Measure, in turn and in step with the other ranks."""
    world = cluster.init()
    mo.nn.seed(0)
    x = mo.asarray(np.random.default_rng(world.rank).normal(size=(rows, width)).astype(np.float32))
    together, replica = step_of(width, layers, world)
    alone, _ = step_of(width, layers, OneGroup())
    copied, _ = step_of(width, layers, world)
    find, lower_buckets.find_buckets = lower_buckets.find_buckets, lambda graph: {}
    copied(x)  # compiled as where kernels cannot write into buckets
    lower_buckets.find_buckets = find
    count = sum(int(parameter.size) for parameter in replica.parameters())
    gradient = np.zeros(count, np.float32)
    found: dict[str, list[float]] = {"together": [], "alone": [], "copied": [], "unsynchronised": [], "reduction": []}
    processor: dict[str, list[float]] = {name: [] for name in found}

    def unsynchronised() -> None:
        with replica.no_sync():
            together(x).item()

    still: dict[str, list[float]] = {"together": [], "copied": []}
    for _ in range(steps + 1):
        for name, call in (("together", lambda: together(x).item()), ("alone", lambda: alone(x).item()),
                           ("copied", lambda: copied(x).item()), ("unsynchronised", unsynchronised),
                           ("reduction", lambda: world.all_reduce(gradient))):
            before = stood_still.value()
            seconds, used = timed(world, call)
            found[name].append(seconds)
            processor[name].append(used)
            if name in still:
                still[name].append(stood_still.value() - before)
    report(rank=world.rank, gradient_bytes=4 * count, still=float(np.median(still["together"][1:])),
           still_copied=float(np.median(still["copied"][1:])),
           **{name: float(np.median(seconds[1:])) for name, seconds in found.items()},
           **{f"{name}_processor": float(np.median(seconds[1:])) for name, seconds in processor.items()})


def timed(world: Any, call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call, and those of the processor on all threads of this process."""
    world.barrier()
    began, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - used


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
