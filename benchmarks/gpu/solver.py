"""Factorisations by cuSOLVER beside the CPU's LAPACK: `python -m benchmarks.gpu.solver [device] [rows]`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import backend_of


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The median of several, after one."""
    work()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def main(device: str = "cuda:0", rows: str = "2048") -> None:
    """Print a table."""
    n = int(rows)
    a = np.random.default_rng(0).standard_normal((n, n)).astype("f")
    positive = a @ a.T / n + np.eye(n, dtype="f")
    cases: list[tuple[str, np.ndarray, Callable[[Any], Any], Callable[[tuple[Any, ...], np.ndarray], float]]] = [
        ("svd", a, lambda x: mo.linalg.svd(x, full_matrices=False),
         lambda f, x: float(np.linalg.norm((f[0] * f[1]) @ f[2] - x) / np.linalg.norm(x))),
        ("eigh", positive, mo.linalg.eigh,
         lambda f, x: float(np.linalg.norm((f[1] * f[0]) @ f[1].T - x) / np.linalg.norm(x))),
        ("qr", a, mo.linalg.qr, lambda f, x: float(np.linalg.norm(f[0] @ f[1] - x) / np.linalg.norm(x))),
        ("cholesky", positive, mo.linalg.cholesky,
         lambda f, x: float(np.linalg.norm(f[0] @ f[0].T - x) / np.linalg.norm(x))),
        ("solve", a, lambda x: mo.linalg.solve(x, x[:, :8]),
         lambda f, x: float(np.linalg.norm(x @ f[0] - x[:, :8]) / np.linalg.norm(x[:, :8]))),
    ]
    backend: Any = backend_of(device)
    with mo.settings(fast=True):
        for name, matrix, work, wrong in cases:
            run = mo.compile(work)
            here, there = mo.asarray(matrix), mo.asarray(matrix, device=device)

            def on_gpu(run: Any = run, there: Any = there) -> Any:
                found = run(there)
                backend.synchronize()
                return found

            made = on_gpu()
            made = made if isinstance(made, tuple) else (made,)
            error = wrong(tuple(x.numpy() for x in made), matrix)
            gpu, cpu = seconds(on_gpu), seconds(lambda run=run, here=here: run(here), 1)
            print(f"{name} {n}: error {error:.1e}, GPU {1e3 * gpu:.1f} ms, CPU {1e3 * cpu:.1f} ms, {cpu / gpu:.1f}x, "
                  f"{backend.host_steps} steps on the host", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
