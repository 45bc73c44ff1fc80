"""A worker's neighbours in one epoch: the next stage, the one before, the first, and members that share its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from morpho.cluster.pipeline.baseline import Baseline
from morpho.cluster.pipeline.placement import Place
from morpho.cluster.pipeline.stage import Stage
from morpho.cluster.transport.channel import Channels, Sender
from morpho.cluster.transport.frame import Header, Kind, table_bytes
from morpho.cluster.transport.shim import Shim


class Links:
    """Links to the next stage and from the one before; from the last to the first for tokens. A spare worker, without a
    stage, has none."""

    def __init__(self, channels: Channels, places: Sequence[Place], nodes: Sequence[str], node: str,
                 stage: Stage | None, width: int, shims: Mapping[str, Mapping[str, float]], baseline: Baseline) -> None:
        self.channels, self.places, self.nodes = channels, places, nodes
        self.index = next((i for i, place in enumerate(places) if place.node == node), 0)
        self.to_next: Sender | None = None
        self.to_first: Sender | None = None
        self.followers: list[Sender] = []
        if stage is None:
            return
        most = max(max(stage.chunk, stage.most_rows) * width * 4, 64) + table_bytes(stage.most_rows)
        led_by = next((place for place in places if node in place.members[1:]), None)
        if led_by is not None:
            channels.open_receiver(nodes.index(led_by.node), most)
            return
        self.followers = [channels.open_sender(nodes.index(other), most, "f32")
                          for other in places[self.index].members[1:]]
        if len(places) > 1:
            self._link_up(node, stage, most, shims, baseline)

    def _link_up(self, node: str, stage: Stage, most: int, shims: Mapping[str, Mapping[str, float]],
                 baseline: Baseline) -> None:
        after, before = (self.places[(self.index + step) % len(self.places)] for step in (1, -1))
        sender = self.channels.open_sender(self.nodes.index(after.node), most, self.places[self.index].dtype)
        sender.copies, sender.blocking = baseline.copies, baseline.blocking
        self.to_next, self.to_first = (None, sender) if stage.is_last else (sender, None)
        slow = shims.get(f"{before.node} -> {node}", shims.get("*"))
        shim = Shim(**slow) if slow else None  # type: ignore[arg-type]
        self.channels.open_receiver(self.nodes.index(before.node), most, shim)

    def header(self, kind: Kind, rows: Sequence[tuple[int, int]], final: bool) -> Header:
        """Of a message about a (request, position), or about several of them: a row each."""
        (request, position), table = rows[0], tuple(rows) if len(rows) > 1 else ()
        return Header(kind, self.channels.epoch, self.channels.rank, request, self.index, position, final=final,
                      table=table)
