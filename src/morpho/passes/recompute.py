"""A graph with some of its values dropped at the step where most is alive, and computed again where they are read.

Steps keep their order. Those after the peak that read a dropped value read a copy instead. A copy is made just before
its first reader, from values that were kept, from results and inputs, and from copies of what else is missing: `again`
keeps it apart from the original, and from being made any sooner. Of a group with several results only those that are
missing are computed, from the others where these were kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from morpho.cost.estimate import Profile, node_cost
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild
from morpho.ops.order import again
from morpho.ops.sources import pick
from morpho.passes.epilogue import GEMM
from morpho.passes.group import make_group
from morpho.passes.liveness import FAULTY, Steps, Updates, gathers
from morpho.passes.schedule import ordered

NOMINAL = Profile("nominal", 5e10, 1e10)  # what steps cost beside each other; no plan depends on a measurement


@dataclass
class Copy:
    """A step to be repeated: before which step, and which of its values."""

    when: int
    values: set[int] = field(default_factory=set)


class Cut(NamedTuple):
    """Part of the body of a step: what it computes, from which parameters and kept results, over which axes."""

    outputs: tuple[Node, ...]
    leaves: tuple[Node, ...]
    axes: tuple[int, ...]


class Attempt(NamedTuple):
    """A graph, the bytes alive at its worst step, and the steps that are repeated."""

    graph: Graph
    peak: int
    copies: tuple[Node, ...]

    @property
    def seconds(self) -> float:
        return sum(NOMINAL.seconds(node_cost(node)) for node in self.copies)


class Recomputation:
    """The steps of a graph in their order, and what may be dropped at the one where most is alive."""

    def __init__(self, graph: Graph, updates: Updates = ()) -> None:
        self.graph, self.updates = graph, updates
        self.steps = steps = Steps(graph, updates)
        self.order = range(len(steps.nodes))
        alive = steps.alive(self.order)
        self.peak = max(alive, default=0) + steps.lost_bytes(self.order)
        self.top = alive.index(max(alive)) if alive else 0
        self.writer = [0] * len(steps.sizes)
        for step, values in enumerate(steps.writes):
            for value in values:
                self.writer[value] = step
        self.late = [[step for step in readers if step > self.top] for readers in steps.readers]
        self.droppable = [value for value, size in enumerate(steps.sizes) if size and self._may_drop(value)]

    def _may_drop(self, value: int) -> bool:
        """Alive at the peak for the sake of later steps alone."""
        return bool(self.late[value]) and self.writer[value] < self.top and value not in self.steps.forever \
            and self.top not in self.steps.readers[value] and self.repeats(self.writer[value])

    def repeats(self, step: int) -> bool:
        """Whether a step may be run twice: not what may fail or leaves native code."""
        node = self.steps.nodes[step]
        return node.op.kind not in FAULTY and not gathers(node)

    # -- what has to be copied -----------------------------------------------------------------------------------------
    def available(self, value: int, dropped: Collection[int], kept: Collection[int]) -> bool:
        """Whether a value can be read after the peak without computing it again."""
        if value in kept or not self.steps.sizes[value] or self.writer[value] >= self.top:
            return True
        if value in dropped:
            return False
        return bool(self.late[value]) or value in self.steps.forever or not self.repeats(self.writer[value])

    def copies(self, dropped: Collection[int], kept: Collection[int]) -> dict[int, Copy]:
        """The steps to repeat so that `dropped` can be read after the peak; `kept` are held for that."""
        found: dict[int, Copy] = {}
        queue: list[int] = []

        def want(value: int, when: int) -> None:
            step = self.writer[value]
            if step not in found:
                found[step] = Copy(when)
                heapq.heappush(queue, -step)
            found[step].when = min(found[step].when, when)
            found[step].values.add(value)

        for value in dropped:
            want(value, self.late[value][0])
        while queue:  # later steps first: all that is wanted of one is known when it is looked at
            step = -heapq.heappop(queue)
            for value in self.needed(step, found[step].values, dropped, kept):
                if not self.available(value, dropped, kept):
                    want(value, found[step].when)
        return found

    def needed(self, step: int, values: set[int], dropped: Collection[int], kept: Collection[int]) -> list[int]:
        """The values a copy of a step reads, other steps' only: its own kept ones are there."""
        node = self.steps.nodes[step]
        cut = self.cut(step, values, dropped, kept)
        inputs = node.inputs if cut is None else _outer_inputs(node, cut)
        found = [self.steps.look[child.serial] for child in inputs]
        return [value for value in found if value is not None]

    def cut(self, step: int, values: set[int], dropped: Collection[int], kept: Collection[int]) -> Cut | None:
        """The part of a step's body that computes some of its values; None where a step has no body."""
        node = self.steps.nodes[step]
        if "body" not in node.attributes:
            return None
        numbers = self.steps.writes[step]
        outputs = node["body"].outputs
        held = {outputs[i].serial for i, value in enumerate(numbers)
                if value not in values and self.available(value, dropped, kept)}
        wanted = tuple(outputs[i] for i, value in enumerate(numbers) if value in values)
        leaves, reduces = _leaves(wanted, held)
        if node["axes"] and not reduces and any(part.shape != node["space"] for part in wanted):
            leaves, reduces = _leaves(wanted, set())
        return Cut(wanted, tuple(leaves), node["axes"] if reduces else ())

    # -- the new graph -------------------------------------------------------------------------------------------------
    def attempt(self, dropped: Collection[int], kept: Collection[int] = ()) -> Attempt:
        """The graph without these values after the peak."""
        writing = _Writing(self, dropped, kept)
        graph = writing.graph()
        steps = Steps(graph, self.updates)
        order = range(len(steps.nodes))
        return Attempt(graph, steps.peak(order) + steps.lost_bytes(order), tuple(writing.made))

    def price(self, value: int, kept: Collection[int]) -> float:
        """Seconds per byte of dropping this value alone."""
        steps = self.copies([value], kept)
        seconds = sum(NOMINAL.seconds(node_cost(self.steps.nodes[step])) for step in steps)
        return seconds / self.steps.sizes[value]


class _Writing:
    """One new graph being written, step by step."""

    def __init__(self, source: Recomputation, dropped: Collection[int], kept: Collection[int]) -> None:
        self.source, self.dropped, self.kept = source, dropped, kept
        self.copies = source.copies(dropped, kept)
        self.done: dict[int, Node] = {}  # step -> its node after the peak
        self.copied: dict[int, Node] = {}  # value -> its copy
        self.made: list[Node] = []

    def graph(self) -> Graph:
        source, nodes = self.source, self.source.steps.nodes
        due: dict[int, list[int]] = {}
        for step in sorted(self.copies):
            due.setdefault(self.copies[step].when, []).append(step)
        sequence: list[Node] = []
        for step in source.order:
            for earlier in due.get(step, ()):
                self.copy(earlier, pick(self.done.get(step - 1, nodes[step - 1]), 0))
                sequence.append(self.made[-1])
            if step > source.top:
                self.done[step] = rebuild(nodes[step], [self.read(child) for child in nodes[step].inputs])
            sequence.append(self.done.get(step, nodes[step]))
        return ordered([self.read(node, late=False) for node in source.graph.outputs], sequence)

    def read(self, node: Node, after: Node | None = None, late: bool = True) -> Node:
        """What a step after the peak reads in place of a node: views of copies, of new steps, or as it was. A copy
        reads what was kept `after` another step."""
        chain: list[Node] = []
        while "view" in node.op.properties and node.op.name != "pick":
            chain.append(node)
            node = node.inputs[0]
        value = self.source.steps.look[node.serial]
        if value is not None and value in self.copied and (after is not None or value in self.dropped) and late:
            base = self.copied[value]
        else:
            base = self.renewed(node)
            base = base if after is None else again(base, after)
        for view in reversed(chain):
            base = rebuild(view, [base, *[self.renewed(child) for child in view.inputs[1:]]])
        return base

    def renewed(self, node: Node) -> Node:
        """A value of a step as it is now."""
        steps = self.source.steps
        root = node.inputs[0] if node.op.name == "pick" else node
        if root.serial not in steps.number or steps.number[root.serial] not in self.done:
            return node
        return pick(self.done[steps.number[root.serial]], node["index"] if root is not node else 0)

    def copy(self, step: int, after: Node) -> None:
        """Repeat a step, or the part of it that is missing."""
        source, node = self.source, self.source.steps.nodes[step]
        values = self.copies[step].values
        numbers = source.steps.writes[step]
        cut = source.cut(step, values, self.dropped, self.kept)
        if cut is None:
            made = rebuild(node, [self.read(child, after) for child in node.inputs])
            wanted = list(numbers)
        else:
            made = self.part(node, cut, after)
            wanted = [value for value in numbers if value in values]
        self.made.append(made)
        for index, value in enumerate(wanted):
            if value in values:
                self.copied[value] = pick(made, index)

    def part(self, node: Node, cut: Cut, after: Node) -> Node:
        """A group, or a product with what follows it, of the missing results alone."""
        group = make_group(cut.outputs, cut.leaves, node["space"], cut.axes)
        results = {output.serial: pick(node, i) for i, output in enumerate(node["body"].outputs)}
        outer: list[Node] = []
        product = None
        for number, leaf in enumerate(cut.leaves):
            if _is_product(node, leaf):
                product = number
                continue
            outer.append(self.outer(node, leaf, results, after))
        if product is None:
            return rebuild(group, outer)
        operands = [self.read(child, after) for child in node.inputs[:2]]
        attributes = dict(node.attributes) | {"body": group["body"], "axes": cut.axes, "product": product}
        return make(GEMM, [*operands, *outer], attributes, origin=node.origin)

    def outer(self, node: Node, leaf: Node, results: dict[int, Node], after: Node) -> Node:
        """What a leaf of a cut body stands for outside."""
        chain: list[Node] = []
        inner = leaf
        while inner.serial not in results and inner.op.name != "parameter":
            chain.append(inner)
            inner = inner.inputs[0]
        seen = again(results[inner.serial], after) if inner.op.name != "parameter" or inner.serial in results \
            else self.read(_outside(node, inner), after)
        for view in reversed(chain):
            seen = rebuild(view, [seen])
        return seen


def _leaves(wanted: Sequence[Node], held: Collection[int]) -> tuple[list[Node], bool]:
    """What some results of a body are computed from: parameters, and results in `held`, each in the form in which it is
    read; and whether there is a reduction between."""
    found: dict[int, Node] = {}
    seen: set[int] = set()
    stack = list(reversed(wanted))
    reduces = False
    while stack:
        node = stack.pop()
        if node.serial in seen:
            continue
        seen.add(node.serial)
        root = node
        while "view" in root.op.properties and root.serial not in held:
            root = root.inputs[0]
        if node.op.name == "parameter" or root.serial in held:
            found[node.serial] = node
            continue
        reduces = reduces or node.op.kind == "reduce"
        stack.extend(reversed(node.inputs))
    return list(found.values()), reduces


def _is_product(node: Node, leaf: Node) -> bool:
    return node.op is GEMM and leaf.op.name == "parameter" and leaf["index"] == node["product"]


def _outside(node: Node, leaf: Node) -> Node:
    """The input behind a parameter of a body."""
    index: int = leaf["index"]
    if node.op is GEMM:
        index += 1 if index > node["product"] else 2
    return node.inputs[index]


def _outer_inputs(node: Node, cut: Cut) -> list[Node]:
    """The inputs of a step that part of its body needs."""
    found: list[Node] = []
    for leaf in cut.leaves:
        if _is_product(node, leaf):
            found += node.inputs[:2]
        elif leaf.op.name == "parameter":
            found.append(_outside(node, leaf))
    return found
