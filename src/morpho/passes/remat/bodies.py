"""Slices of a group's body, or of a product's epilogue: some of its results, from fewer inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from morpho.cost.estimate import node_cost, node_flops, spec_bytes
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild, toposort
from morpho.ir.op import Cost
from morpho.ops.sources import pick
from morpho.passes.fusion.epilogue import GEMM


class Cut(NamedTuple):
    """Part of a body: what it computes, from which parameters and kept results, over which axes."""

    outputs: tuple[Node, ...]
    leaves: tuple[Node, ...]
    axes: tuple[int, ...]


def cut_body(node: Node, wanted: Sequence[int], held: Collection[int]) -> Cut:
    """The part that computes some results of a node, from others in `held` (by serial) where they are read in full.

    Values of rows stay with the reductions they come from: a part without those is one of full values alone, or the
    whole body is taken.
    """
    outputs = node["body"].outputs
    for results, kept in (([outputs[i] for i in wanted], held), ([outputs[i] for i in wanted], ()), (outputs, ())):
        leaves, inside = _walk(results, kept, node["space"])
        reduces = any(part.op.kind == "reduce" for part in inside)
        full = all(part.shape == node["space"] for part in inside if part.op.kind == "elementwise")
        if reduces or (full and all(part.shape == node["space"] for part in results)):
            return Cut(tuple(results), tuple(leaves), node["axes"] if reduces else ())
    return Cut(outputs, tuple(leaves), node["axes"])


def _walk(results: Sequence[Node], held: Collection[int], space: object) -> tuple[list[Node], list[Node]]:
    """Nodes that some results of a body are computed from, parameters and held results each in the form in which they
    are read, and the nodes between."""
    leaves: dict[int, Node] = {}
    seen: dict[int, Node] = {}
    stack = list(reversed(results))
    while stack:
        node = stack.pop()
        if node.serial in seen or node.serial in leaves:
            continue
        if node.op.name == "parameter" or (node.shape == space and root_in(node, held) is not None):
            leaves[node.serial] = node
            continue
        seen[node.serial] = node
        stack.extend(reversed(node.inputs))
    return list(leaves.values()), list(seen.values())


def root_in(node: Node, results: Collection[int]) -> int | None:
    """The serial of the result that a node of a body is, or looks at."""
    while node.serial not in results:
        if "view" not in node.op.properties:
            return None
        node = node.inputs[0]
    return node.serial


def is_product(node: Node, leaf: Node) -> bool:
    """Whether a parameter of the body stands for the product."""
    return node.op is GEMM and leaf.op.name == "parameter" and bool(leaf["index"] == node["product"])


def outside(node: Node, leaf: Node) -> Node:
    """The input behind a parameter of a body."""
    index: int = leaf["index"]
    if node.op is GEMM:
        index += 1 if index > node["product"] else 2
    return node.inputs[index]


def outer_inputs(node: Node, cut: Cut) -> list[Node]:
    """The inputs of a node that part of its body needs."""
    found: list[Node] = []
    for leaf in cut.leaves:
        if is_product(node, leaf):
            found += node.inputs[:2]
        elif leaf.op.name == "parameter":
            found.append(outside(node, leaf))
    return found


def cut_cost(node: Node, cut: Cut) -> Cost:
    """Operations and bytes of part of a body."""
    leaves = {leaf.serial for leaf in cut.leaves}
    flops = sum(node_flops(part) for part in toposort(cut.outputs, set(leaves)))
    if any(is_product(node, leaf) for leaf in cut.leaves):
        flops += node_cost(node).flops - sum(node_flops(part) for part in node["body"].graph.nodes)
    moved = [*outer_inputs(node, cut), *cut.outputs, *[leaf for leaf in cut.leaves if leaf.op.name != "parameter"]]
    return Cost(flops, sum(spec_bytes(part.spec) for part in moved))


# -- results of a body that nobody asked for ---------------------------------------------------------------------------
def inner_value(node: Node, wanted: Sequence[int]) -> Node | None:
    """A value inside the body of a product from which all of these results follow without the product; the last such
    one, and no result itself."""
    if node.op is not GEMM:
        return None
    body: Body = node["body"]
    results = [body.outputs[i] for i in wanted]
    for part in reversed(body.graph.nodes):
        if part.op.kind == "elementwise" and part.shape == node["space"] and part not in body.outputs:
            leaves, inside = _walk(results, {part.serial}, node["space"])
            if not any(is_product(node, leaf) for leaf in leaves) and len(inside) > 0:
                return part
    return None


def with_results(node: Node, results: Sequence[Node]) -> Node:
    """The same node with other results of its body."""
    return make(node.op, node.inputs, dict(node.attributes) | {"body": Body(tuple(results))}, origin=node.origin)


def renewed(graph: Graph, replaced: dict[int, tuple[Node, dict[int, int]]]) -> Graph:
    """A graph with other nodes in place of some, in the same order: by serial, what stands for a node, and which of its
    results each old one is. Such a node has several results and is read through `pick` alone."""
    done: dict[int, Node] = {}
    for node in graph.nodes:
        seen = node.inputs[0] if node.op.name == "pick" else node
        if node is not seen and seen.serial in replaced:
            done[node.serial] = pick(done[seen.serial], replaced[seen.serial][1][node["index"]])
            continue
        made = replaced[node.serial][0] if node.serial in replaced else node
        done[node.serial] = rebuild(made, [done[child.serial] for child in node.inputs])
    nodes = list(dict.fromkeys(done[node.serial] for node in graph.nodes))
    return Graph(tuple(done[node.serial] for node in graph.outputs), nodes)


def without_unread(graph: Graph) -> Graph:
    """Results that nothing reads are not computed."""
    read: dict[int, set[int]] = {}
    for node in graph.nodes:
        if node.op.name == "pick" and (graph.users[node.serial] or node in graph.outputs):
            read.setdefault(node.inputs[0].serial, set()).add(node["index"])
    replaced: dict[int, tuple[Node, dict[int, int]]] = {}
    for node in graph.nodes:
        wanted = sorted(read.get(node.serial, ()))
        if "body" in node.attributes and 0 < len(wanted) < len(node.outputs):
            made = with_results(node, [node["body"].outputs[i] for i in wanted])
            replaced[node.serial] = made, {old: new for new, old in enumerate(wanted)}
    return renewed(graph, replaced) if replaced else graph
