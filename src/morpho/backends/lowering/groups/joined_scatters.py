"""Which scatters become one loop, and which groups it computes itself.

A scatter along a line (its target has no other axis) walks its indices in order. Where a group computes its indices or
values and nothing else reads them, the group is computed in the same walk and its results are never in memory; other
scatters that share the group or the indices join, as long as all that they read is there by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from morpho.base.dims import Shape, product
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.views import is_view, look_through
from morpho.passes.fusion.candidates import MOST_INPUTS, inlines

MOST_OPERATIONS = 24  # per element of groups that one thread computes: beyond that all threads do it faster


@dataclass(frozen=True)
class Cluster:
    """Scatters of one loop over `space`, in order, and the groups it computes."""

    scatters: tuple[Node, ...]
    groups: tuple[Node, ...]
    space: Shape


@dataclass(frozen=True)
class ClusterBody:
    """Body of the loop, over parameters that stand for `inputs`: the indices and values of every scatter."""

    inputs: tuple[Node, ...]
    indices: tuple[Node, ...]
    values: tuple[Node, ...]


def find_clusters(graph: Graph) -> list[Cluster]:
    """The scatters of a graph that have a loop of their own, with what it computes."""
    scatters = [node for node in graph.nodes if node.op.name == "scatter" and is_along_line(node)]
    if not scatters:
        return []
    position = {node.serial: number for number, node in enumerate(graph.nodes)}
    taken: set[int] = set()
    found = []
    for first in scatters:
        if first.serial in taken:
            continue
        members = [first, *(other for other in scatters if other.serial not in taken and other is not first
                            and shares(first, other) and _is_ready(other, position, position[first.serial]))]
        taken |= {node.serial for node in members}
        found.append(_cluster(graph, members))
    return found


def is_along_line(node: Node) -> bool:
    """Whether a scatter has a single index for each value, and values that are added as they are."""
    index, axis = node.inputs[1], node["axis"]
    line = product(node.shape) == node.shape[axis] and product(index.shape) == index.shape[axis]
    return line and not node.dtype.is_complex and node.dtype.compute is node.dtype and product(index.shape) != 0


def shares(one: Node, other: Node) -> bool:
    """Whether two scatters read the same indices, or a result of the same group, and have equally many of them."""
    if product(one.inputs[1].shape) != product(other.inputs[1].shape):
        return False
    mine, theirs = ({source(child).serial for child in node.inputs[1:]} for node in (one, other))
    groups = {source(child).serial for child in one.inputs[1:] if source(child).op.name == "group"}
    return source(one.inputs[1]) is source(other.inputs[1]) or bool(mine & theirs & groups)


def source(node: Node) -> Node:
    """Value below changes of its shape and picks of one result of several."""
    return look_through(node, lambda view: view.op.name in ("reshape", "pick"))[0]


def _is_ready(node: Node, position: dict[int, int], when: int) -> bool:
    """Whether all that a scatter reads has been computed before a place in the order of the graph."""
    roots = [look_through(child, is_view)[0] for child in node.inputs]
    return all(root.op.kind == "source" or position[root.serial] < when for root in roots)


def _cluster(graph: Graph, members: list[Node]) -> Cluster:
    """The members, with those groups that nobody else reads."""
    groups: dict[int, Node] = {}
    for child in (child for node in members for child in node.inputs[1:]):
        group = source(child)
        if group.op.name == "group" and group.serial not in groups and _joins(graph, group, members):
            groups[group.serial] = group
    chosen = [group for group in groups.values() if group["space"] == next(iter(groups.values()))["space"]]
    inputs = {child.serial for group in chosen for child in group.inputs}
    operations = sum(part.op.flops for group in chosen for part in group["body"].graph.nodes if part.inputs)
    if operations > MOST_OPERATIONS or len(inputs) + 3 * len(members) > MOST_INPUTS:
        chosen = []
    return Cluster(tuple(members), tuple(chosen), chosen[0]["space"] if chosen else members[0].inputs[1].shape)


def _joins(graph: Graph, group: Node, members: list[Node]) -> bool:
    """Whether a group is a map as long as the scatters, read by them alone; one that reads what a scatter begins with
    would keep it from writing there."""
    if group["axes"] or product(group["space"]) != product(members[0].inputs[1].shape):
        return False
    if any(part.op.kind == "reduce" for part in group["body"].graph.nodes) or any(
            spec.shape != group["space"] for spec in group.outputs):
        return False
    bases = {look_through(node.inputs[0], is_view)[0] for node in members}
    if any(look_through(child, is_view)[0] in bases for child in group.inputs):
        return False
    wanted = {node.serial for node in members}
    return all(user.serial in wanted and position > 0 for user, position in _readers(graph, group))


def _readers(graph: Graph, node: Node) -> Iterable[tuple[Node, int]]:
    """Readers of a value, and as which input; a result of the graph has no known reader."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current in graph.outputs:
            yield current, 0
        for user in graph.users[current.serial]:
            if user.op.name in ("reshape", "pick"):
                stack.append(user)
            else:
                yield from ((user, position) for position, child in enumerate(user.inputs) if child is current)


def body_of(cluster: Cluster) -> ClusterBody:
    """The groups of a cluster put together, with its other operands in their shape."""
    inputs: list[Node] = []
    known: dict[int, Node] = {}

    def parameter(node: Node) -> Node:
        if node.serial not in known:
            known[node.serial] = build("parameter", index=len(inputs), shape=node.shape, dtype=node.dtype)
            inputs.append(node)
        return known[node.serial]

    results = {group.serial: Body(group["body"].outputs).put([parameter(child) for child in group.inputs])
               for group in cluster.groups}

    def operand(node: Node) -> Node:
        group, chain = look_through(node, lambda view: view.op.name in ("reshape", "pick"))
        if group.serial in results:
            picked = [view["index"] for view in chain if view.op.name == "pick"]
            return results[group.serial][picked[0] if picked else 0]
        seen = node if node.shape == cluster.space else build("reshape", node, shape=cluster.space)
        return seen if inlines(seen) else parameter(seen)

    indices, values = (tuple(operand(node.inputs[position]) for node in cluster.scatters) for position in (1, 2))
    return ClusterBody(tuple(inputs), indices, values)
