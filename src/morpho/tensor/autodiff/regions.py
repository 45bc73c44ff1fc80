"""Checkpointed regions: which nodes each holds, and their rematerialised copies in the gradient.

Gradients are taken of the program without its marks, in the order they always are, so that no bit depends on them. Only
the values that the gradient of a node in a region reads are those of a copy of the region, made from what the region
was made from, once the gradient has come to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ops.collective import computed_again
from morpho.ops.order import remat_barrier, unmarked


@dataclass
class CheckpointRegion:
    """One marked part: the nodes inside it, those it is made from, and the region around it."""

    inside: set[int]
    edge: set[int]
    around: CheckpointRegion | None = None
    after: Node | None = None  # the gradient that came first: nothing is computed again before
    copies: dict[int, Node] = field(default_factory=dict)

    def copy(self, node: Node) -> Node:
        """The node as it is computed again here; one from outside as the region around has it."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current.serial in self.copies:
                stack.pop()
                continue
            if current.serial not in self.inside:
                outer = current if self.around is None else self.around.copy(current)
                assert self.after is not None
                self.copies[current.serial] = remat_barrier(outer, self.after) if current.serial in self.edge else outer
                continue
            waiting = [child for child in current.inputs if child.serial not in self.copies]
            if waiting:
                stack += waiting
                continue
            self.copies[current.serial] = computed_again(current, [self.copies[each.serial] for each in current.inputs])
        return self.copies[node.serial]


class Regions:
    """The regions of a graph; `graph` is the program without marks, `became` what its nodes are there, and `was` the
    way back."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.became = unmarked(graph)
        self.was: dict[int, list[Node]] = {}  # serial of a node of the program without marks -> what it was before
        for node in graph.nodes:
            self.was.setdefault(self.became[node.serial].serial, []).append(node)
        self.home: dict[int, CheckpointRegion] = {}  # serial of a node -> the innermost region it is in
        self.marks: dict[int, CheckpointRegion] = {}
        for node in graph.nodes:  # inner marks come before those around them
            if node.op.name == "checkpoint":
                self.add(node)

    def add(self, marked: Node) -> None:
        count = marked["results"]
        edge = {node.serial for node in marked.inputs[count:]}
        region = CheckpointRegion(set(), {self.became[serial].serial for serial in edge})
        seen: set[int] = set()
        stack = list(marked.inputs[:count])
        while stack:
            node = stack.pop()
            if node.serial in seen or node.serial in edge:
                continue
            seen.add(node.serial)
            stack.extend(node.inputs)
            inner = self.marks.get(node.serial)
            if inner is not None and inner.around is None:
                inner.around = region
            plain = self.became[node.serial]
            if plain.serial not in region.edge:
                region.inside.add(plain.serial)
                self.home.setdefault(plain.serial, region)
        self.marks[marked.serial] = region

    def reached(self, node: Node, gradient: Node) -> Node:
        """The node whose values the gradient reads, once a gradient has come to it."""
        region = self.home.get(node.serial)
        if region is None:
            return node
        each: CheckpointRegion | None = region
        while each is not None and each.after is None:
            each.after, each = gradient, each.around
        return region.copy(node)
