"""Losses: how far a prediction is from what was wanted."""

from __future__ import annotations

from typing import Any

from morpho.base.checks import as_real, as_whole, shown
from morpho.base.dims import Size, bounds
from morpho.base.dtypes import DType, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant, constant_like, count, div, expand, mul, reduce, reshape, size_value, sub
from morpho.tensor.autodiff.precision import widened
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.recorded import recorded

REDUCTIONS = ("mean", "sum", "none")


@recorded
def cross_entropy(logits: Any, targets: Any, /, *, axis: int = -1, label_smoothing: float = 0.0,
                  ignore_index: int | None = None, reduction: str = "mean") -> Tensor:
    """The negative logarithm of softmax(logits) at the wanted classes, by log-sum-exp: finite logits never give NaN.

    `targets` are classes (integers, without the axis), each checked, or probabilities (of the logits' shape).
    `label_smoothing` moves that share of the target to all classes alike. Rows whose target is `ignore_index` count for
    nothing, in the mean neither; a mean over no rows is 0. `reduction` is "mean", "sum" or "none".

    >>> mo.cross_entropy(mo.asarray([[0.0, 0.0]]), mo.asarray([1])).item()
    0.6931471824645996
    """
    name = "cross_entropy"
    node = widened(promoted(name, logits, floating=True)[0])
    if not node.shape:
        raise fail(ShapeError, name, "a 0-dimensional tensor has no classes")
    if reduction not in REDUCTIONS:
        raise fail(ArgumentError, name, f"reduction {reduction!r} is unknown", "use 'mean', 'sum' or 'none'")
    smoothing = as_real(label_smoothing)
    if smoothing is None or not 0 <= smoothing <= 1:
        raise fail(ArgumentError, name, f"label_smoothing={shown(label_smoothing)} is not a number between 0 and 1")
    ignored = as_whole(ignore_index)
    if ignore_index is not None and ignored is None:
        raise fail(ArgumentError, name, f"ignore_index={shown(ignore_index)} is not a whole number")
    number = normalise_axis(axis, len(node.shape), name)
    target = _target(name, node, as_node(targets, name), number, ignored)
    loss = build(name, node, target, axes=(number,), smoothing=smoothing, ignore=ignored)
    return Tensor.of_node(_reduced(loss, target, number, reduction))


def _target(name: str, logits: Node, target: Node, axis: int, ignore: int | None) -> Node:
    """Classes with the axis put back, or probabilities of the logits' dtype."""
    if target.dtype.is_integer:
        wanted = tuple(size for i, size in enumerate(logits.shape) if i != axis)
        if target.shape != wanted:
            raise fail(ShapeError, name, f"classes of shape {target.shape} do not fit logits of {logits.shape} "
                                         f"along axis {axis}", f"they must have the shape {wanted}")
        return reshape(target, (*wanted[:axis], 1, *wanted[axis:]))
    if not target.dtype.is_float:
        raise fail(DTypeError, name, f"targets are {target.dtype}, neither classes nor probabilities")
    if ignore is not None:
        raise fail(ArgumentError, name, "ignore_index is for classes, and the targets are probabilities",
                   "set the probabilities of such rows to 0")
    if target.shape != logits.shape:
        are_classes = target.shape == tuple(size for i, size in enumerate(logits.shape) if i != axis)
        raise fail(ShapeError, name, f"probabilities of shape {target.shape} do not fit logits of {logits.shape}",
                   "class numbers are integers: targets.astype('int64')" if are_classes else
                   "probabilities have the shape of the logits; class numbers are integers without that axis")
    return cast(target, logits.dtype)


def _reduced(loss: Node, target: Node, axis: int, reduction: str) -> Node:
    """One value per row, their sum, or their mean; half floats add and divide in float32 and round once."""
    shape = tuple(size for i, size in enumerate(loss.shape) if i != axis)
    if reduction == "none":
        return reshape(loss, shape)
    axes, wide = tuple(range(len(shape))), cast(loss, loss.dtype.compute)
    if reduction == "mean" and loss["ignore"] is not None:
        # Rows are scaled before they are added: so their gradient needs only the count, and stays in their kernel.
        share = reshape(_share(reshape(target, shape), loss["ignore"], wide), ())
        wide = mul(wide, expand(share, wide.shape))
    rows = reshape(wide, shape)
    total = reduce("sum", rows, axes)
    if reduction == "mean" and loss["ignore"] is None:
        total = div(total, expand(_at_least_one(count(rows, axes), total.dtype), total.shape))
    return cast(reshape(total, ()), loss.dtype)


def _at_least_one(size: Size, dtype: DType) -> Node:
    """A count of rows to divide by: the mean of none is 0, whether that is known before or not."""
    if isinstance(size, int):
        return constant(max(size, 1), dtype)
    found = size_value(size, dtype)
    return found if bounds(size)[0] > 0 else build("maximum", found, constant(1, dtype))


def _share(target: Node, ignore: int, like: Node) -> Node:
    """One over the number of rows that count, or 1 where none does."""
    classes, axes = cast(target, int64), tuple(range(len(target.shape)))
    ignored = reduce("sum", cast(build("equal", classes, constant_like(classes, ignore)), int64), axes)
    counted = sub(expand(size_value(count(classes, axes), int64), ignored.shape), ignored)
    divisor = cast(build("maximum", counted, constant_like(counted, 1)), like.dtype)
    return build("reciprocal", divisor)
