"""Ten megabytes from the pool against ten fresh ones from the system, one byte touched in every page."""

from __future__ import annotations

import ctypes
import json
import mmap
import statistics
import time
from collections.abc import Callable

import numpy as np

import morpho as mo

NBYTES = 10 << 20
ROUNDS = 15
CALLS = 20
BUFFER = ctypes.c_uint8 * NBYTES


def pooled() -> None:
    """Acquire, touch, release by dropping."""
    block = mo.pool.acquire(NBYTES)
    np.frombuffer(BUFFER.from_address(block.address), np.uint8)[:: mmap.PAGESIZE] = 1


def fresh() -> None:
    """Map, touch, unmap."""
    memory = mmap.mmap(-1, NBYTES)
    np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
    memory.close()


def seconds(function: Callable[[], None]) -> float:
    """Seconds per call of one round."""
    start = time.perf_counter()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - start) / CALLS


def main() -> None:
    """Print both times, medians of alternating rounds."""
    pooled(), fresh()
    pairs = [(seconds(pooled), seconds(fresh)) for _ in range(ROUNDS)]
    print(json.dumps({"pooled_s": statistics.median(pair[0] for pair in pairs),
                      "fresh_s": statistics.median(pair[1] for pair in pairs), "stats": mo.pool.stats()}, default=str))


if __name__ == "__main__":
    main()
