"""Programs on many rows at once: the interpreter behind `mo.vmap`, and the batching rules that families of ops share.

A program is written for one row; its row leaves are `parameter` nodes of their own. `batch_of` walks it once and builds
the program of the whole batch, op by op, from the rule in each record. Rows lie along an axis in front. What depends on
no row stays what it is. Every rule keeps the order of an op's additions, so that a batch has the bits of its rows.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from morpho.base.dims import Shape, Size
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail
from morpho.ir.node import Node, build, in_place_of, make, toposort
from morpho.ir.op import REGISTRY, Batching
from morpho.ops.algebra import expand, reshape

log = logging.getLogger("morpho")
_rows = itertools.count(1)
unrolled: dict[str, int] = {}  # ops without a rule -> how often a batch became a loop over its rows


def row_leaf(shape: Shape, dtype: DType, device: str = "") -> Node:
    """Leaf node that stands for one row during tracing, without a value."""
    number = next(_rows)
    return make(REGISTRY["parameter"], (), {"index": 0, "shape": shape, "dtype": dtype, "row": number}, device=device)


class Rows:
    """A batch under way: how many rows, and what each node of the program has become; False where it depends on no row
    and stays itself."""

    def __init__(self, leaves: Mapping[int, Node], size: Size) -> None:
        self.size = size
        self.several: dict[int, Sequence[Node]] = {}  # of an op whose rule gave one node for each output
        self.known: dict[int, tuple[Node, bool]] = {serial: (node, True) for serial, node in leaves.items()}

    def of(self, outputs: Sequence[Node]) -> list[tuple[Node, bool]]:
        """The outputs on the batch."""
        for node in toposort(outputs, set(self.known)):
            found = [self.known[child.serial] for child in node.inputs]
            if node.op.name == "pick" and node.inputs[0].serial in self.several:
                self.known[node.serial] = (self.several[node.inputs[0].serial][node["index"]], True)
            elif any(batched for _, batched in found):
                made = in_place_of(node, partial(self._rule, found=found))
                if not isinstance(made, Node):
                    self.several[node.serial] = made
                    made = made[0]  # what an op with one output is; of others only picks are read
                self.known[node.serial] = (made, True)
            else:
                self.known[node.serial] = (node, False)
        return [self.known[node.serial] for node in outputs]

    def _rule(self, node: Node, found: Sequence[tuple[Node, bool]]) -> Node | Sequence[Node]:
        inputs, batched = [one for one, _ in found], [one for _, one in found]
        rule = node.op.batch or (elementwise if node.op.kind == "elementwise" else None)
        if rule is not None:
            made: Node | Sequence[Node] = rule(node, inputs, batched, self)
            return made
        if node.op.composition is None:
            return loop(node, inputs, batched, self)
        ((meaning, has),) = self.of([node.op.composition(node)])
        return in_front(meaning, has, self.size)

    def all(self, inputs: Sequence[Node], batched: Sequence[bool]) -> list[Node]:
        """All inputs with their rows in front."""
        return [in_front(node, one, self.size) for node, one in zip(inputs, batched, strict=True)]


def batch_of(outputs: Sequence[Node], leaves: Mapping[int, Node], size: Size) -> list[tuple[Node, bool]]:
    """The outputs of a program on a batch: `leaves` are those that stand for a row, by serial, with all their rows
    along an axis of `size` in front. An output that depends on none of them stays itself, with False."""
    return Rows(leaves, size).of(outputs)


def in_front(node: Node, batched: bool, size: Size) -> Node:
    """The rows of a value: itself, or the same one for every row."""
    if batched:
        return node
    shape = (size, *node.shape)
    if node.op.name == "iota":
        return build("iota", shape=shape, axis=node["axis"] + 1, dtype=node.dtype)
    if node.op.name == "expand":  # seen through: a number stays a number
        node = node.inputs[0]
    return expand(reshape(node, (1, *node.shape)), shape)


# -- rules ---------------------------------------------------------------------------------------------------------
def elementwise(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """Ops that take any axes in front: elementwise ones, stacks of matrices, attention."""
    return make(node.op, rows.all(inputs, batched), node.attributes)


def _of_attributes(**changes: tuple[str, ...]) -> Batching:
    """A rule from what becomes of the attributes: those of `later` are numbers of axes, one or several, which move
    behind the batch axis; `zeros`, `ones` and `sizes` get a 0, a 1 or the size of the batch in front."""

    def rule(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
        attributes = dict(node.attributes)
        for name in changes.get("later", ()):
            old = attributes[name]
            attributes[name] = tuple(axis + 1 for axis in old) if isinstance(old, tuple) else old + 1
        for kind, first in (("zeros", 0), ("ones", 1), ("sizes", rows.size)):
            for name in changes.get(kind, ()):
                attributes[name] = (first, *attributes[name])
        return make(node.op, rows.all(inputs, batched), attributes)

    return rule


along_axes = _of_attributes(later=("axes",))  # reductions, rows of one kernel, windows, Fourier transforms
along_axis = _of_attributes(later=("axis",))  # scans, sorting, indexing, concatenation
to_shape = _of_attributes(sizes=("shape",))
to_region = _of_attributes(zeros=("starts",), sizes=("sizes",), ones=("steps",))
padded = _of_attributes(zeros=("before", "after"))


def permuted(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    return build("permute", inputs[0], axes=(0, *[axis + 1 for axis in node["axes"]]))


def loop(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """Apply an operation without a batching rule row by row; counted, and logged once for an operation."""
    size = rows.size
    if not isinstance(size, int) or size == 0 or len(node.outputs) > 1:
        raise fail(ArgumentError, "vmap", f"{node.op.name} has no batching rule, and a batch of {size} is no loop",
                   "give its record a `batch` rule", line=node.origin)
    if unrolled.setdefault(node.op.name, 0) == 0:
        log.warning("vmap: %s has no batching rule and is computed row by row", node.op.name)
    unrolled[node.op.name] += 1
    parts = []
    for number in range(size):
        row = [row_at(one, number) if has else one for one, has in zip(inputs, batched, strict=True)]
        part = make(node.op, row, node.attributes)
        parts.append(reshape(part, (1, *part.shape)))
    return build("concatenate", *parts, axis=0)


def row_at(node: Node, number: int) -> Node:
    """One row of a batch."""
    rank = len(node.shape)
    row = build("slice", node, starts=(number, *[0] * (rank - 1)), sizes=(1, *node.shape[1:]), steps=(1,) * rank)
    return reshape(row, node.shape[1:])
