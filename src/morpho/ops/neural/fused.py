"""Fused ops: softmax and the norms. One kernel on the CPU at every level; the composition is their meaning.

Half floats are widened once, computed in float32 and rounded once: the casts stand in the composition, so the bits do
not depend on how it is grouped into kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import AxisError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import ONE, Arity, Attributes, Gradient, Op, Spec, register
from morpho.ops.algebra import add, cast, constant, constant_like, div, expand, mean, mul, reduce, reshape, sub, where
from morpho.ops.batching import Rows


def _infer_rows(name: str, keeps: bool) -> Callable[[Sequence[Spec], Attributes], Spec]:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        shape, dtype = inputs[0]
        if not dtype.is_float:
            raise fail(DTypeError, name, f"dtype {dtype} is not taken", "convert with astype")
        axes = attributes["axes"]
        if any(not 0 <= axis < len(shape) for axis in axes):
            raise fail(AxisError, name, f"axes {axes} are out of range for {len(shape)} dimensions")
        for other in inputs[1:]:  # weight and bias of a norm
            sizes = tuple(shape[axis] for axis in axes)
            if other.shape != sizes or other.dtype is not dtype:
                raise fail(ShapeError, name, f"a weight {other.dtype}{other.shape} does not fit {dtype}{shape}",
                           f"weight and bias are {dtype} of the sizes of the axes, {sizes}; axes go by axis=")
        return Spec(shape if keeps else tuple(1 if i in axes else s for i, s in enumerate(shape)), dtype)

    return infer


def shifted(node: Node) -> tuple[Node, Node, Node, Node]:
    """x, its maximum per row, exp(x - maximum) and the sum of those; NaN in rows whose maximum is infinite."""
    x = cast(node.inputs[0], node.dtype.compute)
    top = _largest(x, node["axes"])
    powers = build("exp", sub(x, expand(top, x.shape)))
    return x, top, powers, reduce("sum", powers, node["axes"])


def _largest(x: Node, axes: tuple[int, ...]) -> Node:
    """The maximum per row; -inf of no elements, which `max` refuses where the size is known and kernels start from."""
    if all(x.shape[axis] != 0 for axis in axes):
        return reduce("max", x, axes)
    return expand(constant(-np.inf, x.dtype), tuple(1 if i in axes else size for i, size in enumerate(x.shape)))


def shares_of(node: Node) -> Node:
    """The softmax of the first input, not yet rounded to its dtype."""
    _, _, powers, total = shifted(node)
    return mul(powers, expand(build("reciprocal", total), powers.shape))  # one division per row


def _softmax(node: Node) -> Node:
    return cast(shares_of(node), node.dtype)


def _logsumexp(node: Node) -> Node:
    _, top, _, total = shifted(node)
    return cast(build("where", build("isfinite", top), add(top, build("log", total)), top), node.dtype)


def _log_softmax(node: Node) -> Node:
    x, top, _, total = shifted(node)
    return cast(sub(sub(x, expand(top, x.shape)), expand(build("log", total), x.shape)), node.dtype)


def _affine(node: Node, normal: Node) -> Node:
    """Times the weight, plus the bias, where given; both lie along the normalised axes."""
    for other, combine in zip(node.inputs[1:], (mul, add), strict=False):
        normal = combine(normal, _spread(node, other, normal))
    return cast(normal, node.dtype)


def _spread(node: Node, other: Node, like: Node) -> Node:
    """A weight or bias for every row. The cast comes last: inside a group every value fills the space."""
    shape = tuple(size if i in node["axes"] else 1 for i, size in enumerate(like.shape))
    return cast(expand(reshape(other, shape), like.shape), like.dtype)


def _normalised(node: Node, centre: bool) -> tuple[Node, Node]:
    """x by its root mean square, after its mean is taken off where asked for; and one over that root, spread."""
    x = cast(node.inputs[0], node.dtype.compute)
    if centre:
        x = sub(x, expand(mean(x, node["axes"]), x.shape))
    squares = mean(build("square", x), node["axes"])
    root = build("sqrt", add(squares, constant_like(squares, node["eps"])))
    inverse = expand(build("reciprocal", root), x.shape)  # one division per row
    return mul(x, inverse), inverse


# -- gradients: half floats are widened once and the result rounded once, as in the composition -----------------------
def _shares(node: Node) -> Node:
    """The result of `shares_of` for rows of no elements, whose sizes may be known only at a call."""
    return build("softmax", cast(node.inputs[0], node.dtype.compute), axes=node["axes"])


def _softmax_rule(node: Node, ct: Node) -> list[Node]:
    shares, slope = _shares(node), cast(ct, node.dtype.compute)
    total = reduce("sum", mul(slope, shares), node["axes"])
    return [cast(mul(shares, sub(slope, expand(total, slope.shape))), node.dtype)]


def _log_softmax_rule(node: Node, ct: Node) -> list[Node]:
    shares, slope = _shares(node), cast(ct, node.dtype.compute)
    total = reduce("sum", slope, node["axes"])
    return [cast(sub(slope, mul(shares, expand(total, slope.shape))), node.dtype)]


def _logsumexp_rule(node: Node, ct: Node) -> list[Node]:
    """The shares of the elements. Of an infinite sum, where softmax has none: all to the elements that are +inf,
    evenly; none to anything where all are -inf, so that a row that is masked out has no say."""
    shares, x = _shares(node), cast(node.inputs[0], node.dtype.compute)
    top = cast(node, node.dtype.compute)
    hit = cast(build("equal", x, constant_like(x, math.inf)), x.dtype)
    hits = build("maximum", reduce("sum", hit, node["axes"]), constant_like(top, 1))
    shares = where(expand(build("isinf", top), x.shape), div(hit, expand(hits, x.shape)), shares)
    return [cast(mul(expand(cast(ct, shares.dtype), shares.shape), shares), node.dtype)]


def _norm_rule(centre: bool) -> Callable[[Node, Node], list[Node]]:
    """dx = (w dy - mean(w dy) - x' mean(w dy x')) / root, x' the normalised x; RMS norm has no mean to take off."""

    def rule(node: Node, ct: Node) -> list[Node]:
        axes, weight = node["axes"], node.inputs[1:2]
        slope = cast(ct, node.dtype.compute)
        normal, inverse = _normalised(node, centre)
        scaled = mul(slope, _spread(node, weight[0], slope)) if weight else slope
        inner = mul(normal, expand(mean(mul(scaled, normal), axes), slope.shape))
        if centre:
            scaled = sub(scaled, expand(mean(scaled, axes), slope.shape))
        parts = [mul(sub(scaled, inner), inverse)]
        others = tuple(axis for axis in range(len(slope.shape)) if axis not in axes)
        for other, part in zip(node.inputs[1:], (mul(slope, normal), ct), strict=False):  # sums of half floats are wide
            parts.append(reshape(reduce("sum", part, others), other.shape))
        return [cast(part, node.dtype) for part in parts]

    return rule


def _batch(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """Weights are the same for all rows of a kernel: where each row of the batch has its own, they come after it, in
    the dtype that it computes in."""
    x = rows.all(inputs[:1], batched[:1])[0]
    attributes = {**node.attributes, "axes": tuple(axis + 1 for axis in node["axes"])}
    if not any(batched[1:]):
        return make(node.op, (x, *inputs[1:]), attributes)
    found = make(node.op, (cast(x, node.dtype.compute),), attributes)
    shape = tuple(size if i in attributes["axes"] else 1 for i, size in enumerate(found.shape))
    for other, has, combine in zip(inputs[1:], batched[1:], (mul, add), strict=False):
        placed = reshape(other, (rows.size, *shape[1:]) if has else shape)
        found = combine(found, cast(expand(placed, found.shape), found.dtype))
    return cast(found, node.dtype)


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """References run in float64 and round once at the end."""

    def call(attributes: Attributes, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(attributes, *[np.asarray(a, np.float64) for a in arrays])
        return result.astype(arrays[0].dtype)

    return call


def reference_shift(attributes: Attributes, x: Any) -> tuple[Any, Any]:
    top = np.max(x, axis=attributes["axes"], keepdims=True, initial=-np.inf)
    return top, np.exp(x - top)


def _reference_softmax(attributes: Attributes, x: Any) -> Any:
    _, powers = reference_shift(attributes, x)
    return powers / np.sum(powers, axis=attributes["axes"], keepdims=True)


def _reference_logsumexp(attributes: Attributes, x: Any) -> Any:
    top, powers = reference_shift(attributes, x)
    total = top + np.log(np.sum(powers, axis=attributes["axes"], keepdims=True))
    return np.where(np.isfinite(top), total, top)


def _reference_log_softmax(attributes: Attributes, x: Any) -> Any:
    top, powers = reference_shift(attributes, x)
    return x - top - np.log(np.sum(powers, axis=attributes["axes"], keepdims=True))


def _reference_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """`np.mean`, which warns of rows without elements."""
    return np.sum(x, axis=axes, keepdims=True) / math.prod(x.shape[axis] for axis in axes)


def _reference_norm(attributes: Attributes, x: Any, affine: Sequence[Any], centre: bool) -> Any:
    axes = attributes["axes"]
    if centre:
        x = x - _reference_mean(x, axes)
    x = x / np.sqrt(_reference_mean(x * x, axes) + attributes["eps"])
    shape = tuple(size if i in axes else 1 for i, size in enumerate(x.shape))
    for other, combine in zip(affine, (np.multiply, np.add), strict=False):
        x = combine(x, other.reshape(shape))
    return x


def _row_op(name: str, keeps: bool, vjp: Gradient, reference: Callable[..., Any], flops: int,
            composition: Callable[[Node], Node], arity: Arity = ONE) -> Op:
    return register(Op(name, "fused", _infer_rows(name, keeps), vjp, wide(reference), flops, "row kernel",
                       composition=composition, arity=arity, autocast="full", batch=_batch))


SOFTMAX = _row_op("softmax", True, _softmax_rule, _reference_softmax, 20, _softmax)
LOGSUMEXP = _row_op("logsumexp", False, _logsumexp_rule, _reference_logsumexp, 20, _logsumexp)
LOG_SOFTMAX = _row_op("log_softmax", True, _log_softmax_rule, _reference_log_softmax, 20, _log_softmax)
LAYER_NORM = _row_op("layer_norm", True, _norm_rule(True), lambda a, x, *rest: _reference_norm(a, x, rest, True), 8,
                     lambda node: _affine(node, _normalised(node, True)[0]), (1, 3))
RMS_NORM = _row_op("rms_norm", True, _norm_rule(False), lambda a, x, *rest: _reference_norm(a, x, rest, False), 6,
                   lambda node: _affine(node, _normalised(node, False)[0]), (1, 2))
