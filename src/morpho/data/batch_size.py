"""The best batch size, by trying: the one with the most items a second among those that keep to a memory limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, MemoryLimit, fail
from morpho.base.machine import machine
from morpho.base.trees import flatten
from morpho.base.units import format_bytes, parse_bytes

CANDIDATES = tuple(1 << n for n in range(11))


@dataclass(frozen=True)
class Trial:
    """Figures of one batch size; none if it did not fit."""

    size: int
    fits: bool
    items_per_s: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class BatchSizes:
    """The best size, and every trial; a table when printed.

    >>> sizes = mo.data.best_batch_size(lambda x: x.sum().item(), lambda n: mo.ones(n), candidates=(1, 2))
    >>> sizes.best in (1, 2), [trial.size for trial in sizes.trials]
    (True, [1, 2])
    """

    best: int
    trials: tuple[Trial, ...]

    def __int__(self) -> int:
        return self.best

    def __str__(self) -> str:
        lines = ["batch  items/s     memory"]
        for trial in self.trials:
            used = f"{trial.items_per_s:7.4g}  {format_bytes(trial.peak_bytes):>9s}"
            figures = used if trial.fits else "   over the limit"
            lines.append(f"{trial.size:5d}  {figures}" + ("  best" if trial.size == self.best else ""))
        return "\n".join(lines)


def best_batch_size(step: Callable[..., Any], make_batch: Callable[[int], Any], memory_limit: int | str | None = None,
                    candidates: Iterable[int] = CANDIDATES, repeats: int = 3) -> BatchSizes:
    """Run `step(make_batch(size))` for growing sizes and say which size gets through the most items a second.

    memory_limit: the most bytes (or "4 GB") that all of Morpho's tensors may take, parameters included; half of the
        machine's memory by default. It is kept to while trying: a size that would pass it is refused, and with it all
        larger ones.
    repeats: timed runs of each size after a first one that compiles; the shortest counts.

    The step is really run: parameters change as they do in training. A batch that is a tuple is passed as arguments.

    >>> found = mo.data.best_batch_size(mo.compile(lambda x: x @ x.T), lambda n: mo.ones((n, 8)), candidates=(1, 2))
    >>> found.best in (1, 2), len(found.trials)
    (True, 2)
    """
    given = list(candidates)
    sizes = sorted({number for size in given if (number := as_whole(size)) is not None and number > 0})
    if not given or len(sizes) < len(set(given)):
        raise fail(ArgumentError, "best_batch_size", f"candidates={given} are not positive integers")
    if repeats < 1:
        raise fail(ArgumentError, "best_batch_size", f"repeats={repeats} is not positive")
    limit = machine().memory_bytes // 2 if memory_limit is None else parse_bytes(
        memory_limit, "best_batch_size", "memory_limit")
    trials: list[Trial] = []
    for size in sizes:
        trials.append(_tried(step, make_batch, size, limit, repeats))
        if not trials[-1].fits:
            break
    fitting = [trial for trial in trials if trial.fits]
    if not fitting:
        raise fail(MemoryLimit, "best_batch_size", f"even a batch of {sizes[0]} is more than {format_bytes(limit)}",
                   "raise memory_limit, or make the model smaller")
    return BatchSizes(max(fitting, key=lambda trial: trial.items_per_s).size, tuple(trials))


def _tried(step: Callable[..., Any], make_batch: Callable[[int], Any], size: int, limit: int, repeats: int) -> Trial:
    mo.pool.trim()
    try:
        with mo.settings(pool_bytes=limit):
            batch = make_batch(size)
            arguments = batch if isinstance(batch, tuple) else (batch,)
            _wait(step(*arguments))
            seconds = []
            for _ in range(repeats):
                started = time.perf_counter()
                _wait(step(*arguments))
                seconds.append(time.perf_counter() - started)
        held = mo.pool.stats()
        return Trial(size, True, size / max(min(seconds), 1e-9), int(held["live_bytes"] + held["free_bytes"]))
    except MemoryError:
        return Trial(size, False)


def _wait(result: Any) -> None:
    """Have lazy results computed."""
    leaves: list[Any] = []
    flatten(result, leaves)
    mo.realise(*[leaf for leaf in leaves if isinstance(leaf, mo.Tensor)])
