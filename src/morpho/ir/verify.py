"""The grammar of legal graphs, checked after every pass in tests: a broken pass is caught at once, by name."""

from __future__ import annotations

from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.op import REGISTRY, Spec


class IllegalGraph(AssertionError):
    """A pass produced a graph that breaks the grammar."""


def verify(graph: Graph, after: str = "construction") -> None:
    """Raise `IllegalGraph` naming the pass and the node if anything does not hold."""
    seen: set[int] = set()
    for node in graph.nodes:
        problem = _problem(node, seen)
        if problem:
            raise IllegalGraph(f"after {after}: {node!r} {problem}")
        seen.add(node.serial)


def _problem(node: Node, seen: set[int]) -> str:
    if REGISTRY.get(node.op.name) is not node.op:
        return "uses an op that is not registered"
    if any(child.serial not in seen for child in node.inputs):
        return "comes before one of its inputs"
    if problem := node.op.refusal(len(node.inputs)):
        return problem
    inferred = node.op.infer([child.spec for child in node.inputs], node.attributes)
    outputs = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
    if outputs != node.outputs:
        return f"claims {node.outputs} but infers {outputs}"
    if node.op.kind == "elementwise" and any(child.shape != node.shape for child in node.inputs):
        return "is elementwise but an input has another shape (a missing expand)"
    if node.inputs and {child.device for child in node.inputs} - {""} != {node.device} - {""}:
        return "mixes devices"
    if node.op.name == "data" and node.payload is None:
        return "is a data leaf without data"
    return ""
