"""Caches of keys and values that stay what they are when layers move: kept where they lie, or sent to who has the layer
now. Texts go on from the last position that every layer has; what no living worker holds is filled again by replay.

>>> held = [Held(0, 0, 3, 0, 2, {7: 10}), Held(1, 3, 6, 0, 2, {7: 9})]
>>> at, moves = plan_moves(held, [Home(0, 0, 2, 0, 2), Home(1, 2, 6, 0, 2)], depth=6, numbers={7: 12})
>>> at, [(move.layer, move.source, move.target) for move in moves if move.source != move.target]
({7: 9}, [(2, 0, 1)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from morpho.base.errors import fail
from morpho.cluster.pipeline.placement import Place
from morpho.cluster.pipeline.shares import Share
from morpho.cluster.pipeline.stage import Stage
from morpho.cluster.transport.frame import Header, Kind, TransportError, pack, unpack

CACHE_TAG = 5
MOST_BYTES = 1 << 31


class Home(NamedTuple):
    """Layers [start, end) of a rank, and which of the heads of keys."""

    rank: int
    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True)
class Held:
    """Caches of a rank: layers, heads, and the last position of each request."""

    rank: int
    start: int
    end: int
    low: int
    high: int
    positions: Mapping[int, int]


class Move(NamedTuple):
    """Heads [low, high) of a layer of a request, from where they are to where they are wanted; the same rank keeps
    what it has."""

    number: int
    layer: int
    low: int
    high: int
    source: int
    target: int


def homes(places: Sequence[Place], nodes: Sequence[str], heads: int) -> list[Home]:
    """Homes of layers and heads in a placement."""
    return [Home(nodes.index(node), place.start, place.end, heads * index // len(place.members),
                 heads * (index + 1) // len(place.members))
            for place in places for index, node in enumerate(place.members)]


def plan_moves(held: Sequence[Held], wanted: Sequence[Home], depth: int, numbers: Mapping[int, int]
               ) -> tuple[dict[int, int], list[Move]]:
    """For each request (with the most positions it may have) where it goes on from, and what is moved for it. A request
    of which some layer's cache is nowhere is left out: all of it is fed again."""
    at, moves = {}, []
    for number, most in numbers.items():
        found = [_sources(held, home, layer, number) for home in wanted
                 for layer in range(max(home.start, 1), min(home.end, depth - 1))]
        if any(segments is None for segments in found):
            continue
        all_of_it = [each for segments in found for each in segments or ()]
        position = min([most, *(known for _, known in all_of_it)])
        if position > 0 and all_of_it:
            at[number] = position
            moves += [move for move, _ in all_of_it]
    return at, moves


def _sources(held: Sequence[Held], home: Home, layer: int, number: int) -> list[tuple[Move, int]] | None:
    """Where the heads of a layer come from, and how far each part goes; None where some are nowhere."""
    fitting = [each for each in held if each.start <= layer < each.end and each.positions.get(number, 0) > 0]
    fitting.sort(key=lambda each: (-each.positions[number], each.rank != home.rank, each.rank))
    found, low = [], home.low
    while low < home.high:
        best = next((each for each in fitting if each.low <= low < each.high), None)
        if best is None:
            return None
        high = min(best.high, home.high)
        found.append((Move(number, layer, low, high, best.rank, home.rank), best.positions[number]))
        low = high
    return found


class Kept:
    """The caches of a worker's last stage, after its epoch."""

    def __init__(self, stage: Stage, positions: Mapping[int, int], share: Share | None) -> None:
        self.stage, self.positions = stage, {number: at for number, at in positions.items() if number in stage.streams}
        index, size = (0, 1) if share is None else (share.index, share.size)
        self.low, self.high = index * stage.kv_heads, (index + 1) * stage.kv_heads
        self.heads = size * stage.kv_heads

    def said(self) -> dict[str, Any]:
        """Plain data for the meeting."""
        return {"layers": [self.stage.start, self.stage.end], "low": self.low, "high": self.high, "heads": self.heads,
                "positions": {str(number): at for number, at in self.positions.items()}}

    def part(self, move: Move, position: int) -> np.ndarray:
        """Keys and values (2, heads, positions, width) of a layer."""
        low, high = move.low - self.low, move.high - self.low
        pair = self.stage.cache_of(move.number, move.layer)
        return np.stack([each[0, low:high, :position] for each in pair])


def held_of(said: Sequence[Mapping[str, Any]]) -> tuple[list[Held], int]:
    """Caches of the workers of a meeting, and the number of heads of a layer (0 if nobody has any)."""
    rows = [(rank, each["kept"]) for rank, each in enumerate(said) if each.get("kept")]
    found = [Held(rank, row["layers"][0], row["layers"][1], row["low"], row["high"],
                  {int(number): at for number, at in row["positions"].items()})
             for rank, row in rows]
    return found, max((row["heads"] for _, row in rows), default=0)


class CacheMoving:
    """One epoch's moves, on the workers' communicator: all workers go through the same list in the same order."""

    def __init__(self, mpi: Any, comm: Any, epoch: int) -> None:
        self.mpi, self.comm, self.epoch, self.rank = mpi, comm, epoch, int(comm.Get_rank())
        self.moved = self.moved_bytes = self.kept = 0

    def run(self, moves: Sequence[Move], at: Mapping[int, int], lengths: Mapping[int, int], kept: Kept | None,
            stage: Stage | None, low: int) -> None:
        """Send what others have now; put what is this worker's into its new stage, whose first head is `low`."""
        pairs: dict[tuple[int, int], np.ndarray] = {}
        for move in moves:
            if self.rank == move.source == move.target:
                assert kept is not None
                self.kept += 1
                self._fill(pairs, move, kept.part(move, at[move.number]), lengths, stage, low)
            elif self.rank == move.source:
                assert kept is not None
                header = Header(Kind.CACHE, self.epoch, self.rank, move.number, move.layer)
                self.comm.Send([pack(header, kept.part(move, at[move.number])), self.mpi.BYTE], move.target, CACHE_TAG)
            elif self.rank == move.target:
                self._fill(pairs, move, self._got(move), lengths, stage, low)
        if stage is not None and pairs:
            for number in {number for number, _ in pairs}:
                rows = [pairs[number, layer] for layer in stage.block_layers]
                stage.put_cache(number, lengths[number], rows, at[number])

    def _got(self, move: Move) -> np.ndarray:
        status = self.mpi.Status()
        self.comm.Probe(move.source, CACHE_TAG, status)
        size = status.Get_count(self.mpi.BYTE)
        raw = np.empty(size, np.uint8)
        self.comm.Recv([raw, self.mpi.BYTE], move.source, CACHE_TAG)
        header, payload = unpack(raw, move.source, self.epoch, MOST_BYTES)
        if (header.kind, header.request, header.stage) != (Kind.CACHE, move.number, move.layer):
            raise fail(TransportError, "transport", f"rank {move.source} sent another cache than that of layer "
                                                    f"{move.layer} of request {move.number}", line="")
        self.moved, self.moved_bytes = self.moved + 1, self.moved_bytes + size
        return payload

    def _fill(self, pairs: dict[tuple[int, int], np.ndarray], move: Move, part: np.ndarray, lengths: Mapping[int, int],
              stage: Stage | None, low: int) -> None:
        assert stage is not None
        held = pairs.get((move.number, move.layer))
        if held is None:
            shape = (2, 1, stage.kv_heads, lengths[move.number], part.shape[-1])
            held = pairs[move.number, move.layer] = np.zeros(shape, np.float32)
        if part.shape != (2, move.high - move.low, part.shape[2], held.shape[-1]) or part.shape[2] > held.shape[3]:
            raise fail(TransportError, "transport", f"rank {move.source} sent a cache of shape {part.shape}", line="")
        held[:, 0, move.low - low:move.high - low, :part.shape[2]] = part
