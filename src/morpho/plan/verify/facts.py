"""What the checker knows of a plan's model and cluster, worked out anew from the card: no solver code is used here.

Everything is computed in the plainest way, layer by layer and node by node, so that a mistake in the solvers' arrays
cannot hide here as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import COMPUTES_AS
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF
from morpho.plan.predict.plan import Constraints


def seconds_on(card: ModelCard, cluster: Cluster, node: int, layer: int, members: int, phase: str,
               other: int | None) -> float:
    """One layer on one node, or shared by several that sum their parts over the link to `other`."""
    machine, work = cluster.nodes[node], card.layers[layer]
    late = phase == "decode"
    if work.key in machine.measured:
        alone = machine.measured[work.key][1 if late else 0]
    else:
        rate = next(machine.flops_per_s[dtype] for dtype in COMPUTES_AS[card.dtype] if dtype in machine.flops_per_s)
        flops, moved = (work.decode_flops, work.decode_bytes) if late else (work.prefill_flops, work.prefill_bytes)
        alone = max(flops / rate, moved / machine.memory_bytes_per_s) / machine.efficiency
    if members == 1:
        return alone
    assert other is not None
    summed = (work.decode_reduce_elements if late else work.prefill_reduce_elements) * (4 if card.dtype == "f32" else 2)
    ring = work.reduces * 2 * (members - 1) * cluster.latency_s[node][other]
    if work.reduces:
        ring += 2 * (members - 1) / members * summed / cluster.bandwidth_bytes_per_s[node][other]
    return alone / members + ring


def bytes_of(card: ModelCard, start: int, end: int) -> int:
    """Memory of layers [start, end): weights, caches, the largest workspace; what is shared counts once."""
    total, scratch = 0, 0
    for layer in card.layers[start:end]:
        total += layer.weight_bytes + card.micro_batches * layer.kv_bytes
        scratch = max(scratch, layer.workspace_bytes)
    if card.tied is not None and start <= card.tied[0] and card.tied[1] < end:
        total -= card.tied_bytes
    return total + scratch


def hop_seconds(card: ModelCard, cluster: Cluster, source: int, target: int, boundary: int, dtype: str, phase: str
                ) -> float:
    """A cut at a boundary sent from node to node; infinite where there is no line."""
    wide = cluster.bandwidth_bytes_per_s[source][target]
    if wide <= 0:
        return math.inf
    layer = card.layers[boundary - 1]
    elements = layer.decode_cut_elements if phase == "decode" else layer.prefill_cut_elements
    return cluster.latency_s[source][target] + elements * BYTES_OF[dtype] / wide


def interchangeable(cluster: Cluster, apart: set[int]) -> list[list[int]]:
    """Nodes that can stand for each other: a swap changes neither figures nor links; `apart` stand alone."""
    def swap_changes_nothing(a: int, b: int) -> bool:
        first, second = cluster.nodes[a], cluster.nodes[b]
        if (first.memory_bytes, first.memory_bytes_per_s, dict(first.flops_per_s), first.efficiency,
                {key: tuple(pair) for key, pair in first.measured.items()}) != (
                second.memory_bytes, second.memory_bytes_per_s, dict(second.flops_per_s), second.efficiency,
                {key: tuple(pair) for key, pair in second.measured.items()}):
            return False
        name = {a: b, b: a}
        for matrix in (cluster.bandwidth_bytes_per_s, cluster.latency_s):
            for i in range(len(matrix)):
                for j in range(len(matrix)):
                    if i != j and (i in name or j in name) and matrix[i][j] != matrix[name.get(i, i)][name.get(j, j)]:
                        return False
        return True

    groups: list[list[int]] = []
    for node in range(len(cluster.nodes)):
        home = None if node in apart else next(
            (group for group in groups if group[0] not in apart
             and all(swap_changes_nothing(node, member) for member in group)), None)
        if home is None:
            groups.append([node])
        else:
            home.append(node)
    return groups


@dataclass
class Facts:
    """Kinds of stages and all they may do, as plain lists; `data` copies share the cluster."""

    depth: int
    boundaries: list[int]
    room: list[int]  # group -> nodes one copy may take
    nodes: list[list[str]]  # group -> names
    group: list[int]  # kind -> group
    use: list[int]  # kind -> nodes it takes
    prefix: list[list[float]]  # kind -> seconds of all layers before a boundary
    far: list[list[int]]  # kind -> furthest boundary from each start
    hops: list[list[list[list[float]]]]  # type -> from kind -> to kind -> boundary
    errors: list[float]
    budget: float | None
    most_stages: int


def gather(card: ModelCard, cluster: Cluster, constraints: Constraints, data: int) -> Facts:
    """The facts of a request."""
    banned = {cluster.index(name) for name in constraints.excluded}
    pins = {layer: cluster.index(name) for layer, name in constraints.pinned.items()}
    alike = interchangeable(cluster, set(pins.values()) | banned)
    groups = [group for group in alike if not banned.intersection(group)]
    room = [len(group) // data for group in groups]
    kinds = [(g, use) for g, group in enumerate(groups) for use in range(1, constraints.tensor + 1)
             if use <= room[g] and (use == 1 or cluster.bandwidth_bytes_per_s[group[0]][group[1]] > 0)]
    boundaries = list(range(card.depth + 1))
    if constraints.tied == "together" and card.tied is not None:
        boundaries = [b for b in boundaries if not card.tied[0] < b <= card.tied[1]]
    dtypes = sorted(set(constraints.activation_dtypes), key=lambda dtype: ACTIVATION_ERROR[dtype])
    if constraints.activation_error_budget is None:
        dtypes = [min(dtypes, key=lambda dtype: (BYTES_OF[dtype], ACTIVATION_ERROR[dtype]))]
    return Facts(
        len(boundaries) - 1, boundaries, room, [[cluster.nodes[node].name for node in group] for group in groups],
        [g for g, _ in kinds], [use for _, use in kinds],
        [_prefix(card, cluster, groups[g], use, boundaries) for g, use in kinds],
        [_furthest(card, cluster, constraints, groups[g][0], use, boundaries, pins) for g, use in kinds],
        [_hops(card, cluster, groups, kinds, room, boundaries, dtype) for dtype in dtypes],
        [ACTIVATION_ERROR[dtype] for dtype in dtypes],
        constraints.activation_error_budget if len(dtypes) > 1 else None,
        min(constraints.max_stages or card.depth, card.depth))


def _prefix(card: ModelCard, cluster: Cluster, group: list[int], use: int, boundaries: list[int]) -> list[float]:
    other = group[1] if use > 1 else None
    running = [0.0]
    for layer in range(card.depth):
        running.append(running[-1] + seconds_on(card, cluster, group[0], layer, use, card.phase, other))
    return [running[boundary] for boundary in boundaries]


def _furthest(card: ModelCard, cluster: Cluster, constraints: Constraints, node: int, use: int, boundaries: list[int],
              pins: dict[int, int]) -> list[int]:
    """From each boundary the last one a stage on this node may end at."""
    held = math.floor(cluster.nodes[node].memory_bytes * (1.0 - constraints.headroom)) * use
    result, end = [], 0
    for at in range(len(boundaries)):
        end = max(end, at)
        while end + 1 < len(boundaries):
            if bytes_of(card, boundaries[at], boundaries[end + 1]) > held:
                break
            if any(pins.get(layer, node) != node for layer in range(boundaries[at], boundaries[end + 1])):
                break
            end += 1
        result.append(end)
    return result


def _hops(card: ModelCard, cluster: Cluster, groups: list[list[int]], kinds: list[tuple[int, int]], room: list[int],
          boundaries: list[int], dtype: str) -> list[list[list[float]]]:
    table = []
    for source, used in kinds:
        row = []
        for target, wanted in kinds:
            if source == target and used + wanted > room[source]:
                row.append([math.inf] * len(boundaries))
                continue
            a, b = groups[source][0], groups[target][-1 if source == target else 0]
            row.append([math.inf] + [hop_seconds(card, cluster, a, b, boundary, dtype, card.phase)
                                     for boundary in boundaries[1:]])
        table.append(row)
    return table
