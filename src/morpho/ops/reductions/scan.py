"""Scans: running sums, products, extremes and log-sums along one axis, one chain in index order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, Attributes, Forward, Gradient, Infer, Op, Spec, register
from morpho.ops.algebra import add, cast, constant_like, div, mul, neg, sub, where, zeros_like
from morpho.ops.batching import along_axis
from morpho.ops.complex.gradients import holomorphic

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


def products_before(node: Node, axis: int) -> Node:
    """The product of the elements before each, 1 at the first."""
    rank = len(node.shape)
    if node.shape[axis] == 0:
        return node
    padded = build("pad", node, before=tuple(int(i == axis) for i in range(rank)), after=(0,) * rank, value=1.0)
    shifted = build("slice", padded, starts=(0,) * rank, sizes=node.shape, steps=(1,) * rank)
    return build("cumulative_prod", shifted, axis=axis)


def _reversed_sum(node: Node, axis: int) -> Node:
    return flip(build("cumulative_sum", flip(node, axis), axis=axis), axis)


def _sum_rule(node: Node, ct: Node) -> list[Node]:
    return [_reversed_sum(ct, node["axis"])]


def _prod_rule(node: Node, ct: Node) -> list[Node]:
    """Each product divided by the element; at the first zero or infinity of a line the products without it; behind a
    zero nothing. A product that does not count (a cotangent of 0) does not count when it is infinite either."""
    x, axis = node.inputs[0], node["axis"]
    ones, zero = constant_like(x, 1), build("equal", x, zeros_like(x))
    odd = build("logical_or", zero, build("isinf", x))
    seen = build("cumulative_sum", cast(odd, int64), axis=axis)
    first = build("logical_and", odd, build("equal", seen, constant_like(seen, 1)))
    others = build("cumulative_prod", where(first, ones, x), axis=axis)
    plain = div(_reversed_sum(_counted(ct, node), axis), where(zero, ones, x))
    return [where(first, _reversed_sum(_counted(ct, others), axis), where(zero, zeros_like(x), plain))]


def _counted(ct: Node, product: Node) -> Node:
    """ct * product, but 0 where ct is 0 and the product infinite."""
    none = build("logical_and", build("equal", ct, zeros_like(ct)), build("isinf", product))
    return where(none, zeros_like(ct), mul(ct, product))


def _extreme_rule(node: Node, ct: Node) -> list[Node]:
    """To the last place where the running extreme was attained, equal ones taking it over."""
    x, axis = node.inputs[0], node["axis"]
    numbers = build("iota", shape=x.shape, axis=axis, dtype=int64)
    attained = build("logical_or", build("equal", x, node), build("isnan", x))
    places = build("cumulative_max", where(attained, numbers, constant_like(numbers, 0)), axis=axis)
    wide = cast(ct, ct.dtype.compute)
    return [cast(build("scatter", zeros_like(wide), places, wide, axis=axis, mode="add"), ct.dtype)]


def _logarithms(of: Node, none: Node | None = None) -> list[tuple[Node, Node]]:
    """The logarithms of the positive and of the negative elements, -inf for others, and where those are; with `none`
    there too. What a logarithm of 0 would be is not computed: its slope has no value."""
    found = []
    for part in (of, neg(of)):
        of_sign = build("maximum", part, zeros_like(of))
        empty = build("equal", of_sign, zeros_like(of))
        empty = empty if none is None else build("logical_or", empty, none)
        safe = build("log", where(empty, constant_like(of, 1), of_sign))
        found.append((where(empty, constant_like(of, -math.inf), safe), empty))
    return found


def _logsumexp_rule(node: Node, ct: Node) -> list[Node]:
    """exp(x_j) times the sum over i >= j of ct_i exp(-y_i), positive and negative ct apart and in logarithms."""
    x, axis = node.inputs[0], node["axis"]
    parts = []
    for logarithms, empty in _logarithms(ct, build("equal", node, constant_like(node, -math.inf))):
        terms = sub(logarithms, where(empty, zeros_like(node), node))
        later = flip(build("cumulative_logsumexp", flip(terms, axis), axis=axis), axis)
        parts.append(build("exp", add(later, x)))
    return [where(build("equal", x, constant_like(x, -math.inf)), zeros_like(x), sub(*parts))]


def _logsumexp_forward(node: Node, tangents: Sequence[Node | None], push: Any) -> list[Node]:
    """The sum over j <= i of t_j exp(x_j - y_i), likewise."""
    x, (tangent,) = node.inputs[0], tangents
    assert tangent is not None
    nothing = build("equal", node, constant_like(node, -math.inf))
    value = where(nothing, zeros_like(node), node)
    parts = [build("exp", sub(build("cumulative_logsumexp", add(x, logarithms), axis=node["axis"]), value))
             for logarithms, _ in _logarithms(tangent)]
    return [where(nothing, zeros_like(node), sub(*parts))]


def _infer_floats(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    if not inputs[0].dtype.is_float:
        raise fail(DTypeError, "logcumsumexp", f"dtype {inputs[0].dtype} is not taken", "convert with astype")
    return inputs[0]


def _infer_ordered(name: str) -> Infer:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        if inputs[0].dtype.kind not in "iuf":
            raise fail(DTypeError, name, f"dtype {inputs[0].dtype} is not taken", "convert with astype")
        return inputs[0]

    return infer


def _scan(name: str, function: Callable[..., Any], vjp: Gradient, infer: Infer | None = None, flops: int = 1,
          numerics: str = CHAIN, autocast: str = "full", jvp: Forward | None = None) -> Op:
    def reference(attributes: Attributes, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(x, axis=attributes["axis"], dtype=x.dtype)

    return register(Op(name, "scan", infer or _infer(name), vjp, reference, flops, numerics, arity=ONE,
                       autocast=autocast, batch=along_axis, jvp=jvp))


CUMULATIVE_SUM = _scan("cumulative_sum", np.cumsum, _sum_rule)
CUMULATIVE_PROD = _scan("cumulative_prod", np.cumprod, holomorphic(_prod_rule))
CUMULATIVE_MAX = _scan("cumulative_max", np.maximum.accumulate, _extreme_rule, _infer_ordered("cummax"),
                       numerics="exact", autocast="")
CUMULATIVE_MIN = _scan("cumulative_min", np.minimum.accumulate, _extreme_rule, _infer_ordered("cummin"),
                       numerics="exact", autocast="")
CUMULATIVE_LOGSUMEXP = _scan("cumulative_logsumexp", np.logaddexp.accumulate, _logsumexp_rule, _infer_floats, 32,
                             jvp=_logsumexp_forward)
