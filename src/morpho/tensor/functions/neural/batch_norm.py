"""Batch normalisation: by given statistics, which folds into one product and one sum, or by those of the batch."""

from __future__ import annotations

from typing import Any

from morpho.base.checks import check_numbers
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, constant_like, div, expand, mul, reduce, reshape, size_value, sub
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded


@recorded
def batch_norm(x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias per channel, axis 1, computed as x * scale + shift: after a
    convolution both are part of its kernel, and constants are folded once.

    >>> import morpho as mo
    >>> mo.batch_norm(mo.ones((1, 1, 2)), mo.zeros(1), mo.ones(1), mo.full(1, 2.0), mo.ones(1), eps=0.0).numpy()
    array([[[3., 3.]]], dtype=float32)
    """
    check_numbers("batch_norm", 0, eps=eps)
    if mean is None or variance is None:
        raise fail(ArgumentError, "batch_norm", "a mean and a variance are needed",
                   "batch_norm_training takes those of x")
    node, (centre, spread, *rest) = _operands("batch_norm", x, mean, variance, weight, bias)
    given = dict(zip([n for n, t in (("weight", weight), ("bias", bias)) if t is not None], rest, strict=True))
    scale = build("reciprocal", build("sqrt", add(spread, constant_like(spread, float(eps)))))
    scale = mul(given["weight"], scale) if "weight" in given else scale
    shift = mul(centre, scale)
    shift = sub(given["bias"], shift) if "bias" in given else build("negative", shift)
    return Tensor.of_node(_affine(node, scale, shift))


def batch_norm_training(x: Any, weight: Any = None, bias: Any = None,
                        eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """x normalised per channel, axis 1, by its own mean and variance, times `weight` plus `bias` where given; and these
    two, for running averages, of half floats in float32. The variance divides by the number of elements.

    >>> import morpho as mo
    >>> y, mean, variance = mo.batch_norm_training(mo.asarray([[1.0], [3.0]]), eps=0.0)
    >>> y.numpy().tolist(), mean.item(), variance.item()
    ([[-1.0], [1.0]], 2.0, 1.0)
    """
    check_numbers("batch_norm_training", 0, eps=eps)
    node, rest = _operands("batch_norm_training", x, weight, bias)
    given = dict(zip([n for n, t in (("weight", weight), ("bias", bias)) if t is not None], rest, strict=True))
    axes = tuple(d for d in range(len(node.shape)) if d != 1)
    count = product(tuple(node.shape[d] for d in axes))
    if count == 0:
        raise fail(ShapeError, "batch_norm_training", f"shape {node.shape} has no elements to take a mean of")
    wide = cast(node, node.dtype.compute)
    number = expand(size_value(count, wide.dtype), tuple(1 if d in axes else s for d, s in enumerate(node.shape)))
    mean = div(reduce("sum", wide, axes), number)
    centred = sub(wide, expand(mean, wide.shape))
    variance = div(reduce("sum", build("square", centred), axes), number)
    root = build("sqrt", add(variance, constant_like(variance, float(eps))))
    normal = mul(centred, expand(build("reciprocal", root), wide.shape))
    if "weight" in given:
        normal = mul(normal, _along(given["weight"], wide))
    if "bias" in given:
        normal = add(normal, _along(given["bias"], wide))
    channels = (node.shape[1],)
    return (Tensor.of_node(cast(normal, node.dtype)), Tensor.of_node(reshape(mean, channels)),
            Tensor.of_node(reshape(variance, channels)))


def _operands(name: str, x: Any, *others: Any) -> tuple[Node, list[Node]]:
    """x, and what has one element per channel in the dtype the arithmetic is done in."""
    node = as_node(x, name)
    if not node.dtype.is_float:
        raise fail(DTypeError, name, f"dtype {node.dtype} is not taken", "convert with astype")
    if len(node.shape) < 2:
        raise fail(ShapeError, name, f"shape {node.shape} has no axis of channels", "axis 1 holds them")
    found = []
    for other in others:
        if other is None:
            continue
        given = as_node(other, name)
        if given.shape != (node.shape[1],):
            raise fail(ShapeError, name, f"shape {given.shape} does not fit {node.shape[1]} channels")
        if not given.dtype.is_float:
            raise fail(DTypeError, name, f"dtype {given.dtype} is not taken", "convert with astype")
        if given.dtype.compute.itemsize > node.dtype.compute.itemsize:
            raise fail(ArgumentError, name, f"{given.dtype} per channel does not fit {node.dtype}",
                       "convert with astype")
        found.append(cast(given, node.dtype.compute))
    return node, found


def _along(channels: Node, node: Node) -> Node:
    """One number per channel spread over a tensor."""
    return expand(reshape(channels, (1, node.shape[1], *(1 for _ in node.shape[2:]))), node.shape)


def _affine(node: Node, scale: Node, shift: Node) -> Node:
    wide = cast(node, node.dtype.compute)
    return cast(add(mul(wide, _along(scale, wide)), _along(shift, wide)), node.dtype)
