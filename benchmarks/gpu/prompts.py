"""Prompts of lengths that did not come before: the time to the first token's logits, and what it costs to queue one.

`python -m benchmarks.gpu.prompts [device] [prompts] [small]`. GPT-2's sizes with random weights in bfloat16. First the
way that programs of dynamic sizes went before (launches prepared in Python for every new length), then by the native
entry.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.first import GPT2
from morpho.backends.cuda.executable import CudaExecutable
from morpho.backends.registry import backend_of

LENGTHS = (100, 400)
SMALL = {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 512}


def through_python(executable: Any) -> None:
    """Let programs of dynamic sizes be prepared for every length, as before."""
    executable._by_region = lambda *given: False
    native = executable.native_call
    executable.native_call = lambda self, inputs, symbols=(): None if symbols else native(self, inputs)


def prompts(count: int, vocabulary: int) -> list[list[int]]:
    """Prompts of different lengths between 100 and 400, in any order."""
    rng = np.random.default_rng(5)
    lengths = rng.permutation(np.arange(*LENGTHS))[:count]
    return [[int(token) for token in rng.integers(0, vocabulary, int(length))] for length in lengths]


def timed(device: str, model: Any, given: list[list[int]], name: str) -> list[bytes]:
    """Every prompt once; the logits' bits."""
    backend: Any = backend_of(device)
    generator = mo.models.Generator(model, 512)
    generator.start(given[0][:50])
    generator.start(given[0][:60])
    found, first, again, queued = [], [], [], []
    for prompt in given:
        generator.ids = []
        started = time.perf_counter()
        found.append(generator.start(prompt).tobytes())
        first.append(1e3 * (time.perf_counter() - started))
        generator.ids = []
        started = time.perf_counter()
        generator.start(prompt)
        again.append(1e3 * (time.perf_counter() - started))
    part = generator.there([given[-1][:200]])
    for _ in range(20):
        backend.synchronize()
        started = time.perf_counter()
        generator.prefill(part, generator.there(0))
        queued.append(1e6 * (time.perf_counter() - started))
    run = generator.prefill
    calls = [chosen.served.executable.call for chosen in run.specialisations.values() if chosen.served is not None]
    regions = [(len(call.regions), call.runs) for call in calls if hasattr(call, "regions")]
    print(f"{name}: first token of a new length median {statistics.median(first):.2f} ms (least {min(first):.2f}, most "
          f"{max(first):.2f}), of the same again {statistics.median(again):.2f} ms, a call with its position "
          f"{statistics.median(queued):.0f} us to queue; calls {run.calls}, native {run.native_calls}, regions and "
          f"runs through Python {regions}", flush=True)
    print("   in order:", " ".join(f"{time_ms:.1f}" for time_ms in first), flush=True)
    return found


def main(device: str = "cuda:0", count: str = "40", sizes: str = "") -> None:
    """Both ways."""
    numbers = SMALL if sizes == "small" else GPT2
    given = prompts(int(count), numbers["vocab_size"])
    model = mo.models.create("gpt2", **numbers).astype(mo.bfloat16).eval().to(device)
    kept = CudaExecutable._by_region, CudaExecutable.native_call
    through_python(CudaExecutable)
    before = timed(device, model, given, "prepared in Python")
    CudaExecutable._by_region, CudaExecutable.native_call = kept  # type: ignore[method-assign]
    after = timed(device, model, given, "by the native entry")
    model.train()
    training = timed(device, model, given, "through Python, by regions (the model's mode changes around every call)")
    print("the same bits:", before == after == training, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
