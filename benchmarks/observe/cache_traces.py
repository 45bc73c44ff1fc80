"""Hit ratios of cache policies on made traces: `python -m benchmarks.observe.cache_traces [--quick]`.

S3-FIFO is what `mo.cache` and the caches of plans and code run; LRU and W-TinyLFU are what it could have been. `static`
is the best set of keys chosen once with the whole trace known, `Belady` the best that any policy can do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from benchmarks.observe.policies import belady, best_static, lru, s3_fifo, w_tiny_lfu

KEYS = 10_000


def zipf(length: int, skew: float, keys: int = KEYS, seed: int = 11) -> list[int]:
    """Key k is drawn with probability proportional to 1 / (k + 1) ** skew."""
    weight = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    edges = np.cumsum(weight / weight.sum())
    return np.searchsorted(edges, np.random.default_rng(seed).random(length)).clip(0, keys - 1).tolist()


def scan_mixed(length: int, skew: float = 1.0) -> list[int]:
    """Zipf requests, and after every 20 000 of them 5 000 keys that are asked for once and never again."""
    trace: list[int] = []
    fresh = KEYS
    draws = iter(zipf(length, skew, seed=12))
    while len(trace) < length:
        trace += [next(draws) for _ in range(min(20_000, length - len(trace)))]
        scan = min(5_000, length - len(trace))
        trace += range(fresh, fresh + scan)
        fresh += scan
    return trace


def loop(length: int, keys: int) -> list[int]:
    """The same keys in the same order, again and again."""
    return [place % keys for place in range(length)]


def shifting(length: int, skew: float = 1.0, every: int = 40_000) -> list[int]:
    """Zipf whose popular keys are others after every `every` requests."""
    shuffle = np.random.default_rng(3)
    trace: list[int] = []
    for part in range(-(-length // every)):
        names = shuffle.permutation(KEYS)
        trace += names[zipf(min(every, length - len(trace)), skew, seed=part)].tolist()
    return trace


TRACES: dict[str, Callable[[int], list[int]]] = {
    "Zipf 0.7": lambda n: zipf(n, 0.7),
    "Zipf 0.9": lambda n: zipf(n, 0.9),
    "Zipf 1.0": lambda n: zipf(n, 1.0),
    "Zipf 1.2": lambda n: zipf(n, 1.2),
    "Zipf 1.4": lambda n: zipf(n, 1.4),
    "scan-mixed 0.9": lambda n: scan_mixed(n, 0.9),
    "scan-mixed 1.0": scan_mixed,
    "scan-mixed 1.2": lambda n: scan_mixed(n, 1.2),
    "loop of 1.2 x": lambda n: loop(n, 1200),
    "loop of 2 x": lambda n: loop(n, 2000),
    "shifting": shifting,
}
POLICIES = {"S3-FIFO": s3_fifo, "LRU": lru, "W-TinyLFU": w_tiny_lfu, "static": best_static, "Belady": belady}


def figures(name: str, capacity: int, length: int) -> dict[str, float]:
    """The hit ratio of every policy on one trace."""
    trace = TRACES[name](length)
    return {policy: run(trace, capacity) for policy, run in POLICIES.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="traces of a tenth of the length")
    parser.add_argument("--capacity", type=int, nargs="*", default=[100, 1000, 3000])
    options = parser.parse_args()
    length = 60_000 if options.quick else 600_000
    print(f"hit ratios, {length:,} requests of {KEYS:,} keys of one size")
    print(f"{'trace':16}{'keys kept':>10}" + "".join(f"{name:>11}" for name in POLICIES) + f"{'of static':>11}")
    for capacity in options.capacity:
        for name in TRACES:
            found = figures(name, capacity, length)
            share = found["S3-FIFO"] / found["static"]
            print(f"{name:16}{capacity:>10}" + "".join(f"{value:>11.3f}" for value in found.values())
                  + f"{share:>11.3f}", flush=True)


if __name__ == "__main__":
    main()
