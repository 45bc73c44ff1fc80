"""Reductions: they keep their axes with size 1, so that going back to the full shape is one `expand`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, Attributes, Gradient, Infer, NoGradient, Op, Spec, register
from morpho.ops.algebra import cast, constant_like, div, expand, mul, reduce, where, zeros_like
from morpho.ops.batching import along_axes
from morpho.ops.complex.gradients import holomorphic
from morpho.ops.reductions.scan import flip, products_before

TREE = "lanes of 64, blocks of 4096, pairwise"


def _infer(name: str, kinds: str, needs_elements: bool) -> Infer:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        shape, dtype = inputs[0]
        if dtype.kind not in kinds:
            raise fail(DTypeError, name, f"dtype {dtype} is not taken")
        axes = attributes["axes"]
        if needs_elements and any(shape[axis] == 0 for axis in axes):
            raise fail(ShapeError, name, f"shape {shape} has no elements along axis {axes} and {name} has no identity")
        return Spec(tuple(1 if axis in axes else size for axis, size in enumerate(shape)), dtype)

    return infer


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(attributes: Attributes, x: Any) -> Any:
        options = {"dtype": x.dtype} if function in (np.sum, np.prod) else {}
        with np.errstate(all="ignore"):
            return function(x, axis=attributes["axes"], keepdims=True, **options)

    return call


def _sum_rule(node: Node, ct: Node) -> list[Node]:
    return [expand(ct, node.inputs[0].shape)]


def _extreme_rule(node: Node, ct: Node) -> list[Node]:
    """Shared evenly among the elements that attain the extreme; NaN all over where that is NaN."""
    x = node.inputs[0]
    extreme = expand(node, x.shape)
    ties = reduce("sum", cast(build("equal", x, extreme), x.dtype), node["axes"])
    share = where(build("isnan", node), constant_like(node, math.nan), div(ct, ties))
    loses = build("less" if node.op.name == "max" else "greater", x, extreme)  # nothing loses to a NaN
    return [where(loses, zeros_like(x), expand(share, x.shape))]


def _prod_rule(node: Node, ct: Node) -> list[Node]:
    """The product of the others: those before times those behind, axis by axis. The whole product divided by the
    element would be NaN at a zero or an infinity, and wrong where the whole overflows and the others do not."""
    x = part = node.inputs[0]
    found = expand(ct, x.shape)
    for axis in node["axes"]:
        others = mul(products_before(part, axis), flip(products_before(flip(part, axis), axis), axis))
        found, part = mul(found, expand(others, x.shape)), reduce("prod", part, (axis,))
    return [found]


def _reduction(name: str, kinds: str, function: Callable[..., Any], vjp: Gradient | NoGradient, numerics: str,
               needs_elements: bool = False, autocast: str = "") -> Op:
    properties = frozenset({"needs elements"} if needs_elements else ())
    return register(Op(name, "reduce", _infer(name, kinds, needs_elements), vjp, _numpy(function), 1, numerics,
                       properties, arity=ONE, autocast=autocast, batch=along_axes))


_reduction("sum", "iufc", np.sum, _sum_rule, TREE, autocast="full")
_reduction("prod", "iufc", np.prod, holomorphic(_prod_rule), TREE, autocast="full")
_reduction("max", "iuf", np.max, _extreme_rule, "exact", needs_elements=True)
_reduction("min", "iuf", np.min, _extreme_rule, "exact", needs_elements=True)
_reduction("any", "b", np.any, NoGradient("defined on booleans"), "exact")
_reduction("all", "b", np.all, NoGradient("defined on booleans"), "exact")
