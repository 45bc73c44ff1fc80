"""Elementwise work on values that were put together (`concat`, `pad`, `roll`), piece by piece, without putting them
together first.

`roll(x, 1) + x` reads x in two pieces that end at different places. The result is cut at all such places; each piece is
computed from parts of x and written where it lies in the result, so that nothing is copied. Elementwise operations have
the same bits wherever their elements lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ops.algebra import constant, expand

MOST_PIECES = 27  # three along each of three axes
MOST_NODES = 4000  # of all pieces together
FEW_ELEMENTS = 4096  # of a result, below which a launch costs as much as copies

Box = tuple[tuple[int, int], ...]  # start and size along every axis


def pieces(graph: Graph) -> Graph:
    """Every elementwise part of the graph that reads values put together, cut where they end."""
    if not any(node.op.name in ("concatenate", "pad") for node in graph.nodes):
        return graph
    return _Cutter(graph).graph()


class _Cutter:
    """The graph written anew, with roots of elementwise regions as pieces put together."""

    def __init__(self, old: Graph) -> None:
        self.old, self.kept = old, {node.serial for node in old.outputs}
        self.free = self._free()
        self.parts = self._parts()
        self.done: dict[int, Node] = {}

    def graph(self) -> Graph:
        taken: set[int] = set()  # nodes that are part of a region that was cut
        found: dict[int, _Region] = {}
        for node in reversed(self.old.nodes):
            if node.serial not in taken | self.parts and _is_elementwise(node):
                region = _Region(self, node)
                if region.pays():
                    found[node.serial] = region
                    taken |= region.inside
        if not found:
            return self.old
        for node in self.old.nodes:
            inputs = [self.done[child.serial] for child in node.inputs]
            self.done[node.serial] = found[node.serial].written() if node.serial in found else rebuild(node, inputs)
        return Graph(tuple(self.done[node.serial] for node in self.old.outputs))

    def _free(self) -> set[int]:
        """Values that were put together, and slices of those, that nothing but elementwise work reads."""
        found: set[int] = set()
        for node in reversed(self.old.nodes):
            users = self.old.users[node.serial]
            if (users and node.serial not in self.kept and _is_put_together(node)
                    and all(user.serial in found or _is_elementwise(user) for user in users)):
                found.add(node.serial)
        return found


    def _parts(self) -> set[int]:
        """Elementwise work that is part of one value put together, which one operation reads: it is computed with that
        operation, piece by piece."""
        found: set[int] = set()
        users = self.old.users
        for node in reversed(self.old.nodes):
            readers = users[node.serial]
            if len(readers) != 1 or node.serial in self.kept or not _is_elementwise(node):
                continue
            user = readers[0]
            alone = user.serial in self.free and user.op.name != "slice" and len(users[user.serial]) == 1
            if (user.serial in found and user.shape == node.shape) or (alone and (
                    _is_elementwise(users[user.serial][0]) or users[user.serial][0].serial in found)):
                found.add(node.serial)
        return found


def _is_static(node: Node) -> bool:
    return all(isinstance(size, int) for size in node.shape)


def _is_elementwise(node: Node) -> bool:
    return node.op.kind == "elementwise" and _is_static(node) and bool(node.shape) and not node.dtype.is_complex


def _is_put_together(node: Node) -> bool:
    if not _is_static(node) or node.dtype.is_complex:
        return False
    return node.op.name in ("concatenate", "pad") or (node.op.name == "slice" and all(s == 1 for s in node["steps"]))


class _Region:
    """An elementwise node and all such nodes below that only it needs: one kernel, as it were."""

    def __init__(self, cutter: _Cutter, root: Node) -> None:
        self.cutter, self.root = cutter, root
        self.inside = {root.serial}
        self.nodes = [root]
        self._grow()
        cuts = [{0, int(size)} for size in root.shape]
        for leaf in self._leaves():
            self._cut(leaf, [0] * len(root.shape), cuts)
        self.lines = [sorted(places) for places in cuts]
        self.made: dict[tuple[int, Box], Node] = {}

    def _grow(self) -> None:
        users = self.cutter.old.users
        waiting = list(self.root.inputs)
        while waiting:
            node = waiting.pop()
            if (node.serial not in self.inside and _is_elementwise(node) and node.shape == self.root.shape
                    and node.serial not in self.cutter.kept
                    and all(user.serial in self.inside for user in users[node.serial])):
                self.inside.add(node.serial)
                self.nodes.append(node)
                waiting += node.inputs

    def _leaves(self) -> list[Node]:
        return [child for node in self.nodes for child in node.inputs if child.serial not in self.inside]

    def _cut(self, node: Node, offset: Sequence[int], cuts: list[set[int]]) -> None:
        """The places at which a leaf changes what it is, where element 0 of it is at `offset` of the root."""
        if node.serial in self.cutter.parts:
            for child in node.inputs:
                self._cut(child, offset, cuts)
            return
        if node.serial not in self.cutter.free:
            return
        if node.op.name == "slice":
            self._cut(node.inputs[0], [o - s for o, s in zip(offset, node["starts"], strict=True)], cuts)
        elif node.op.name == "pad":
            inner = [o + b for o, b in zip(offset, node["before"], strict=True)]
            for axis, (start, size) in enumerate(zip(inner, node.inputs[0].shape, strict=True)):
                self._add(cuts, axis, start)
                self._add(cuts, axis, start + size)
            self._cut(node.inputs[0], inner, cuts)
        else:
            axis, start = node["axis"], list(offset)
            for part in node.inputs:
                self._add(cuts, axis, start[axis])
                self._cut(part, start, cuts)
                start[axis] += part.shape[axis]

    def _add(self, cuts: list[set[int]], axis: int, place: int) -> None:
        if 0 < place < self.root.shape[axis]:
            cuts[axis].add(place)

    def pays(self) -> bool:
        """Whether there is something to cut, in few pieces; a reduction is one kernel with what it reads as it is."""
        count = prod(len(line) - 1 for line in self.lines)
        if not 1 < count <= MOST_PIECES or count * len(self.nodes) > MOST_NODES:
            return False
        if any(user.op.kind == "reduce" for user in self.cutter.old.users[self.root.serial]):
            return False
        return prod(self.root.shape) >= FEW_ELEMENTS

    # -- writing ----------------------------------------------------------------------------------------------------
    def written(self) -> Node:
        """The pieces along each axis put together, the last axis first."""
        def along(axis: int, box: Box) -> Node:
            if axis == len(self.lines):
                return self.piece(self.root, box)
            parts = [along(axis + 1, (*box, (low, high - low))) for low, high in pairwise(self.lines[axis])]
            return parts[0] if len(parts) == 1 else build("concatenate", *parts, axis=axis)

        return along(0, ())

    def piece(self, node: Node, box: Box) -> Node:
        """A part of a value."""
        key = (node.serial, box)
        if key not in self.made:
            self.made[key] = self._piece(node, box)
        return self.made[key]

    def _piece(self, node: Node, box: Box) -> Node:
        sizes = tuple(size for _, size in box)
        if node.serial in self.inside or node.serial in self.cutter.parts:
            return rebuild(node, [self.piece(child, box) for child in node.inputs])
        if node.serial in self.cutter.free:
            return self._of_parts(node, box, sizes)
        if node.op.name == "expand" and len(node.inputs[0].shape) == len(node.shape):
            inner = node.inputs[0]
            narrow = tuple((0, 1) if size == 1 else each for size, each in zip(inner.shape, box, strict=True))
            return expand(self.piece(inner, narrow), sizes)
        made = self.cutter.done[node.serial]
        if sizes == made.shape:
            return made
        return build("slice", made, starts=tuple(start for start, _ in box), sizes=sizes, steps=(1,) * len(box))

    def _of_parts(self, node: Node, box: Box, sizes: tuple[int, ...]) -> Node:
        if node.op.name == "slice":
            moved = tuple((low + start, size) for (low, size), start in zip(box, node["starts"], strict=True))
            return self.piece(node.inputs[0], moved)
        if node.op.name == "pad":
            inner = node.inputs[0]
            moved = tuple((low - before, size) for (low, size), before in zip(box, node["before"], strict=True))
            if all(low >= 0 and low + size <= whole for (low, size), whole in zip(moved, inner.shape, strict=True)):
                return self.piece(inner, moved)
            return expand(constant(node["value"], node.dtype), sizes)
        axis, start = node["axis"], 0
        for part in node.inputs:
            low, size = box[axis]
            if start <= low and low + size <= start + part.shape[axis]:
                return self.piece(part, (*box[:axis], (low - start, size), *box[axis + 1:]))
            start += part.shape[axis]
        raise AssertionError("a piece that lies in two parts")
