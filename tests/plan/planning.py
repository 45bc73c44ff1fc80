"""Small models and clusters for the tests of this folder."""

from __future__ import annotations

import numpy as np

from morpho import plan


def layer(number: int, flops: float = 1e9, weight_bytes: int = 1_000_000, cut: int = 1000) -> plan.Layer:
    return plan.Layer(f"layer {number}", "block", 10 * flops, 10 * flops / 100, flops, flops / 100, weight_bytes,
                      kv_bytes=weight_bytes // 10, prefill_cut_elements=10 * cut, decode_cut_elements=cut)


def card(depth: int = 8, batch: int = 4, **changes: object) -> plan.ModelCard:
    return plan.ModelCard("toy", tuple(layer(number, **changes) for number in range(depth)), batch=batch, context=16)


def node(name: str, gflops: float = 100.0, memory_mb: float = 1000.0) -> plan.Node:
    return plan.Node(name, int(memory_mb * 1e6), 1e12, {"f32": gflops * 1e9})


def cluster(*speeds: float, memory_mb: float = 1000.0, bandwidth: float = 1e9, latency_s: float = 1e-4) -> plan.Cluster:
    """Nodes a, b, c, ... of the given GFLOP/s."""
    nodes = [node(chr(ord("a") + number), speed, memory_mb) for number, speed in enumerate(speeds)]
    return plan.Cluster.uniform(nodes, bandwidth, latency_s, "toys")


def random_card(rng: np.random.Generator, depth: int) -> plan.ModelCard:
    layers = tuple(layer(number, float(rng.uniform(0.2, 3)) * 1e9, int(rng.integers(1, 40)) * 1_000_000,
                         int(rng.integers(1, 2_000_000))) for number in range(depth))
    return plan.ModelCard("random", layers, batch=int(rng.integers(1, 9)), context=16)


def random_cluster(rng: np.random.Generator, count: int) -> plan.Cluster:
    nodes = tuple(node(f"n{number}", float(rng.uniform(20, 400)), float(rng.uniform(200, 600)))
                  for number in range(count))
    wide, late = rng.uniform(5e7, 2e9, (count, count)), rng.uniform(0, 2e-3, (count, count))
    wide, late = np.minimum(wide, wide.T), np.minimum(late, late.T)
    return plan.Cluster(nodes, tuple(map(tuple, wide.tolist())), tuple(map(tuple, late.tolist())))


def placed(model: plan.ModelCard, machines: plan.Cluster, *stages: tuple[str, int, int], objective: str = "throughput",
           ) -> plan.Plan:
    """A plan of given stages, whoever would choose them."""
    bare = tuple(plan.Stage(name, start, end) for name, start, end in stages)
    predicted = plan.evaluate(model, machines, bare, objective)
    return plan.Plan(model, machines, plan.fill(model, machines, bare), predicted, "uniform", objective,
                     objective_value_s=predicted.value(objective))
