"""Two source trees on one GPU: microseconds of calls, and the bits of their results.

    PYTHONPATH=OLD/src:. python -m benchmarks.gpu.trees cuda:0 old.json      # each tree by itself, in turn
    PYTHONPATH=src:. python -m benchmarks.gpu.trees cuda:0 new.json
    python -m benchmarks.gpu.trees old.json new.json [old2.json new2.json]   # the table; 1 where bits differ

Public calls alone, so that a tree of any age can be asked. `bash benchmarks/gpu/trees.sh` does all of it.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 9


def programs(mo: Any) -> dict[str, tuple[Callable[..., Any], list[tuple[tuple[int, ...], Any]]]]:
    """By name: a function, and the shapes and dtypes of its arguments."""
    f32, bf16, f16 = mo.float32, mo.bfloat16, mo.float16

    def chain(x: Any) -> Any:
        for _ in range(20):
            x = mo.softmax(x @ x, axis=-1)
        return x

    def step(x: Any, w: Any) -> Any:
        return mo.grad(lambda w: mo.sum(mo.gelu(x @ w).astype(f32)))(w)

    attend = lambda q, k, v: mo.attention(q, k, v, causal=True)
    return {
        "one launch": (lambda x: x * 2 + 1, [((64, 64), f32)]),
        "40 launches": (chain, [((64, 64), f32)]),
        "softmax": (lambda x: mo.softmax(x, axis=-1), [((4096, 4096), f32)]),
        "layer norm": (mo.layer_norm, [((8192, 768), bf16)]),
        "sum of columns": (lambda x: mo.sum(x, axis=0), [((8192, 3072), f32)]),
        "sort": (mo.sort, [((16, 1 << 16), f32)]),
        "product f32": (lambda a, b: a @ b, [((2048, 2048), f32)] * 2),
        "product bf16": (lambda a, b: a @ b, [((4096, 4096), bf16)] * 2),
        "product and gelu": (lambda a, b, c: mo.gelu(a @ b + c), [((8192, 768), bf16), ((768, 3072), bf16),
                                                                  ((3072,), bf16)]),
        "residual": (lambda a, b, c: c + a @ b, [((8192, 768), bf16), ((768, 768), bf16), ((8192, 768), bf16)]),
        "attention bf16 64": (attend, [((8, 12, 1024, 64), bf16)] * 3),
        "attention f16 128": (attend, [((4, 16, 2048, 128), f16)] * 3),
        "attention f32": (attend, [((2, 8, 512, 64), f32)] * 3),
        "gradient of attention": (lambda q, k, v, w: mo.grad(
            lambda *given: mo.sum((mo.attention(*given, causal=True) * w).astype(f32)), argnums=(0, 1, 2))(q, k, v),
            [((4, 12, 1024, 64), bf16)] * 4),
        "bytes": (lambda a, b: mo.matmul(a, b, dtype=mo.int32), [((1024, 1024), mo.int8)] * 2),
        "convolution": (lambda x, w: mo.relu(mo.conv2d(x, w, padding=1)), [((16, 64, 56, 56), bf16),
                                                                          ((64, 64, 3, 3), bf16)]),
        "step of a layer": (step, [((8192, 768), bf16), ((768, 3072), bf16)]),
    }


def tensor(mo: Any, number: int, shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    rng = np.random.default_rng(number)
    if dtype is mo.int8:
        return mo.asarray(rng.integers(-128, 128, shape).astype(np.int8)).to(device)
    return mo.asarray(rng.standard_normal(shape, np.float32)).astype(dtype).to(device)


def measure(device: str, only: str = "") -> dict[str, Any]:
    """Of every program: microseconds to queue a call, of a whole call, milliseconds of the first, a digest."""
    import morpho as mo
    from morpho.backends.registry import backend_of

    backend, rows = backend_of(device), dict[str, Any]()
    for name, (function, arguments) in programs(mo).items():
        if only and name not in only.split(","):
            continue
        given = [tensor(mo, number, shape, dtype, device) for number, (shape, dtype) in enumerate(arguments)]
        f = mo.compile(function)
        started = time.perf_counter()
        results = f(*given)
        results = results if isinstance(results, tuple) else (results,)
        digest = hashlib.sha256(b"".join(each.astype(mo.float64).numpy().tobytes() for each in results))
        first = time.perf_counter() - started
        queued, whole, times = [], [], 1 if "emulated" in device else 100
        for _ in range(1 if "emulated" in device else REPEATS):
            backend.synchronize()
            started = time.perf_counter()
            for _ in range(times):
                f(*given)
            middle = time.perf_counter()
            backend.synchronize()
            queued.append(1e6 * (middle - started) / times)
            whole.append(1e6 * (time.perf_counter() - started) / times)
        rows[name] = {"queue_us": min(queued), "call_us": statistics.median(whole), "first_ms": 1e3 * first,
                      "digest": digest.hexdigest()[:16]}
        print(f"{name:24} queue {min(queued):8.1f} us, call {statistics.median(whole):9.1f} us, first "
              f"{1e3 * first:7.0f} ms, {rows[name]['digest']}", flush=True)
    return rows


def compare(names: list[str]) -> int:
    """Files of the old tree and of the new one in turn; the best of each."""
    texts = [json.loads(Path(name).read_text(encoding="utf-8")) for name in names]
    wrong = 0
    print(f"{'program':24} {'queue us':>19} {'call us':>21} {'ratio':>6}  bits")
    for name in texts[0]:
        old, new = ([text[name] for text in texts[which::2]] for which in (0, 1))
        pairs = [(min(row[key] for row in old), min(row[key] for row in new)) for key in ("queue_us", "call_us")]
        same = len({row["digest"] for row in (*old, *new)}) == 1
        wrong += not same
        print(f"{name:24} {pairs[0][0]:8.1f} -> {pairs[0][1]:7.1f} {pairs[1][0]:9.1f} -> {pairs[1][1]:8.1f} "
              f"{pairs[1][1] / pairs[1][0]:6.3f}  {'equal' if same else 'DIFFER'}")
    return int(wrong > 0)


def main() -> int:
    if sys.argv[1].endswith(".json"):
        return compare(sys.argv[1:])
    Path(sys.argv[2]).write_text(json.dumps(measure(sys.argv[1], *sys.argv[3:])), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
