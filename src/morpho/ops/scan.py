"""Scans: running sums and products along one axis, one chain in index order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import Attributes, Gradient, Infer, Op, Spec, register
from morpho.ops.algebra import div, mul

CHAIN = "one chain, index ascending"


def _infer(name: str) -> Infer:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        if inputs[0].dtype.kind == "b":
            raise fail(DTypeError, name, "dtype bool is not taken", "convert with astype")
        return inputs[0]

    return infer


def flip(node: Node, axis: int) -> Node:
    """The axis read backwards."""
    rank = len(node.shape)
    starts = tuple(node.shape[i] - 1 if i == axis else 0 for i in range(rank))
    steps = tuple(-1 if i == axis else 1 for i in range(rank))
    return node if node.shape[axis] == 0 else build("slice", node, starts=starts, sizes=node.shape, steps=steps)


def _reversed_sum(node: Node, axis: int) -> Node:
    return flip(build("cumulative_sum", flip(node, axis), axis=axis), axis)


def _sum_rule(node: Node, ct: Node) -> list[Node]:
    return [_reversed_sum(ct, node["axis"])]


def _prod_rule(node: Node, ct: Node) -> list[Node]:
    """Valid where no element is zero."""
    return [div(_reversed_sum(mul(ct, node), node["axis"]), node.inputs[0])]


def _scan(name: str, function: Callable[..., Any], vjp: Gradient) -> Op:
    def reference(attributes: Attributes, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(x, axis=attributes["axis"], dtype=x.dtype)

    return register(Op(name, "scan", _infer(name), vjp, reference, 1, CHAIN))


CUMULATIVE_SUM = _scan("cumulative_sum", np.cumsum, _sum_rule)
CUMULATIVE_PROD = _scan("cumulative_prod", np.cumprod, _prod_rule)
