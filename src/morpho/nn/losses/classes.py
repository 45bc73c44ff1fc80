"""Losses of classes: cross-entropy of logits, of log-probabilities, and the margin between classes.

Classes lie in axis 1, as PyTorch's do, or in the only axis of a single example; `dim=-1` is for those of a language
model, (batch, length, classes). The axis never depends on sizes.
"""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import as_whole, check_numbers, shown
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.nn.losses.reduction import full, reduced, rounded_loss
from morpho.tensor.convert import following
from morpho.tensor.functions.searching.search import classes_along, rows_of
from morpho.tensor.recorded import recorded

IGNORED = -100  # the class that targets have where nothing is wanted, as in PyTorch


def _class_axis(name: str, input: mo.Tensor, dim: int | None) -> int:
    if not input.ndim:
        raise fail(ShapeError, name, "a 0-dimensional tensor has no classes")
    return min(1, input.ndim - 1) if dim is None else normalise_axis(dim, input.ndim, name)


def _without(input: mo.Tensor, axis: int) -> tuple[Any, ...]:
    return tuple(size for i, size in enumerate(input.shape) if i != axis)


def _check_classes(name: str, input: mo.Tensor, target: mo.Tensor, axis: int) -> None:
    """Classes have the shape of the input without its class axis."""
    wanted = _without(input, axis)
    if tuple(target.shape) == wanted:
        return
    last = input.ndim > 2 and axis != input.ndim - 1 and tuple(target.shape) == tuple(input.shape[:-1])
    raise fail(ShapeError, name, f"targets {target.dtype}{tuple(target.shape)} are not classes of shape {wanted}: the "
               f"classes of {tuple(input.shape)} lie in axis {axis}", "say dim=-1 if they lie in the last one" if last
               else "")


def _check_weight(name: str, weight: Any, count: Any) -> None:
    shape = (count,) if weight is None else tuple(following(weight).shape)
    if shape != (count,):
        raise fail(ShapeError, name, f"a weight of shape {shape} is given for {count} classes")


def _shares(name: str, weight: Any, classes: mo.Tensor, ignore_index: int,
            dtype: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """Weight of each target (0 where it is ignored), and the classes with 0 in those positions."""
    kept = classes.astype(mo.int64) != ignore_index
    safe = mo.where(kept, classes, mo.zeros((), dtype=classes.dtype))
    if weight is None:
        shares = mo.ones(classes.shape, dtype=dtype)
    else:
        shares = mo.squeeze(rows_of(name, following(weight).astype(dtype)[:, None], safe), axis=-1)
    return mo.where(kept, shares, mo.zeros((), dtype=dtype)), safe


@recorded
def nll_loss(input: Any, target: Any, weight: Any = None, *, ignore_index: int = IGNORED, reduction: str = "mean",
             dim: int | None = None) -> mo.Tensor:
    """The negative of the wanted classes' log-probabilities; `weight` per class, and a mean divides by the weights.
    Targets of `ignore_index` count for nothing, and a mean over no targets is 0.

    >>> mo.nn.nll_loss(mo.asarray([[-1.0, -2.0]]), mo.asarray([1])).item()
    2.0
    """
    return _picked("nll_loss", full(input), following(target), weight, ignore_index, reduction, dim)


def _picked(name: str, input: mo.Tensor, classes: mo.Tensor, weight: Any, ignore_index: int, reduction: str,
            dim: int | None) -> mo.Tensor:
    """`nll_loss`, also as a part of the loss of this name."""
    axis, ignored = _class_axis(name, input, dim), _checked_index(name, ignore_index)
    if not classes.dtype.is_integer:
        raise fail(ShapeError, name, f"targets are {classes.dtype} and not classes",
                   "class numbers are integers: targets.astype('int64')")
    _check_classes(name, input, classes, axis)
    _check_weight(name, weight, input.shape[axis])
    shares, safe = _shares(name, weight, classes, ignored, input.dtype)
    found = mo.squeeze(classes_along(name, input, mo.expand_dims(safe, axis=axis), axis), axis=axis)
    return _weighed(name, -found, shares, shares, reduction)


def _checked_index(name: str, ignore_index: Any) -> int:
    number = as_whole(ignore_index)
    if number is None:
        raise fail(ArgumentError, name, f"ignore_index={shown(ignore_index)} is not a whole number")
    return number


def _weighed(name: str, loss: mo.Tensor, times: mo.Tensor, shares: mo.Tensor, reduction: str) -> mo.Tensor:
    """loss * times, nothing where the share is 0; a mean divides by the sum of the shares."""
    loss = mo.where(shares != 0, loss * times, mo.zeros((), dtype=loss.dtype))
    if reduction != "mean":
        return reduced(name, loss, reduction)
    total = mo.sum(shares)
    return mo.sum(loss) / mo.where(total != 0, total, mo.ones((), dtype=total.dtype))


@recorded
def cross_entropy(input: Any, target: Any, weight: Any = None, *, ignore_index: int = IGNORED, reduction: str = "mean",
                  label_smoothing: float = 0.0, dim: int | None = None) -> mo.Tensor:
    """The negative logarithm of softmax(input) at the wanted classes: integers without the class axis, or probabilities
    of the input's shape. `weight` is what each class counts for: a mean over classes divides by the weights of the
    targets. Targets of `ignore_index` count for nothing, and a mean over no targets is 0. `mo.cross_entropy` is the
    function below it, with the classes in the last axis.

    >>> round(mo.nn.cross_entropy(mo.zeros((2, 4)), mo.asarray([1, 3]), weight=mo.ones(4)).item(), 4)
    1.3863
    """
    name = "cross_entropy"
    logits, wanted = full(input), following(target)
    axis, ignored = _class_axis(name, logits, dim), _checked_index(name, ignore_index)
    check_numbers(name, 0, label_smoothing=label_smoothing)
    _check_weight(name, weight, logits.shape[axis])
    if wanted.dtype.is_integer:
        _check_classes(name, logits, wanted, axis)
    if weight is None:
        passed = None if wanted.dtype.is_float and ignored == IGNORED else ignored
        return mo.cross_entropy(logits, wanted, axis=axis, label_smoothing=label_smoothing, ignore_index=passed,
                                reduction=reduction)
    if not wanted.dtype.is_integer:
        return _soft(name, logits, wanted, following(weight), ignored, reduction, label_smoothing, axis)
    logarithms = mo.log_softmax(logits, axis=axis)
    plain = _picked(name, logarithms, wanted, weight, ignored, reduction, axis)
    if not label_smoothing:
        return plain
    weights = following(weight).astype(logarithms.dtype)
    even = -mo.sum(logarithms * _along(weights, logits, axis), axis=axis)  # every class alike
    shares, _ = _shares(name, weights, wanted, ignored, even.dtype)
    even = _weighed(name, even, mo.ones_like(even), shares, reduction)
    return (1 - label_smoothing) * plain + label_smoothing / logits.shape[axis] * even


def _along(weight: mo.Tensor, input: mo.Tensor, axis: int) -> mo.Tensor:
    """Weights of classes in the shape that broadcasts along the class axis."""
    return mo.reshape(weight, tuple(size if i == axis else 1 for i, size in enumerate(input.shape)))


def _soft(name: str, logits: mo.Tensor, target: mo.Tensor, weight: mo.Tensor, ignore_index: int, reduction: str,
          smoothing: float, axis: int) -> mo.Tensor:
    """Cross-entropy with probabilities as targets and a weight per class; a mean divides by the number of rows."""
    if not target.dtype.is_float:
        raise fail(DTypeError, name, f"targets are {target.dtype}, neither classes nor probabilities")
    if target.shape != logits.shape or ignore_index != IGNORED:
        raise fail(ShapeError, name, f"probabilities of shape {tuple(target.shape)} do not fit logits of "
                   f"{tuple(logits.shape)}, or have an ignore_index", "class numbers are integers: "
                   "targets.astype('int64')")
    logarithms = mo.log_softmax(logits, axis=axis)
    mixed = (1 - smoothing) * target.astype(logits.dtype) + smoothing / logits.shape[axis]
    return reduced(name, -mo.sum(logarithms * mixed * _along(weight.astype(logits.dtype), logits, axis), axis=axis),
                   reduction)


@recorded
@rounded_loss
def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, *,
                      reduction: str = "mean") -> mo.Tensor:
    """The sum over all other classes of max(0, margin - input[target] + input[class]) ** p, divided by the number of
    classes; `weight` is what a target's class counts for.

    >>> mo.nn.multi_margin_loss(mo.asarray([[0.5, 1.0]]), mo.asarray([1])).item()
    0.25
    """
    name = "multi_margin_loss"
    if p not in (1, 2):
        raise fail(ArgumentError, name, f"p={shown(p)} is neither 1 nor 2")
    check_numbers(name, margin=margin)
    scores, classes = full(input), following(target)
    if scores.ndim not in (1, 2) or not scores.dtype.is_float:
        raise fail(ShapeError, name, f"scores {scores.dtype}{tuple(scores.shape)} are not floats [N, C] or [C]")
    if not classes.dtype.is_integer:
        raise fail(ShapeError, name, f"targets are {classes.dtype} and not classes",
                   "class numbers are integers: targets.astype('int64')")
    axis, count = scores.ndim - 1, scores.shape[-1]
    _check_classes(name, scores, classes, axis)
    _check_weight(name, weight, count)
    own = classes_along(name, scores, mo.expand_dims(classes, axis=axis), axis)
    over = mo.relu(margin - own + scores)
    over = over if p == 1 else mo.square(over)
    if weight is not None:
        over = over * rows_of(name, following(weight).astype(scores.dtype)[:, None], classes)
    others = mo.arange(count) != mo.expand_dims(classes, axis=axis)
    loss = mo.sum(mo.where(others, over, mo.zeros((), dtype=over.dtype)), axis=axis) / count
    return reduced(name, loss, reduction)
