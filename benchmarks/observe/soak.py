"""``python -m benchmarks.observe.soak --steps 1000000``: a program that repeats itself for long; nothing may grow.

Each step compiles nothing new: a compiled training step with state and a look into a cache; every hundredth also lazy
evaluation and a gradient outside of `compile`, every thousandth batches from a loader, every ten thousandth a profile.
At every fiftieth of the way counts of tensors, nodes, programs, blocks and plans, and the resident set, are printed; at
the end they are compared with those after the first tenth.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.observe.memory.leaks import RESIDENT_SLACK, counts

WARM_UP = 30
LAZY_EVERY, LOADER_EVERY, PROFILE_EVERY = 100, 1000, 10_000  # steps; the first ones belong to warming up
PARTS, FEW_PARTS = 50, 5  # of a long way and of a short one: a line each


def program() -> Callable[[int], None]:
    """One step by its number."""
    weight, x = mo.State(mo.ones((16, 16)) * 0.1), mo.ones((8, 16))
    carried = [mo.ones(16)]

    @mo.compile
    def train(x: Any) -> Any:
        value, slope = mo.value_and_grad(lambda w: mo.mean(mo.tanh(x @ w) ** 2))(weight.value)
        weight.value = weight.value - 0.01 * slope
        return value

    loader = mo.data.DataLoader(mo.data.TensorDataset(mo.ones((4, 16))), batch_size=2)

    store = mo.cache(memory="64KiB")

    def step(number: int) -> None:
        train(x)
        store.get_or_create(number % 5000, lambda: bytes(100))  # more than fits: some are evicted at all times
        if number % LAZY_EVERY == 0:
            float(mo.sum(mo.exp(x)))
            carried[0] = carried[0] - 0.01 * mo.grad(lambda y: mo.sum(y * y))(carried[0])
        if number % LOADER_EVERY == 0:
            for (batch,) in loader:
                mo.sum(batch).realise()
        if number % PROFILE_EVERY == 0:
            with mo.profile():
                train(x)

    return step


def main(arguments: list[str]) -> int:
    """Run; end with 1 where something grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--quiet", action="store_true")
    chosen = parser.parse_args(arguments)
    step, begun = program(), time.perf_counter()
    for number in range(WARM_UP):
        step(number * LAZY_EVERY)
    first, parts = None, PARTS if chosen.steps >= 1000 else FEW_PARTS
    for part in range(parts):
        for number in range(part * chosen.steps // parts, (part + 1) * chosen.steps // parts):
            step(number)
        now = counts()
        if first is None and part + 1 >= parts // 10:
            first = now  # caches have what they will have
        if not chosen.quiet:
            print(f"{(part + 1) * chosen.steps // parts:9d} steps, {time.perf_counter() - begun:8.1f} s: "
                  + ", ".join(f"{name} {value}" for name, value in now.items()), flush=True)
    assert first is not None
    grown = {name: (first[name], now[name]) for name in first
             if now[name] > slack(name, chosen.steps) + first[name]}
    print("nothing grew" if not grown else f"grew: {grown}") if grown or not chosen.quiet else None
    return int(bool(grown))


def slack(name: str, steps: int) -> int:
    """What may come and go without growing: the carried value's program is between one turn and many long."""
    return {"resident bytes": RESIDENT_SLACK, "nodes": 700, "tensors": 8, "live blocks": 8,
            "live bytes": 64 << 10, "plans": 4, "programs": 6}.get(name, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
