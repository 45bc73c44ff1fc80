"""The first forward pass of Morpho's GPT-2 in this process: what ``forward.stats`` says about compiling it.

    MORPHO_CACHE_DIR=/tmp/empty python -m benchmarks.probes.gpt2_compile
"""

from __future__ import annotations

import json
import time

import numpy as np

import morpho as mo
from benchmarks.kernels.cases import gpt2_weights
from benchmarks.models.gpt2 import make_ids


def main() -> None:
    """Print milliseconds of compiling, seconds of the first two calls, and the number of kernels."""
    from benchmarks.peers.morpho.gpt import Inference

    weights = gpt2_weights("float32")
    ids = mo.asarray(make_ids(np.random.default_rng(0), 1, 128))
    (mo.asarray([1.0]) + 1).numpy()  # the start-up of the compiler is measured elsewhere
    start = time.perf_counter()
    forward = Inference(weights).forward
    built = time.perf_counter()
    forward(ids)
    first = time.perf_counter()
    forward(ids)
    second = time.perf_counter()
    stats = forward.stats
    print(json.dumps({"build_s": built - start, "first_s": first - built, "second_s": second - first,
                      "compile_ms": stats["compile_ms"], "kernels": stats["kernels"], "cache": stats["cache"]}))


if __name__ == "__main__":
    main()
