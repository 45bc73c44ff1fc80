"""The memory of calls in this process: the resident peak above what was there, with the seconds of a call.

    python -m benchmarks.probes.memory attention morpho|numpy 8 12 2048 64
    python -m benchmarks.probes.memory loop morpho|numpy
    python -m benchmarks.probes.memory gpt torch|morpho|checkpoint|BUDGET [layers width heads vocabulary batch length]

`attention` is one call, the first of its size: a small one goes before it, so that loading and compiling do not count.
`loop` repeats eight named steps on 16 MB arrays. `gpt` makes training steps, the first one with its compiling included;
BUDGET is a share, such as 0.75, for `memory_budget=` of `mo.compile`.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.probes.resident import peak_above, reset_peak, status_bytes

LOOP_SHAPE, LOOP_TURNS = (2048, 2048), 15
GPT_STEPS = 3


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


# ----------------------------------------------------------------------------------------------------------- attention
def attention(library: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """The peak of the first call of this size, the seconds of the second."""
    from benchmarks.kernels import cases

    arrays = cases.make_inputs("attention", shape)
    function: Callable[..., Any]
    if library == "numpy":
        from benchmarks.peers.numpy import kernels

        function, arguments = kernels.attention, tuple(arrays.values())
    else:
        import morpho as mo

        function = mo.compile(lambda q, k, v: mo.attention(q, k, v))
        arguments = tuple(map(mo.asarray, arrays.values()))
    function(*(argument[:1, :1, :64] for argument in arguments))
    reset_peak()
    base = status_bytes("VmRSS")
    result = function(*arguments)
    peak = peak_above(base)
    cases.check("attention", arrays, (np.asarray(result if library == "numpy" else result.numpy()),))
    del result
    seconds, _ = timed(lambda: function(*arguments))
    return {"seconds": seconds, "peak_bytes": peak}


# ---------------------------------------------------------------------------------------------------------------- loop
def steps(x: Any, y: Any, sqrt: Callable[[Any], Any], maximum: Callable[[Any, Any], Any]) -> Any:
    """Eight steps, every one with a name: in NumPy all live until the function returns, as in a forward pass."""
    product = x * y
    shifted = product + x
    halved = shifted * 0.5
    difference = halved - y
    square = difference * difference
    raised = square + 1.0
    root = sqrt(raised)
    return maximum(root, x)


def loop(library: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """The median time of a turn and the peak above what was there before the loop."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape or LOOP_SHAPE, dtype=np.float32) for _ in range(2))
    if library == "numpy":
        turn = lambda: steps(x, y, np.sqrt, np.maximum)
    else:
        import morpho as mo

        left, right = mo.asarray(x), mo.asarray(y)
        compiled = mo.compile(lambda x, y: steps(x, y, mo.sqrt, mo.maximum))
        turn = lambda: compiled(left, right)
        turn()  # compile before memory is watched
    reset_peak()
    base = status_bytes("VmRSS")
    seconds = statistics.median(timed(turn)[0] for _ in range(LOOP_TURNS))
    return {"seconds": seconds, "peak_bytes": peak_above(base)}


# ------------------------------------------------------------------------------------------------------------ training
def gpt_step(kind: str, size: tuple[int, ...]) -> tuple[int | None, Callable[..., Any], tuple[Any, ...]]:
    """What was resident after the imports, the step and its arguments."""
    from benchmarks.train import gpt

    if kind == "torch":
        from benchmarks.peers.torch import gpt as side
    else:
        from benchmarks.peers.morpho import gpt as side  # type: ignore[no-redef]
    base = status_bytes("VmRSS")
    case = "gpt_step_checkpoint" if kind == "checkpoint" else "gpt_step"
    step, arguments = side.prepare(case, gpt.make_inputs(case, size or gpt.SIZE))
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


def gpt(kind: str, size: tuple[int, ...]) -> dict[str, Any]:
    """Bytes, losses and seconds of training steps; building the model is not counted."""
    watch = pool_peak if kind != "torch" else lambda call: (0, call())
    before, _ = watch(lambda: None)
    base, step, arguments = gpt_step(kind, size)
    gc.collect()
    reset_peak()
    first, loss = watch(lambda: step(*arguments).item())
    later = [timed(lambda: step(*arguments).item()) for _ in range(GPT_STEPS - 1)]
    peak = status_bytes("VmHWM")
    above = None if peak is None or base is None else peak - base
    more = {} if kind == "torch" else held(step, arguments, before, first)
    return {"base_bytes": base, "peak_bytes": peak, "above_bytes": above, "losses": [loss, *(x for _, x in later)],
            "seconds": min(seconds for seconds, _ in later), **more}


CASES: dict[str, Callable[[str, tuple[int, ...]], dict[str, Any]]] = {"attention": attention, "loop": loop, "gpt": gpt}


def main(case: str, kind: str, size: tuple[int, ...]) -> None:
    """Print what a case found as JSON."""
    print(json.dumps(CASES[case](kind, size), default=str))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3:])))
