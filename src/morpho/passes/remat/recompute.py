"""Rematerialisation of one choice: values dropped at the peak of live bytes and recomputed before their next use.

Steps keep their order. Those after the peak that read a dropped value read a copy instead. A copy is made just before
its first reader, from values that were kept, from results and inputs, and from copies of what else is missing:
`remat_barrier` keeps it apart from the original, and from being made any sooner. Of a group with several results only
those that are missing are computed, from the others where these were kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from morpho.cost.estimate import Profile, node_cost
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild
from morpho.ir.views import look_through
from morpho.ops.order import remat_barrier
from morpho.ops.sources import pick
from morpho.passes.fusion.epilogue import GEMM
from morpho.passes.fusion.group import make_group
from morpho.passes.memory.liveness import FAULTY, Run, Steps, Updates, alive_bytes, gathers
from morpho.passes.memory.schedule import ordered
from morpho.passes.remat.bodies import Cut, cut_body, cut_cost, is_product, outer_inputs, outside, root_in

NOMINAL = Profile("nominal", 5e10, 1e10)  # what steps cost beside each other; no plan depends on a measurement


@dataclass
class Copy:
    """A step to be repeated: before which step, which of its values, and what for it reads."""

    when: int
    values: set[int] = field(default_factory=set)
    reads: list[int] = field(default_factory=list)
    cut: Cut | None = None


class Trial(NamedTuple):
    """Estimated effect of dropping some values while others are kept."""

    peak: int
    seconds: float
    dropped: Sequence[int]
    kept: Collection[int]


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
        self.lost = steps.lost_bytes(self.order)
        self.peak = max(alive, default=0) + self.lost
        self.top = alive.index(max(alive)) if alive else 0
        self.writer = [0] * len(steps.sizes)
        for step, values in enumerate(steps.writes):
            for value in values:
                self.writer[value] = step
        self.late = [[step for step in readers if step > self.top] for readers in steps.readers]
        self.repeats = [node.op.kind not in FAULTY and not gathers(node) for node in steps.nodes]
        self.droppable = [value for value, size in enumerate(steps.sizes) if size and self._may_drop(value)]
        self._cuts: dict[tuple[int, frozenset[int], frozenset[int]], tuple[Cut, list[int], float]] = {}

    def _may_drop(self, value: int) -> bool:
        """Alive at the peak for the sake of later steps alone."""
        return bool(self.late[value]) and self.writer[value] < self.top and value not in self.steps.forever \
            and self.top not in self.steps.readers[value] and self.repeats[self.writer[value]]

    # -- what has to be copied -----------------------------------------------------------------------------------------
    def available(self, value: int, dropped: Collection[int], kept: Collection[int]) -> bool:
        """Whether a value can be read after the peak without computing it again."""
        if value in kept or not self.steps.sizes[value] or self.writer[value] >= self.top:
            return True
        if value in dropped:
            return False
        return bool(self.late[value]) or value in self.steps.forever or not self.repeats[self.writer[value]]

    def copies(self, dropped: Collection[int], kept: Collection[int]) -> tuple[dict[int, Copy], float]:
        """The steps to repeat so that `dropped` can be read after the peak, and their seconds; `kept` are held for
        that."""
        found: dict[int, Copy] = {}
        queue: list[int] = []
        seconds = 0.0

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
            copy = found[step]
            copy.cut, copy.reads, took = self.part(step, copy.values, dropped, kept)
            seconds += took
            for value in copy.reads:
                if self.writer[value] != step and not self.available(value, dropped, kept):
                    want(value, copy.when)
        return found, seconds

    def part(self, step: int, values: set[int], dropped: Collection[int],
             kept: Collection[int]) -> tuple[Cut | None, list[int], float]:
        """How some values of a step are computed again: the part of its body, the values that reads, and seconds."""
        node, look = self.steps.nodes[step], self.steps.look
        if "body" not in node.attributes:
            return None, self.steps.reads[step], NOMINAL.seconds(node_cost(node))
        numbers = self.steps.writes[step]
        held = frozenset(value for value in numbers if value not in values and self.available(value, dropped, kept))
        key = step, frozenset(values), held
        if key not in self._cuts:
            results = {node["body"].outputs[i].serial: value for i, value in enumerate(numbers)}
            cut = cut_body(node, [i for i, value in enumerate(numbers) if value in values],
                           {serial for serial, value in results.items() if value in held})
            own = [results[root] for leaf in cut.leaves if (root := root_in(leaf, results)) is not None]
            outer = [look[child.serial] for child in outer_inputs(node, cut)]
            reads = list(dict.fromkeys([*own, *[value for value in outer if value is not None]]))
            self._cuts[key] = cut, reads, NOMINAL.seconds(cut_cost(node, cut))
        return self._cuts[key]

    def trial(self, dropped: Sequence[int], kept: Collection[int]) -> Trial:
        """Estimate the effect of dropping these values, without writing the graph."""
        steps = self.steps
        copies, seconds = self.copies(dropped, kept)
        sizes, new = list(steps.sizes), dict[int, int]()
        for copy in copies.values():
            for value in sorted(copy.values):
                new[value] = len(sizes)
                sizes.append(steps.sizes[value])
        due: dict[int, list[int]] = {}
        for step in sorted(copies):
            due.setdefault(copies[step].when, []).append(step)
        gone = set(dropped)
        runs: list[Run] = []
        for step in self.order:
            for earlier in due.get(step, ()):
                copy, node = copies[earlier], steps.nodes[earlier]
                product = copy.cut is None or any(is_product(node, leaf) for leaf in copy.cut.leaves)
                runs.append(Run([new.get(value, value) for value in copy.reads], [new[v] for v in sorted(copy.values)],
                                steps.room[earlier] if product else 0, node.op.name == "group" or not product))
            run = steps.run(step)
            if step > self.top and not gone.isdisjoint(run.reads):
                run = run._replace(reads=[new[value] if value in gone else value for value in run.reads])
            runs.append(run)
        return Trial(max(alive_bytes(runs, sizes, steps.forever)) + self.lost, seconds, dropped, kept)

    def attempt(self, trial: Trial) -> Attempt:
        """The graph without these values after the peak."""
        writing = _Writing(self, trial)
        graph = writing.graph()
        steps = Steps(graph, self.updates)
        order = range(len(steps.nodes))
        return Attempt(graph, steps.peak(order) + steps.lost_bytes(order), tuple(writing.made))

    def price(self, value: int, kept: Collection[int]) -> float:
        """Seconds per byte of dropping this value alone."""
        return self.copies([value], kept)[1] / self.steps.sizes[value]


class _Writing:
    """One new graph being written, step by step."""

    def __init__(self, source: Recomputation, trial: Trial) -> None:
        self.source, self.dropped = source, set(trial.dropped)
        self.copies, _ = source.copies(trial.dropped, trial.kept)
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
        """Replacement of a node for a step after the peak: views of copies, of new steps, or as it was. A copy
        reads what was kept `after` another step."""
        node, chain = look_through(node)
        value = self.source.steps.look[node.serial]
        if value is not None and value in self.copied and (after is not None or value in self.dropped) and late:
            base = self.copied[value]
        else:
            base = self.renewed(node)
            base = base if after is None else remat_barrier(base, after)
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
        values, cut = self.copies[step].values, self.copies[step].cut
        numbers = source.steps.writes[step]
        if cut is None:
            made = rebuild(node, [self.read(child, after) for child in node.inputs])
            wanted = list(numbers)
        else:
            made = self.part(node, cut, after)
            bodies = {output.serial for output in cut.outputs}
            wanted = [value for value, output in zip(numbers, node["body"].outputs, strict=True)
                      if output.serial in bodies]
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
            if is_product(node, leaf):
                product = number
                continue
            outer.append(self.outer(node, leaf, results, after))
        if product is None:
            return rebuild(group, outer)
        operands = [self.read(child, after) for child in node.inputs[:2]]
        attributes = dict(node.attributes) | {"body": group["body"], "axes": cut.axes, "product": product}
        return make(GEMM, [*operands, *outer], attributes, origin=node.origin)

    def outer(self, node: Node, leaf: Node, results: dict[int, Node], after: Node) -> Node:
        """Value outside of a cut body that a leaf stands for."""
        chain: list[Node] = []
        inner = leaf
        while inner.serial not in results and inner.op.name != "parameter":
            chain.append(inner)
            inner = inner.inputs[0]
        seen = remat_barrier(results[inner.serial], after) if inner.op.name != "parameter" or inner.serial in results \
            else self.read(outside(node, inner), after)
        for view in reversed(chain):
            seen = rebuild(view, [seen])
        return seen
