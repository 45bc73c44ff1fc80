"""Stencils of stencils: a value of which others only see shifted parts is computed by each of them.

A Laplacian that two neighbours read at two places each has to be in memory as a whole, and so do fluxes made of it:
four kernels that wait for memory. To compute a cheap value again costs less than to write and read it. The parts of its
operands are views, and equal ones are one load of the kernel.
"""

from __future__ import annotations

from morpho.base.dims import product
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ir.views import look_through
from morpho.ops.elementwise import COSTLY

LEAST_BYTES = 1 << 16  # of a value that is better not in memory: smaller ones stay in the cache
MOST_PARTS = 12  # that are read of it
FEW_PARTS = 4  # of one with a division or root, whose unit takes a new vector every 16 cycles only
MOST_OPERATIONS = 32  # to compute an element of it
MOST_AGAIN = 96  # operations that its readers compute again, for an element of it
DIVISION = 4  # flops, in the records, of those two
MOST_LOADS = 10  # of an element of it: the kernel has those of all parts


def recompute_stencils(graph: Graph) -> Graph:
    """slice(f(a, b)) becomes f(slice(a), slice(b)) where all that reads f(a, b) are a few slices, and elementwise
    operations, which compute it themselves."""
    outputs = set(graph.outputs)
    seen = {node.serial: len(graph.users[node.serial]) for node in graph.nodes
            if node not in outputs and _is_seen_in_parts(node, graph)}
    if not seen:
        return graph
    done: dict[int, Node] = {}
    again: set[int] = set()  # new serials of values that are computed again
    for node in graph.nodes:
        new = rebuild(node, [done[child.serial] for child in node.inputs])
        if node.op.name == "slice" and new.inputs[0].serial in again:
            new = _part(new.inputs[0], new["starts"], new["sizes"], {})
        if node.serial in seen and _is_cheap(new, seen[node.serial]):
            again.add(new.serial)
        done[node.serial] = new
    return Graph(tuple(done[node.serial] for node in graph.outputs))


def _is_seen_in_parts(node: Node, graph: Graph) -> bool:
    """Whether slices, and elementwise operations besides, but nothing else, read a large value of elementwise ones."""
    users = graph.users[node.serial]
    slices = [user for user in users if user.op.name == "slice" and all(step == 1 for step in user["steps"])]
    others = [user for user in users if user.op.kind != "elementwise" or user.shape != node.shape]
    count = product(node.shape)
    large = isinstance(count, int) and count * node.dtype.itemsize >= LEAST_BYTES
    return (large and node.op.kind == "elementwise" and len(slices) >= 2 and len(users) <= MOST_PARTS
            and all(user in slices for user in others))


def _is_cheap(node: Node, parts: int) -> bool:
    """Whether few operations on few elements of memory make an element of a value, of which others see some parts."""
    operations, loads = 0, set()
    stack, seen = [node], {node.serial}
    while stack:
        part = stack.pop()
        if part.op.kind == "elementwise":
            operations += part.op.flops
            if part.op.flops >= (DIVISION if parts > FEW_PARTS else COSTLY):
                return False
            new = [child for child in part.inputs if child.serial not in seen]
            seen |= {child.serial for child in new}
            stack += new
        elif _number(part) is None:
            if not _is_in_memory(part):
                return False
            loads.add(part.serial)
    again = operations * (parts - 1)
    return operations <= MOST_OPERATIONS and again <= MOST_AGAIN and len(loads) <= MOST_LOADS


def _is_in_memory(node: Node) -> bool:
    """Whether a value is part of what is given, or such parts put together, as in a `roll`."""
    root = _whole(node)
    return root.op.kind == "source" or (
        root.op.name == "concatenate" and all(_whole(part).op.kind == "source" for part in root.inputs))


def _whole(node: Node) -> Node:
    """Value that a node is a part of."""
    return look_through(node, lambda view: view.op.name == "slice")[0]


def _number(node: Node) -> Node | None:
    """The number that a value repeats."""
    root = look_through(node, lambda view: view.op.name in ("expand", "reshape"))[0]
    return root if product(root.shape) == 1 else None


def _part(node: Node, starts: tuple[int, ...], sizes: tuple[int, ...], known: dict[int, Node]) -> Node:
    """A part of a value, computed from the parts of what it is made of; the depth is that of a cheap one."""
    if node.serial not in known:
        if node.op.kind == "elementwise":
            inputs = [_part(child, starts, sizes, known) for child in node.inputs]
            made = build(node.op.name, *inputs, **node.attributes)
        elif (number := _number(node)) is not None:
            made = build("expand", build("reshape", number, shape=(1,) * len(sizes)), shape=sizes)
        elif node.op.name == "slice":
            places = zip(node["starts"], node["steps"], starts, strict=True)
            made = build("slice", node.inputs[0], starts=tuple(first + step * start for first, step, start in places),
                         sizes=sizes, steps=node["steps"])
        else:
            made = build("slice", node, starts=starts, sizes=sizes, steps=(1,) * len(sizes))
        known[node.serial] = made
    return known[node.serial]
