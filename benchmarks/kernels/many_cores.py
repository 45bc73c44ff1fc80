"""Many cores: kernels, products, attention and GPT-2 at 1, 2, 8 and 16 threads, beside PyTorch's.

    python -m benchmarks.kernels.many_cores --threads 1,2,8,16
    python -m benchmarks.kernels.many_cores --threads 16 --only attention,wake --json out.json

Each number of threads is a process of its own, in which the two take turns; the workers of the other one sleep
meanwhile. Medians of rounds; answers are compared. `wake` is what one small kernel costs that all threads share, over
the same kernel on one thread: called again and again, and after a pause in which the workers went to sleep.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PAUSE_S = 0.004  # until the threads of OpenMP sleep
ROUND_S = 0.008
ROUNDS = 7
SLOW_S = 0.05  # of what takes longer, three rounds will do
ELEMENTS = 1 << 20
SIDES = (256, 512, 1024, 2048)
HEADS = ((1, 12, 1024, 64), (1, 32, 2048, 128), (8, 12, 2048, 64))
TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2}


class Case(NamedTuple):
    """What both compute."""

    name: str
    own: Callable[[], Any]
    peer: Callable[[], Any]
    tolerance: float = TOLERANCE["float32"]


def elementwise() -> Iterator[Case]:
    """Maps, a reduction and a scan of a million numbers."""
    import numpy as np
    import torch

    import morpho as mo

    rng = np.random.default_rng(0)
    x, y = (rng.random(ELEMENTS, dtype=np.float32) for _ in range(2))
    mx, my, tx, ty = mo.asarray(x), mo.asarray(y), torch.from_numpy(x.copy()), torch.from_numpy(y.copy())
    out, target = mo.zeros((ELEMENTS,)).realise(), torch.empty(ELEMENTS)
    add, total = mo.compile(lambda a, b: a + b), mo.compile(lambda a: a.sum())
    exp, scan = mo.compile(lambda a: mo.exp(a)), mo.compile(lambda a: mo.cumulative_sum(a))
    yield Case("add 1M", lambda: add(mx, my, out=out), lambda: torch.add(tx, ty, out=target))
    yield Case("exp 1M", lambda: exp(mx, out=out), lambda: torch.exp(tx, out=target))
    yield Case("sum 1M", lambda: total(mx), lambda: tx.sum())
    yield Case("cumsum 1M", lambda: scan(mx), lambda: torch.cumsum(tx, 0))


def products() -> Iterator[Case]:
    """Squares of float32 and of bfloat16."""
    import numpy as np
    import torch

    import morpho as mo

    rng, multiply = np.random.default_rng(1), mo.compile(lambda a, b: a @ b)
    for n in SIDES:
        a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
        for word, own, dtype in (("sgemm", mo.float32, torch.float32), ("bf16 gemm", mo.bfloat16, torch.bfloat16)):
            m = [mo.asarray(z).astype(own).realise() for z in (a, b)]
            t = [torch.from_numpy(z).to(dtype) for z in (a, b)]
            yield Case(f"{word} {n}", lambda m=m: multiply(*m), lambda t=t: t[0] @ t[1],  # type: ignore[misc]
                       TOLERANCE[own.name])


def attention() -> Iterator[Case]:
    """Causal attention of bfloat16."""
    import numpy as np
    import torch
    from torch.nn import functional

    import morpho as mo

    rng, attend = np.random.default_rng(2), mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=True))
    for shape in HEADS:
        arrays = [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
        m = [mo.asarray(z).astype(mo.bfloat16).realise() for z in arrays]
        t = [torch.from_numpy(z).bfloat16() for z in arrays]
        yield Case(f"bf16 attention {'x'.join(map(str, shape))}", lambda m=m: attend(*m),  # type: ignore[misc]
                   lambda t=t: functional.scaled_dot_product_attention(*t, is_causal=True),  # type: ignore[misc]
                   TOLERANCE["bfloat16"])


def model() -> Iterator[Case]:
    """GPT-2 124M, one sequence of 128 tokens, float32."""
    import numpy as np
    import torch

    import morpho as mo
    from benchmarks.models import gpt2
    from benchmarks.peers.morpho import gpt as own
    from benchmarks.peers.torch import gpt as peer

    weights = gpt2.make_weights(gpt2.SMALL, 0)
    ids = np.random.default_rng(3).integers(0, gpt2.SMALL.vocabulary, (1, 128))
    inference, there = own.Inference(weights), peer.build(weights, gpt2.SMALL.heads, exact=False).eval()
    mine, theirs = mo.asarray(ids).realise(), torch.from_numpy(ids)

    def call() -> Any:
        with torch.inference_mode():
            return there(theirs)

    yield Case("GPT-2 f32 1x128", lambda: inference.forward(mine), call)


def wake_up(threads: int) -> dict[str, float]:
    """Microseconds that sharing a small kernel among all threads costs: awake, and asleep."""
    import morpho as mo
    from morpho.program import co_schedule

    x = mo.ones((4 * threads, 16)).realise()
    alone = mo.compile(lambda a: a + 1)
    alone(x)
    co_schedule.WORK_PER_THREAD = 1  # the next program is divided however small
    shared = mo.compile(lambda a: a + 2)
    shared(x)

    def once(call: Callable[[mo.Tensor], Any], pause_s: float) -> float:
        found = []
        for _ in range(200):
            if pause_s:
                time.sleep(pause_s)
            started = time.perf_counter()
            call(x)
            found.append(time.perf_counter() - started)
        return statistics.median(found)

    return {word: 1e6 * (once(shared, pause_s) - once(alone, pause_s))
            for word, pause_s in (("awake", 0.0), ("asleep", 0.002))}


GROUPS = {"elementwise": elementwise, "products": products, "attention": attention, "model": model}


def seconds(call: Callable[[], Any], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Both in turn: medians in seconds, and whether they agree."""
    import numpy as np

    first = np.array(case.own().astype("float32"))  # a copy: `out=` takes memory that nobody else holds
    second = case.peer().float().numpy().copy()
    scale = float(np.abs(second).max()) or 1.0
    calls, found = (case.own, case.peer), ([], [])  # type: tuple[Any, Any], tuple[list[float], list[float]]
    once = [seconds(call, 1) for call in calls]
    times = [max(1, round(ROUND_S / max(min(taken, seconds(call, 1)), 1e-7)))
             for call, taken in zip(calls, once, strict=True)]
    for _ in range(rounds if max(once) < SLOW_S else min(rounds, 3)):
        for call, count, row in zip(calls, times, found, strict=True):
            time.sleep(PAUSE_S)
            if count > 1:
                call()
            row.append(seconds(call, count))
    own, peer = (statistics.median(row) for row in found)
    return {"name": case.name, "own_s": own, "peer_s": peer, "ratio": peer / own,
            "agrees": bool(np.abs(first - second).max() <= case.tolerance * scale)}


def work(threads: int, only: list[str], rounds: int) -> None:
    """What one process does: a line of JSON per case."""
    import torch

    torch.set_num_threads(threads)
    for name, cases in GROUPS.items():
        if name in only:
            for case in cases():
                print(json.dumps({"threads": threads, **measure(case, rounds)}), flush=True)
    if "wake" in only and threads > 1:
        print(json.dumps({"threads": threads, "name": "wake", **wake_up(threads)}), flush=True)


def line(row: dict[str, Any]) -> str:
    if row["name"] == "wake":
        return f"{row['threads']:3d} wake-up, awake {row['awake']:8.1f} us, asleep {row['asleep']:8.1f} us"
    return (f"{row['threads']:3d} {row['name']:32s} {1e6 * row['own_s']:10.1f} us, "
            f"torch {1e6 * row['peer_s']:10.1f} us {row['ratio']:6.2f}x{'' if row['agrees'] else '  DIFFERS'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--only", default=",".join([*GROUPS, "wake"]), help="groups of cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", default="")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    only = given.only.split(",")
    unknown = set(only) - {*GROUPS, "wake"}
    if unknown:
        parser.error(f"no group {sorted(unknown)[0]!r}: there are {', '.join([*GROUPS, 'wake'])}")
    if given.worker:
        work(int(given.threads), only, given.rounds)
        return
    rows = []
    for threads in given.threads.split(","):
        command = [sys.executable, "-m", "benchmarks.kernels.many_cores", "--worker", "--threads", threads,
                   "--only", given.only, "--rounds", str(given.rounds)]
        environment = {**os.environ, "MORPHO_THREADS": threads, "OMP_NUM_THREADS": threads}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for text in process.stdout:
                rows.append(json.loads(text))
                print(line(rows[-1]), flush=True)
        if process.returncode:
            sys.exit(f"[many_cores] the process of {threads} threads ended with {process.returncode}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
