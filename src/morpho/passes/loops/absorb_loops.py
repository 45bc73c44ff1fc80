"""Loops that compute what a larger loop computes anyway: the smaller one's results are taken from the larger.

`mo.jvp` of a loop makes a loop of values and tangents; the values were wanted too, and their loop would run beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild, toposort
from morpho.ir.op import REGISTRY
from morpho.ops.sources import pick

LOOPS = ("scan", "while_loop")


def absorb_loops(graph: Graph) -> Graph:
    """Every loop whose carries, slices and constants are the first of those of another, with the same turns, becomes
    part of that one."""
    while (pair := _found(graph)) is not None:
        graph = _absorbed(graph, *pair)
    return graph


def _found(graph: Graph) -> tuple[Node, Node] | None:
    loops = [node for node in graph.nodes if node.op.name in LOOPS]
    for small in loops if len(loops) > 1 else ():
        for large in loops:
            if large is not small and _holds(large, small) and not _depends(large, small):
                return small, large
    return None


def _parts(node: Node) -> list[Sequence[Node]]:
    """Inputs of a loop: carries, slices, constants."""
    carries = node["carries"]
    count = carries + node.attributes.get("xs", 0)
    return [node.inputs[:carries], node.inputs[carries:count], node.inputs[count:]]


def _leaves(large: Node, small: Node) -> list[Node]:
    """The parameters of the larger loop's body that stand for those of the smaller one's."""
    parts, first, found = _parts(large), 0, []
    leaves = {leaf["index"]: leaf for body in _bodies(large) for leaf in body.graph.parameters}
    for part, mine in zip(parts, _parts(small), strict=True):
        found += [leaves.get(first + place) or _unread(first + place, mine[place], part is parts[1])
                  for place in range(len(mine))]
        first += len(part)
    if small.attributes.get("counts"):
        found += [leaf for index, leaf in leaves.items() if index == first]
    return found


def _unread(index: int, given: Node, is_slice: bool) -> Node:
    """A parameter that no body of the larger loop reads."""
    shape = given.shape[1:] if is_slice else given.shape
    return make(REGISTRY["parameter"], (), {"index": index, "shape": shape, "dtype": given.dtype})


def _bodies(node: Node) -> list[Body]:
    return [node[name] for name in ("turn", "test") if name in node.attributes]


def _holds(large: Node, small: Node) -> bool:
    same = all(large.attributes.get(name) == small.attributes.get(name) for name in ("length", "reverse", "counts"))
    if large.op is not small.op or not same or not 0 < small["carries"] < large["carries"]:
        return False  # one that carries nothing, `mo.map`, computes nothing that the other does, and is a batch
    for part, mine in zip(_parts(large), _parts(small), strict=True):
        if len(mine) > len(part) or any(a is not b for a, b in zip(mine, part, strict=False)):
            return False
    leaves = _leaves(large, small)
    if small.attributes.get("counts") and len(leaves) != len(small.inputs) + 1:
        return False
    count = small["carries"]
    turns = small["turn"].put(leaves)[:count]
    if any(a is not b for a, b in zip(turns, large["turn"].outputs[:count], strict=True)):
        return False
    return "test" not in small.attributes or tuple(small["test"].put(leaves)) == large["test"].outputs


def _depends(node: Node, other: Node) -> bool:
    return any(below is other for below in toposort([node]))


def _absorbed(graph: Graph, small: Node, large: Node) -> Graph:
    """The graph with the results of the smaller loop among those of the larger."""
    carries, stacked = small["carries"], small["turn"].put(_leaves(large, small))[small["carries"]:]
    done: dict[int, Node] = {}
    for node in toposort([large, *graph.outputs]):
        inputs = [done[child.serial] for child in node.inputs if child is not small]
        if node is small:
            continue
        if node.op.name == "pick" and node.inputs[0] is small:
            index = node["index"]
            done[node.serial] = pick(done[large.serial], index if index < carries else
                                     len(large.outputs) + index - carries)
        elif node is large:
            turn = Body([*large["turn"].outputs, *stacked])
            done[node.serial] = make(large.op, inputs, dict(large.attributes) | {"turn": turn}, origin=large.origin)
        else:
            inputs = [pick(done[large.serial], 0) if child is small else done[child.serial] for child in node.inputs]
            done[node.serial] = rebuild(node, inputs)
    outputs = [pick(done[large.serial], 0) if node is small else done[node.serial] for node in graph.outputs]
    return Graph(tuple(outputs))
