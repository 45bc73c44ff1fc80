"""Seeded problems of a given size for the proofs, and a clock for one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.plan import Cluster, Layer, ModelCard, Node


def instance(seed: int, layers: int, kinds: list[int], varied: bool = False) -> tuple[ModelCard, Cluster]:
    """A chain of equal (or varied) layers, and nodes of some kinds with unequal speed, memory and links.

    Nodes of a kind have equal links. Memory is scarce: on average a node holds one to three times its even share.
    """
    rng = np.random.default_rng([seed, layers, *kinds])
    made = tuple(
        Layer(f"layer {i}", "block", 0, 0, float(rng.uniform(1, 2)) if varied else 1.0, 0,
              int(rng.integers(50, 150)) if varied else 100, decode_cut_elements=(
                  int(rng.integers(100, 2000)) if varied else 1000)) for i in range(layers))
    card = ModelCard("chain", made)
    share = sum(layer.weight_bytes for layer in made) / sum(kinds)
    figures = [(int(share * rng.uniform(1.0, 3.2)) + 200, float(rng.uniform(0.3, 3.0))) for _ in kinds]
    of = [kind for kind, count in enumerate(kinds) for _ in range(count)]
    nodes = tuple(Node(f"n{i}", figures[kind][0], 1e30, {"f32": figures[kind][1]}) for i, kind in enumerate(of))
    wide, late = rng.uniform(300, 6000, (len(kinds),) * 2), rng.uniform(0, 0.3, (len(kinds),) * 2)
    return card, Cluster(nodes, tuple(tuple(float(wide[a, b]) for b in of) for a in of),
                         tuple(tuple(float(late[a, b]) for b in of) for a in of))


def cpu_seconds(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The least seconds of this process's one busy core that a call takes, and its result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        begun = time.process_time()
        result = call()
        best = min(best, time.process_time() - begun)
    return best, result
