"""6. The classic grid: every strategy over nodes x layers, the cost of each kind of layer, quality, growth of greedy.

    morpho bench plan --only grid
"""

from __future__ import annotations

import math

from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.plan.instances import cpu_seconds, instance
from morpho.base.errors import MorphoError
from morpho.plan import Constraints, ModelCard, Node, pack, solve
from morpho.plan.predict.closed_form import layer_seconds

GRIDS = {"uniform": ((2, 4, 8, 16), (12, 24, 48, 96)), "greedy": ((2, 4, 8), (12, 24, 48)),
         "annealing": ((2, 4), (12, 24)), "optimal": ((2, 4, 8), (12, 24, 48))}
ROOMY = 20  # times the memory, so that rules which pay no heed to it have plans
PIECES = (20_000, 40_000, 80_000)


def run(session: Session) -> ThemeResult:
    """Four tables."""
    result = ThemeResult("grid")
    _strategies(result)
    _layers(result)
    _growth(result)
    return result


def _roomy(nodes: int, layers: int):
    card, cluster = instance(1, layers, [1] * nodes)
    larger = tuple(Node(node.name, node.memory_bytes * ROOMY, node.memory_bytes_per_s, node.flops_per_s)
                   for node in cluster.nodes)
    return card, type(cluster)(larger, cluster.bandwidth_bytes_per_s, cluster.latency_s)


def _strategies(result: ThemeResult) -> None:
    table = Table("Strategies over nodes x layers", ["strategy", "nodes x layers", "time", "period over the optimum's",
                                                     "load balance", "efficiency"])
    result.tables.append(table)
    for strategy, (counts, depths) in GRIDS.items():
        for nodes in counts:
            for layers in depths:
                card, cluster = _roomy(nodes, layers)
                try:
                    seconds, found = cpu_seconds(lambda: solve(card, cluster, strategy, bound=False))  # noqa: B023
                except MorphoError as error:
                    result.notes.append(f"{strategy} {nodes} x {layers}: {error}")
                    continue
                best = solve(card, cluster, "optimal", bound=False, constraints=Constraints())
                busy = [stage.compute_s for stage in found.stages]
                period = found.predicted.period_s
                table.rows.append([strategy, f"{nodes} x {layers}", duration(seconds),
                                   f"{period / best.predicted.period_s:.2f}x", f"{sum(busy) / nodes / max(busy):.0%}",
                                   f"{sum(busy) / len(busy) / period:.0%}"])


def _layers(result: ThemeResult) -> None:
    table = Table("Cost of each kind of layer, f16, batch 1, context 1024", ["model", "layer", "prefill GFLOP",
                                                                           "decode MFLOP", "weights MB", "prefill",
                                                                           "decode"])
    result.tables.append(table)
    node = Node("gpu", 10**11, 1e12, {"f32": 2e13, "f16": 1e14})
    for name in ("gpt2", "bert-base", "t5-base", "llama-8b"):
        card = ModelCard.from_config(name, context=1024 if name != "bert-base" else 512, dtype="f16")
        for layer in {layer.kind: layer for layer in card.layers}.values():
            times = [duration(layer_seconds(layer, node, "f16", phase)) for phase in ("prefill", "decode")]
            table.rows.append([name, layer.kind, f"{layer.prefill_flops / 1e9:.2f}", f"{layer.decode_flops / 1e6:.2f}",
                               f"{layer.weight_bytes / 1e6:.1f}", *times])


def _growth(result: ThemeResult) -> None:
    """Bin packing of m pieces: time over m log m stays flat."""
    table = Table("Bin packing of m pieces on 64 workers", ["m", "time", "ns per m log2 m"])
    result.tables.append(table)
    rates = []
    for count in PIECES:
        costs = [1.0 + (piece * 7919 % 1000) / 1000 for piece in range(count)]
        seconds, _ = cpu_seconds(lambda: pack(costs, [1.0] * 64), 3)  # noqa: B023
        rates.append(seconds / (count * math.log2(count)))
        table.rows.append([str(count), duration(seconds), f"{1e9 * rates[-1]:.0f}"])
    result.targets.append(Target("growth of greedy over m log m, fourfold m", rates[-1] / rates[0], 1.5, False))
