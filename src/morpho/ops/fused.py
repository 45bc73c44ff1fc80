"""Fused ops: softmax and the norms. One kernel on the CPU at every level; the composition is their meaning.

Half floats are widened once, computed in float32 and rounded once: the casts stand in the composition, so the bits do
not depend on how it is grouped into kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import AxisError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import add, cast, constant_like, div, expand, mean, mul, reduce, reshape, sub

_BY_COMPOSITION = NoGradient("the gradient is that of the composition")
NEEDS_ELEMENTS = frozenset({"needs elements"})  # along its axes


def _infer_rows(name: str, keeps: bool) -> Callable[[Sequence[Spec], Attributes], Spec]:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        shape, dtype = inputs[0]
        if not dtype.is_float:
            raise fail(DTypeError, name, f"dtype {dtype} is not taken", "convert with astype")
        axes = attributes["axes"]
        if any(not 0 <= axis < len(shape) for axis in axes):
            raise fail(AxisError, name, f"axes {axes} are out of range for {len(shape)} dimensions")
        if any(shape[axis] == 0 for axis in axes):
            raise fail(ShapeError, name, f"shape {shape} has no elements along axis {axes}")
        for other in inputs[1:]:  # weight and bias of a norm
            if other.shape != tuple(shape[axis] for axis in axes) or other.dtype is not dtype:
                raise fail(ShapeError, name, f"a weight {other.dtype}{other.shape} does not fit {dtype}{shape}")
        return Spec(shape if keeps else tuple(1 if i in axes else s for i, s in enumerate(shape)), dtype)

    return infer


def _shifted(node: Node) -> tuple[Node, Node, Node, Node]:
    """x, its maximum per row (0 where that is not finite), exp(x - maximum) and the sum of those."""
    x = cast(node.inputs[0], node.dtype.compute)
    top = reduce("max", x, node["axes"])
    finite = build("isfinite", top)
    top = build("where", finite, top, constant_like(top, 0))
    powers = build("exp", sub(x, expand(top, x.shape)))
    return x, top, powers, reduce("sum", powers, node["axes"])


def _softmax(node: Node) -> Node:
    _, _, powers, total = _shifted(node)
    return cast(div(powers, expand(total, powers.shape)), node.dtype)


def _logsumexp(node: Node) -> Node:
    _, top, _, total = _shifted(node)
    return cast(add(top, build("log", total)), node.dtype)


def _log_softmax(node: Node) -> Node:
    x, top, _, total = _shifted(node)
    return cast(sub(sub(x, expand(top, x.shape)), expand(build("log", total), x.shape)), node.dtype)


def _affine(node: Node, normal: Node) -> Node:
    """Times the weight, plus the bias, where given; both lie along the normalised axes."""
    shape = tuple(size if i in node["axes"] else 1 for i, size in enumerate(normal.shape))
    for other, combine in zip(node.inputs[1:], (mul, add), strict=False):
        # The cast comes after: inside a group every value fills the space.
        spread = expand(reshape(other, shape), normal.shape)
        normal = combine(normal, cast(spread, normal.dtype))
    return cast(normal, node.dtype)


def _scaled(x: Node, squares: Node, eps: float) -> Node:
    """x / sqrt(squares + eps), by one division per row."""
    root = build("sqrt", add(squares, constant_like(squares, eps)))
    return mul(x, expand(build("reciprocal", root), x.shape))


def _layer_norm(node: Node) -> Node:
    x = cast(node.inputs[0], node.dtype.compute)
    centred = sub(x, expand(mean(x, node["axes"]), x.shape))
    return _affine(node, _scaled(centred, mean(build("square", centred), node["axes"]), node["eps"]))


def _rms_norm(node: Node) -> Node:
    x = cast(node.inputs[0], node.dtype.compute)
    return _affine(node, _scaled(x, mean(build("square", x), node["axes"]), node["eps"]))


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """References run in float64 and round once at the end."""

    def call(attributes: Attributes, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(attributes, *[np.asarray(a, np.float64) for a in arrays])
        return result.astype(arrays[0].dtype)

    return call


def _reference_shift(attributes: Attributes, x: Any) -> tuple[Any, Any]:
    top = np.max(x, axis=attributes["axes"], keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    return top, np.exp(x - top)


def _reference_softmax(attributes: Attributes, x: Any) -> Any:
    _, powers = _reference_shift(attributes, x)
    return powers / np.sum(powers, axis=attributes["axes"], keepdims=True)


def _reference_logsumexp(attributes: Attributes, x: Any) -> Any:
    top, powers = _reference_shift(attributes, x)
    return top + np.log(np.sum(powers, axis=attributes["axes"], keepdims=True))


def _reference_log_softmax(attributes: Attributes, x: Any) -> Any:
    top, powers = _reference_shift(attributes, x)
    return x - top - np.log(np.sum(powers, axis=attributes["axes"], keepdims=True))


def _reference_norm(attributes: Attributes, x: Any, affine: Sequence[Any], centre: bool) -> Any:
    axes = attributes["axes"]
    if centre:
        x = x - np.mean(x, axis=axes, keepdims=True)
    x = x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + attributes["eps"])
    shape = tuple(size if i in axes else 1 for i, size in enumerate(x.shape))
    for other, combine in zip(affine, (np.multiply, np.add), strict=False):
        x = combine(x, other.reshape(shape))
    return x


SOFTMAX = register(Op("softmax", "fused", _infer_rows("softmax", True), _BY_COMPOSITION, _wide(_reference_softmax), 20,
                      "row kernel", NEEDS_ELEMENTS, composition=_softmax))
LOGSUMEXP = register(Op("logsumexp", "fused", _infer_rows("logsumexp", False), _BY_COMPOSITION,
                        _wide(_reference_logsumexp), 20, "row kernel",
                        NEEDS_ELEMENTS, composition=_logsumexp))
LOG_SOFTMAX = register(Op("log_softmax", "fused", _infer_rows("log_softmax", True), _BY_COMPOSITION,
                          _wide(_reference_log_softmax), 20, "row kernel",
                          NEEDS_ELEMENTS, composition=_log_softmax))
LAYER_NORM = register(Op("layer_norm", "fused", _infer_rows("layer_norm", True), _BY_COMPOSITION,
                         _wide(lambda a, x, *rest: _reference_norm(a, x, rest, True)), 8, "row kernel",
                         NEEDS_ELEMENTS, composition=_layer_norm))
RMS_NORM = register(Op("rms_norm", "fused", _infer_rows("rms_norm", True), _BY_COMPOSITION,
                       _wide(lambda a, x, *rest: _reference_norm(a, x, rest, False)), 6, "row kernel",
                       NEEDS_ELEMENTS, composition=_rms_norm))
