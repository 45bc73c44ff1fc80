"""Scans, sorts, scatters, transforms and small matrices on a GPU beside PyTorch's, results compared.

`python -m benchmarks.gpu.mechanisms [device] [part]`: parts `scans`, `sorts`, `scatters`, `transforms`, `matrices`,
each below two minutes; all without one. A line has the time of the device, PyTorch's, and the ratio.
`cuda_emulated:0` runs small arrays, without times.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.own_kernels import Case, one

LIMIT_S = 110  # for each part
PARTS = ("scans", "sorts", "scatters", "transforms", "matrices")


def shapes(small: bool) -> list[tuple[tuple[int, ...], int]]:
    """Lines and axes: one long, rows, the first axis, a middle one."""
    if small:
        return [((9000,), 0), ((3, 5000), 1), ((300, 4), 0)]
    return [((1 << 20,), 0), ((1 << 24,), 0), ((1000, 1 << 14), 1), ((1 << 14, 1024), 0), ((64, 4096, 64), 1)]


def scans(small: bool, rng: np.random.Generator) -> Iterator[Case]:
    pairs: dict[str, tuple[Any, Any]] = {
        "cumulative_sum": ("cumsum", lambda x, axis: np.cumsum(x, axis, dtype=np.float64)),
        "cummax": ("cummax", np.maximum.accumulate), "logcumsumexp": (
            "logcumsumexp", lambda x, axis: np.logaddexp.accumulate(x.astype(np.float64), axis))}
    for shape, axis in shapes(small):
        x = rng.standard_normal(shape, dtype=np.float32)
        for name, (theirs, want) in pairs.items():
            yield Case(f"{name} {shape} {axis}", [x], lambda t, n=name, a=axis: getattr(mo, n)(t, axis=a), None,
                       lambda t, n=theirs, a=axis: getattr(t, n)(a), lambda t, w=want, a=axis: w(t, axis=a), 2e-3,
                       nbytes=8 * x.size)


def sorts(small: bool, rng: np.random.Generator) -> Iterator[Case]:
    for shape, axis in shapes(small):
        x = rng.standard_normal(shape, dtype=np.float32)
        yield Case(f"sort {shape} {axis}", [x], lambda t, a=axis: mo.sort(t, axis=a), None,
                   lambda t, a=axis: t.sort(a)[0], lambda t, a=axis: np.sort(t, a), 0, nbytes=8 * x.size)
        yield Case(f"argsort {shape} {axis}", [x], lambda t, a=axis: mo.argsort(t, axis=a), None,
                   lambda t, a=axis: t.argsort(a, stable=True), lambda t, a=axis: np.argsort(t, a, kind="stable"), 0)
        yield Case(f"topk {shape} {axis}", [x], lambda t, a=axis: mo.topk(t, 5, axis=a)[0], None,
                   lambda t, a=axis: t.topk(5, a)[0],
                   lambda t, a=axis: np.flip(np.take(np.sort(t, a), range(-5, 0), a), a), 0)


def scatters(small: bool, rng: np.random.Generator) -> Iterator[Case]:
    rows, width, count = (50, 6, 700) if small else (50000, 256, 8192)
    lines = 5000 if small else 1 << 20
    table, values = np.zeros((rows, width), np.float32), rng.standard_normal((count, width), dtype=np.float32)
    index, line = rng.integers(0, rows, count), rng.standard_normal(lines, dtype=np.float32)
    places = rng.integers(0, 1000, lines)

    def added(target: np.ndarray, i: np.ndarray, v: np.ndarray) -> np.ndarray:
        result = target.astype(np.float64)
        np.add.at(result, i, v)
        return result

    yield Case(f"rows added {count} x {width}", [table, index, values],
               lambda t, i, v: mo.scatter_add(t, i[:, None], v, axis=0), None,
               lambda t, i, v: t.index_add(0, i, v), added, 1e-4)
    yield Case(f"segment sum {lines} of 1000", [line, places], lambda v, i: mo.segment_sum(v, i, num_segments=1000),
               None, lambda v, i: v.new_zeros(1000).index_add(0, i, v),
               lambda v, i: added(np.zeros(1000), i, v), 1e-4)


def transforms(small: bool, rng: np.random.Generator) -> Iterator[Case]:
    sizes = [((1000,), 0), ((3, 480), 1), ((101,), 0)] if small else [
        ((1 << 20,), 0), ((1 << 24,), 0), ((1024, 1024), 1), ((1024, 1024), 0), ((1000003,), 0)]
    for shape, axis in sizes:
        x = rng.standard_normal((*shape, 2), dtype=np.float32).view(np.complex64)[..., 0]
        yield Case(f"fft {shape} {axis}", [x], lambda t, a=axis: mo.fft.fft(t, axis=a).real, None,
                   lambda t, a=axis: importlib.import_module("torch").fft.fft(t, dim=a).real,
                   lambda t, a=axis: np.fft.fft(t, axis=a).real, 1e-4)


def matrices(small: bool, rng: np.random.Generator) -> Iterator[Case]:
    names = ("cholesky", "inv", "det", "solve")
    for shape in ((2, 16, 16),) if small else ((512, 16, 16), (512, 32, 32), (8192, 8, 8)):
        a = rng.standard_normal(shape, dtype=np.float32)
        a = a @ a.swapaxes(1, 2) + shape[-1] * np.eye(shape[-1], dtype=np.float32)
        for name in names:
            def ours(space: Any, x: Any, name: str = name) -> Any:
                call = getattr(space.linalg, name)
                return call(x, x) if name == "solve" else call(x)

            yield Case(f"{name} {shape}", [a], lambda t, f=ours: f(mo, t), None,
                       lambda t, f=ours: f(importlib.import_module("torch"), t), lambda t, f=ours: f(np, t), 1e-3)


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    parts = sys.argv[2:] or PARTS
    torch: Any = None
    if device.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    else:
        torch = importlib.import_module("torch")
    for part in parts:
        start = time.perf_counter()
        print(f"== {part}", flush=True)
        for case in globals()[part](torch is None, np.random.default_rng(0)):
            if time.perf_counter() - start > LIMIT_S:
                print("no time is left for", case.name)
                continue
            try:
                one(device, torch, case)
            except Exception:  # the others are to run
                print(case.name, "FAILED")
                traceback.print_exc()


if __name__ == "__main__":
    main()
