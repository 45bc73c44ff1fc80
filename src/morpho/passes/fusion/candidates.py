"""Fusion candidates: which nodes may join a group, and a group under construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from morpho.base.dims import Shape
from morpho.base.shapes import contiguous_strides
from morpho.ir.node import Node
from morpho.ir.views import Mapping, Strides, look_through, view_strides

NATIVE: set[str] = set()  # elementwise ops that have native code; the kernels floor fills it
INLINE = frozenset({"constant", "iota", "dimension"})
MOST_INPUTS = 24  # operands that one kernel reads
MOST_FLOPS = 512  # operations per element of one kernel: beyond that LLVM's time grows faster than the gain


def is_native(node: Node) -> bool:
    """Whether a node can be part of a group at all."""
    if any(spec.dtype.is_complex for spec in (*node.outputs, *(child.spec for child in node.inputs))):
        return False
    if node.op.kind == "elementwise":
        return not NATIVE or node.op.name in NATIVE or node.op.name == "cast"
    return node.op.kind == "reduce" or node.op.name == "gather"


@dataclass(eq=False)
class Group:
    """One kernel being collected."""

    number: int
    space: Shape
    axes: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    rows: dict[int, Mapping] = field(default_factory=dict)
    inputs: set[int] = field(default_factory=set)
    flops: int = 0  # operations per element


def only_checks(gather: Node) -> bool:
    """Whether a gather reads index numbers along their own axis: its value is the index itself, once it is checked."""
    base = gather.inputs[0]
    return base.op.name == "iota" and base["axis"] == gather["axis"]


def inlines(node: Node) -> bool:
    """Constants and index numbers, also seen through views, as long as strides can show those."""
    node, chain = look_through(node)
    if any(view.op.name == "remat_barrier" for view in chain):
        return False
    if node.op.name != "iota":
        return node.op.name in INLINE
    shape: Shape = node.shape
    strides: Strides = tuple(int(d == node["axis"]) for d in range(len(shape)))
    for view in reversed(chain):
        found = view_strides(view, shape, strides)
        if found is None:
            return False
        shape, strides = view.shape, found
    return True


def is_uneven(node: Node, axes: tuple[int, ...]) -> bool:
    """Whether an operand seen through views cannot be walked over these axes as over one: a part of each line of an
    image. Its elements would be looked up one by one. What is repeated along an axis is not meant, nor are axes with
    others between them: kernels walk over those one after the other."""
    root, chain = look_through(node)
    if any(view.op.name == "window" for view in chain):  # which kernels walk over by themselves
        return False
    shape: Shape = root.shape
    strides: Strides = contiguous_strides(shape)
    for view in reversed(chain):
        found = view_strides(view, shape, strides)
        if found is None:
            return True
        shape, strides = view.shape, found
    beside = [(one, following) for one, following in pairwise(axes)
              if following == one + 1 and shape[one] != 1 != shape[following]]
    steps = [(strides[one], strides[following], shape[following]) for one, following in beside]
    return any(outer and inner and outer != inner * size for outer, inner, size in steps)
