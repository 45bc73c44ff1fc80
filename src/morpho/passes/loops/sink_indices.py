"""Negative indices counted from the end, inside the loop that looks up by them.

`take(x, i)` reads at `where(i < 0, i + n, i)`. Where i comes from outside a loop, so does this, and the loop would read
the result from memory at every turn. If it reads i itself too, as where both ends of edges are looked up and added to,
three instructions in registers are cheaper than twice the bytes.
"""

from __future__ import annotations

from morpho.base.dims import bounds, product
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make
from morpho.ir.views import look_through
from morpho.ops.control.records import with_bodies

LOOPS = ("scan", "while_loop")
LEAST = 1024  # elements from which on memory matters


def sink_indices(graph: Graph) -> Graph:
    """Every loop with such values among its constants computes them itself."""
    if not any(node.op.name in LOOPS and _wrapped(node) for node in graph.nodes):
        return graph
    return graph.map(lambda node: _sunk(node) if node.op.name in LOOPS else node)


def _wrapped(loop: Node) -> dict[int, Node]:
    """Constants of a loop that are indices counted from the end, by number, and those that they are made of."""
    constants = list(enumerate(loop.inputs))[loop["carries"] + loop.attributes.get("xs", 0):]
    given = [child for _, child in constants]
    found = {number: _unwrapped(child) for number, child in constants}
    return {number: index for number, index in found.items() if index is not None and index in given}


def _unwrapped(node: Node) -> Node | None:
    """i, of where(i < 0, i + n, i)."""
    if node.op.name != "where" or not node.dtype.is_integer or bounds(product(node.shape))[1] < LEAST:
        return None
    negative, moved, index = node.inputs
    same = negative.op.name == "less" and moved.op.name == "add" and negative.inputs[0] is index is moved.inputs[0]
    numbers = [look_through(part.inputs[1])[0] for part in (negative, moved)] if same else []
    plain = all(number.op.name == "constant" for number in numbers)
    return index if same and plain and numbers[0]["value"] == 0 else None


def _sunk(loop: Node) -> Node:
    """The loop with the indices as they were given, and each of its bodies with what is made of them."""
    wrapped = _wrapped(loop)
    inputs = tuple(wrapped.get(number, child) for number, child in enumerate(loop.inputs))
    made = make(loop.op, inputs, loop.attributes, origin=loop.origin)
    first = loop["carries"] + loop.attributes.get("xs", 0)

    def changed(body: Body) -> Body:
        known = {leaf["index"]: leaf for leaf in body.graph.parameters}
        for number, index in wrapped.items():
            if number in known:
                leaf = known[number]
                place = loop.inputs.index(index, first)
                known[number] = _again(loop.inputs[number], make(leaf.op, (), dict(leaf.attributes) | {"index": place}))
        return Body(body.put([known.get(number, made) for number in range(max(known, default=-1) + 1)]))

    return with_bodies(made, changed)


def _again(node: Node, given: Node) -> Node:
    """where(i < 0, i + n, i) of another i."""
    negative, moved, _ = node.inputs
    parts = [make(part.op, (given, part.inputs[1]), part.attributes, origin=node.origin) for part in (negative, moved)]
    return make(node.op, (*parts, given), node.attributes, origin=node.origin)
