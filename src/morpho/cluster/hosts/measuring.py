"""Measure nodes and links: `python -m morpho.cluster.hosts.measuring OUT NAME ...`, a rank on each host.

Links are measured by ping-pong, one pair at a time, so that nobody else is on the line: half a round trip of a few
bytes is the latency, and what larger messages take beyond it the bandwidth.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.machine import machine
from morpho.cluster.world import init
from morpho.runtime.groups.group import Group
from morpho.runtime.measure import machine_profile

SMALL_BYTES, LARGE_BYTES = 8, 1 << 20
ROUNDS_SMALL, ROUNDS_LARGE = 50, 8


def ping_pong_s(group: Group, first: int, second: int, nbytes: int, rounds: int) -> float:
    """Seconds of one way between two ranks, the best of some rounds; 0 on the others."""
    buffer, best = np.zeros(nbytes, np.uint8), float("inf")
    if group.rank not in (first, second):
        return 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        if group.rank == first:
            group.send(buffer, second)
            group.recv(buffer, second)
        else:
            group.recv(buffer, first)
            group.send(buffer, first)
        best = min(best, time.perf_counter() - begun)
    return best / 2


def link(group: Group, first: int, second: int) -> tuple[float, float]:
    """Latency in seconds and bandwidth in bytes per second between two ranks, known to the first of them."""
    small = ping_pong_s(group, first, second, SMALL_BYTES, ROUNDS_SMALL)
    large = ping_pong_s(group, first, second, LARGE_BYTES, ROUNDS_LARGE)
    return small, (LARGE_BYTES - SMALL_BYTES) / max(large - small, 1e-9)


def measure(group: Group) -> dict[str, Any]:
    """Figures of this node and its links to those after it."""
    mo.compile(abs)  # the tensor floor tells the runtime how Python's objects lie in memory when this is loaded
    rates, here, found = machine_profile(), machine(), {}
    for first in range(group.size):
        for second in range(first + 1, group.size):
            group.barrier()
            pair = link(group, first, second)
            if group.rank == first:
                found[second] = pair
    return {"memory_bytes": here.memory_bytes, "memory_bytes_per_s": rates.bytes_per_s, "f32": rates.flops_per_s,
            "links": found}


def cluster_toml(names: list[str], figures: list[dict[str, Any]], share: int = 1) -> str:
    """A cluster file; `share` is how many of the nodes are one machine and have a part of it each.

    >>> one = {"memory_bytes": 8e9, "memory_bytes_per_s": 2e10, "f32": 1e11, "links": {"1": [1e-4, 1.25e8]}}
    >>> print(cluster_toml(["a", "b"], [one, {**one, "links": {}}]).splitlines()[-2])
    bandwidth = "125MB/s"
    """
    lines = ["# measured by `morpho cluster measure`"]
    for name, each in zip(names, figures, strict=True):
        lines += ["", "[[node]]", f'name = "{name}"', f'memory = "{each["memory_bytes"] / share / 1e9:.3f}GB"',
                  f'memory_bandwidth = "{each["memory_bytes_per_s"] / share / 1e9:.3f}GB/s"',
                  f'flops = {{ f32 = "{each["f32"] / share / 1e9:.2f}GFLOP/s" }}']
    for first, each in enumerate(figures):
        for second, (latency_s, rate) in each["links"].items():
            lines += ["", "[[link]]", f'between = ["{names[first]}", "{names[int(second)]}"]',
                      f'bandwidth = "{rate / 1e6:.4g}MB/s"', f'latency = "{latency_s * 1e6:.4g}us"']
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> None:
    """A rank: measure; those on the machine that asked write what all found."""
    group = init()
    raw = np.frombuffer(json.dumps(measure(group)).encode(), np.uint8)
    sizes = np.zeros(group.size, np.int64)
    group.all_gather(np.array([raw.size], np.int64), sizes)
    mine, everyone = np.zeros(int(sizes.max()), np.uint8), np.zeros(group.size * int(sizes.max()), np.uint8)
    mine[:raw.size] = raw
    group.all_gather(mine, everyone)
    out = Path(words[0])
    if out.parent.is_dir():
        rows = everyone.reshape(group.size, -1)
        part = out.with_suffix(f".{group.rank}")
        part.write_text(json.dumps([json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes)]))
        part.replace(out)


if __name__ == "__main__":
    main(sys.argv[1:])
