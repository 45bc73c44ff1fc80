"""Many cores: kernels, products, attention and GPT-2 at 1, 2, 8 and 16 threads, beside PyTorch's.

    python -m benchmarks.kernels.many_cores --threads 1,2,8,16
    python -m benchmarks.kernels.many_cores --threads 16 --only attention,wake --json out.json
    python -m benchmarks.kernels.many_cores --threads 1,2,4,8,16 --only small,products --fewer

With `--fewer` no peer: Morpho's processes with each number of threads take turns, and each is compared with the best of
those with fewer threads, which it must not be slower than by more than 3 %: threads are chosen by the work there is.

For each number of threads Morpho and PyTorch have a process each, which take turns: one sleeps while the other runs, so
that neither meets the other's threads. Few threads run on the same cores, where both meet the same neighbours. Medians
of rounds; answers are compared. `wake` is what one small kernel costs that all threads share, over the same kernel on
one thread: called again and again, and after a pause in which the workers went to sleep.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

GROUPS = ("elementwise", "small", "products", "attention", "model", "wake")

PAUSE_S = 0.004  # until the threads of OpenMP sleep, which look for work a while after every call
ROUND_S = 0.008
ROUNDS = 7
FEW_THREADS = 2  # that run on the same cores; more of them would meet those of OpenMP that look for work still
SLOW_S = 0.05  # of what takes longer, three rounds will do
ELEMENTS = 1 << 20
SIDES = (256, 512, 1024, 2048)
SMALL_SIDES = (64, 128, 192, 384)
FEW_ELEMENTS = (1 << 14, 1 << 16, 1 << 18)
HEADS = ((1, 12, 1024, 64), (1, 32, 2048, 128), (8, 12, 2048, 64))
TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2}


class Case(NamedTuple):
    """What one of the two computes."""

    name: str
    call: Callable[[], Any]
    dtype: str = "float32"


def own_cases(groups: list[str]) -> Iterator[Case]:
    """Morpho's."""
    import morpho as mo
    from benchmarks.models import gpt2
    from benchmarks.peers.morpho.gpt import Inference

    if "elementwise" in groups:
        x, y = map(mo.asarray, vectors())
        out = mo.zeros((ELEMENTS,)).realise()
        add, total = mo.compile(lambda a, b: a + b), mo.compile(lambda a: a.sum())
        exp, scan = mo.compile(lambda a: mo.exp(a)), mo.compile(lambda a: mo.cumulative_sum(a))
        yield Case("add 1M", lambda: add(x, y, out=out))
        yield Case("exp 1M", lambda: exp(x, out=out))
        yield Case("sum 1M", lambda: total(x))
        yield Case("cumsum 1M", lambda: scan(x))
    if "small" in groups:
        tanh, normal = mo.compile(lambda a: mo.tanh(a)), mo.compile(lambda a: mo.softmax(a, -1))
        for n in FEW_ELEMENTS:
            z = mo.asarray(vectors()[0][:n])
            yield Case(f"tanh {n}", partial(tanh, z))
            yield Case(f"softmax {n // 256}x256", partial(normal, z.reshape(-1, 256).realise()))
    multiply = mo.compile(lambda a, b: a @ b)
    attend = mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=True))
    for name, dtype, arrays in products(groups):
        yield Case(name, partial(multiply, *(mo.asarray(z).astype(dtype).realise() for z in arrays)), dtype)
    for name, arrays in heads(groups):
        given = [mo.asarray(z).astype("bfloat16").realise() for z in arrays]
        yield Case(name, partial(attend, *given), "bfloat16")
    if "model" in groups:
        inference = Inference(gpt2.make_weights(gpt2.SMALL, 0))
        yield Case("GPT-2 f32 1x128", partial(inference.forward, mo.asarray(ids()).realise()))


def peer_cases(groups: list[str]) -> Iterator[Case]:
    """PyTorch's."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from benchmarks.models import gpt2
    from benchmarks.peers.torch.gpt import build

    torch.set_grad_enabled(False)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if "elementwise" in groups:
        x, y = map(torch.from_numpy, vectors())
        out = torch.empty(ELEMENTS)
        yield Case("add 1M", lambda: torch.add(x, y, out=out))
        yield Case("exp 1M", lambda: torch.exp(x, out=out))
        yield Case("sum 1M", lambda: x.sum())
        yield Case("cumsum 1M", lambda: torch.cumsum(x, 0))
    if "small" in groups:
        for n in FEW_ELEMENTS:
            z = torch.from_numpy(vectors()[0][:n])
            yield Case(f"tanh {n}", partial(torch.tanh, z))
            yield Case(f"softmax {n // 256}x256", partial(torch.softmax, z.reshape(-1, 256), -1))
    for name, dtype, arrays in products(groups):
        yield Case(name, partial(torch.matmul, *(torch.from_numpy(z).to(getattr(torch, dtype)) for z in arrays)), dtype)
    for name, arrays in heads(groups):
        given = [torch.from_numpy(z).bfloat16() for z in arrays]
        yield Case(name, partial(scaled_dot_product_attention, *given, is_causal=True), "bfloat16")
    if "model" in groups:
        model = build(gpt2.make_weights(gpt2.SMALL, 0), gpt2.SMALL.heads, exact=False).eval()
        yield Case("GPT-2 f32 1x128", partial(model, torch.from_numpy(ids())))


def vectors() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(ELEMENTS, dtype=np.float32) for _ in range(2)]


def products(groups: list[str]) -> Iterator[tuple[str, str, list[np.ndarray]]]:
    """Squares of float32 and of bfloat16."""
    rng = np.random.default_rng(1)
    for n in (SMALL_SIDES if "small" in groups else ()) + (SIDES if "products" in groups else ()):
        arrays = [rng.standard_normal((n, n), dtype=np.float32) for _ in range(2)]
        yield f"sgemm {n}", "float32", arrays
        yield f"bf16 gemm {n}", "bfloat16", arrays


def heads(groups: list[str]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Causal attention of bfloat16."""
    rng = np.random.default_rng(2)
    for shape in HEADS if "attention" in groups else ():
        yield (f"bf16 attention {'x'.join(map(str, shape))}",
               [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)])


def ids() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 50257, (1, 128))


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


# -- a process: it computes when it is told to -------------------------------------------------------------------------
def seconds(call: Callable[[], Any], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - started) / times


def serve(cases: Iterator[Case], folder: str) -> None:
    """Each case: its answer into a file, then a round for every line that is read, until one says `next`."""
    for number, case in enumerate(cases):
        answer = case.call()
        answer = np.array(answer.astype("float32")) if hasattr(answer, "realise") else answer.float().numpy()
        np.save(f"{folder}/{number}.npy", answer)
        del answer
        once = min(seconds(case.call, 1) for _ in range(2))
        times = max(1, round(ROUND_S / max(once, 1e-7)))
        print(json.dumps({"name": case.name, "dtype": case.dtype, "once_s": once}), flush=True)
        while sys.stdin.readline().strip() == "go":
            if times > 1:
                case.call()
            print(json.dumps(seconds(case.call, times)), flush=True)
    print(json.dumps(None), flush=True)


class Worker:
    """The process of one of the two."""

    def __init__(self, who: str, threads: str, groups: str, folder: str) -> None:
        command = [sys.executable, "-m", "benchmarks.kernels.many_cores", "--worker", who, "--only", groups,
                   "--folder", folder, "--threads", threads]
        environment = {**os.environ, "MORPHO_THREADS": threads, "OMP_NUM_THREADS": threads}
        self.folder = folder
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("[many_cores] a process ended early: see above")
        return json.loads(line)

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()


def in_turn(workers: list[Worker], rounds: int) -> list[float]:
    """Seconds of the case that all have come to, medians of rounds in which one works and the others sleep."""
    found: list[list[float]] = [[] for _ in workers]
    for _ in range(rounds):
        for worker, row in zip(workers, found, strict=True):
            time.sleep(PAUSE_S)
            worker.tell("go")
            row.append(worker.read())
    for worker in workers:
        worker.tell("next")
    return [statistics.median(row) for row in found]


def compare(threads: str, groups: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Both processes in turn, case by case."""
    with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as peer:
        both = [Worker(who, threads, ",".join(groups), folder) for who, folder in (("own", own), ("peer", peer))]
        for number in itertools.count():
            cases = [worker.read() for worker in both]
            if cases[0] is None:
                break
            slow = max(case["once_s"] for case in cases) > SLOW_S
            own_s, peer_s = in_turn(both, min(rounds, 3) if slow else rounds)
            first, second = (np.load(f"{worker.folder}/{number}.npy") for worker in both)
            most = TOLERANCE[cases[0]["dtype"]] * float(np.abs(second).max())
            yield {"threads": int(threads), "name": cases[0]["name"], "own_s": own_s, "peer_s": peer_s,
                   "ratio": peer_s / own_s, "agrees": bool(np.abs(first - second).max() <= most)}
        if "wake" in groups and threads != "1":
            yield {"threads": int(threads), "name": "wake", **both[0].read()}


def compare_counts(counts: list[str], groups: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Morpho with each number of threads in turn, case by case: seconds, and over the best of those with fewer."""
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker("own", threads, ",".join(groups), folder) for threads in counts]
        while True:
            cases = [worker.read() for worker in workers]
            if cases[0] is None:
                return
            medians = in_turn(workers, min(rounds, 3) if cases[0]["once_s"] > SLOW_S else rounds)
            best = list(itertools.accumulate(medians, min))
            yield {"name": cases[0]["name"], "own_s": dict(zip(counts, medians, strict=True)),
                   "over_fewer": max(own / fewer for own, fewer in zip(medians[1:], best))}


def counts_line(row: dict[str, Any]) -> str:
    times = "".join(f"{1e6 * own_s:10.1f}" for own_s in row["own_s"].values())
    return f"{row['name']:32s}{times} us  {row['over_fewer']:6.2f}x{'' if row['over_fewer'] <= 1.03 else '  SLOWER'}"


def line(row: dict[str, Any]) -> str:
    if row["name"] == "wake":
        return f"{row['threads']:3d} wake-up, awake {row['awake']:8.1f} us, asleep {row['asleep']:8.1f} us"
    return (f"{row['threads']:3d} {row['name']:32s} {1e6 * row['own_s']:10.1f} us, "
            f"torch {1e6 * row['peer_s']:10.1f} us {row['ratio']:6.2f}x{'' if row['agrees'] else '  DIFFERS'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--fewer", action="store_true", help="compare with fewer threads, not with PyTorch")
    parser.add_argument("--json", default="")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    groups = given.only.split(",")
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        parser.error(f"no group {unknown[0]!r}: there are {', '.join(GROUPS)}")
    if given.worker:
        if int(given.threads) <= FEW_THREADS and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(given.threads)])
        serve({"own": own_cases, "peer": peer_cases}[given.worker](groups), given.folder)
        if given.worker == "own" and "wake" in groups and given.threads != "1":
            print(json.dumps(wake_up(int(given.threads))), flush=True)
        return
    rows = []
    if given.fewer:
        counts = sorted(given.threads.split(","), key=int)
        print(f"{'threads':32s}" + "".join(f"{count:>10s}" for count in counts), flush=True)
        for row in compare_counts(counts, [group for group in groups if group != "wake"], given.rounds):
            rows.append(row)
            print(counts_line(row), flush=True)
    for threads in () if given.fewer else given.threads.split(","):
        for row in compare(threads, groups, given.rounds):
            rows.append(row)
            print(line(row), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
