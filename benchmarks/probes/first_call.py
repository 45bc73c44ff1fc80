"""The first call of a fused kernel in this process: from ``mo.compile`` to the values.

    MORPHO_CACHE_DIR=/tmp/empty python -m benchmarks.probes.first_call [started]

With ``started``, a trivial expression has run before the clock starts, so that the figure is the kernel's own: the
start-up (compiler modules, LLVM, the driver) is printed apart.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import morpho as mo


def main(started: bool) -> None:
    """Print seconds of the first and second call, and where Morpho found the code."""
    start = time.perf_counter()
    if started:
        (mo.asarray([1.0]) + 1).numpy()
    start_up = time.perf_counter() - start
    rng = np.random.default_rng(0)
    shapes = ((64, 256), (256,), (64, 256))
    x, bias, residual = (mo.asarray(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes)
    start = time.perf_counter()
    function = mo.compile(lambda x, bias, residual: mo.gelu(x + bias) * 0.5 + residual)
    function(x, bias, residual).numpy()
    first = time.perf_counter() - start
    start = time.perf_counter()
    function(x, bias, residual).numpy()
    second = time.perf_counter() - start
    stats = function.stats
    print(json.dumps({"start_up_s": start_up, "first_s": first, "second_s": second,
                      "compile_ms": stats.get("compile_ms"), "cache": stats.get("cache")}, default=str))


if __name__ == "__main__":
    main("started" in sys.argv[1:])
