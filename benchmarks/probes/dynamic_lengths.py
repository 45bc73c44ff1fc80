"""A thousand lengths through one bounded dynamic dimension, and its cost against code for a fixed length."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo

LENGTHS = 1000
FIXED = (1000, 4096, 20000, 90000)
ROUNDS = 15


def function(x):
    """A fused kernel with some mathematics."""
    return mo.exp(x) * 2.0 + 1.0


def seconds(call: Callable[..., Any], argument: Any, target: Any) -> float:
    """Seconds per call of one round."""
    start = time.perf_counter()
    for _ in range(20):
        call(argument, out=target)
    return (time.perf_counter() - start) / 20


def compare(dynamic: Callable[..., Any], n: int) -> float:
    """Time of the dynamic version / time of the fixed one, medians of alternating rounds."""
    x = mo.asarray(np.linspace(-1.0, 1.0, n, dtype=np.float32))
    fixed = mo.compile(function)
    target = mo.empty(n, dtype=mo.float32)
    fixed(x, out=target), dynamic(x, out=target)
    pairs = [(seconds(dynamic, x, target), seconds(fixed, x, target)) for _ in range(ROUNDS)]
    return statistics.median(pair[0] for pair in pairs) / statistics.median(pair[1] for pair in pairs)


def main() -> None:
    """Print recompiles, time per call over all lengths, and the ratios at some."""
    rng = np.random.default_rng(0)
    lengths = [int(n) for n in rng.choice(np.arange(1, 100_000), LENGTHS, replace=False)]
    source = rng.standard_normal(100_000, dtype=np.float32)
    dynamic = mo.compile(function, dynamic={"x": {0: mo.Dim("n", 1, 100_000)}})
    dynamic(mo.asarray(source[: lengths[0]]))
    before = dynamic.stats["recompiles"]
    start = time.perf_counter()
    for n in lengths:
        result = dynamic(mo.asarray(source[:n]))
    elapsed = time.perf_counter() - start
    recompiles = dynamic.stats["recompiles"] - before
    right = np.exp(source[: lengths[-1]].astype(np.float64)) * 2.0 + 1.0
    np.testing.assert_allclose(result.numpy(), right, rtol=1e-5)
    print(json.dumps({"lengths": LENGTHS, "recompiles": recompiles, "seconds_per_call": elapsed / LENGTHS,
                      "dynamic_over_fixed": {n: compare(dynamic, n) for n in FIXED}}))


if __name__ == "__main__":
    main()
