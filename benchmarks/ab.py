"""A/B of two checkouts: `python -m benchmarks.ab BASE_SRC NEW_SRC [--rounds 40] [--threads 2]`.

Two processes, one per checkout, compile the same programs. They are then timed in turn, a few milliseconds each, with
the other one asleep, so that what else the machine does meets both alike; of each pair the ratio base / new is kept,
and its median printed with the quartiles: above 1 the new one is faster. Nothing else is compared: results are the
tests' business.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLICE_S = 0.02
Program = Callable[[], Any]


def programs() -> dict[str, Program]:
    """What is timed, of one checkout: calls, fused kernels, reductions, products, layers, steps of training."""
    import numpy as np

    import morpho as mo

    rng = np.random.default_rng(1)

    def draw(*shape: int) -> Any:
        return mo.asarray(rng.standard_normal(shape).astype(np.float32), copy=True)

    found: dict[str, Program] = {}

    def case(name: str, function: Callable[..., Any], *arguments: Any) -> None:
        compiled = mo.compile(function)
        compiled(*arguments)
        found[name] = lambda: compiled(*arguments)

    for n in (256, 1024, 4096, 65536, 1 << 20):
        case(f"add {n}", lambda x, y: x + y, draw(n), draw(n))
    case("sum 1M", lambda x: mo.sum(x), draw(1 << 20))
    case("chain10 64k", lambda x: mo.tanh(mo.exp(-x * x) * 2 + 1) * x - mo.sqrt(mo.abs(x) + 1), draw(65536))
    for rows in (64, 1024):
        x = draw(rows, 768)
        case(f"softmax {rows}x768", lambda x: mo.softmax(x), x)
        case(f"layer_norm {rows}x768", lambda x: mo.layer_norm(x), x)
        case(f"gelu {rows}x768", lambda x: mo.gelu(x), x)
    for n in (64, 256, 512):
        case(f"matmul {n}", lambda a, b: a @ b, draw(n, n), draw(n, n))
    case("linear 1x768x2304", lambda x, w: x @ w, draw(1, 768), draw(768, 2304))
    case("linear gelu 128x512x768", lambda x, w, b: mo.gelu(x @ w + b), draw(128, 512), draw(512, 768), draw(768))
    case("attention 8x256x64", lambda q: mo.attention(q, q, q, causal=True), draw(8, 256, 64))
    weights = [draw(64, 64) * 0.1 for _ in range(3)]

    def loss(w: Any, x: Any) -> Any:
        for one in w:
            x = mo.tanh(x @ one)
        return mo.mean(mo.square(x))

    case("mlp step 64", lambda w, x: [p - 0.01 * g for p, g in zip(w, mo.grad(loss)(w, x))], weights, draw(64, 64))
    wide = [draw(512, 512) * 0.05 for _ in range(3)]
    case("mlp step 512", lambda w, x: [p - 0.01 * g for p, g in zip(w, mo.grad(loss)(w, x))], wide, draw(128, 512))

    def block_loss(w: Any, x: Any) -> Any:
        h = mo.layer_norm(x)
        q = mo.permute_dims(mo.reshape(h @ w[0], (128, 3, 4, 64)), (1, 2, 0, 3))
        seen = mo.attention(q[0], q[1], q[2], causal=True)
        x = x + mo.reshape(mo.permute_dims(seen, (1, 0, 2)), (128, 256)) @ w[1]
        return mo.mean(mo.square(x + mo.gelu(mo.layer_norm(x) @ w[2]) @ w[3]))

    block = [draw(256, 768) * 0.05, draw(256, 256) * 0.05, draw(256, 1024) * 0.05, draw(1024, 256) * 0.05]
    case("block forward", block_loss, block, draw(128, 256))
    case("block step", lambda w, x: [p - 0.01 * g for p, g in zip(w, mo.grad(block_loss)(w, x))], block, draw(128, 256))
    return found


def worker() -> None:
    """Read program names from the standard input; time each for a slice, and answer with seconds a call."""
    table = programs()
    counts = {}
    for name, program in table.items():
        started = time.perf_counter()
        program()
        counts[name] = max(1, int(SLICE_S / max(time.perf_counter() - started, 1e-7)))
    print(json.dumps(list(table)), flush=True)
    for line in sys.stdin:
        program, count = table[line.strip()], counts[line.strip()]
        program()
        started = time.perf_counter()
        for _ in range(count):
            program()
        print((time.perf_counter() - started) / count, flush=True)


def _start(source: str, threads: int) -> tuple[subprocess.Popen[str], list[str]]:
    environment = {**os.environ, "PYTHONPATH": source, "MORPHO_THREADS": str(threads)}
    process = subprocess.Popen([sys.executable, str(Path(__file__).resolve()), "--worker"], env=environment, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def _ask(process: subprocess.Popen[str], name: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("base", help="folder that holds the older `morpho`, such as a worktree's src")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    (base, names), (new, _) = _start(options.base, options.threads), _start(options.new, options.threads)
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            if number % 2:
                later, earlier = _ask(new, name), _ask(base, name)
            else:
                earlier, later = _ask(base, name), _ask(new, name)
            pairs[name].append((earlier, later))
    print(f"threads {options.threads}, {options.rounds} rounds; base / new: above 1 the new one is faster")
    medians = []
    for name, times in pairs.items():
        low, middle, high = statistics.quantiles([a / b for a, b in times], n=4)
        medians.append(middle)
        least = [min(column) for column in zip(*times)]
        print(f"{name:24} {middle:6.3f} ({low:.3f} - {high:.3f})  "
              f"least {least[0] * 1e6:9.1f} -> {least[1] * 1e6:9.1f} us  {least[0] / least[1]:6.3f}")
    print(f"geometric mean {statistics.geometric_mean(medians):.3f}")
    for process in (base, new):
        process.kill()


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
