"""Cost of nodes and graphs: operations, bytes, and the least time a machine could take (the roofline).

>>> Profile("example", 1e11, 1e10).seconds(Cost(flops=2_000, bytes=1_000))
1e-07
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.base.dims import Shape, product, upper
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.op import Cost, Spec
from morpho.ir.views import is_view, maker_of
from morpho.ops.control.records import bodies_of


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured peaks of a machine, as data."""

    name: str
    flops_per_s: float
    bytes_per_s: float

    def seconds(self, cost: Cost) -> float:
        """The roofline: the longer of computing and moving."""
        return max(cost.flops / self.flops_per_s, cost.bytes / self.bytes_per_s)


def spec_bytes(spec: Spec) -> int:
    """Bytes of a value at its largest."""
    return upper(product(spec.shape)) * spec.dtype.itemsize


def node_cost(node: Node) -> Cost:
    """Operations of one node, and each input read and output written once; views and leaves are free."""
    if node.op.kind == "source" or is_view(node):
        return Cost(0, 0)
    if node.op.kind == "control":
        return _control_cost(node)
    moved = _bytes_read(node) + sum(spec_bytes(spec) for spec in node.outputs)
    if "body" in node.attributes:
        inner = sum(node_flops(part) for part in node["body"].graph.nodes)
        if node.op.name == "gemm":
            inner += _product_flops(node["shape"], node.inputs, bool(node["windows"]))
        return Cost(inner, moved)
    return Cost(node_flops(node), moved)


def _control_cost(node: Node) -> Cost:
    """A turn of a loop as often as it runs, once where nobody knows; of branches the dearest."""
    costs = [graph_cost(body.graph) for body in bodies_of(node)]
    if node.op.name == "switch":
        return max(costs, key=lambda cost: (cost.flops, cost.bytes))
    turns = upper(node["length"]) if node.op.name == "scan" else 1
    return Cost(turns * sum(cost.flops for cost in costs), turns * sum(cost.bytes for cost in costs))


def _bytes_read(node: Node) -> int:
    """Each input once; of a table that elements are looked up in, no more than those."""
    looked_up: dict[int, int] = {}
    for gather in [node] if node.op.name == "gather" else _gathers(node):
        number = 0 if gather is node else _input_number(node, gather.inputs[0])
        if number is not None:
            looked_up[number] = looked_up.get(number, 0) + upper(product(gather.shape))
    sizes = [upper(product(child.shape)) for child in node.inputs]
    for number, count in looked_up.items():
        sizes[number] = min(sizes[number], count)
    return sum(size * child.dtype.itemsize for size, child in zip(sizes, node.inputs, strict=True))


def _gathers(node: Node) -> list[Node]:
    """The lookups in what a node computes."""
    body = node.attributes.get("body")
    return [] if body is None else [inner for inner in body.graph.nodes if inner.op.name == "gather"]


def _input_number(node: Node, value: Node) -> int | None:
    """Which input of a node a value of its body shows: a product has its two operands first, and is a parameter too."""
    value = maker_of(value)
    if value.op.name != "parameter":
        return None
    index = int(value["index"])
    if node.op.name != "gemm":
        return index
    return None if index == node["product"] else index + 2 - (index > node["product"])


def node_flops(node: Node) -> int:
    """Operations of one node: per output element, per input element of a reduction, 2 per multiply-add."""
    if node.op.kind == "source" or is_view(node):
        return 0
    if node.op.name == "paged_attention":  # all the keys that the table has room for
        q, _, v, pages = node.inputs[:4]
        keys = upper(pages.shape[1]) * upper(v.shape[2])
        return 2 * upper(product(q.shape[:-1])) * keys * upper(q.shape[-1] + v.shape[-1])
    if node.op.name in ("attention", "attention_backward"):  # two products, or five and what is computed again
        q, _, v = node.inputs[:3]
        products = 2 if node.op.name == "attention" else 7
        return products * upper(product(q.shape[:-1])) * upper(v.shape[-2]) * upper(q.shape[-1] + v.shape[-1])
    if node.op.kind == "contract":
        return _product_flops(node.shape, node.inputs, node.op.name == "conv")
    over = node.inputs[0] if node.op.kind == "reduce" else node
    return node.op.flops * upper(product(over.shape))


def _product_flops(shape: Shape, inputs: Sequence[Node], windows: bool) -> int:
    """2 per multiply-add; a convolution adds up its kernel's weights, a product the columns of its left operand."""
    terms = product(inputs[1].shape[1:]) if windows else inputs[0].shape[-1]
    return 2 * upper(product(shape)) * upper(terms)


def bytes_avoided(graph: Graph) -> int:
    """Bytes of values that exist only in registers: computed inside a group and not among its outputs."""
    total = 0
    for node in graph.nodes:
        if "body" not in node.attributes:
            continue
        body = node["body"]
        if node.op.name == "gemm":  # the product exists only tile by tile
            total += upper(product(node["shape"])) * node["dtype"].itemsize
        results = {output.serial for output in body.outputs}
        for inner in body.graph.nodes:
            if inner.op.kind in ("elementwise", "reduce", "index") and inner.serial not in results:
                total += spec_bytes(inner.spec)
    return total


def graph_cost(graph: Graph) -> Cost:
    """The sum over a graph; bytes count what passes through memory between its nodes."""
    costs = [node_cost(node) for node in graph.nodes]
    return Cost(sum(c.flops for c in costs), sum(c.bytes for c in costs))
