"""Maps that move more than they compute, in whole vectors of 512 bits and in halves: the least time of many calls.

    python -m benchmarks.probes.half_vectors --rounds 3

Each way has a process of its own, which take turns; kernels are made anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

SIZES = (2_000, 16_000, 64_000, 250_000, 1_000_000, 4_000_000, 16_000_000)
CALLS = 3_000_000  # elements of all calls of a round, within bounds


def least(call: Callable[[], Any], calls: int) -> float:
    """Microseconds of processor time."""
    found = []
    for _ in range(calls):
        started = time.thread_time_ns()
        call()
        found.append(time.thread_time_ns() - started)
    return min(found) / 1e3


def measure(way: str) -> dict[str, float]:
    """All maps in one way."""
    import morpho as mo
    from morpho.backends.kernels.loops import loop_base

    if way == "whole":
        loop_base.is_light = lambda kernel: False
    wanted = mo.settings(cache=False, threads=1, isa="avx512")  # matrix units would have whole vectors
    found = {}
    with wanted:
        for dtype in ("float32", "float64"):
            for size in SIZES:
                a, b = (mo.asarray(np.random.default_rng(seed).random(size).astype(dtype)) for seed in (0, 1))
                out = mo.zeros((size,), dtype=dtype).realise()
                scale, add = mo.compile(lambda a: a * 1.5), mo.compile(lambda a, b: a + b)
                calls = max(5, min(300, CALLS // size))
                for name, call in (("scale", partial(scale, a, out=out)), ("add", partial(add, a, b, out=out))):
                    call()
                    found[f"{name} {dtype} {size}"] = least(call, calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way)))
        return
    best: dict[str, dict[str, float]] = {"whole": {}, "halves": {}}
    for _ in range(given.rounds):
        for way, row in best.items():
            command = [sys.executable, "-m", "benchmarks.probes.half_vectors", "--way", way]
            for name, value in json.loads(subprocess.run(command, capture_output=True, check=True).stdout).items():
                row[name] = min(row.get(name, value), value)
    for name, whole in best["whole"].items():
        half = best["halves"][name]
        print(f"{name:28s} whole {whole:10.1f} us, halves {half:10.1f} us {whole / half:5.2f}x")


if __name__ == "__main__":
    main()
