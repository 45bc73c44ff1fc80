"""1. Overhead: programs of 10 us and more, profiled and not, in turn in the same process.

    morpho bench profile --only 1
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import morpho as mo
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

BLOCK_S = 0.0005  # of calls between two looks at the clock
MOST_SLOWER = 5.0  # per cent: the promise for programs of 10 us and more


def programs() -> dict[str, Callable[[], Any]]:
    """Calls of about 10 us to some milliseconds: one kernel, several, products, a loop, lazy evaluation, training."""
    small, middle, large = mo.ones((8, 1024)), mo.ones((64, 1024)), mo.ones((256, 256))
    chain = mo.compile(lambda x: mo.tanh(mo.exp(-x) + 1))
    steps = mo.compile(lambda x: mo.cumulative_sum(mo.softmax(x, axis=-1), axis=0) @ x.mT)
    loop = mo.compile(lambda x: mo.fori_loop(0, 20, lambda i, y: mo.tanh(y @ y) + x, x))
    square = mo.ones((32, 32))
    weights = [mo.State(mo.ones((256, 256)) * 0.01) for _ in range(3)]

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = mo.relu(x @ w)
        return mo.mean(x * x)

    @mo.compile
    def train(x: Any) -> Any:
        values = [w.value for w in weights]
        value, grads = mo.value_and_grad(loss)(values, x)
        for w, g in zip(weights, grads, strict=True):
            w.value = w.value - 0.01 * g
        return value

    return {"one kernel": lambda: chain(small), "several kernels": lambda: steps(small),
            "one long kernel": lambda: chain(middle), "a loop of products": lambda: loop(square),
            "lazy evaluation": lambda: (mo.exp(middle) + 1).realise(), "a training step": lambda: train(large)}


def seconds_per_call(call: Callable[[], Any], calls: int) -> float:
    """One round."""
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begun) / calls


def compare(call: Callable[[], Any], turns: int, blocks: int) -> tuple[float, float]:
    """Seconds of a call, plain and profiled, in turn: the least of many short blocks, which others disturb least."""
    for _ in range(5):
        call()
    calls = max(1, int(BLOCK_S / seconds_per_call(call, 5)))
    plain, profiled = float("inf"), float("inf")
    for _ in range(turns):
        plain = min(plain, *(seconds_per_call(call, calls) for _ in range(blocks)))
        with mo.profile():
            profiled = min(profiled, *(seconds_per_call(call, calls) for _ in range(blocks)))
    return plain, profiled


def run(session: Session) -> ThemeResult:
    """Every program; the worst one is held to the promise."""
    result = ThemeResult("overhead")
    table = Table("profiled and not, in turn", ["program", "plain", "profiled", "slower"])
    worst = 0.0
    for name, call in programs().items():
        plain, profiled = compare(call, 3 if session.quick else 12, 40 if session.quick else 200)
        slower = 100 * (profiled / plain - 1)
        table.rows.append([name, duration(plain), duration(profiled), f"{slower:.1f} %"])
        result.figures[name] = {"plain_s": plain, "profiled_s": profiled}
        if plain >= 10e-6:
            worst = max(worst, slower)
    result.tables.append(table)
    result.targets.append(Target("the slowest by profiling, of 10 us and more", worst, MOST_SLOWER, False, " %"))
    return result
