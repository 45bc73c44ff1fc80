"""Which loops are one kernel because each element goes its own way: nothing in a turn looks at another element, or at
one only, which all of them look at (`best[k]` at turn k)."""

from __future__ import annotations

from morpho.base.dims import Shape, product
from morpho.ir.body import Body
from morpho.ir.node import Node
from morpho.ops.elementwise import COSTLY
from morpho.passes.fusion.candidates import NATIVE
from morpho.passes.loops.moving_slices import Turns

PASSED = frozenset({"reshape", "expand", "copy", "remat_barrier"})  # between equal shapes, or from a number
MOST_OPERATIONS = 96  # of a turn: more do not fit the registers
MOST_CARRIED = 12
MOST_STREAMED = 1 << 24  # bytes of slices and results: from farther memory whole rows come faster than parts of them
LEAST = 8  # elements that fill vectors
MOST_PICKED_BYTES = 1 << 14  # carried by a loop whose turns go over all elements: from the first-level cache


def fits_lanes(node: Node, turn: Body) -> bool:
    """Whether a scan is a `LaneLoop`; `turn` is its body in plain operations."""
    if node.op.name != "scan" or not 0 < node["carries"] <= MOST_CARRIED:
        return False
    shape = node.inputs[0].shape
    count = product(shape)
    if not isinstance(count, int) or count < LEAST or not isinstance(node["length"], int) or node["length"] < 2:
        return False
    slices = node.inputs[node["carries"]:node["carries"] + node["xs"]]
    streamed = [*(one.spec for one in slices), *node.outputs[node["carries"]:]]
    if sum(product(one.shape) * one.dtype.itemsize for one in streamed) > MOST_STREAMED:
        return False
    if any(output.shape != shape for output in turn.outputs) or any(one.dtype.is_complex for one in streamed):
        return False
    operations = sum(part.op.kind == "elementwise" for part in turn.graph.nodes)
    picked = [part for part in turn.graph.nodes if part.op.name == "gather"]
    if picked and not _is_picked(node, turn, picked):
        return False
    return 0 < operations <= MOST_OPERATIONS and all(
        is_by_element(part, shape) for part in turn.graph.nodes if part.op.name != "gather")


def _is_picked(node: Node, turn: Body, gathers: list[Node]) -> bool:
    """Whether gathers read one element each of what is carried, by the turn's number, and that is little."""
    carried = node.inputs[:node["carries"]]
    if any(one.dtype.is_complex or one.dtype.compute is not one.dtype for one in carried):
        return False
    turns = Turns(node)
    return all(turns.picked(part) is not None for part in gathers) and sum(
        product(one.shape) * one.dtype.itemsize for one in carried) <= MOST_PICKED_BYTES


def is_by_element(part: Node, shape: Shape) -> bool:
    """Whether an operation of a body computes elements from the same elements, or from numbers; complex numbers are
    only taken apart and put together."""
    if any(one.shape != shape and product(one.shape) != 1 for one in (part, *part.inputs)):
        return False
    if part.op.name == "iota":  # an element's own number
        return part.dtype.is_integer and part.dtype.itemsize >= 4 and product(shape) == part.shape[part["axis"]]
    if part.op.name in ("parameter", "part", "complex"):
        return part.dtype.is_complex or part.dtype.compute is part.dtype
    if any(one.dtype.is_complex or one.dtype.compute is not one.dtype for one in (part, *part.inputs)):
        return False
    if part.op.kind == "elementwise":
        cheap = part.op.flops < COSTLY or part.dtype.is_integer  # no polynomials, whose tables fill the registers
        return cheap and (part.op.name in NATIVE or part.op.name == "cast")
    return part.op.name in PASSED or part.op.name == "constant"
