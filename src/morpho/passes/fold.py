"""Constant folding: nodes whose inputs are all constants, or filled with one, become constants.

The exact ops (one IEEE rounding, or none) fold by their NumPy meaning, which has the same bits as the kernels; the
polynomial ones are left to the kernel, where a scalar costs nothing and the bits are its own.
"""

from __future__ import annotations

import numpy as np

from morpho.base.dtypes import bfloat16, float16
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.views import MOVES, look_through
from morpho.ops.algebra import constant, expand
from morpho.ops.special import round_bfloat16

_SHOWN = MOVES - {"window"}


def _fold(node: Node) -> Node:
    if node.op.kind != "elementwise" or not node.op.exact:
        return node
    roots = [look_through(child, _is_filled)[0] for child in node.inputs]
    if not roots or any(root.op.name != "constant" for root in roots):
        return node
    arrays = [np.asarray(root["value"], root.dtype.compute.numpy) for root in roots]
    with np.errstate(all="ignore"):
        result = np.asarray(node.op.reference(node.attributes, *arrays))
        if node.dtype is bfloat16:
            result = round_bfloat16(result)
        elif node.dtype is float16:
            result = result.astype(np.float16)
    return expand(constant(result.astype(node.dtype.compute.numpy)[()], node.dtype), node.shape)


def _is_filled(view: Node) -> bool:
    """Whether a view shows one number everywhere where its input does."""
    return view.op.name in _SHOWN


def fold(graph: Graph) -> Graph:
    """Replace constant scalar arithmetic by its value."""
    return graph.map(_fold)
