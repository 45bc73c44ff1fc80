"""Loop distribution: what a turn computes from its slices alone, for all turns at once before the loop.

A turn that shifts, sums or sorts its slice before the carried value meets it keeps the loop from being one kernel in
which each element goes its own way (`lane_loops.py`). None of that waits for the turn before: it is computed as a batch
over the turns, by the rules of `mo.vmap`, so with the bits of turn after turn; the loop reads slices of the result.
"""

from __future__ import annotations

from morpho.base.dims import Shape, product
from morpho.ir.body import Body, parameter
from morpho.ir.node import Node, make, rebuild, toposort
from morpho.ops.batching import batch_of, in_front, row_leaf
from morpho.passes.loops.lane_loops import MOST_STREAMED, is_by_element

FIXED, EARLY, LATE = range(3)  # made of constants, of slices too, of what is carried too


def slices_first(node: Node, turn: Body) -> Node | None:
    """The scan with the body `turn`, in plain operations, less what can be computed before it; None where nothing can
    that would keep elements from going their own ways."""
    found = _computed_early(node, turn, node.inputs[0].shape) if node["carries"] and node["xs"] else []
    if not found or not isinstance(node["length"], int) or not _is_small(node, found):
        return None
    count = node["carries"] + node["xs"]
    places = {part.serial: count + number for number, part in enumerate(found)}
    done: dict[int, Node] = {}
    for part in turn.graph.nodes:
        if part.serial in places:
            done[part.serial] = parameter(places[part.serial], part.spec)
        elif part.op.name == "parameter":
            index = part["index"]
            done[part.serial] = parameter(index + (len(found) if index >= count else 0), part.spec)
        else:
            done[part.serial] = rebuild(part, [done[child.serial] for child in part.inputs])
    inputs = (*node.inputs[:count], *_for_all_turns(node, found), *node.inputs[count:])
    body = Body([done[output.serial] for output in turn.outputs])
    return make(node.op, inputs, {**node.attributes, "turn": body, "xs": node["xs"] + len(found)}, origin=node.origin)


def _computed_early(node: Node, turn: Body, shape: Shape) -> list[Node]:
    """Values made of slices that the rest of the turn reads, and that look at other elements on the way."""
    count, known, arranged = node["carries"] + node["xs"], {}, set()
    read: set[int] = {output.serial for output in turn.outputs}
    for part in turn.graph.nodes:
        if part.op.name == "parameter":
            index = part["index"]
            known[part.serial] = EARLY if node["carries"] <= index < count else \
                FIXED if count <= index < len(node.inputs) else LATE
            continue
        known[part.serial] = max((known[child.serial] for child in part.inputs), default=FIXED)
        if known[part.serial] == LATE:
            read |= {child.serial for child in part.inputs}
        elif any(child.serial in arranged for child in part.inputs) or not is_by_element(part, shape):
            arranged.add(part.serial)
    return [part for part in turn.graph.nodes
            if part.serial in read & arranged and known[part.serial] == EARLY and len(part.outputs) == 1]


def _is_small(node: Node, found: list[Node]) -> bool:
    """Whether no value on the way is large for all turns at once: a loop over pairs of a slice's elements needs their
    memory once, a batch at every turn."""
    made: set[int] = set()  # of slices
    for part in toposort(found):
        of_slice = part.op.name == "parameter" and node["carries"] <= part["index"] < node["carries"] + node["xs"]
        if of_slice or any(child.serial in made for child in part.inputs):
            made.add(part.serial)
            size = product(part.shape)
            if not isinstance(size, int) or node["length"] * size * part.dtype.itemsize > MOST_STREAMED:
                return False
    return True


def _for_all_turns(node: Node, found: list[Node]) -> list[Node]:
    """Values of a turn for all turns, along a first axis."""
    first, count = node["carries"], node["carries"] + node["xs"]
    slices = [row_leaf(x.shape[1:], x.dtype) for x in node.inputs[first:count]]  # like no node of the graph around
    given = [*node.inputs[:first], *slices, *node.inputs[count:], *([node.inputs[0]] if node["counts"] else [])]
    leaves = {leaf.serial: x for leaf, x in zip(slices, node.inputs[first:count], strict=True)}
    values = batch_of(Body(found).put(given), leaves, node["length"])
    return [in_front(*value, node["length"]) for value in values]
