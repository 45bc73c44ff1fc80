"""Buckets of gradients in a program: kernels write them where they travel from, and read the averages there.

A bucket's memory is its group's, shared by the ranks of one host. The first step of a program asks where its buckets
lie (`all_reduce_memory`); a gradient that only its bucket reads gets its memory there as other values get theirs in the
arena, whatever kernel computes it. Others are copied, as are those that travel in another dtype: `program.copies`
counts them.
"""

from __future__ import annotations

from morpho.backends.lowering.destinations import readers
from morpho.backends.lowering.lowering import Bucket, Lowering
from morpho.base.dims import product
from morpho.base.dtypes import BY_NAME, DType, int64
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make
from morpho.ir.views import root_of
from morpho.ops.collective import START, WAIT, bucket_places
from morpho.program.program import Control, Slot
from morpho.program.view import View, whole


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


def prepare_buckets(low: Lowering) -> None:
    """Ask where the buckets of the graph lie; called once, before its first step."""
    low.buckets = find_buckets(low.graph)
    started = [node for node in low.graph.nodes if node.op is START and node.serial in low.buckets]
    for group in dict.fromkeys(node["group"] for node in started):
        asked = [node for node in started if node["group"] == group]
        named = tuple((node["bucket"], low.buckets[node.serial].count, node["wire"], node["which"])
                      for node in asked)
        memory = build("all_reduce_memory", group=group, buckets=named)
        low.lower_host(memory, fallback=False)
        table = low.view(memory)
        for position, node in enumerate(asked):
            told = View(table.slot, position, (), (), int64)
            low.program.steps.append(Control("memory", low.buckets[node.serial].number, memory.op.name,
                                             node.origin, value=told, reads=[table]))


def lower_start(low: Lowering, node: Node) -> bool:
    """A bucket that travels when its parts are in it."""
    if node.serial not in low.buckets:
        return False
    bucket, count = low.buckets[node.serial], node["count"]
    for part, begin in zip(node.inputs[:count], bucket.places, strict=True):
        bucket.views.append(in_bucket(low, node, part, bucket, begin * bucket.wire.itemsize))
    begun = make(START, node.inputs[count:], {**node.attributes, "count": 0}, origin=node.origin)
    low.lower_host(begun, fallback=False)
    low.views[node.serial] = low.views[begun.serial]
    return True


def lower_wait(low: Lowering, node: Node) -> bool:
    """Averages, read where they lie; in memory of their own where they came in another dtype."""
    if node.serial not in low.buckets:
        return False
    bucket = low.buckets[node.serial]
    ended = make(WAIT, node.inputs, {**node.attributes, "shapes": ()}, origin=node.origin)
    low.lower_host(ended, fallback=False)
    found = list(bucket.views)
    if bucket.wire is not node["dtype"]:
        found = [low.new_slot(shape, node["dtype"]) for shape in node["shapes"]]
        for source, target in zip(bucket.views, found, strict=True):
            copy_part(low, source, target, node)
    low.views[node.serial] = [*found, *low.views[ended.serial]]
    return True


def in_bucket(low: Lowering, node: Node, part: Node, bucket: Bucket, offset: int) -> View:
    """The place of a part in its bucket, and the part in it."""
    place = low.view(part)
    if may_lie_there(low, node, part, place, bucket.wire):
        slot = low.program.slots[place.slot]
        slot.kind, slot.index, slot.offset = "memory", bucket.number, offset
        return place
    low.program.slots.append(Slot("memory", bucket.wire, product(part.shape), bucket.number, offset))
    target = whole(len(low.program.slots) - 1, part.shape, bucket.wire)
    copy_part(low, place, target, node)
    return target


def copy_part(low: Lowering, source: View, target: View, node: Node) -> None:
    if product(source.shape) != 0:
        low.copy(source, target, node)
        low.program.copies += 1


def may_lie_there(low: Lowering, start: Node, part: Node, place: View, wire: DType) -> bool:
    """Whether a part is a value of this program that nothing but its bucket reads, whole and as it travels: then
    all steps that write it, or read what it was before, are written already."""
    slot = low.program.slots[place.slot]
    if slot.kind != "temporary" or slot.dtype is not wire or place.dtype is not wire or place.slot in low.fixed:
        return False
    if place.offset != 0 or not place.is_contiguous or product(place.shape) != slot.elements:
        return False
    return readers(low, root_of(part)) == [start] and start.inputs.count(part) == 1
