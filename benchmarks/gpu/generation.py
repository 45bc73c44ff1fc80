"""Text of a language model, one stream: tokens per second, and the time of every kernel of a decode step.

`python -m benchmarks.gpu.generation [device] [tokens] [table|short]`. GPT-2's sizes with random weights in bfloat16,
greedy; without the kernels where it is to be short.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.first import GPT2
from benchmarks.gpu.steps import leave_out, show_steps
from morpho.backends.registry import backend_of


def main(device: str = "cuda:0", tokens: str = "200", table: str = "table", sizes: dict[str, int] = GPT2) -> None:
    """Generate a few times, then look at the kernels."""
    backend: Any = backend_of(device)
    model = mo.models.create("gpt2", **sizes).astype(mo.bfloat16).to(device)
    prompt = [int(n) for n in np.random.default_rng(0).integers(0, sizes["vocab_size"], 16)]
    first: list[int] = []
    for turn in range(4):
        started = time.perf_counter()
        made: list[int] = []
        for token in mo.models.generate(model, prompt, max_new_tokens=int(tokens)):
            if not made:
                begun, launched = time.perf_counter(), backend.gpu.launches
            made.append(token)
        ended = time.perf_counter()
        first = first or made
        rest = len(made) - 1
        print(f"turn {turn}: first token {1e3 * (begun - started):.1f} ms, then {rest / (ended - begun):.0f} tokens/s, "
              f"{(backend.gpu.launches - launched) / max(rest, 1):.0f} launches each, the same text: {made == first}",
              flush=True)
    generator: Any = model.__dict__["_generators"].free[0]
    run = generator.loop.greedy
    print("calls", run.calls, "by the native entry", run.native_calls, flush=True)
    started, times = time.perf_counter(), 200
    generator.loop.position.value = generator.there(40)
    for _ in range(times):
        run()
    queued = time.perf_counter()
    backend.synchronize()
    print(f"a step: {1e6 * (queued - started) / times:.0f} us to queue, "
          f"{1e6 * (time.perf_counter() - started) / times:.0f} us in all", flush=True)
    if table == "table":
        generator.loop.position.value = generator.there(200)
        run()
        show_steps(run, device)
        leave_out(run, device)


if __name__ == "__main__":
    main(*sys.argv[1:4])
