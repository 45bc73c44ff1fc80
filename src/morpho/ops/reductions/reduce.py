"""Reductions: they keep their axes with size 1, so that going back to the full shape is one `expand`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Size, bounds, product
from morpho.base.dtypes import int32, int64
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, Attributes, Gradient, Infer, NoGradient, Op, Spec, register
from morpho.ops.algebra import add, cast, constant_like, div, expand, mul, reduce, size_value, where, zeros_like
from morpho.ops.batching import along_axes
from morpho.ops.complex.gradients import holomorphic
from morpho.ops.reductions.scan import flip, products_before

MOST_UNROLLED = 32  # elements of a pooled window whose slopes are written one by one
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
    """Shared evenly among the elements that attain the extreme, or all of it to the first of them (`first`, of pooled
    windows); NaN all over where that is NaN."""
    x = node.inputs[0]
    extreme = expand(node, x.shape)
    if node.attributes.get("first"):
        return [_first_share(node, ct)]
    ties = reduce("sum", cast(build("equal", x, extreme), x.dtype), node["axes"])
    share = where(build("isnan", node), constant_like(node, math.nan), div(ct, ties))
    loses = build("less" if node.op.name == "max" else "greater", x, extreme)  # nothing loses to a NaN
    return [where(loses, zeros_like(x), expand(share, x.shape))]


def _first_share(node: Node, ct: Node) -> Node:
    """A cotangent for the first of the largest elements, in row-major order, and zero for all others."""
    x, axes, nothing = node.inputs[0], node["axes"], zeros_like(ct)
    wrong = build("isnan", node)
    ct = where(wrong, constant_like(node, math.nan), ct)
    sizes = tuple(x.shape[axis] for axis in axes)
    count = product(sizes)
    if not isinstance(count, int) or count > MOST_UNROLLED:
        number = _numbers(x, axes)
        largest = where(build("equal", x, expand(node, x.shape)), number,
                        constant_like(number, np.iinfo(number.dtype.numpy).max))
        loses = build("not_equal", number, expand(reduce("min", largest, axes), x.shape))
        loses = build("logical_and", loses, build("logical_not", expand(wrong, x.shape)))
        return where(loses, zeros_like(x), expand(ct, x.shape))
    # Element by element of a small window: kernels then go over the windows side by side (8 times as fast).
    free: Node | None = None
    shares: dict[tuple[int, ...], Node] = {}
    for place in itertools.product(*map(range, sizes)):
        starts = [0] * len(x.shape)
        for axis, at in zip(axes, place, strict=True):
            starts[axis] = at
        element = build("slice", x, starts=tuple(starts), sizes=node.shape, steps=(1,) * len(starts))
        largest = build("equal", element, node)
        wins = largest if free is None else build("logical_and", largest, free)
        shares[place] = where(build("logical_or", wins, wrong), ct, nothing)
        lost = build("logical_not", largest)
        free = lost if free is None else build("logical_and", free, lost)
    for depth in range(len(axes) - 1, -1, -1):
        groups: dict[tuple[int, ...], list[Node]] = {}
        for place, share in shares.items():
            groups.setdefault(place[:depth], []).append(share)
        shares = {place: parts[0] if len(parts) == 1 else build("concatenate", *parts, axis=axes[depth])
                  for place, parts in groups.items()}
    return shares[()]


def _numbers(x: Node, axes: tuple[int, ...]) -> Node:
    """The number of each element among those along some axes, in row-major order."""
    dtype = int32 if bounds(product(tuple(x.shape[axis] for axis in axes)))[1] < 1 << 31 else int64
    total: Node | None = None
    step: Size = 1
    for axis in reversed(axes):
        line = tuple(size if d == axis else 1 for d, size in enumerate(x.shape))
        number = mul(expand(build("iota", shape=line, axis=axis, dtype=dtype), x.shape),
                     expand(size_value(step, dtype), x.shape))
        total, step = number if total is None else add(total, number), step * x.shape[axis]
    assert total is not None
    return total


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
