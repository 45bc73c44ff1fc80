"""Control dependencies of `remat_barrier` on values that are computed anyway: waiting for them costs nothing."""

from __future__ import annotations

from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ir.views import root_of
from morpho.passes.fusion.epilogue import PRODUCTS


def settle_order(graph: Graph) -> Graph:
    """Let every `remat_barrier` wait for values that something reads, seen without their views.

    A value that passes left nothing but the order to is not computed for it: what it is made from is waited for
    instead. So it is with a product that has one reader, which may become one kernel with it.
    """
    if not any(node.op.name == "remat_barrier" for node in graph.nodes):
        return graph
    readers = _readers(graph)
    done: dict[int, Node] = {}
    for node in graph.nodes:
        inputs = [done[child.serial] for child in node.inputs]
        if node.op.name == "remat_barrier":
            wanted = _waited_for(node.inputs[1:], readers)
            done[node.serial] = build("remat_barrier", inputs[0], *[done[child.serial] for child in wanted])
        else:
            done[node.serial] = rebuild(node, inputs)
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _readers(graph: Graph) -> dict[int, int]:
    """How many nodes read the value of each that is needed for a value at all."""
    readers: dict[int, int] = {node.serial: 1 for node in graph.outputs}
    for node in reversed(graph.nodes):
        if node.serial in readers:
            for child in dict.fromkeys(node.inputs[:1] if node.op.name == "remat_barrier" else node.inputs):
                readers[child.serial] = readers.get(child.serial, 0) + 1
    return readers


def _waited_for(nodes: tuple[Node, ...], readers: dict[int, int]) -> list[Node]:
    found: dict[int, Node] = {}
    stack, seen = [root_of(node) for node in reversed(nodes)], set[int]()
    while stack:
        node = stack.pop()
        if node.serial in seen:
            continue
        seen.add(node.serial)
        count = readers.get(node.serial, 0)
        if count == 0 or (count == 1 and node.op.name in PRODUCTS):
            stack += [root_of(child) for child in reversed(node.inputs)]
        elif node.op.kind != "source":
            found[node.serial] = node
    return list(found.values())
