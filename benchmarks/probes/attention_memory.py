"""One call of attention in this process: seconds, and the peak of memory above the inputs.

    python -m benchmarks.probes.attention_memory morpho|numpy 8 12 2048 64

A small call goes before, so that loading and compiling do not count; the measured call is the first of its size, so
that no memory of an earlier one is at hand.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels import cases
from benchmarks.probes.resident import peak_above, reset_peak, status_bytes


def make(library: str, shape: tuple[int, ...]) -> tuple[Callable[..., Any], dict[str, np.ndarray], tuple[Any, ...]]:
    """The function, the inputs as arrays and as the library's own."""
    arrays = cases.make_inputs("attention", shape)
    if library == "numpy":
        from benchmarks.peers.numpy import kernels as numpy_peer

        return numpy_peer.attention, arrays, tuple(arrays.values())
    import morpho as mo

    return mo.compile(lambda q, k, v: mo.attention(q, k, v)), arrays, tuple(map(mo.asarray, arrays.values()))


def main(library: str, shape: tuple[int, ...]) -> None:
    """Print the time of a call after the first, and the peak of the first."""
    function, arrays, arguments = make(library, shape)
    function(*(argument[:1, :1, :64] for argument in arguments))
    reset_peak()
    base = status_bytes("VmRSS")
    result = function(*arguments)
    peak = peak_above(base)
    found = np.asarray(result if library == "numpy" else result.numpy())
    cases.check("attention", arrays, (found,))
    del result, found
    start = time.perf_counter()
    function(*arguments)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_bytes": peak}))


if __name__ == "__main__":
    main(sys.argv[1], tuple(map(int, sys.argv[2:])))
