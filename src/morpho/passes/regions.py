"""Passes inside the bodies of loops and branches, and loops that differ in what they return made one."""

from __future__ import annotations

from collections.abc import Callable

from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild
from morpho.ops.control.records import bodies_of, with_bodies
from morpho.ops.sources import pick
from morpho.passes.loops.absorb_loops import absorb_loops
from morpho.passes.loops.lane_loops import fits_lanes
from morpho.passes.loops.moving_slices import move_slices
from morpho.passes.loops.register_loops import fits_registers
from morpho.passes.loops.sink_indices import sink_indices
from morpho.passes.loops.slices_first import slices_first

Optimise = Callable[[Graph], Graph]


def optimise_bodies(graph: Graph, optimise: Optimise, unfused: Optimise | None) -> Graph:
    """Every body taken through the passes; the graph around sees a loop as one operation. `unfused` are the passes
    without those that make kernels, for bodies that become one kernel with their loop (`register_loops.py`)."""
    if not any(node.op.kind == "control" for node in graph.nodes):
        return graph

    def each(node: Node) -> Node:
        if node.op.kind != "control":
            return node
        made = with_bodies(node, lambda body: body.map(optimise))
        if unfused is not None and node.op.name != "switch":
            plain = with_bodies(node, lambda body: body.map(unfused))
            if fits_registers(node, bodies_of(plain), bodies_of(made)):
                return make(plain.op, plain.inputs, dict(plain.attributes) | {"registers": True}, origin=node.origin)
            for one in (plain, slices_first(node, plain["turn"])) if node.op.name == "scan" else ():
                if one is not None and fits_lanes(one, one["turn"]):
                    return make(one.op, one.inputs, dict(one.attributes) | {"lanes": True}, origin=node.origin)
        return made

    return move_slices(absorb_loops(merge_scans(sink_indices(graph)))).map(each)


def merge_scans(graph: Graph) -> Graph:
    """Scans over the same values that differ in what they stack become one: a gradient asks for the carries of every
    turn of a loop that was written without them."""
    alike: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op.name == "scan":
            count = node["carries"]
            key = (tuple(child.serial for child in node.inputs), count, node["xs"], node["length"], node["reverse"],
                   node["counts"], node["turn"].outputs[:count])
            alike.setdefault(key, []).append(node)
    if all(len(nodes) == 1 for nodes in alike.values()):
        return graph
    union: dict[int, tuple[Node, ...]] = {}  # serial of a scan -> what the one in its place returns
    for nodes in alike.values():
        first = nodes[0]["turn"].outputs[:nodes[0]["carries"]]
        stacked = dict.fromkeys(output for node in nodes for output in node["turn"].outputs[len(first):])
        for node in nodes if len(nodes) > 1 else ():
            union[node.serial] = (*first, *stacked)
    return _replaced(graph, union)


def _replaced(graph: Graph, union: dict[int, tuple[Node, ...]]) -> Graph:
    done: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op.name == "pick" and node.inputs[0].serial in union:
            scan = node.inputs[0]
            done[node.serial] = _result(done[scan.serial], scan, node["index"], union[scan.serial])
            continue
        inputs = [done[child.serial] for child in node.inputs]
        if node.serial not in union:
            done[node.serial] = rebuild(node, inputs)
            continue
        attributes = dict(node.attributes) | {"turn": Body(union[node.serial])}
        made = make(node.op, inputs, attributes, origin=node.origin)
        # Of a scan with one result whoever reads it reads the node itself.
        done[node.serial] = _result(made, node, 0, union[node.serial]) if len(node.outputs) == 1 else made
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _result(made: Node, scan: Node, index: int, outputs: tuple[Node, ...]) -> Node:
    """Result `index` of a scan among those of the one in its place."""
    if index < scan["carries"]:
        return pick(made, index)
    first = scan["carries"]
    return pick(made, first + outputs[first:].index(scan["turn"].outputs[index]))
