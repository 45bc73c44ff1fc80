"""A first look at a GPU: what it is, transfers, errors, and that the seam works. `python -m benchmarks.gpu.first`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import backend_of


def main(device: str = "cuda:0") -> None:
    """Say what is there and try everything small."""
    started = time.perf_counter()
    backend: Any = backend_of(device)
    print("devices", mo.devices(), backend.gpu.properties, f"{time.perf_counter() - started:.2f} s", flush=True)
    x = np.random.default_rng(0).standard_normal((1000, 768)).astype("f")
    for _ in range(2):
        started = time.perf_counter()
        a = mo.asarray(x, device=device)
        y = mo.gelu(a * 2 + 1)
        same = np.array_equal(y.numpy(), mo.gelu(mo.asarray(x) * 2 + 1).numpy())
        print(f"gelu has the CPU's bits: {same}, {1e3 * (time.perf_counter() - started):.1f} ms", flush=True)
    try:
        mo.take(a, mo.asarray(np.array([5000]), device=device), axis=0).numpy()
        print("a wrong index was not found")
    except Exception as error:
        print("a wrong index:", type(error).__name__, error, flush=True)
    try:
        mo.zeros((1 << 40,), device=device).realise()
        print("a terabyte was found")
    except Exception as error:
        print("too much memory:", type(error).__name__, error, flush=True)
    big = np.random.default_rng(0).integers(0, 255, 64 << 20, dtype=np.uint8)
    for _ in range(3):
        started = time.perf_counter()
        held = mo.asarray(big, device=device)
        backend.synchronize()
        middle = time.perf_counter()
        back = held.numpy()
        ended = time.perf_counter()
    print(f"64 MiB: in {64 / 1024 / (middle - started):.1f} GiB/s, out {64 / 1024 / (ended - middle):.1f} GiB/s, "
          f"equal {np.array_equal(back, big)}", flush=True)
    small = mo.ones((1024,), device=device)
    small.realise()
    f = mo.compile(lambda t: t * 2 + 1)
    f(small)
    backend.synchronize()
    started = time.perf_counter()
    for _ in range(1000):
        f(small)
    queued = time.perf_counter()
    backend.synchronize()
    print(f"a compiled call of one kernel: {1e3 * (queued - started):.1f} us to queue, "
          f"{1e3 * (time.perf_counter() - started):.1f} us each with the end", flush=True)


if __name__ == "__main__":
    main()
