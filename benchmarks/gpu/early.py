"""Which launches should come before the one ahead of them is over? Programs as graphs, by several rules.

`python -m benchmarks.gpu.early [device] [parts]`. Parts: mlp, forward, training. Times of one run, the least of five
rounds; all rules in turn, twice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.branches import step_of
from benchmarks.gpu.first import GPT2
from benchmarks.gpu.training import compiled_step, data
from morpho.backends.cuda.driver.launch_code import EARLY, ENTRY_WORDS, GRAPHS, Field
from morpho.backends.registry import backend_of
from morpho.runtime.plans import on_device

Rule = Callable[[str, int, str, int], bool]  # of a launch and of the one before it: its kernel's class, its blocks
RULES: dict[str, Rule] = {
    "all": lambda kind, blocks, before, those: True,
    "none": lambda kind, blocks, before, those: False,
    "up to 132 blocks": lambda kind, blocks, before, those: blocks <= 132,
    "up to 1024 blocks": lambda kind, blocks, before, those: blocks <= 1024,
    "no SIMT products": lambda kind, blocks, before, those: kind != "SimtGemm",
    "not behind more than 132 blocks": lambda kind, blocks, before, those: those <= 132,
    "behind or of up to 132 blocks": lambda kind, blocks, before, those: min(blocks, those) <= 132,
}


def launches(chosen: Any, device: str) -> tuple[Any, list[tuple[str, int]]]:
    """The native call of a program; of every launch its kernel's class and its blocks."""
    executable: Any = on_device.executable(chosen.plan.graph, device)
    call = chosen.served.executable.call
    prepared = executable._at({})
    kinds = [type(executable.kernels[number][0]).__name__ for number, _ in prepared.launches]
    return call, [(kind, call.table.table[ENTRY_WORDS * number + 1]) for number, kind in enumerate(kinds)]


def forget_graphs(call: Any) -> None:
    """Let the next calls capture anew."""
    call.device.synchronize()
    for number in range(GRAPHS):
        if call.kept[number * call.width]:
            call.device.destroy_graph(call.kept[number * call.width])
            call.kept[number * call.width] = 0
    call.words[Field.CAPTURED] = call.words[Field.TURN] = call.words[Field.REPLAYED] = 0


def compared(name: str, device: str, run: Any, given: tuple[Any, ...], times: int) -> None:
    """Print the times of one program by all rules."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    for _ in range(3):
        run(*given)
    chosen = next(one for one in run.specialisations.values() if one.served is not None)
    call, listed = launches(chosen, device)
    found: dict[str, list[float]] = {}
    for _ in range(2):
        for rule, may in RULES.items():
            for number, (kind, blocks) in enumerate(listed):
                before, those = listed[number - 1] if number else ("", 0)
                call.table.table[ENTRY_WORDS * number + EARLY] = int(may(kind, blocks, before, those))
            forget_graphs(call)
            for _ in range(4):
                run(*given)
            gpu.synchronize()
            best = 1e9
            for _ in range(5):
                started = time.perf_counter()
                for _ in range(times):
                    run(*given)
                gpu.synchronize()
                best = min(best, 1e6 * (time.perf_counter() - started) / times)
            found.setdefault(rule, []).append(best)
    print(f"{name}, {len(listed)} launches, most blocks {max(blocks for _, blocks in listed)}:", flush=True)
    for rule, best_of in found.items():
        print(f"   {rule:34} {' '.join(f'{one:10.1f}' for one in best_of)} us", flush=True)


def main(device: str = "cuda:0", parts: str = "mlp,forward,training") -> None:
    """All parts."""
    if "mlp" in parts:
        for sizes, rows in (((64, 64, 64), 32), ((784, 1024, 1024, 10), 256)):
            _, run, given = step_of(device, sizes, rows)
            compared(f"step of MLP {sizes}", device, run, given, 100)
    if "forward" in parts:
        model = mo.models.create("gpt2", **GPT2).astype(mo.bfloat16).eval().to(device)
        for rows, length in ((1, 128), (8, 1024)):
            tokens = mo.asarray(np.random.default_rng(0).integers(0, GPT2["vocab_size"], (rows, length)), device=device)
            compared(f"GPT-2 forward {rows}x{length}", device, mo.compile(lambda t: model(t)), (tokens,), 20)
    if "training" in parts:
        run, _ = compiled_step(device, 12)
        compared("GPT-2 training step 8x1024", device, run, data(device, 8, 1024), 5)


if __name__ == "__main__":
    main(*sys.argv[1:3])
