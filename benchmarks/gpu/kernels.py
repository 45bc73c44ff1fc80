"""Kernels beside PyTorch's: `python -m benchmarks.gpu.kernels [device] [log]`. Elementwise, reductions, rows, products.

Every case is checked against float64 on the host, or PyTorch's own result, before it is timed.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.timing import morpho_seconds, torch_seconds
from benchmarks.gpu.workers import parent, worker
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.runtime.memory.device_memory import upload
from morpho.runtime.plans import on_device


@dataclass
class Case:
    """A program in both, its inputs' shapes and dtype, and what it moves or computes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    nbytes: float = 0
    flops: float = 0
    tolerance: float = 1e-4
    compiled: bool = False
    in_double: bool = True  # whether PyTorch's own result in float64 is what it is compared with


def _gelu(torch: Any, a: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(a * 2 + 1) + b


def cases(torch: Any) -> list[Case]:
    """The table."""
    functional = torch.nn.functional
    side, mega = (8192, 8192), 1 << 20
    whole = 8192 * 8192 * 4

    def product(name: str, m: int, k: int, n: int, dtype: str, tolerance: float) -> Case:
        return Case(name, ((m, k), (k, n)), dtype, lambda a, b: a @ b, lambda a, b: a @ b, flops=2.0 * m * k * n,
                    tolerance=tolerance)

    def heads(name: str, shape: tuple[int, int, int, int], causal: bool) -> Case:
        b, h, t, d = shape
        return Case(name, (shape,) * 3, "bfloat16", lambda q, k, v: mo.attention(q, k, v, causal=causal),
                    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
                    flops=4.0 * b * h * t * t * d / (2 if causal else 1), tolerance=1e-2, in_double=False)

    return [
        Case("copy 8192^2 (x + 0)", (side,), "float32", lambda a: a + 1.0, lambda a: a + 1.0, 2 * whole),
        Case("gelu(2a+1)+b 8192^2", (side, side), "float32", lambda a, b: mo.gelu(a * 2 + 1) + b,
             lambda a, b: _gelu(torch, a, b), 3 * whole, compiled=True),
        Case("gelu(2a+1)+b 1M", ((mega,), (mega,)), "float32", lambda a, b: mo.gelu(a * 2 + 1) + b,
             lambda a, b: _gelu(torch, a, b), 12 * mega),
        Case("sum 1M", ((mega,),), "float32", mo.sum, torch.sum, 4 * mega),
        Case("sum 64M", (side,), "float32", mo.sum, torch.sum, whole),
        Case("sum rows", (side,), "float32", lambda a: mo.sum(a, axis=1), lambda a: a.sum(1), whole),
        Case("sum columns", (side,), "float32", lambda a: mo.sum(a, axis=0), lambda a: a.sum(0), whole, tolerance=1e-3),
        Case("softmax 8192^2", (side,), "float32", lambda a: mo.softmax(a, axis=-1),
             lambda a: functional.softmax(a, -1), 2 * whole, compiled=True),
        Case("layer norm 8192^2", (side,), "float32",
             lambda a: (a - mo.mean(a, axis=-1, keepdims=True)) / mo.sqrt(mo.var(a, axis=-1, keepdims=True) + 1e-5),
             lambda a: functional.layer_norm(a, (8192,)), 2 * whole, compiled=True),
        Case("layer norm 8192x768 bf16", ((8192, 768),), "bfloat16",
             lambda a: (a - mo.mean(a, axis=-1, keepdims=True)) / mo.sqrt(mo.var(a, axis=-1, keepdims=True) + 1e-5),
             lambda a: functional.layer_norm(a, (768,)), 4 * 8192 * 768, tolerance=2e-2),
        Case("transpose 8192^2", (side,), "float32", lambda a: mo.permute_dims(a, (1, 0)) + 1.0,
             lambda a: a.T.contiguous() + 1.0, 2 * whole),
        product("gemm f32 2048", 2048, 2048, 2048, "float32", 1e-4),
        product("gemm bf16 2048", 2048, 2048, 2048, "bfloat16", 1e-2),
        product("gemm bf16 4096", 4096, 4096, 4096, "bfloat16", 1e-2),
        product("gemm bf16 8192", 8192, 8192, 8192, "bfloat16", 1e-2),
        product("gemm f16 4096", 4096, 4096, 4096, "float16", 1e-2),
        product("gemm bf16 8192x768x3072", 8192, 768, 3072, "bfloat16", 1e-2),
        Case("linear + gelu 8192x768x3072", ((8192, 768), (768, 3072), (3072,)), "bfloat16",
             lambda a, b, c: mo.gelu(a @ b + c), lambda a, b, c: functional.gelu(a @ b + c),
             flops=2.0 * 8192 * 768 * 3072, tolerance=1e-2),
        heads("attention (8,12,2048,64)", (8, 12, 2048, 64), False),
        heads("attention (8,12,1024,64) c", (8, 12, 1024, 64), True),
        heads("attention (4,32,4096,128)", (4, 32, 4096, 128), False),
        heads("attention (4,32,4096,128) c", (4, 32, 4096, 128), True),
    ]


def run(case: Case, device: str, torch: Any) -> dict[str, Any]:
    """One case: its error and both times."""
    torch.manual_seed(0)
    theirs_in = [torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, case.dtype))
                 for shape in case.shapes]
    dtype = getattr(mo, case.dtype)
    arrays = [x.view(torch.int16).cpu().numpy().view(np.uint16) if case.dtype == "bfloat16" else x.cpu().numpy()
              for x in theirs_in]
    buffers = [upload(array, dtype, device) for array in arrays]
    parameters = [mo.Tensor.of_node(build("parameter", index=n, shape=shape, dtype=dtype))
                  for n, shape in enumerate(case.shapes)]
    output = case.ours(*parameters)
    started = time.perf_counter()
    (result,) = on_device.run(Graph((output.node,)), device, buffers, {})
    got = mo.Tensor.of_node(on_device_leaf(result))
    found = torch.from_numpy(np.ascontiguousarray(mo.astype(got, mo.float32).numpy())).double()
    first = time.perf_counter() - started
    want = case.theirs(*[x.double() if case.in_double else x.float() for x in theirs_in]).double().cpu()
    error = float((found - want).norm() / want.norm().clamp_min(1e-30))
    ours = morpho_seconds(device, [output], buffers)
    theirs = torch_seconds(lambda: case.theirs(*theirs_in))
    row = {"name": case.name, "error": error, "ok": bool(error < case.tolerance), "morpho_us": 1e6 * ours,
           "torch_us": 1e6 * theirs, "first_call_ms": 1e3 * first}
    if case.nbytes:
        row["TB/s"] = case.nbytes / ours / 1e12
    if case.flops:
        row["TFLOP/s"], row["torch TFLOP/s"] = case.flops / ours / 1e12, case.flops / theirs / 1e12
    return row


def on_device_leaf(buffer: Any) -> Any:
    """A buffer as a node."""
    from morpho.runtime.plans.evaluate import leaf

    return leaf(buffer)


def said(row: dict[str, Any]) -> str:
    """A row as a line."""
    if "failed" in row:
        return f"{row['name']:28} {row['failed'][:300]}"
    extra = " ".join(f"{key} {row[key]:.2f}" for key in ("TB/s", "TFLOP/s", "torch TFLOP/s") if key in row)
    return (f"{row['name']:28} {'ok ' if row['ok'] else 'BAD'} error {row['error']:.1e} "
            f"morpho {row['morpho_us']:9.1f} us "
            f"torch {row['torch_us']:9.1f} us first {row['first_call_ms']:.0f} ms {extra}")


def runner(device: str) -> Callable[[int], dict[str, Any]]:
    """What runs a case by its number."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    table = cases(torch)

    def one(number: int) -> dict[str, Any]:
        try:
            return run(table[number], device, torch)
        except Exception as error:
            trace = traceback.format_exc()[-1200:]
            return {"name": table[number].name, "failed": f"{type(error).__name__}: {error}"[:500], "trace": trace}
        finally:
            with contextlib.suppress(Exception):
                torch.cuda.empty_cache()

    return one


def main(device: str = "cuda:0", log: str = "", seconds: float = 170, only: str = "") -> None:
    """All cases, or those whose name has one of some words; each is said when it is done."""
    import torch

    table, words = cases(torch), only.split(",")
    chosen = [number for number, case in enumerate(table) if any(word in case.name for word in words)]
    rows = parent("benchmarks.gpu.kernels", device, len(table), seconds,
                  told=lambda row: print(said(row), flush=True), chosen=chosen)
    if log:
        Path(log).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], runner(sys.argv[2]))
    else:
        main(*sys.argv[1:3], only="".join(sys.argv[3:4]))
