"""Leaks: counts that must not grow while a program repeats itself."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.driver import executable as driver
from morpho.base.errors import ArgumentError, fail
from morpho.ir import node as nodes
from morpho.observe.record.sampler import rss_bytes
from morpho.runtime.memory.pool import pool
from morpho.runtime.plans import evaluate
from morpho.tensor.core import Tensor
from morpho.tensor.jit.native.entries import entries


@dataclass(frozen=True)
class Leak:
    """A count that grew while a program repeated itself.

    >>> mo.memory.Leak("tensors", 10, 60, 0.5).per_step
    0.5
    """

    what: str
    before: int
    after: int
    per_step: float


def counts() -> dict[str, int]:
    """Counts of objects that must not grow: tensors, nodes, programs, blocks, plans, functions."""
    gc.collect()
    stats = pool().stats()
    return {"live bytes": pool().asked_bytes(), "live blocks": int(stats["live_blocks"]),
            "nodes": nodes.live_nodes(), "programs": len(driver.live), "plans": len(evaluate._plans),
            "compiled functions": len(entries.live),
            "tensors": sum(type(thing) is Tensor for thing in gc.get_objects()), "resident bytes": rss_bytes()}


RESIDENT_SLACK = 8 << 20  # bytes that an allocator may keep without anything leaking


def watch_for_leaks(step: Callable[[], object], steps: int, warm_up: int = 32) -> list[Leak]:
    """Run a step many times after a few for warming up; what grew meanwhile.

    >>> x = mo.ones(1000)
    >>> mo.memory.watch_for_leaks(lambda: (x + 1).numpy(), 50)
    []
    """
    if not callable(step):
        raise fail(ArgumentError, "memory", f"watch_for_leaks takes a function to repeat, not a {type(step).__name__}",
                   "write mo.memory.watch_for_leaks(lambda: f(x), 100)")
    for name, value, least in (("steps", steps, 1), ("warm_up", warm_up, 0)):
        if type(value) is not int or value < least:
            raise fail(ArgumentError, "memory", f"{name} must be a whole number of at least {least}, and is {value!r}")
    for _ in range(warm_up):
        step()
    before = counts()
    for _ in range(steps):
        step()
    after = counts()
    return [Leak(name, before[name], after[name], (after[name] - before[name]) / steps) for name in before
            if after[name] > before[name] + (RESIDENT_SLACK if name == "resident bytes" else 0)]
