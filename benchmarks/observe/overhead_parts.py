"""``python -m benchmarks.observe.overhead_parts [TURNS]``: which part of profiling slows a
short program.

The same call plain, with the twin alone, without memory's tracker, without the looking thread, and with all of it, in
turn in one process; the least and the median of many short blocks of each.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import morpho as mo
from benchmarks.observe.overhead import BLOCK_S, programs, seconds_per_call
from morpho.observe.record import sampler
from morpho.observe.record.session import profile

BLOCKS = 60


@contextmanager
def without_looking(memory: bool) -> Iterator[None]:
    """A profile whose thread does not wake."""
    before = sampler.INTERVAL_S
    sampler.INTERVAL_S = 3600.0
    try:
        with profile(memory=memory):
            yield
    finally:
        sampler.INTERVAL_S = before


WAYS: dict[str, Callable[[], Any]] = {
    "plain": nullcontext, "twin alone": lambda: without_looking(False), "and memory": lambda: without_looking(True),
    "and looking": lambda: profile(memory=False), "all": profile}


def main() -> None:
    """Print a row for each way of each program."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    print(f"{mo.__name__}: least and median of a call, us; slower than plain by the least, by the median")
    for name, call in programs().items():
        for _ in range(5):
            call()
        calls = max(1, int(BLOCK_S / seconds_per_call(call, 5)))
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(turns):
            for way, entered in WAYS.items():
                with entered():
                    times[way] += [seconds_per_call(call, calls) for _ in range(BLOCKS)]
        base = min(times["plain"]), statistics.median(times["plain"])
        for way, found in times.items():
            least, middle = min(found), statistics.median(found)
            print(f"{name:20s} {way:12s} {1e6 * least:9.2f} {1e6 * middle:9.2f}  {100 * (least / base[0] - 1):6.1f} % "
                  f"{100 * (middle / base[1] - 1):6.1f} %", flush=True)


if __name__ == "__main__":
    main()
