"""Cross entropy as one row kernel: the logarithm of the sum of exponentials, less the logit of the wanted class.

The target's logit is picked inside the walk that finds the maximum, so the logits are read once. Targets are checked in
the same kernel: a class outside its axis is a fault, unless it is the one to ignore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int32, int64
from morpho.base.errors import AxisError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import (
    add,
    cast,
    constant_like,
    count,
    div,
    expand,
    mean,
    mul,
    reduce,
    size_value,
    sub,
    where,
    zeros_like,
)
from morpho.ops.batching import along_axes
from morpho.ops.index import out_of_range
from morpho.ops.neural.fused import reference_shift, shares_of, shifted, wide

NAME = "cross_entropy"


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    """Logits, and for each row a class (the axis kept with size 1) or, of the logits' own form, probabilities."""
    logits, target = inputs
    if not logits.dtype.is_float:
        raise fail(DTypeError, NAME, f"dtype {logits.dtype} is not taken", "convert with astype")
    (axis,) = attributes["axes"]
    if not 0 <= axis < len(logits.shape):
        raise fail(AxisError, NAME, f"axis {axis} is out of range for {len(logits.shape)} dimensions")
    if logits.shape[axis] == 0:
        raise fail(ShapeError, NAME, f"shape {logits.shape} has no classes along axis {axis}")
    rows = tuple(1 if i == axis else size for i, size in enumerate(logits.shape))
    fits = target.shape == rows if target.dtype.is_integer else target == logits
    if not fits:
        raise fail(ShapeError, NAME, f"targets {target.dtype}{target.shape} do not fit {logits.dtype}{logits.shape}")
    return Spec(rows, logits.dtype)


# -- classes -----------------------------------------------------------------------------------------------------------
def _wanted(node: Node) -> tuple[Node, Node | None]:
    """Where each row's class stands; and which rows count, None for all."""
    logits, target = node.inputs
    (axis,) = node["axes"]
    index, counts = cast(target, int64), None
    if node["ignore"] is not None:
        counts = build("not_equal", index, constant_like(index, node["ignore"]))
        index = where(counts, index, zeros_like(index))
    numbers = build("iota", shape=logits.shape, axis=axis, dtype=int32)
    checked = build("gather", numbers, index, axis=axis, called=NAME)  # of index numbers: the index itself, or a fault
    return build("equal", expand(checked, logits.shape), numbers), counts


def _class_loss(node: Node) -> Node:
    x, top, _, total = shifted(node)
    logarithm = build("log", total)
    hit, counts = _wanted(node)
    smoothing = node["smoothing"]
    # Both parts are positive, so nothing cancels, and the maximum and the picked logit come from one walk.
    loss = add(logarithm, sub(top, reduce("sum", where(hit, x, zeros_like(x)), node["axes"])))
    if smoothing:
        even = sub(logarithm, mean(sub(x, expand(top, x.shape)), node["axes"]))
        even = mul(even, constant_like(even, smoothing))
        loss = even if smoothing == 1 else add(mul(loss, constant_like(loss, 1 - smoothing)), even)
    if counts is not None:
        loss = where(counts, loss, zeros_like(loss))
    return cast(loss, node.dtype)


def _class_rule(node: Node, ct: Node) -> list[Node | None]:
    """softmax - target, times the row's slope."""
    shares = shares_of(node)
    hit, counts = _wanted(node)
    smoothing = node["smoothing"]
    share = div(constant_like(shares, smoothing), _classes(node, shares)) if smoothing else zeros_like(shares)
    target = where(hit, add(share, constant_like(shares, 1 - smoothing)), share)
    slope = mul(expand(cast(ct, node.dtype.compute), shares.shape), sub(shares, target))
    if counts is not None:  # not in the row's slope alone: what is left out may be infinite
        slope = where(expand(counts, shares.shape), slope, zeros_like(slope))
    return [cast(slope, node.dtype), None]


def _classes(node: Node, like: Node) -> Node:
    return expand(size_value(count(like, node["axes"]), like.dtype), like.shape)


# -- probabilities -----------------------------------------------------------------------------------------------------
def _smoothed(node: Node) -> Node:
    """The wanted probabilities, moved a little towards even ones."""
    target, smoothing = cast(node.inputs[1], node.dtype.compute), node["smoothing"]
    if not smoothing:
        return target
    share = div(constant_like(target, smoothing), _classes(node, target))
    return add(mul(target, constant_like(target, 1 - smoothing)), share)


def _spread_loss(node: Node) -> Node:
    x, top, _, total = shifted(node)
    target = _smoothed(node)
    below = sub(x, expand(top, x.shape))
    nothing = build("equal", target, zeros_like(target))  # 0 times a distance that overflowed is 0 here
    parts = reduce("sum", where(nothing, zeros_like(x), mul(target, below)), node["axes"])
    whole = reduce("sum", target, node["axes"])
    return cast(sub(mul(whole, build("log", total)), parts), node.dtype)


def _spread_rule(node: Node, ct: Node) -> list[Node | None]:
    x, top, _, total = shifted(node)
    shares, target = shares_of(node), _smoothed(node)
    slope = expand(cast(ct, x.dtype), x.shape)
    whole = expand(reduce("sum", target, node["axes"]), x.shape)
    surprise = sub(expand(build("log", total), x.shape), sub(x, expand(top, x.shape)))
    to_target = mul(mul(slope, surprise), constant_like(x, 1 - node["smoothing"]))
    to_logits = mul(slope, sub(mul(shares, whole), target))
    return [cast(to_logits, node.dtype), cast(to_target, node.dtype)]


# -- both --------------------------------------------------------------------------------------------------------------
def _composition(node: Node) -> Node:
    return _class_loss(node) if node.inputs[1].dtype.is_integer else _spread_loss(node)


def _rule(node: Node, ct: Node) -> list[Node | None]:
    return _class_rule(node, ct) if node.inputs[1].dtype.is_integer else _spread_rule(node, ct)


def _reference(attributes: Attributes, logits: Any, target: Any) -> Any:
    axis, smoothing, ignore = attributes["axes"][0], attributes["smoothing"], attributes["ignore"]
    classes = logits.shape[axis]
    counts = np.ones(target.shape, bool)
    if target.dtype.kind in "iu":
        counts = target != ignore if ignore is not None else counts
        index = np.where(counts, target, 0).astype(np.int64)
        if index.size and (index.min() < 0 or index.max() >= classes):
            raise out_of_range(NAME, classes, int(index.min() if index.min() < 0 else index.max()))
        numbers = np.arange(classes).reshape([-1 if i == axis else 1 for i in range(logits.ndim)])
        target = index == numbers
    else:
        counts = np.ones((1,), bool)

    def loss(attributes: Attributes, x: Any, p: Any) -> Any:
        top, powers = reference_shift(attributes, x)
        p = p * (1 - smoothing) + smoothing / classes
        below = np.where(p == 0, 0, p * (x - top))
        whole = np.sum(p, axis=axis, keepdims=True) * np.log(np.sum(powers, axis=axis, keepdims=True))
        return np.where(counts, whole - np.sum(below, axis=axis, keepdims=True), 0)

    return wide(loss)(attributes, logits, target)


CROSS_ENTROPY = register(Op(NAME, "fused", _infer, _rule, _reference, 24, "row kernel",
                            frozenset({"checks"}), _composition, TWO, "full", batch=along_axes))
