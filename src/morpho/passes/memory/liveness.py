"""Liveness of a fused graph: uses, dependences, and bytes alive at every step.

Each node that computes is one step; views belong to the value they look at, and results of the graph to the caller. A
step may write over a value of equal size that it is the last to read, and needs room for the right operand of a product
in panels: close to what the program will do, and known long before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from morpho.base.dims import Size
from morpho.cost.estimate import spec_bytes
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through, maker_of, root_of
from morpho.ops.control.records import bodies_of
from morpho.passes.fusion.epilogue import PRODUCTS
from morpho.passes.memory.arena import aligned
from morpho.passes.remat.bodies import is_product, outside

Updates = Sequence[tuple[int, int]]  # (output, input) pairs: an output that may take the memory of an input
FAULTY = ("index", "host", "collective")


class Run(NamedTuple):
    """One step as memory sees it: values read and written, bytes needed besides, whether it may write in place."""

    reads: Sequence[int]
    writes: Sequence[int]
    room: int
    in_place: bool


def alive_bytes(runs: Sequence[Run], sizes: Sequence[int], forever: Collection[int]) -> list[int]:
    """The bytes alive at each of some steps in a row; values in `forever` stay to the end."""
    left = [0] * len(sizes)
    for value in (*forever, *[value for run in runs for value in run.reads]):
        left[value] += 1
    live, found = 0, []
    for run in runs:
        for value in run.reads:
            left[value] -= 1
        dying = [sizes[value] for value in run.reads if not left[value]]
        freed, needed = sum(dying), 0
        for value in run.writes:
            size = sizes[value]
            if run.in_place and size in dying:
                dying.remove(size)
                freed -= size
            else:
                needed += size
        found.append(live + needed + run.room)
        live += needed - freed - sum(sizes[value] for value in run.writes if not left[value])
    return found


class Steps:
    """The steps of a graph by number, in the order of its nodes, and its values by number."""

    def __init__(self, graph: Graph, updates: Updates = ()) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.number: dict[int, int] = {}  # serial of a node -> its step
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.before: list[set[int]] = []  # steps that must come first
        self.room: list[int] = []  # bytes needed besides
        self.in_place: list[bool] = []
        self.sizes: list[int] = []  # bytes of each value; 0 for one that the caller keeps
        self.readers: list[list[int]] = []
        self.look: dict[int, int | None] = {}  # serial of a node -> its value; None where it is a leaf's
        self.waits: dict[int, frozenset[int]] = {}  # serial of a view -> steps that must come before it is read
        self.inputs: dict[int, list[int]] = {}  # index of a parameter -> the steps that read it
        self.leaves: dict[int, int] = {}  # serial of what looks at a parameter -> its index
        for node in graph.nodes:
            if node.op.kind == "source":
                self._leaf(node)
            elif is_view(node):
                self._view(node)
            else:
                self._step(node)
        self.after: list[list[int]] = [[] for _ in self.nodes]
        for step, before in enumerate(self.before):
            for other in before:
                self.after[other].append(step)
        self.forever = self._keep_results()
        self.updates = self._sinks(updates)

    # -- building ----------------------------------------------------------------------------------------------------
    def _leaf(self, node: Node) -> None:
        self.look[node.serial] = None
        if node.op.name == "parameter":
            self.leaves[node.serial] = node["index"]

    def _view(self, node: Node) -> None:
        seen = node.inputs[0]
        if node.op.name == "pick":
            self.look[node.serial] = self.writes[self.number[seen.serial]][node["index"]]
            return
        self.look[node.serial] = self.look[seen.serial]
        if seen.serial in self.leaves:
            self.leaves[node.serial] = self.leaves[seen.serial]
        waits = self.waits.get(seen.serial, frozenset())
        if node.op.name == "remat_barrier":
            waits |= {step for child in node.inputs[1:] for step in self.origin(child)}
        if waits:
            self.waits[node.serial] = waits

    def origin(self, node: Node) -> list[int]:
        """The step that a value comes from, if any."""
        node = maker_of(node)
        return [self.number[node.serial]] if node.serial in self.number else []

    def _step(self, node: Node) -> None:
        step = len(self.nodes)
        self.nodes.append(node)
        self.number[node.serial] = step
        before: set[int] = set()
        read: dict[int, None] = {}
        for child in node.inputs:
            before.update(self.origin(child))
            before |= self.waits.get(child.serial, frozenset())
            value = self.look[child.serial]
            if value is not None:
                read[value] = None
            elif child.serial in self.leaves:
                self.inputs.setdefault(self.leaves[child.serial], []).append(step)
        self.reads.append(list(read))
        for value in read:
            self.readers[value].append(step)
        self.before.append(before)
        made = [len(self.sizes) + i for i in range(len(node.outputs))]
        self.writes.append(made)
        self.sizes += [aligned(spec_bytes(spec)) for spec in node.outputs]
        self.readers += [[] for _ in made]
        self.look[node.serial] = made[0]
        self.room.append(room_of(node))
        self.in_place.append(node.op.name == "group" and not gathers(node))

    def _keep_results(self) -> set[int]:
        """Results are the caller's memory; a value that a result looks at in another way is copied at the end."""
        forever: set[int] = set()
        taken: set[int] = set()
        for node in self.graph.outputs:
            value = self.look[node.serial]
            if value is None:
                continue
            if _is_whole(node) and value not in taken and value not in forever:
                self.sizes[value] = 0
                taken.add(value)
            elif value not in taken:
                forever.add(value)
        return forever

    def _sinks(self, updates: Updates) -> list[tuple[int, int]]:
        """(step, input) of updates that nothing reads: what else reads the input had better come before."""
        found = []
        for output, index in updates:
            step = self.origin(self.graph.outputs[output])
            if step and not self.after[step[0]]:
                found.append((step[0], index))
        return found

    # -- asking ------------------------------------------------------------------------------------------------------
    def faulty(self) -> list[int]:
        """Steps that may find an index wrong, or leave native code; not those that look at the same indices again."""
        found: list[int] = []
        known: set[tuple[int, Size]] = set()
        for step, node in enumerate(self.nodes):
            indices = checked_indices(node)
            if indices is None or not indices <= known:
                found.append(step)
            known |= indices or set()
        return found

    def lost_bytes(self, order: Sequence[int]) -> int:
        """Bytes of results that cannot take the memory of the inputs they update: something is read, or may fail,
        after they were written."""
        place = {step: position for position, step in enumerate(order)}
        last_fault = max((place[step] for step in self.faulty()), default=-1) if self.updates else -1
        lost = 0
        for step, index in self.updates:
            others = [place[reader] for reader in self.inputs.get(index, ()) if reader != step]
            if max([*others, last_fault]) > place[step]:
                lost += max(spec_bytes(spec) for spec in self.nodes[step].outputs)
        return lost

    def alive(self, order: Sequence[int]) -> list[int]:
        """The bytes alive at each step of an order."""
        return alive_bytes([self.run(step) for step in order], self.sizes, self.forever)

    def run(self, step: int) -> Run:
        return Run(self.reads[step], self.writes[step], self.room[step], self.in_place[step])

    def peak(self, order: Sequence[int]) -> int:
        return max(self.alive(order), default=0)


def room_of(node: Node) -> int:
    """Bytes a product needs for its right operand in panels."""
    product = node.op.name == "gemm" or node.op.name in PRODUCTS
    return aligned(spec_bytes(node.inputs[1].spec)) if product else 0


LOOPS = ("scan", "while_loop")


def checked_indices(node: Node) -> set[tuple[int, Size]] | None:
    """Indices that a node checks, by the serial of the value they are views of, and the size they must be less
    than; None where it may fail in another way, as a loop may be interrupted."""
    if node.op.kind in ("host", "collective") or node.op.name in LOOPS or (node.op.kind == "control" and any(
            checked_indices(part) != set() for body in bodies_of(node) for part in body.graph.nodes)):
        return None
    found: set[tuple[int, Size]] = set()
    for part in node["body"].graph.nodes if "body" in node.attributes else (node,):
        if part.op.kind != "index":
            continue
        index = root_of(part.inputs[1])
        if part is not node:
            if index.op.name != "parameter" or is_product(node, index):
                return None
            index = root_of(outside(node, index))
        found.add((index.serial, part.inputs[0].shape[part["axis"]]))
    return found


def gathers(node: Node) -> bool:
    return "body" in node.attributes and any(part.op.kind == "index" for part in node["body"].graph.nodes)


def _is_whole(node: Node) -> bool:
    """Whether a result is a value of a step, perhaps in another shape, and not a part or a transposed view of one."""
    return all(view.op.name in ("reshape", "remat_barrier") for view in look_through(node)[1])
