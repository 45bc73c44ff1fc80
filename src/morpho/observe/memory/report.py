"""Memory by owner: blocks of the pool by the line that allocated them, plans and code, free memory, fragmentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from morpho.base.units import format_bytes
from morpho.observe.record.sampler import rss_bytes
from morpho.runtime.memory.pool import pool
from morpho.runtime.memory.watch import Tracker
from morpho.runtime.plans import evaluate
from morpho.tensor.jit.native.entries import entries

UNKNOWN = "unknown: it was asked for before mo.memory.track()"


@dataclass(frozen=True)
class Held:
    """Memory that one line of the program asked for and that is still in use.

    >>> mo.memory.Held("train.py:7", 4096, 1).bytes
    4096
    """

    line: str
    bytes: int
    blocks: int


@dataclass(frozen=True)
class Report:
    """Memory of this process now, in bytes; `print` it.

    >>> report().fragmentation <= 1.0
    True
    """

    held: tuple[Held, ...]  # the largest first
    live_bytes: int  # that blocks in use were asked for
    free_bytes: int  # kept for the next request
    wasted_bytes: int  # what blocks in use have beyond what was asked for
    peak_bytes: int  # the most that the pool ever held, free blocks included
    arena_bytes: int  # of compiled functions between calls: part of `live_bytes`
    plan_count: int
    rss_bytes: int

    @property
    def fragmentation(self) -> float:
        """Of what the pool holds: the share that nobody can use now, as it is free or beyond what was asked for."""
        whole = self.live_bytes + self.free_bytes + self.wasted_bytes
        return (self.free_bytes + self.wasted_bytes) / whole if whole else 0.0

    def __str__(self) -> str:
        lines = [f"{format_bytes(self.live_bytes)} in use, {format_bytes(self.free_bytes)} free, "
                 f"{format_bytes(self.wasted_bytes)} beyond what was asked for ({100 * self.fragmentation:.0f} % "
                 f"fragmentation); at most {format_bytes(self.peak_bytes)}; the process {format_bytes(self.rss_bytes)}",
                 f"  of it arenas of compiled functions {format_bytes(self.arena_bytes)}; {self.plan_count} plans of "
                 "lazy evaluation are kept"]
        for one in self.held[:20]:
            lines.append(f"  {format_bytes(one.bytes):>10s} in {one.blocks} {'block' if one.blocks == 1 else 'blocks'}"
                         f"  {one.line or UNKNOWN}")
        return "\n".join(lines)


def report() -> Report:
    """Report the owners of memory. Lines are known for allocations inside `mo.memory.track()` or `mo.profile()`.

    >>> with mo.memory.track():
    ...     x = mo.ones((512, 512)).realise()
    ...     found = mo.memory.report()
    >>> any(held.bytes >= 512 * 512 * 4 for held in found.held if held.line)
    True
    """
    held = sorted((Held(line, nbytes, blocks) for line, (nbytes, blocks) in pool().holders().items()),
                  key=lambda one: -one.bytes)
    stats = pool().stats()
    arenas = sum(chosen.kept_bytes for made in list(entries.live) for chosen in list(made.specialisations.values())
                 if getattr(chosen, "block", None) is not None)
    live = sum(one.bytes for one in held)
    return Report(tuple(held), live, int(stats["free_bytes"]), max(0, int(stats["live_bytes"]) - live),
                  int(stats["peak_bytes"]), arenas, len(evaluate._plans), rss_bytes())


@contextmanager
def track() -> Iterator[Tracker]:
    """Note which lines ask for memory while a block runs; what it gives has the peak and who held it.

    >>> with mo.memory.track() as seen:
    ...     x = mo.ones((512, 512)).realise()
    >>> seen.peak_bytes >= 512 * 512 * 4
    True
    """
    tracker = pool().track()
    try:
        yield tracker
    finally:
        pool().untrack(tracker)
