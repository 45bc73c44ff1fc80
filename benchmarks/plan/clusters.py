"""The machines of the benchmark: 11 device classes, four kinds of links, 400 clusters fixed in `clusters.json`.

    python -m benchmarks.plan.clusters        # write clusters.json anew (it must not change: a test compares)
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from morpho.plan import Cluster, Node, mbit_per_s

PATH = Path(__file__).with_name("clusters.json")
SEED, COUNT = 20261115, 400

# name: memory in GB, GB/s of it, f16 and f32 TFLOP/s, as their makers state them.
DEVICES = {
    "mini-pc": (16, 50, 1.0, 0.5), "laptop": (32, 80, 2.0, 1.0), "workstation": (128, 200, 4.0, 3.0),
    "cpu-server": (256, 300, 12.0, 6.0), "tablet-soc": (16, 100, 5.0, 2.6), "soc-max": (64, 400, 28.0, 14.0),
    "soc-ultra": (192, 800, 54.0, 27.0), "gpu-12": (12, 360, 51.0, 13.0), "gpu-24": (24, 1008, 165.0, 83.0),
    "gpu-48": (48, 768, 155.0, 39.0), "gpu-80": (80, 2039, 312.0, 19.5),
}
# name: Mbit/s and latency in ms; "mixed" draws one of the others for every pair.
LINKS = {"wifi": (300, 3.0), "gigabit": (1000, 0.3), "ten-gigabit": (10_000, 0.1)}
LINK_KINDS = (*LINKS, "mixed")


def device(kind: str, name: str, factor: float = 1.0) -> Node:
    """A machine of a class; `factor` scales its speeds."""
    memory, wide, half, single = DEVICES[kind]
    rates = {"f32": single * 1e12 * factor, "f16": half * 1e12 * factor}
    return Node(name, int(memory * 1e9), wide * 1e9 * factor, rates, kind)


def draw(seed: int = SEED, count: int = COUNT) -> list[dict]:
    """Clusters as plain data: a kind of links, classes of 3 to 6 nodes, and for mixed links the one of every pair."""
    drawn = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        size = int(rng.integers(3, 7))
        nodes = [str(rng.choice(list(DEVICES))) for _ in range(size)]
        links = LINK_KINDS[number % len(LINK_KINDS)]
        pairs = [str(rng.choice(list(LINKS))) if links == "mixed" else links for _ in range(size * (size - 1) // 2)]
        drawn.append({"links": links, "nodes": nodes, "pairs": pairs if links == "mixed" else []})
    return drawn


def cluster(data: dict) -> Cluster:
    """A cluster from its data."""
    nodes = tuple(device(kind, f"{kind}-{position}") for position, kind in enumerate(data["nodes"]))
    count = len(nodes)
    kinds = iter(data["pairs"] or [data["links"]] * (count * (count - 1) // 2))
    wide, late = np.zeros((count, count)), np.zeros((count, count))
    for i in range(count):
        for j in range(i):
            speed, delay = LINKS[next(kinds)]
            wide[i, j] = wide[j, i] = mbit_per_s(speed)
            late[i, j] = late[j, i] = delay * 1e-3
    return Cluster(nodes, tuple(map(tuple, wide.tolist())), tuple(map(tuple, late.tolist())), data["links"])


def load() -> list[dict]:
    """The 400 clusters of the repository."""
    return json.loads(PATH.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PATH.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in draw()) + "\n]\n", encoding="utf-8")
