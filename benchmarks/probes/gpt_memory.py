"""The memory of training steps of the GPT in this process.

    python -m benchmarks.probes.gpt_memory torch|morpho|checkpoint|BUDGET [layers width heads vocabulary batch length]

BUDGET is a share, such as 0.75, for `memory_budget=` of `mo.compile`. The resident peak is that of all steps, the
first one with its compiling included; building the model is not counted.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.probes.resident import reset_peak, status_bytes
from benchmarks.train import gpt

STEPS = 3


def make(kind: str, size: tuple[int, ...]) -> tuple[int | None, Callable[..., Any], tuple[Any, ...]]:
    """What was resident after the imports, the step and its arguments."""
    if kind == "torch":
        from benchmarks.peers.torch import gpt as side
    else:
        from benchmarks.peers.morpho import gpt as side  # type: ignore[no-redef]
    base = status_bytes("VmRSS")
    case = "gpt_step_checkpoint" if kind == "checkpoint" else "gpt_step"
    step, arguments = side.prepare(case, gpt.make_inputs(case, size))
    if kind not in ("torch", "morpho", "checkpoint"):
        step = side.compile_step(case, memory_budget=float(kind))
    return base, step, arguments


def pool_peak(call: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes of Morpho's pool that are in use at most during a call, and its result."""
    import morpho as mo

    gc.collect()
    with mo.pool.watch() as seen:
        result = call()
    return seen.peak_bytes, result


def held(step: Any, arguments: tuple[Any, ...], before: int, first: int) -> dict[str, Any]:
    """What Morpho predicted a call to hold, and what its pool saw beyond what was there `before` the model."""
    measured, _ = pool_peak(lambda: step(*arguments).item())
    stats = step.stats
    return {"arena_bytes": stats["arena_bytes"], "predicted_bytes": stats["predicted_peak_bytes"],
            "measured_bytes": measured - before, "first_bytes": first - before, "flops": stats["flops"],
            "recomputed": stats["recomputed"]}


def main(kind: str, size: tuple[int, ...]) -> None:
    """Print bytes and seconds."""
    watch = pool_peak if kind != "torch" else lambda call: (0, call())
    before, _ = watch(lambda: None)
    base, step, arguments = make(kind, size or gpt.SIZE)
    gc.collect()
    reset_peak()
    first, loss = watch(lambda: step(*arguments).item())
    losses, seconds = [loss], []
    for _ in range(STEPS - 1):
        start = time.perf_counter()
        losses.append(step(*arguments).item())
        seconds.append(time.perf_counter() - start)
    peak = status_bytes("VmHWM")
    above = None if peak is None or base is None else peak - base
    more = {} if kind == "torch" else held(step, arguments, before, first)
    print(json.dumps({"base_bytes": base, "peak_bytes": peak, "above_bytes": above, "losses": losses,
                      "seconds": min(seconds), **more}, default=str))


if __name__ == "__main__":
    main(sys.argv[1], tuple(map(int, sys.argv[2:])))
