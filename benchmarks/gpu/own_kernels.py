"""Kernels of `mo.kernel` on a GPU beside the engine's own and PyTorch's.

`python -m benchmarks.gpu.own_kernels [device] [log]`, under 4 minutes. Each result is compared with NumPy's (or with
PyTorch's where that is on the device), then timed by events. `cuda_emulated:0` runs small arrays, without times.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.timing import morpho_seconds, torch_seconds
from morpho import kernel as mk
from morpho.backends.registry import backend_of
from morpho.ir.node import build
from morpho.runtime.memory.device_memory import upload
from morpho.tensor.core import Tensor

LIMIT_S = 220
INFINITY = float("inf")


@mk.kernel(grid=lambda a, block: mk.cdiv(a.shape[0], block), out="a")
def vector_add(a: Any, b: Any, out: Any, *, block: int) -> None:
    start = mk.program_id(0) * block
    mk.store(out[start:], mk.load(a[start:], block) + mk.load(b[start:], block))


@mk.kernel(grid=lambda x: x.shape[0], out="x")
def row_softmax(x: Any, out: Any, *, block: int) -> None:
    i = mk.program_id(0)
    v = mk.load(x[i, :], block, other=-INFINITY)
    e = mo.exp(v - mo.max(v))
    mk.store(out[i, :], e / mo.sum(e))


@mk.kernel(grid=lambda x: x.shape[0], out="x")
def layer_norm(x: Any, out: Any, *, block: int, n: int) -> None:
    i = mk.program_id(0)
    v = mk.load(x[i, :], block)
    d = mo.where(mk.arange(block) < n, v - mo.sum(v) / n, 0.0)
    mk.store(out[i, :], d / mo.sqrt(mo.sum(d * d) / n + 1e-5))


@mk.kernel(grid=lambda a, b, bm, bn: (mk.cdiv(a.shape[0], bm), mk.cdiv(b.shape[1], bn)),
                  out=lambda a, b: mk.new((a.shape[0], b.shape[1]), a.dtype))
def matmul(a: Any, b: Any, out: Any, *, bm: int, bn: int, bk: int) -> None:
    i, j = mk.program_id(0) * bm, mk.program_id(1) * bn
    acc = mk.zeros((bm, bn))
    for k in range(0, a.shape[1], bk):
        acc = mk.dot(mk.load(a[i:, k:], (bm, bk)), mk.load(b[k:, j:], (bk, bn)), acc)
    mk.store(out[i:, j:], acc)


@mk.kernel(grid=lambda q, bq: (mk.cdiv(q.shape[1], bq), q.shape[0]), out="q")
def attention(q: Any, k: Any, v: Any, out: Any, *, depth: int, bq: int, bk: int) -> None:
    start, head = mk.program_id(0) * bq, mk.program_id(1)
    query = mk.load(q[head, start:, :], (bq, depth)) * depth ** -0.5
    top, total, acc = mk.full(bq, -INFINITY), mk.zeros(bq), mk.zeros((bq, depth))
    for first in range(0, k.shape[1], bk):
        s = query @ mk.load(k[head, first:, :], (bk, depth)).T
        s = mo.where((first + mk.arange(bk))[None, :] < k.shape[1], s, -INFINITY)
        new = mo.maximum(top, mo.max(s, axis=1))
        p, shrink = mo.exp(s - new[:, None]), mo.exp(top - new)
        total = total * shrink + mo.sum(p, axis=1)
        acc = acc * shrink[:, None] + p @ mk.load(v[head, first:, :], (bk, depth))
        top = new
    mk.store(out[head, start:, :], acc / total[:, None])


@mk.kernel(grid=lambda x, block: mk.cdiv(x.shape[0], block), out=lambda bins: mk.new(bins, "int32", fill=0))
def histogram(x: Any, counts: Any, *, bins: int, block: int) -> None:
    v = mk.load(x[mk.program_id(0) * block:], block, other=-1)
    mk.atomic_add(counts[v], 1, mask=(v >= 0) & (v < bins))


@dataclass
class Case:
    """A program of ours, the engine's own, and PyTorch's, on the same arrays."""

    name: str
    arrays: list[np.ndarray]
    ours: Callable[..., Any]
    engine: Callable[..., Any] | None
    theirs: Callable[..., Any]
    want: Callable[..., Any]
    tolerance: float = 1e-4
    nbytes: float = 0
    flops: float = 0
    waits: bool = False  # whether its size is data: it is timed by the host's clock, as PyTorch's is


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def cases(torch: Any, small: bool) -> list[Case]:
    """The table; `small`: arrays for the emulator."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    mega, rows, side, keys = (5000, 6, 70, 50) if small else (1 << 24, 8192, 4096, 4096)
    columns = 700 if small else 4096
    x, m = floats(mega), floats(rows, columns)
    a, b = floats(side, side), floats(side, side)
    q, k, v = floats(3, 8 if small else 32, keys, 64)
    functional: Any = getattr(getattr(torch, "nn", None), "functional", None)
    found = [
        Case(f"add {mega}", [x, x], lambda a, b: vector_add(a, b, block=4096), lambda a, b: a + b,
             lambda a, b: a + b, np.add, nbytes=12 * mega),
        Case(f"softmax {m.shape}", [m], lambda t: row_softmax(t, block=columns), lambda t: mo.softmax(t, axis=-1),
             lambda t: functional.softmax(t, -1), softmax, nbytes=8 * m.size),
        Case(f"layer norm {m.shape}", [m], lambda t: layer_norm(t, block=columns, n=columns), None,
             lambda t: functional.layer_norm(t, (columns,)),
             lambda t: (t - t.mean(1, keepdims=True)) / np.sqrt(t.var(1, keepdims=True) + 1e-5), nbytes=8 * m.size),
        *[Case(f"matmul {side} tiles {bm}x{bn}x{bk}", [a, b],
               lambda a, b, bm=bm, bn=bn, bk=bk: matmul(a, b, bm=bm, bn=bn, bk=bk),
               lambda a, b: a @ b, lambda a, b: a @ b, np.matmul, 1e-2, flops=2 * side ** 3)
          for bm, bn, bk in ((64, 64, 32), (128, 64, 32), (128, 128, 16))],
        Case(f"attention {q.shape}", [q, k, v], lambda q, k, v: attention(q, k, v, depth=64, bq=64, bk=32),
             lambda q, k, v: mo.attention(q[None], k[None], v[None])[0],
             lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
             lambda q, k, v: softmax(np.einsum("hqd,hkd->hqk", q, k) / 8) @ v, 1e-3,
             flops=4 * q.shape[0] * keys * keys * 64),
    ]
    for bins in (256, 1 << 16):
        numbers = rng.integers(0, bins, mega).astype(np.int32)
        found.append(Case(f"histogram {mega} of {bins}", [numbers],
                          lambda t, bins=bins: histogram(t, bins=bins, block=4096), None,
                          lambda t, bins=bins: torch.bincount(t, minlength=bins),
                          lambda t, bins=bins: np.bincount(t, minlength=bins), 0, nbytes=4 * mega))
    for shape in ((mega,), (1 << 20,), (1000, 1 << 14), (1 << 16, 256)) if not small else ((mega,), (3, 300)):
        line = floats(*shape)
        for name, theirs in (("cumulative_sum", "cumsum"), ("cummax", "cummax")):
            found.append(Case(f"{name} {shape}", [line],
                              lambda t, name=name: getattr(mo, name)(t, axis=-1), None,
                              lambda t, theirs=theirs: getattr(t, theirs)(-1),
                              lambda t, name=name: np.cumsum(t, -1, dtype=np.float64) if name == "cumulative_sum"
                              else np.maximum.accumulate(t, -1), 2e-3, nbytes=8 * line.size))
    for count in (mega,) if small else (1 << 20, mega):
        numbers, line = rng.integers(0, 1 << 16, count).astype(np.int32), floats(count)
        found += [
            Case(f"bincount {count}", [numbers], lambda t: mo.bincount(t, length=1 << 16), None,
                 lambda t: torch.bincount(t, minlength=1 << 16), lambda t: np.bincount(t, minlength=1 << 16), 0,
                 waits=True),
            Case(f"nonzero {count}", [(line > 0).astype(np.int32)], lambda t: mo.nonzero(t)[0], None,
                 lambda t: t.nonzero()[:, 0], np.flatnonzero, 0, waits=True),
            Case(f"x[x > 0] {count}", [line], lambda t: t[t > 0], None, lambda t: t[t > 0], lambda t: t[t > 0], 0,
                 waits=True),
            Case(f"unique {count}", [numbers], mo.unique_values, None, torch.unique if torch else abs, np.unique, 0,
                 waits=True)]
    return found


def host_seconds(work: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """The median time of calls that wait for the device themselves."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return sorted(times)[4]


def one(device: str, torch: Any, case: Case) -> None:
    """Compare and time a case."""
    real = torch is not None
    leaves = [build("parameter", index=n, shape=array.shape, dtype=mo.asarray(array[:0]).dtype)
              for n, array in enumerate(case.arrays)]
    tensors = [Tensor.of_node(leaf) for leaf in leaves]
    there = [mo.asarray(array).to(device) for array in case.arrays]
    result = case.ours(*there)
    got = (result[0] if isinstance(result, tuple) else result).numpy()
    torch_arrays = [torch.from_numpy(array).cuda() for array in case.arrays] if real else []
    if real and case.flops:
        want = case.theirs(*torch_arrays).cpu().numpy()
    else:
        want = case.want(*case.arrays)
    error = float(np.abs(got.astype(np.float64) - want).max() / max(1.0, np.abs(want).max()))
    words = [f"{case.name:34} error {error:.1e} {'' if error <= max(case.tolerance, 1e-9) else 'WRONG'}"]
    if real:
        buffers = [upload(array, leaf.dtype, device)
                   for array, leaf in zip(case.arrays, leaves, strict=True)]

        def seconds(function: Callable[..., Any]) -> float:
            outputs = function(*tensors)
            return morpho_seconds(device, list(outputs) if isinstance(outputs, tuple) else [outputs], buffers)

        if case.waits:
            gpu: Any = backend_of(device)
            ours = host_seconds(lambda: case.ours(*there).realise(), gpu.synchronize)
            theirs = host_seconds(lambda: case.theirs(*torch_arrays), torch.cuda.synchronize)
        else:
            ours, theirs = seconds(case.ours), torch_seconds(lambda: case.theirs(*torch_arrays))
        words.append(f"{1e6 * ours:9.1f} us, PyTorch {1e6 * theirs:9.1f} ({theirs / ours:.2f}x)")
        if case.engine is not None:
            engine = seconds(case.engine)
            words.append(f"engine {1e6 * engine:9.1f} ({engine / ours:.2f}x)")
        if case.nbytes:
            words.append(f"{case.nbytes / ours / 1e12:.2f} TB/s")
        if case.flops:
            words.append(f"{case.flops / ours / 1e12:.1f} TFLOP/s")
    print(" ".join(words), flush=True)


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    torch: Any = None
    if device.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    else:
        torch = importlib.import_module("torch")
    start = time.perf_counter()
    for case in cases(torch, torch is None):
        if time.perf_counter() - start > LIMIT_S:
            print("no time is left for", case.name)
            continue
        try:
            one(device, torch, case)
        except Exception:  # whatever it is: the others are to run
            print(case.name, "FAILED")
            traceback.print_exc()


if __name__ == "__main__":
    main()
