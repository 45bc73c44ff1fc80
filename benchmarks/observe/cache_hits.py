"""Hits a second of `mo.cache` in memory, one thread: `python -m benchmarks.observe.cache_hits [ROUNDS]`. The least time
of many short rounds, beside a plain dictionary and `functools.lru_cache` in turn."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import morpho as mo

KEYS = [f"key-{number}" for number in range(1000)]
LOOKS = 2


def _seconds(get: Callable[[str], Any]) -> float:
    begun = time.perf_counter()
    for _ in range(LOOKS):
        for key in KEYS:
            get(key)
    return time.perf_counter() - begun


def main() -> None:
    """Measure in turn and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    store, plain = mo.cache(memory="64MiB"), {key: b"value" for key in KEYS}
    for key in KEYS:
        store.put(key, b"value")
    memo = functools.lru_cache(maxsize=2000)(lambda key: b"value")
    ways: dict[str, Callable[[str], Any]] = {"mo.cache get": store.get, "lru_cache": memo, "dict.get": plain.get,
                                             "mo.cache get_or_create": lambda key: store.get_or_create(key, bytes)}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, get in ways.items():
            best[name] = min(best[name], _seconds(get))
    for name, seconds in best.items():
        print(f"{name:24} {LOOKS * len(KEYS) / seconds / 1e6:7.2f} M a second")


if __name__ == "__main__":
    main()
