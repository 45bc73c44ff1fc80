"""Mistakes that make a program wait, written by somebody who had not read the analyser: data, devices, ranks.

The kinds were decided before the first run; `notes/profiling.md` has what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology


class _Augmented(mo.data.Dataset):
    """Images that are mirrored and scaled pixel by pixel in Python, or in NumPy."""

    def __init__(self, in_python: bool) -> None:
        self.images, self.in_python = np.ones((64, 32, 32), np.float32), in_python

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Any:
        image = self.images[number]
        if not self.in_python:
            return image[:, ::-1] * np.float32(0.5)
        return np.asarray([[pixel * 0.5 for pixel in reversed(row)] for row in image.tolist()], np.float32)


@pathology("images augmented pixel by pixel", "data")
def augmented_in_python() -> Program:
    step = mo.compile(lambda x: mo.mean(mo.tanh(x)))

    def epoch(in_python: bool) -> None:
        for batch in mo.data.DataLoader(_Augmented(in_python), batch_size=16):
            step(batch).item()

    return Program(lambda: epoch(True), lambda: epoch(False))


@pathology("a plain generator that reads in between", "data", "python")
def plain_generator() -> Program:
    """No DataLoader at all: a generator reads from slow storage while nothing computes."""
    def batches() -> Iterator[np.ndarray]:
        for _ in range(12):
            time.sleep(0.006)
            yield np.ones((256, 256), np.float32)

    class Stream(mo.data.IterableDataset):
        def __iter__(self) -> Iterator[np.ndarray]:
            return batches()

    step = mo.compile(lambda x: mo.fori_loop(0, 3, lambda i, y: mo.tanh(y @ x[0]), x[0]).mean())

    def good() -> None:
        for batch in mo.data.DataLoader(Stream(), batch_size=1, num_workers=1):
            step(batch).item()

    return Program(lambda: [step(mo.asarray(batch[None])).item() for batch in batches()], good)


def _with_peer(mine: Callable[[Any], None], other: Callable[[Any], None]) -> None:
    """Two ranks of a group: the calling thread and one beside it."""
    from morpho.cluster.groups.threads import run_threads

    here, there = run_threads(2, lambda group: group)
    peer = Thread(target=other, args=(there,))
    peer.start()
    mine(here)
    peer.join()


def _reduced(times: int, size: int) -> Callable[[Any], None]:
    def rank(group: Any) -> None:
        buffer = np.ones(size, np.float32)
        for _ in range(times):
            if group.rank:
                time.sleep(0.001)  # the way of a message between two hosts
            group.all_reduce(buffer, "mean")
    return rank


@pathology("metrics reduced one number at a time", "network")
def metrics_one_by_one() -> Program:
    return Program(lambda: _with_peer(_reduced(60, 1), _reduced(60, 1)),
                   lambda: _with_peer(_reduced(1, 60), _reduced(1, 60)))


@pathology("rows sent one by one to the next rank", "network")
def rows_one_by_one() -> Program:
    def sender(parts: int) -> Callable[[Any], None]:
        def rank(group: Any) -> None:
            for _ in range(parts):
                time.sleep(0.001)
                group.send(np.ones(6400 // parts, np.float32), 0, 0)
        return rank

    def receiver(parts: int) -> Callable[[Any], None]:
        def rank(group: Any) -> None:
            buffer = np.empty(6400 // parts, np.float32)
            for _ in range(parts):
                group.recv(buffer, 1, 0)
        return rank

    return Program(lambda: _with_peer(receiver(64), sender(64)), lambda: _with_peer(receiver(2), sender(2)))


@pathology("weights sent to the device at every step", "transfers")
def weights_sent_again() -> Program:
    from morpho.backends.cuda.emulator.install import install

    gpu = install()
    w, x = mo.ones((3000, 2000)), mo.asarray(np.ones(4, np.float32), device=gpu)
    w.realise()
    there = w.to(gpu)

    def bad() -> None:
        for _ in range(6):
            (w.to(gpu)[0, :4] * x).numpy()

    return Program(bad, lambda: [(there[0, :4] * x).numpy() for _ in range(6)])


@pathology("a whole result fetched for one number", "transfers")
def fetched_for_one_number() -> Program:
    from morpho.backends.cuda.emulator.install import install

    y = mo.ones((3000, 2000)).realise().to(install())
    return Program(lambda: [float(y.numpy()[k, 0]) for k in range(6)], lambda: [y[k, 0].item() for k in range(6)])
