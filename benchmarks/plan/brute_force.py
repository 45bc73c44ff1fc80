"""Every plan there is: all orders, subsets and cuts, one after the other. Slow, short, and obviously right.

    python -m benchmarks.plan.brute_force --instances 10000 --seed 1     # exact search against it, both objectives
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

import numpy as np

from morpho.base.errors import MemoryLimit
from morpho.plan import ACTIVATION_ERROR, Cluster, Constraints, Layer, ModelCard, Node, evaluate, solve

LARGEST_NODES, LARGEST_LAYERS = 5, 10
Range = tuple[int, int, int, str]
Placement = tuple[float, float, list[Range]]


def placements(card: ModelCard, cluster: Cluster, constraints: Constraints) -> Iterator[Placement]:
    """Period, latency and (node, start, end, dtype of the link before) of every placement the constraints allow."""
    rates = [[max(layer.flops(card.phase) / node.rate(card.dtype), layer.bytes(card.phase) / node.memory_bytes_per_s)
              for layer in card.layers] for node in cluster.nodes]
    rooms = [constraints.available_bytes(node.memory_bytes) for node in cluster.nodes]
    pins = {layer: cluster.index(name) for layer, name in constraints.pinned.items()}
    excluded = {cluster.index(name) for name in constraints.excluded}
    most = constraints.max_stages or len(cluster.nodes)
    budget = math.inf if constraints.activation_error_budget is None else constraints.activation_error_budget
    chosen: list[Range] = []

    def grow(at: int, period: float, latency: float, error: float) -> Iterator[Placement]:
        if at == card.depth:
            yield period, latency, list(chosen)
            return
        if len(chosen) == most:
            return
        used = {node for node, *_ in chosen} | excluded
        for node in range(len(cluster.nodes)):
            if node in used:
                continue
            for dtype in constraints.link_dtypes(card) if chosen else ("",):
                hop, worse = 0.0, 0.0
                if chosen:
                    wide = cluster.bandwidth_bytes_per_s[chosen[-1][0]][node]
                    if wide <= 0:
                        continue
                    hop = cluster.latency_s[chosen[-1][0]][node] + card.cut_bytes(at, dtype) / wide
                    worse = ACTIVATION_ERROR[dtype]
                if error + worse > budget:
                    continue
                compute = 0.0
                for end in range(at + 1, card.depth + 1):
                    compute += rates[node][end - 1]
                    if pins.get(end - 1, node) != node or card.memory_bytes(at, end) > rooms[node]:
                        break
                    if constraints.tied == "together" and card.tied and (
                            at <= card.tied[0] < end) != (at <= card.tied[1] < end):
                        continue
                    chosen.append((node, at, end, dtype))
                    yield from grow(end, max(period, compute, hop), latency + compute + hop, error + worse)
                    chosen.pop()

    yield from grow(0, 0.0, 0.0, 0.0)


def best(card: ModelCard, cluster: Cluster, constraints: Constraints) -> tuple[float, float] | None:
    """The least period and the least latency of any plan, or None where there is no plan."""
    found = [(period, latency) for period, latency, _ in placements(card, cluster, constraints)]
    return (min(period for period, _ in found), min(latency for _, latency in found)) if found else None


def random_instance(rng: np.random.Generator, most_nodes: int = LARGEST_NODES, most_layers: int = LARGEST_LAYERS
                    ) -> tuple[ModelCard, Cluster, Constraints]:
    """A small problem with memory limits, a link matrix with gaps, twins among the nodes, at times constraints."""
    depth, count = int(rng.integers(1, most_layers + 1)), int(rng.integers(1, most_nodes + 1))
    even, twins = rng.random() < 0.4, rng.random() < 0.4
    cut = int(rng.integers(1, 2000))
    layers = tuple(
        Layer(f"layer {i}", "block", 0, 0,
              float(rng.choice([1, 2, 3, 10]) if rng.random() < 0.5 else rng.uniform(0, 4)), float(rng.uniform(0, 3)),
              int(rng.integers(0, 100)), int(rng.integers(0, 20)), cut,
              cut if even else int(rng.integers(1, 4000)), int(rng.integers(0, 30)))
        for i in range(depth))
    tied = (0, depth - 1) if depth > 1 and rng.random() < 0.3 else None
    shared = min(layers[0].weight_bytes, layers[-1].weight_bytes) if tied else 0
    card = ModelCard("random", layers, dtype="f32", tied=tied, tied_bytes=shared)
    need = card.memory_bytes(0, depth)
    tight = float(rng.choice([0.6, 1.2, 3.0]))
    kinds = [Node("n", max(1, int(need / count * tight * rng.uniform(0.5, 2))), float(rng.uniform(0.5, 4)),
                  {"f32": float(rng.uniform(0.3, 3))}) for _ in range(count)]
    of = [int(rng.integers(0, count)) for _ in range(count)] if twins else list(range(count))
    nodes = tuple(Node(f"n{i}", kinds[k].memory_bytes, kinds[k].memory_bytes_per_s, kinds[k].flops_per_s)
                  for i, k in enumerate(of))
    wide = np.where(rng.random((count, count)) < 0.1, 0.0, rng.uniform(500, 20000, (count, count)))
    late = rng.uniform(0, 2, (count, count)) * (rng.random() < 0.7)
    cluster = Cluster(nodes, tuple(tuple(float(wide[a, b]) for b in of) for a in of),
                      tuple(tuple(float(late[a, b]) for b in of) for a in of))
    return card, cluster, random_constraints(rng, card, cluster)


def random_constraints(rng: np.random.Generator, card: ModelCard, cluster: Cluster) -> Constraints:
    """Mostly none; at times pins, exclusions, a limit of stages, tied layers together, types under a budget."""
    names = [node.name for node in cluster.nodes]
    extra: dict = {}
    if rng.random() < 0.15:
        extra["pinned"] = {int(rng.integers(0, card.depth)): str(rng.choice(names))}
    if rng.random() < 0.1 and len(names) > 1:
        extra["excluded"] = (names[-1],)
        extra["pinned"] = {layer: name for layer, name in extra.get("pinned", {}).items() if name != names[-1]}
    if rng.random() < 0.2:
        extra["max_stages"] = int(rng.integers(1, 4))
    if rng.random() < 0.2:
        extra["tied"] = "together"
    if rng.random() < 0.2 and len(names) <= 4:
        extra["activation_dtypes"] = tuple(rng.permutation(["f32", "f16", "int8"])[:int(rng.integers(1, 4))].tolist())
        if rng.random() < 0.8:
            budgets = [0.0, 2.0**-23, 2.0**-11 * 1.01, 2.0**-7 * 1.1, 2.0**-6]
            extra["activation_error_budget"] = float(rng.choice(budgets))
    return Constraints(headroom=float(rng.choice([0.0, 0.1])), **extra)


def disagreement(card: ModelCard, cluster: Cluster, constraints: Constraints) -> str:
    """What the exact search gets wrong, or nothing."""
    truth = best(card, cluster, constraints)
    for position, objective in enumerate(("throughput", "latency")):
        try:
            plan = solve(card, cluster, "optimal", objective, constraints=constraints)
        except MemoryLimit:
            if truth is not None:
                return f"{objective}: no plan found, and there is one of {truth[position]}"
            continue
        if truth is None:
            return f"{objective}: a plan found where there is none"
        value = evaluate(card, cluster, plan.stages).value(objective)
        if not plan.optimal or abs(value - truth[position]) > 1e-9 * truth[position]:
            return f"{objective}: found {value}, best is {truth[position]}, called optimal: {plan.optimal}"
        spent = sum(ACTIVATION_ERROR[stage.activation_dtype] for stage in plan.stages[:-1])
        if constraints.activation_error_budget is not None and spent > constraints.activation_error_budget * (1 + 1e-9):
            return f"{objective}: spends {spent} of {constraints.activation_error_budget}"
    return ""


def compare(instances: int, seed: int, show_every: int = 0) -> list[str]:
    """Disagreements over many random instances, each with the seed that repeats it."""
    wrong = []
    for number in range(instances):
        said = disagreement(*random_instance(np.random.default_rng([seed, number])))
        if said:
            wrong.append(f"seed [{seed}, {number}]: {said}")
        if show_every and (number + 1) % show_every == 0:
            print(f"{number + 1} instances, {len(wrong)} disagreements", flush=True)
    return wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = compare(options.instances, options.seed, show_every=1000)
    print("\n".join(wrong[:20]) or f"{options.instances} instances, seed {options.seed}: 0 disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
