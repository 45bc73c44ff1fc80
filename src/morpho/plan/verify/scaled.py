"""A request in integers: every cost rounded down once, as a share of the value that a claim is about.

The claim is always "no plan has a value below V". Costs are counted in units of V / 2^s and rounded down, and those
above V become V: so every plan below V in seconds is one below 2^s in units, and what is shown of the integers holds
for the seconds. From here on there is no rounding: sums are exact, and `s` is chosen so that none can overflow 64 bits.
How far the times of layers lie apart does not matter, and neither does what a certificate holds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF
from morpho.plan.predict.plan import Constraints
from morpho.plan.verify.costs import interchangeable, memory_of, room_of, shared_cost

NEVER = 1 << 61  # more than any sum
ERROR_UNITS = 1 << 24  # of which every error of a link type is a whole number
DOWN = 1 - 2.0**-48  # more than what three rounded operations can add


@dataclass
class Request:
    """Request of a plan, with nodes in groups; the same for every claim about one number of copies."""

    card: ModelCard
    cluster: Cluster
    constraints: Constraints
    data: int

    def __post_init__(self) -> None:
        cluster, limits = self.cluster, self.constraints
        banned = {cluster.index(name) for name in limits.excluded}
        self.pins = {layer: cluster.index(name) for layer, name in limits.pinned.items()}
        alike = interchangeable(cluster, set(self.pins.values()) | banned)
        self.groups = [group for group in alike if not banned.intersection(group)]
        self.room = [len(group) // self.data for group in self.groups]
        self.kinds = [(number, use) for number, group in enumerate(self.groups)
                      for use in range(1, min(limits.tensor, self.room[number]) + 1)
                      if use == 1 or cluster.bandwidth_bytes_per_s[group[0]][group[1]] > 0]
        self.boundaries = [boundary for boundary in range(self.card.depth + 1) if not (
            limits.tied == "together" and self.card.tied and self.card.tied[0] < boundary <= self.card.tied[1])]
        self.names = [[cluster.nodes[node].name for node in group] for group in self.groups]

    @property
    def depth(self) -> int:
        """Steps between boundaries."""
        return len(self.boundaries) - 1

    @property
    def most_stages(self) -> int:
        """How many stages a plan can have: each takes a node, and the budget of errors has so many links."""
        most = min(self.constraints.max_stages or self.depth, self.depth, sum(self.room))
        if self.budget is None:
            return most
        errors, budget = self.budget
        return min(most, budget // min(errors) + 1)

    @cached_property
    def dtypes(self) -> list[str]:
        """Types of links worth a look: with a budget all, otherwise the quickest."""
        allowed = sorted(set(self.constraints.activation_dtypes or (self.card.activation_dtype,)))
        if self.constraints.activation_error_budget is not None:
            return allowed
        return [min(allowed, key=lambda dtype: BYTES_OF[dtype])]

    @cached_property
    def budget(self) -> tuple[list[int], int] | None:
        """The errors of the types and their budget, in whole units."""
        budget = self.constraints.activation_error_budget
        if budget is None:
            return None
        return ([int(ACTIVATION_ERROR[dtype] * ERROR_UNITS) for dtype in self.dtypes],
                int(Fraction(budget) * ERROR_UNITS))

    @cached_property
    def seconds(self) -> list[list[Fraction]]:
        """Seconds of every step on every kind."""
        return [self._seconds(number, use) for number, use in self.kinds]

    def _seconds(self, number: int, use: int) -> list[Fraction]:
        members, card, known = tuple(self.groups[number][:use]), self.card, {}
        costs = []
        for layer in card.layers:
            figures = (layer.key, layer.prefill_flops, layer.prefill_bytes, layer.decode_flops, layer.decode_bytes,
                       layer.reduces, layer.prefill_reduce_elements, layer.decode_reduce_elements)
            if figures not in known:
                known[figures] = shared_cost(card, self.cluster, members, layer, card.phase)
            costs.append(known[figures])
        return [sum(costs[a:b], Fraction(0)) for a, b in pairwise(self.boundaries)]

    @cached_property
    def far(self) -> np.ndarray:
        """From each boundary the last one a stage may end at, by memory and pins, (kinds, boundaries)."""
        known: dict[tuple[int, int], list[int]] = {}
        rows = []
        for number, use in self.kinds:
            node = self.groups[number][0]
            room = room_of(self.cluster.nodes[node], self.constraints.headroom) * use
            owner = node if node in self.pins.values() else -1
            if (room, owner) not in known:
                known[room, owner] = self._furthest(room, owner)
            rows.append(known[room, owner])
        return np.array(rows, dtype=np.int64).reshape(len(self.kinds), len(self.boundaries))

    def _furthest(self, room: int, owner: int) -> list[int]:
        card, steps = self.card, self.boundaries
        held = [0]
        for layer in card.layers:
            held.append(held[-1] + layer.weight_bytes + card.micro_batches * layer.kv_bytes)
        scratch = [max(layer.workspace_bytes for layer in card.layers[a:b]) for a, b in pairwise(steps)]
        foreign = [any(self.pins.get(layer, owner) != owner for layer in range(a, b)) for a, b in pairwise(steps)]
        result, end = [], 0
        largest: deque[int] = deque()  # steps of the window by falling scratch
        for at in range(len(steps)):
            if end < at:
                end = at
                largest.clear()
            while largest and largest[0] < at:
                largest.popleft()
            while end < self.depth and not foreign[end]:
                peak = max(scratch[end], scratch[largest[0]] if largest else 0)
                need = held[steps[end + 1]] - held[steps[at]] + peak
                if card.tied and steps[at] <= card.tied[0] and card.tied[1] < steps[end + 1]:
                    need -= card.tied_bytes
                if need > room:
                    break
                while largest and scratch[largest[-1]] <= scratch[end]:
                    largest.pop()
                largest.append(end)
                end += 1
            assert end == at or memory_of(card, steps[at], steps[end]) <= room
            result.append(end)
        return result


class Scaled:
    """The integers of a request for the claim that no plan has a value below `value_s`."""

    def __init__(self, request: Request, value_s: Fraction) -> None:
        self.request, self.value_s = request, value_s
        nodes = len(request.cluster.nodes)
        self.bits = min(50, 60 - (4 * request.depth + 2 * nodes + 8).bit_length())
        self.unit = 1 << self.bits  # the value itself
        costs = [[min(self.unit, int(cost / value_s * self.unit)) for cost in row] for row in request.seconds]
        self.prefix = np.concatenate([np.zeros((len(costs), 1), dtype=np.int64), np.cumsum(
            np.array(costs, dtype=np.int64).reshape(len(request.kinds), request.depth), axis=1)], axis=1)
        self.group = np.array([number for number, _ in request.kinds], dtype=np.int64)
        self.use = np.array([use for _, use in request.kinds], dtype=np.int64)
        self._lines()

    def _lines(self) -> None:
        request, cluster = self.request, self.request.cluster
        first = np.array([request.groups[number][0] for number, _ in request.kinds], dtype=np.int64)
        last = np.array([request.groups[number][-1] for number, _ in request.kinds], dtype=np.int64)
        room = np.array([request.room[number] for number, _ in request.kinds], dtype=np.int64)
        same = self.group[:, None] == self.group[None, :]
        target = np.where(same, last[None, :], first[None, :])
        self.wide = np.array(cluster.bandwidth_bytes_per_s)[first[:, None], target]
        self.late = np.array(cluster.latency_s)[first[:, None], target]
        self.closed = (self.wide <= 0) | (same & (self.use[:, None] + self.use[None, :] > room[:, None]))
        self.wide = np.where(self.closed, 1.0, self.wide)

    def hops(self, option: int, boundary: int) -> np.ndarray:
        """Units of the cut at a boundary between every two kinds, `NEVER` where there is none; (kinds, kinds)."""
        card = self.request.card
        layer = card.layers[self.request.boundaries[boundary] - 1]
        elements = layer.decode_cut_elements if card.phase == "decode" else layer.prefill_cut_elements
        # Rounded down: floats are off by less than `DOWN` takes away, and powers of two scale exactly.
        seconds = (self.late + elements * BYTES_OF[self.request.dtypes[option]] / self.wide) * DOWN
        share = np.minimum(seconds / float(self.value_s) * DOWN, 1.0)
        units = np.floor(share * float(self.unit)).astype(np.int64)
        return np.where(self.closed, NEVER, units)

    def ends_within(self) -> np.ndarray:
        """`far` where no stage may take as long as the value, (kinds, boundaries)."""
        rows = [np.searchsorted(row, row + (self.unit - 1), side="right") - 1 for row in self.prefix]
        return np.minimum(self.request.far, np.array(rows, dtype=np.int64).reshape(self.request.far.shape))  # type: ignore[no-any-return]
