"""Prologue fusion: a group that only the left operand of one product reads is marked, to be computed as it is packed.

Whether it does is decided where the product is divided into tiles of rows (`backends/kernels/gemm/prologue.py`): the
group then runs
on the rows of a tile just before they are packed, and its result is never in memory as a whole.
"""

from __future__ import annotations

from morpho.base.dims import product
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild


def prologue(graph: Graph) -> Graph:
    """Mark groups that can be computed by the product that reads them."""
    marked = {node.serial for node in graph.nodes if node.op.name == "group" and product_after(node, graph) is not None}
    if not marked:
        return graph
    done: dict[int, Node] = {}
    for node in graph.nodes:
        made = rebuild(node, [done[child.serial] for child in node.inputs])
        if node.serial in marked:
            made = make(made.op, made.inputs, dict(made.attributes) | {"waits": True}, origin=node.origin)
        done[node.serial] = made
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def product_after(group: Node, graph: Graph) -> Node | None:
    """The product of floats whose left operand a group is, row by row, when nothing else reads it."""
    if len(group.outputs) != 1 or not group.dtype.is_float or not group["space"]:
        return None
    space, axes = group["space"], group["axes"]
    if group.shape != space or axes not in ((), (len(space) - 1,)):
        return None
    if any(part.op.kind == "index" for part in group["body"].graph.nodes):  # may fault, which is told before it is used
        return None
    node = group
    while True:
        users = graph.users[node.serial]
        if len(users) != 1 or node in graph.outputs:
            return None
        user = users[0]
        if user.op.name == "matmul" or (user.op.name == "gemm" and user["by"] == "matmul"):
            break
        if user.op.name != "reshape":
            return None
        node = user
    left, others = user.inputs[0], user.inputs[1:]
    if left is not node or node in others:
        return None
    same_rows = left.shape[-1] == space[-1] and product(left.shape[:-1]) == product(space[:-1])
    return user if same_rows else None
