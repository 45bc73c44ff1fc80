"""`x[i]` inside a loop, where i is the loop's number and x is from outside: a slice that moves with the loop.

An index is a gather, with a kernel that reads it, checks it and copies. Where the index is the number of the turn times
a constant and another constant, and lies inside its axis at every turn, what is gathered is what `scan` hands to its
turns anyway: a view of x whose offset moves (`Cursor`), which nothing copies. And whether such an index counts from the
end is known for all turns, so that nothing is chosen at each.
"""

from __future__ import annotations

from typing import NamedTuple

from morpho.base.dims import product
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, rebuild, toposort
from morpho.ir.op import REGISTRY
from morpho.ops.algebra import permute, reshape

SEEN_THROUGH = ("reshape", "expand", "cast")


class Affine(NamedTuple):
    """The turn's number times `factor`, and a constant."""

    factor: int
    constant: int


class Moved(NamedTuple):
    """A gather that reads one slice of a source along an axis in every iteration; `form` says which."""

    source: Node
    axis: int
    form: Affine


def move_slices(graph: Graph) -> Graph:
    """Every scan that gathers by its turn's number, with slices instead."""
    if not any(node.op.name == "scan" and node["counts"] for node in graph.nodes):
        return graph
    done: dict[int, Node] = {}
    for node in graph.nodes:
        made = rebuild(node, [done[child.serial] for child in node.inputs])
        done[node.serial] = Turns(made).written() if made.op.name == "scan" and made["counts"] else made
    return Graph(tuple(done[node.serial] for node in graph.outputs))


class Turns:
    """One scan whose body knows the turn's number."""

    def __init__(self, node: Node) -> None:
        self.node, self.turns = node, node["length"]
        self.changing = node["carries"] + node["xs"]  # parameters from here on are constants, then the number
        self.counter = len(node.inputs)
        self.known: dict[int, Affine | None] = {}

    def written(self) -> Node:
        """The scan with more xs and fewer gathers; itself where nothing is to be done."""
        if not isinstance(self.turns, int) or self.turns < 1:
            return self.node
        nodes = self.node["turn"].graph.nodes
        found = {node.serial: moved for node in nodes
                 if node.op.name == "gather" and (moved := self._moved(node)) is not None}
        decided = {node.serial: node.inputs[1 if truth else 2] for node in nodes
                   if node.op.name == "where" and (truth := self._truth(node.inputs[0])) is not None}
        return self._replaced(found, decided) if found or decided else self.node

    def _moved(self, node: Node) -> Moved | None:
        """Slice that a gather reads, if it moves by the same step in every iteration."""
        source, index = node.inputs
        axis = node["axis"]
        size, form = source.shape[axis], self._affine(index)
        if index.shape[axis] != 1 or not isinstance(size, int) or form is None or form.factor == 0:
            return None
        ends = form.constant, form.constant + form.factor * (self.turns - 1)
        inside = all(0 <= end < size for end in ends)
        return Moved(source, axis, form) if inside and self._is_constant(source) else None

    def picked(self, node: Node) -> Affine | None:
        """Which element of a carried line of elements a gather reads: its place by the turn's number, inside the line
        at every turn; None for any other gather."""
        source, index = node.inputs
        size, form = source.shape[node["axis"]], self._affine(index)
        if source.op.name != "parameter" or source["index"] >= self.node["carries"] or product(index.shape) != 1:
            return None
        if form is None or not isinstance(size, int) or product(source.shape) != size:
            return None
        ends = form.constant, form.constant + form.factor * (self.turns - 1)
        return form if all(0 <= end < size for end in ends) else None

    def _is_constant(self, node: Node) -> bool:
        """Whether a value is a view of what the loop is given and does not change."""
        return all("view" in below.op.properties or (below.op.name == "parameter"
                                                      and self.changing <= below["index"] < self.counter)
                   for below in toposort([node]))

    def _affine(self, node: Node) -> Affine | None:
        """An index as the turn's number and a constant."""
        if node.serial not in self.known:
            self.known[node.serial] = self._found(node)
        return self.known[node.serial]

    def _found(self, node: Node) -> Affine | None:
        name = node.op.name
        if name == "parameter":
            return Affine(1, 0) if node["index"] == self.counter else None
        if name == "constant":
            return Affine(0, int(node["value"])) if node.dtype.is_integer else None
        if name in SEEN_THROUGH:
            return self._affine(node.inputs[0]) if node.dtype.is_integer and node.dtype.itemsize == 8 else None
        if name == "where":
            truth = self._truth(node.inputs[0])
            return None if truth is None else self._affine(node.inputs[1 if truth else 2])
        return self._of_two(name, [self._affine(child) for child in node.inputs]) \
            if name in ("add", "subtract", "multiply") else None

    @staticmethod
    def _of_two(name: str, forms: list[Affine | None]) -> Affine | None:
        one, other = forms
        if one is None or other is None:
            return None
        if name == "multiply":
            moving, fixed = (one, other) if other.factor == 0 else (other, one)
            return None if fixed.factor else Affine(moving.factor * fixed.constant, moving.constant * fixed.constant)
        sign = 1 if name == "add" else -1
        return Affine(one.factor + sign * other.factor, one.constant + sign * other.constant)

    def _truth(self, node: Node) -> bool | None:
        """Whether a condition holds at every turn, or at none; None where it is not known to be one of the two."""
        name = node.op.name
        if name in ("reshape", "expand"):
            return self._truth(node.inputs[0])
        if name == "logical_and":
            one, other = (self._truth(child) for child in node.inputs)
            return False if one is False or other is False else True if one and other else None
        if name not in ("less", "greater_equal"):
            return None
        left, right = (self._affine(child) for child in node.inputs)
        if left is None or right is None:
            return None
        first = left.constant - right.constant
        last = first + (left.factor - right.factor) * (self.turns - 1)
        if max(first, last) < 0:
            return name == "less"
        return name != "less" if min(first, last) >= 0 else None

    def _replaced(self, found: dict[int, Moved], decided: dict[int, Node]) -> Node:
        node, body = self.node, self.node["turn"]
        places = {moved: number for number, moved in enumerate(dict.fromkeys(found.values()))}
        added = [self._slices(moved) for moved in places]
        done: dict[int, Node] = {}
        for inner in body.graph.nodes:
            if inner.op.name == "parameter":
                index = inner["index"] + (len(added) if inner["index"] >= self.changing else 0)
                done[inner.serial] = make(REGISTRY["parameter"], (), {**inner.attributes, "index": index})
            elif inner.serial in found:
                number = places[found[inner.serial]]
                leaf = make(REGISTRY["parameter"], (), {"index": self.changing + number,
                                                        "shape": added[number].shape[1:], "dtype": added[number].dtype})
                done[inner.serial] = reshape(leaf, inner.shape)
            elif inner.serial in decided:
                done[inner.serial] = done[decided[inner.serial].serial]
            else:
                done[inner.serial] = rebuild(inner, [done[child.serial] for child in inner.inputs])
        turn = Body([done[output.serial] for output in body.outputs])
        inputs = (*node.inputs[:self.changing], *added, *node.inputs[self.changing:])
        return make(node.op, inputs, {**node.attributes, "turn": turn, "xs": node["xs"] + len(added)},
                    origin=node.origin)

    def _slices(self, moved: Moved) -> Node:
        """Slices that the iterations read of a value, along a new first axis."""
        whole = Body([moved.source]).put([*self.node.inputs, self.node.inputs[0]])[0]
        rest = [axis for axis in range(len(whole.shape)) if axis != moved.axis]
        lines = permute(whole, (moved.axis, *rest))
        sizes, form = (self.turns, *lines.shape[1:]), moved.form
        if sizes == lines.shape and form == (1, 0):
            return lines
        return build("slice", lines, starts=(form.constant, *[0] * len(rest)), sizes=sizes,
                     steps=(form.factor, *[1] * len(rest)))
