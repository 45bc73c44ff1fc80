"""Epilogue fusion: a group that reads a product or a convolution runs on each of its tiles while it is in cache.

A group of elementwise operations can follow tile by tile. One that also reduces each row (a norm after a residual)
needs whole rows at once, which pays while there are rows enough for all threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from morpho.base.dims import Shape, Size, bounds, product
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make, rebuild
from morpho.ir.op import Attributes, NoGradient, Op, Spec, register
from morpho.ir.views import CHANNELS_LAST, is_channels_last, is_view

LEAST_ROWS = 32  # of a product whose rows are reduced by what follows
MOST_COLUMNS = 4096  # of such a product, whose tiles are whole rows
FEW_COLUMNS = 32  # up to which a kernel of its own finds the place of the least faster: a tile is whole rows
PRODUCTS = ("matmul", "matmul_quantised", "matmul_int8", "conv")


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    return tuple(node.spec for node in attributes["body"].outputs)


def _no_reference(attributes: Attributes, *arrays: Any) -> Any:
    raise RuntimeError("a product with its epilogue is evaluated through its parts")


# Inputs: the two operands, then what the body reads besides; parameter `product` of the body is the product itself.
# `by` is the name of the product's op, `kind` the layout of quantised weights. The last `columns` axes of the space are
# its columns; `windows` are the attributes of a convolution, () of a product; with `last` the body reads the
# convolution with its channels last.
GEMM = register(Op("gemm", "fused", _infer, NoGradient("made after differentiation"), _no_reference,
                   arity=(2, math.inf)))


def epilogue(graph: Graph) -> Graph:
    """Put a `gemm` node in place of each product and the one group that uses it."""
    users = graph.users
    outputs = {node.serial for node in graph.outputs}
    chosen: dict[int, tuple[Node, int]] = {}  # group -> the product it follows, and which of its inputs that is
    taken: set[int] = set()
    for node in graph.nodes:
        if node.op.name != "group":
            continue
        for number, child in enumerate(node.inputs):
            found = _product_behind(child, users, outputs)
            if found is not None and found.serial not in taken and _can_follow(node, number, found):
                chosen[node.serial] = (found, number)
                taken.add(found.serial)
                break
    return _rebuild(graph, chosen) if chosen else graph


def _product_behind(node: Node, users: dict[int, list[Node]], outputs: set[int]) -> Node | None:
    """The product a group reads, straight or reshaped, or a convolution with its channels last, when nothing else
    does."""
    if is_channels_last(node) and len(users[node.serial]) == 1 and node.serial not in outputs:
        return _product_behind(node.inputs[0], users, outputs) if node.inputs[0].op.name == "conv" else None
    while True:
        if len(users[node.serial]) != 1 or node.serial in outputs:
            return None
        if node.op.name in PRODUCTS:
            return node if node.dtype.is_float or node.op.name in ("matmul", "matmul_int8") else None
        if node.op.name != "reshape":
            return None
        node = node.inputs[0]


def _can_follow(group: Node, number: int, found: Node) -> bool:
    space: Shape = group["space"]
    columns = _columns(space, found, is_channels_last(group.inputs[number]))
    if not columns or group.inputs[number].shape != space or _reads_otherwise(group, number):
        return False
    if any(spec.dtype.is_complex for spec in group.outputs):
        return False
    if not group["axes"]:
        return True
    rows: Size = product(space[:-1])
    least, most = bounds(space[-1])
    if most <= FEW_COLUMNS and sum(part.op.name in ("max", "min") for part in group["body"].graph.nodes) > 1:
        return False  # the least, and then where it is
    return (found.op.name != "conv" and columns == 1 and group["axes"] == (len(space) - 1,)
            and bounds(rows)[0] >= LEAST_ROWS and least > 0 and most <= MOST_COLUMNS)  # no tile has no columns


def _columns(space: Shape, found: Node, last: bool) -> int:
    """How many of the last axes of a space are the columns of a product, or the pixels of a convolution, or its
    channels where they come `last`; 0: none."""
    if last:
        return int(space == tuple(found.shape[axis] for axis in CHANNELS_LAST))
    images = found.op.name == "conv"
    inner: Size = found.shape[-2] * found.shape[-1] if images else found.shape[-1]
    if inner == 1 and not images:  # computed as a row
        return 0
    outer = product(found.shape[:-2 if images else -1])
    for count in range(1, len(space) + 1):
        if product(space[-count:]) == inner and product(space[:-count]) == outer:
            return count
    return 0


def _reads_otherwise(group: Node, number: int) -> bool:
    """Whether the body looks at this input through a view or an index, which the tile cannot show."""
    for node in group["body"].graph.nodes:
        for child in node.inputs:
            if child.op.name == "parameter" and child["index"] == number \
                    and (is_view(node) or node.op.kind == "index"):
                return True
    return False


def _rebuild(graph: Graph, chosen: dict[int, tuple[Node, int]]) -> Graph:
    done: dict[int, Node] = {}
    for node in graph.nodes:
        if node.serial in chosen:
            found, number = chosen[node.serial]
            others = [child for i, child in enumerate(node.inputs) if i != number]
            inputs = [done[child.serial] for child in (*found.inputs, *others)]
            last = is_channels_last(node.inputs[number])
            windows = tuple(sorted(found.attributes.items())) if found.op.name == "conv" else ()
            made = make(GEMM, inputs, {"body": node["body"], "space": node["space"], "axes": node["axes"],
                                       "product": number, "shape": found.shape, "dtype": found.dtype,
                                       "by": found.op.name, "kind": found.attributes.get("kind", ""),
                                       "threads": found.attributes.get("threads", "auto"),
                                       "columns": _columns(node["space"], found, last), "windows": windows,
                                       "last": last})
            made.origin = node.origin or found.origin
            done[node.serial] = made
        else:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    return Graph(tuple(done[node.serial] for node in graph.outputs))

