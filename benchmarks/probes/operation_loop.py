"""A loop over eight named steps on 16 MB arrays: time per turn and peak memory.

    python -m benchmarks.probes.operation_loop morpho|numpy

NumPy allocates every step afresh, and the named steps live until the function returns, as in a forward pass.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.probes.resident import peak_above, reset_peak, status_bytes

SHAPE = (2048, 2048)
TURNS = 15


def steps(x: Any, y: Any, sqrt: Callable[[Any], Any], maximum: Callable[[Any, Any], Any]) -> Any:
    """Eight steps, every one with a name."""
    product = x * y
    shifted = product + x
    halved = shifted * 0.5
    difference = halved - y
    square = difference * difference
    raised = square + 1.0
    root = sqrt(raised)
    return maximum(root, x)


def make(library: str) -> Callable[[], Any]:
    """The turn of the loop in one of the two libraries."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(2))
    if library == "numpy":
        return lambda: steps(x, y, np.sqrt, np.maximum)
    import morpho as mo

    left, right = mo.asarray(x), mo.asarray(y)
    compiled = mo.compile(lambda x, y: steps(x, y, mo.sqrt, mo.maximum))
    compiled(left, right)  # compile before memory is watched
    return lambda: compiled(left, right)


def main(library: str) -> None:
    """Print the median time of a turn and the peak above what was there before the loop."""
    turn = make(library)
    reset_peak()
    base = status_bytes("VmRSS")
    durations = []
    for _ in range(TURNS):
        start = time.perf_counter()
        turn()
        durations.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(durations), "peak_bytes": peak_above(base)}))


if __name__ == "__main__":
    main(sys.argv[1])
