"""Buckets of gradients in a program: kernels write them where they travel from, and read the averages there.

A bucket's memory is its group's, shared by the ranks of one host. The first step of a program asks where its buckets
lie (`all_reduce_memory`); a gradient that only its bucket reads gets its memory there as other values get theirs in the
arena, whatever kernel computes it. Others are copied, as are those that travel in another dtype: `program.copies`
counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from morpho.backends.lowering.groups.lower_scatter import ScatterLowering
from morpho.base.dims import product
from morpho.base.dtypes import BY_NAME, DType, int64
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make
from morpho.ir.views import root_of
from morpho.ops.collective import START, WAIT, bucket_places
from morpho.program.program import Control, Slot
from morpho.program.view import View, whole


@dataclass
class Bucket:
    """A bucket that is started once and waited for once: its number among the memories of the program, where its parts
    begin in it and, once they are there, their places."""

    number: int
    wire: DType
    places: list[int]
    count: int
    views: list[View] = field(default_factory=list)


def find_buckets(graph: Graph) -> dict[int, Bucket]:
    """By the serials of their two nodes, the buckets of a graph whose memory kernels may use. One that is started again
    may not: what was waited for would be written over before everybody has read it."""
    starts = [node for node in graph.nodes if node.op is START and node["count"]]
    waits = [node for node in graph.nodes if node.op is WAIT and node["shapes"]]
    found: dict[int, Bucket] = {}
    for start in starts:
        same = [node for node in (*starts, *waits) if all(node[name] == start[name] for name in ("group", "bucket"))]
        shapes = [part.shape for part in start.inputs[:start["count"]]]
        fixed = [[size for size in shape if isinstance(size, int)] for shape in shapes]
        if len(same) != 2 or same[1].op is not WAIT or same[1].inputs[0] is not start or any(
                len(known) != len(shape) for known, shape in zip(fixed, shapes, strict=True)):
            continue
        bucket = Bucket(len(found) // 2, BY_NAME[start["wire"]], *bucket_places(fixed, start["wire"]))
        found |= {node.serial: bucket for node in same}
    return found


class BucketLowering(ScatterLowering):
    """A lowering in which gradients lie in their buckets."""

    def prepare_buckets(self) -> None:
        """Ask where the buckets of the graph lie; called once, before its first step."""
        self.buckets = {} if self.target.kind == "cuda" else find_buckets(self.graph)
        started = [node for node in self.graph.nodes if node.op is START and node.serial in self.buckets]
        for group in dict.fromkeys(node["group"] for node in started):
            asked = [node for node in started if node["group"] == group]
            named = tuple((node["bucket"], self.buckets[node.serial].count, node["wire"], node["which"])
                          for node in asked)
            memory = build("all_reduce_memory", group=group, buckets=named)
            self.lower_host(memory, fallback=False)
            table = self.view(memory)
            for position, node in enumerate(asked):
                told = View(table.slot, position, (), (), int64)
                self.program.steps.append(Control("memory", self.buckets[node.serial].number, memory.op.name,
                                                  node.origin, value=told, reads=[table]))

    def lower_start(self, node: Node) -> None:
        """A bucket that travels when its parts are in it."""
        bucket, count = self.buckets[node.serial], node["count"]
        for part, begin in zip(node.inputs[:count], bucket.places, strict=True):
            bucket.views.append(self.in_bucket(node, part, bucket, begin * bucket.wire.itemsize))
        begun = make(START, node.inputs[count:], {**node.attributes, "count": 0}, origin=node.origin)
        self.lower_host(begun, fallback=False)
        self.views[node.serial] = self.views[begun.serial]

    def lower_wait(self, node: Node) -> None:
        """Averages, read where they lie; in memory of their own where they came in another dtype."""
        bucket = self.buckets[node.serial]
        ended = make(WAIT, node.inputs, {**node.attributes, "shapes": ()}, origin=node.origin)
        self.lower_host(ended, fallback=False)
        found = list(bucket.views)
        if bucket.wire is not node["dtype"]:
            found = [self.new_slot(shape, node["dtype"]) for shape in node["shapes"]]
            for source, target in zip(bucket.views, found, strict=True):
                self.copy_part(source, target, node)
        self.views[node.serial] = [*found, *self.views[ended.serial]]

    def in_bucket(self, node: Node, part: Node, bucket: Bucket, offset: int) -> View:
        """The place of a part in its bucket, and the part in it."""
        place = self.view(part)
        if self.may_lie_there(node, part, place, bucket.wire):
            slot = self.program.slots[place.slot]
            slot.kind, slot.index, slot.offset = "memory", bucket.number, offset
            return place
        self.program.slots.append(Slot("memory", bucket.wire, product(part.shape), bucket.number, offset))
        target = whole(len(self.program.slots) - 1, part.shape, bucket.wire)
        self.copy_part(place, target, node)
        return target

    def copy_part(self, source: View, target: View, node: Node) -> None:
        if product(source.shape) != 0:
            self.copy(source, target, node)
            self.program.copies += 1

    def may_lie_there(self, start: Node, part: Node, place: View, wire: DType) -> bool:
        """Whether a part is a value of this program that nothing but its bucket reads, whole and as it travels: then
        all steps that write it, or read what it was before, are written already."""
        slot = self.program.slots[place.slot]
        if slot.kind != "temporary" or slot.dtype is not wire or place.dtype is not wire or place.slot in self.fixed:
            return False
        if place.offset != 0 or not place.is_contiguous or product(place.shape) != slot.elements:
            return False
        return self.readers(root_of(part)) == [start] and start.inputs.count(part) == 1
