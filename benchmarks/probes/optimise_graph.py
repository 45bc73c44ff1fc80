"""How long the passes take on a graph of some 300 nodes, as ``f.stats`` tells it."""

from __future__ import annotations

import json
import time

import numpy as np

import morpho as mo

BLOCKS = 25  # twelve operations each


def function(x, y):
    """A net of elementwise operations, row reductions, repeated subexpressions and no-ops to clean away."""
    t = x
    for index in range(BLOCKS):
        centred = t - mo.mean(t, axis=-1, keepdims=True)
        gate = mo.tanh(centred * y + float(index))
        again = mo.tanh(centred * y + float(index))
        t = mo.maximum(gate * again + t * 1.0, 0.0) + mo.exp(gate * 0.1)
    return t


def main() -> None:
    """Print the milliseconds of the passes, their sum, and the wall time of the first call."""
    rng = np.random.default_rng(0)
    x, y = (mo.asarray(rng.standard_normal((16, 64), dtype=np.float32)) for _ in range(2))
    compiled = mo.compile(function)
    start = time.perf_counter()
    compiled(x, y).numpy()
    wall = time.perf_counter() - start
    passes = compiled.stats["passes"]
    milliseconds = {name: entry["ms"] for name, entry in passes.items()}
    nodes = next(iter(passes.values()))["before"] if passes else None
    print(json.dumps({"nodes": nodes, "optimise_s": sum(milliseconds.values()) / 1e3, "passes_ms": milliseconds,
                      "first_s": wall}, default=str))


if __name__ == "__main__":
    main()
