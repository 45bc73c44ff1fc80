"""Twenty operations on 1024 elements: compiled, by the reference interpreter one at a time, and in plain NumPy."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo

ELEMENTS = 1024
ROUNDS = 15


def chain(x: Any, y: Any) -> Any:
    """Ten multiply-and-add steps."""
    t = x
    for _ in range(10):
        t = t * y + x
    return t


def seconds(call: Callable[..., Any], arguments: tuple[Any, Any], calls: int, target: Any = None) -> float:
    """Seconds per call of one round."""
    first, second = arguments
    start = time.perf_counter()
    if target is None:
        for _ in range(calls):
            call(first, second)
    else:
        for _ in range(calls):
            call(first, second, out=target)
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Print three times, medians of alternating rounds."""
    rng = np.random.default_rng(0)
    arrays = tuple(rng.random(ELEMENTS, dtype=np.float32) for _ in range(2))
    tensors = tuple(mo.asarray(array) for array in arrays)
    compiled = mo.compile(chain)
    np.testing.assert_allclose(compiled(*tensors).numpy(), chain(*arrays), rtol=1e-4)

    def interpreted(x: Any, y: Any) -> Any:
        with mo.settings(device="reference"):
            return chain(x, y).numpy()

    target = mo.empty(ELEMENTS, dtype=mo.float32)

    rounds = [(seconds(compiled, tensors, 2000, target), seconds(interpreted, tensors, 10), seconds(chain, arrays, 200))
              for _ in range(ROUNDS)]
    names = ("compiled_s", "reference_s", "numpy_s")
    columns = zip(*rounds, strict=True)
    print(json.dumps({name: statistics.median(column) for name, column in zip(names, columns, strict=True)}))


if __name__ == "__main__":
    main()
