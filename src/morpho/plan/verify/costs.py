"""Costs of layers, links and stages in rational numbers: every float of a file is one exactly, and nothing rounds.

Everything is computed in the plainest way, layer by layer and node by node; no solver code is used.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import COMPUTES_AS, Node
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import BYTES_OF, Layer
from morpho.plan.predict.plan import Stage


def copies_of(stage: Stage) -> tuple[tuple[str, ...], ...]:
    """The members of each copy of a stage."""
    return stage.replicas or (stage.members or (stage.node,),)


def layer_cost(card: ModelCard, node: Node, layer: Layer, phase: str) -> Fraction:
    """Seconds of a layer on a node by itself."""
    late = phase == "decode"
    if layer.key in node.measured:
        return Fraction(node.measured[layer.key][1 if late else 0])
    rate = next(node.flops_per_s[dtype] for dtype in COMPUTES_AS[card.dtype] if dtype in node.flops_per_s)
    flops, moved = (layer.decode_flops, layer.decode_bytes) if late else (layer.prefill_flops, layer.prefill_bytes)
    slower = max(Fraction(flops) / Fraction(rate), Fraction(moved) / Fraction(node.memory_bytes_per_s))
    return slower / Fraction(node.efficiency)


def ring_cost(card: ModelCard, cluster: Cluster, layer: Layer, phase: str, pair: tuple[int, int], members: int
              ) -> Fraction:
    """Seconds of a layer's all-reduces among members: 2 (t - 1) messages, each of a t-th of what is summed."""
    if members == 1 or not layer.reduces:
        return Fraction(0)
    summed = layer.decode_reduce_elements if phase == "decode" else layer.prefill_reduce_elements
    size = summed * Fraction(BYTES_OF[card.activation_dtype])
    i, j = pair
    messages = 2 * (members - 1)
    return (layer.reduces * messages * Fraction(cluster.latency_s[i][j])
            + Fraction(messages, members) * size / Fraction(cluster.bandwidth_bytes_per_s[i][j]))


def shared_cost(card: ModelCard, cluster: Cluster, members: tuple[int, ...], layer: Layer, phase: str) -> Fraction:
    """Seconds of a layer on one node, or shared by several."""
    alone = layer_cost(card, cluster.nodes[members[0]], layer, phase)
    if len(members) == 1:
        return alone
    return alone / len(members) + ring_cost(card, cluster, layer, phase, (members[0], members[1]), len(members))


def hop_cost(card: ModelCard, cluster: Cluster, source: int, target: int, boundary: int, dtype: str, phase: str
             ) -> Fraction | None:
    """Seconds of a cut from node to node; None where there is no line."""
    wide = cluster.bandwidth_bytes_per_s[source][target]
    if wide <= 0:
        return None
    layer = card.layers[boundary - 1]
    elements = layer.decode_cut_elements if phase == "decode" else layer.prefill_cut_elements
    return Fraction(cluster.latency_s[source][target]) + elements * Fraction(BYTES_OF[dtype]) / Fraction(wide)


def stage_costs(card: ModelCard, cluster: Cluster, stages: tuple[Stage, ...], phase: str
                ) -> tuple[list[Fraction], list[Fraction]] | None:
    """Compute and link seconds of all stages; None where two neighbours have no line."""
    compute, links = [], []
    for position, stage in enumerate(stages):
        members = tuple(cluster.index(name) for name in copies_of(stage)[0])
        compute.append(sum((shared_cost(card, cluster, members, layer, phase)
                            for layer in card.layers[stage.start:stage.end]), Fraction(0)))
        if position + 1 == len(stages):
            links.append(Fraction(0))
            continue
        following = cluster.index(copies_of(stages[position + 1])[0][0])
        hop = hop_cost(card, cluster, members[0], following, stage.end, stage.activation_dtype, phase)
        if hop is None:
            return None
        links.append(hop)
    return compute, links


def memory_of(card: ModelCard, start: int, end: int) -> int:
    """Bytes of layers [start, end): weights, caches, the largest workspace; what is shared counts once."""
    part = card.layers[start:end]
    total = sum(layer.weight_bytes + card.micro_batches * layer.kv_bytes for layer in part)
    if card.tied is not None and start <= card.tied[0] and card.tied[1] < end:
        total -= card.tied_bytes
    return total + max(layer.workspace_bytes for layer in part)


def room_of(node: Node, headroom: float) -> int:
    """Bytes of a node that a plan may use: as predictions have it, a product of floats, rounded down."""
    return math.floor(node.memory_bytes * (1.0 - headroom))


def interchangeable(cluster: Cluster, apart: set[int]) -> list[list[int]]:
    """Nodes that can stand for each other: swapping two leaves all figures and links as they are; `apart` stand alone.

    If swapping f and a changes nothing, and f and b neither, then nor does swapping a and b: one look at the first of a
    group is enough.
    """
    matrices = (np.array(cluster.bandwidth_bytes_per_s), np.array(cluster.latency_s))

    def swap_changes_nothing(a: int, b: int) -> bool:
        order = np.arange(len(cluster.nodes))
        order[[a, b]] = b, a
        kept = np.ones(len(order), dtype=bool)
        for matrix in matrices:
            row, column = matrix[a][order] == matrix[b], matrix[order, a] == matrix[:, b]
            kept[[a, b]] = False  # the diagonal means nothing
            if not (row[kept].all() and column[kept].all() and matrix[a, b] == matrix[b, a]):
                return False
        return True

    groups: list[list[int]] = []
    alike: dict[tuple[object, ...], list[list[int]]] = {}
    for position, node in enumerate(cluster.nodes):
        figures = (node.memory_bytes, node.memory_bytes_per_s, frozenset(node.flops_per_s.items()), node.efficiency,
                   frozenset((key, tuple(pair)) for key, pair in node.measured.items()))
        near = [] if position in apart else alike.setdefault(figures, [])
        home = next((group for group in near if swap_changes_nothing(group[0], position)), None)
        if home is None:
            home = []
            groups.append(home)
            near.append(home)
        home.append(position)
    return groups
