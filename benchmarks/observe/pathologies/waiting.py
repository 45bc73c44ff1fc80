"""Programs that wait: for data, for copies, for other ranks."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology
from benchmarks.observe.pathologies.calls import _random


class _Slow(mo.data.Dataset):
    """Items that take a while: a file far away."""

    def __init__(self, seconds: float, count: int = 32) -> None:
        self.seconds, self.count = seconds, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return np.full(64, index, np.float32)


def _epoch(loader: Any, step: Any) -> None:
    for batch in loader:
        step(batch)


@pathology("a slow dataset without workers", "data")
def slow_dataset() -> Program:
    step = mo.compile(lambda x: mo.sum(x @ x.mT))
    few, many = (mo.data.DataLoader(_Slow(0.002), batch_size=4, num_workers=n) for n in (0, 4))
    return Program(lambda: _epoch(few, step), lambda: _epoch(many, step))


@pathology("too few workers", "data")
def few_workers() -> Program:
    step = mo.compile(lambda x: mo.sum(x @ x.mT))
    few, many = (mo.data.DataLoader(_Slow(0.003), batch_size=4, num_workers=n) for n in (1, 6))
    return Program(lambda: _epoch(few, step), lambda: _epoch(many, step))


@pathology("batches collated in Python", "data")
def slow_collate() -> Program:
    step = mo.compile(lambda x: mo.sum(x * x))
    rows = [np.arange(2000, dtype=np.float32) for _ in range(64)]

    def collate(items: Any) -> Any:
        return mo.asarray([[float(value) for value in item] for item in items])

    slow = mo.data.DataLoader(rows, batch_size=8, collate_fn=collate)
    fast = mo.data.DataLoader(rows, batch_size=8, collate_fn=lambda items: mo.asarray(np.stack(items)))
    return Program(lambda: _epoch(slow, step), lambda: _epoch(fast, step))


class _Stream(mo.data.IterableDataset):
    """A stream that comes in slowly."""

    def __iter__(self) -> Any:
        for index in range(24):
            time.sleep(0.003)
            yield np.full(64, index, np.float32)


@pathology("a stream read in the loop", "data")
def slow_stream() -> Program:
    f = mo.compile(lambda x: mo.sum(x @ x.mT))
    direct, ahead = (mo.data.DataLoader(_Stream(), batch_size=2, num_workers=n) for n in (0, 1))

    def step(x: Any) -> None:
        f(x)
        time.sleep(0.004)  # what else a step does

    return Program(lambda: _epoch(direct, step), lambda: _epoch(ahead, step))


@pathology("values fetched from a device at every step", "transfers")
def transfers() -> Program:
    from tests.backends import delayed

    delayed.install()
    x = _random(64, 64).to("delayed:0")

    def bad() -> None:
        y = x
        for _ in range(20):
            y = mo.asarray((y * 0.5).numpy()).to("delayed:0")
        y.numpy()

    def good() -> None:
        y = x
        for _ in range(20):
            y = y * 0.5
        y.numpy()

    return Program(bad, good)


def _ranks(work: Any, late_s: float) -> None:
    """Two ranks in this process; the other one is late for every collective."""
    from morpho.cluster.groups.threads import ThreadGroup, _World

    world = _World([0, 1], set(), threading.Condition())
    mine, other = ThreadGroup(world, 0), ThreadGroup(world, 1)

    def follow() -> None:
        work(other, late_s)

    thread = threading.Thread(target=follow)
    thread.start()
    work(mine, 0.0)
    thread.join()


def _reduced(times: int, elements: int) -> Any:
    def work(group: Any, late_s: float) -> None:
        for _ in range(times):
            if late_s:
                time.sleep(late_s)
            group.all_reduce(np.ones(elements, np.float32))

    return work


@pathology("a collective for every small tensor", "network")
def small_collectives() -> Program:
    return Program(lambda: _ranks(_reduced(60, 100), 0.002), lambda: _ranks(_reduced(1, 6000), 0.002))


@pathology("waiting for a late rank", "network")
def late_rank() -> Program:
    return Program(lambda: _ranks(_reduced(10, 1000), 0.02), lambda: _ranks(_reduced(10, 1000), 0.002))
