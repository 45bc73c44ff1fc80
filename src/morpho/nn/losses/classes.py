"""Losses: how far predictions are from what was wanted, as functions; `modules.py` has them as modules.

Each takes `reduction`: "mean" over all elements, "sum", or "none" for one value each.
"""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import normalise_axis
from morpho.tensor.precision import widened
from morpho.tensor.search import classes_along, rows_of

REDUCTIONS = ("mean", "sum", "none")


def _reduced(name: str, loss: mo.Tensor, reduction: str) -> mo.Tensor:
    if reduction not in REDUCTIONS:
        raise fail(ArgumentError, name, f"reduction {reduction!r} is unknown", "use 'mean', 'sum' or 'none'")
    if reduction == "none":
        return loss
    return mo.mean(loss) if reduction == "mean" else mo.sum(loss)


def _full(value: Any) -> mo.Tensor:
    """As a tensor; under autocast half floats as float32, for losses are never computed in less."""
    return mo.Tensor.of_node(widened(mo.asarray(value).node))


def _alike(name: str, prediction: Any, target: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """Both as float tensors of one shape: broadcasting (8, 1) with (8,) to (8, 8) is never what was meant."""
    one, other = _full(prediction), mo.asarray(target)
    if one.shape != other.shape:
        raise fail(ShapeError, name, f"predictions of shape {tuple(one.shape)} and targets of {tuple(other.shape)} "
                                     "differ", "reshape or squeeze one of them")
    if not one.dtype.is_float:
        raise fail(DTypeError, name, f"predictions are {one.dtype}", "convert with astype")
    return one, other.astype(one.dtype)


def mse_loss(prediction: Any, target: Any, reduction: str = "mean") -> mo.Tensor:
    """The squared difference.

    >>> mo.nn.mse_loss(mo.asarray([1.0, 2.0]), mo.asarray([1.0, 4.0])).item()
    2.0
    """
    one, other = _alike("mse_loss", prediction, target)
    return _reduced("mse_loss", mo.square(one - other), reduction)


def l1_loss(prediction: Any, target: Any, reduction: str = "mean") -> mo.Tensor:
    """The absolute difference.

    >>> mo.nn.l1_loss(mo.asarray([1.0, 2.0]), mo.asarray([1.0, 4.0])).item()
    1.0
    """
    one, other = _alike("l1_loss", prediction, target)
    return _reduced("l1_loss", mo.abs(one - other), reduction)


def huber_loss(prediction: Any, target: Any, delta: float = 1.0, reduction: str = "mean") -> mo.Tensor:
    """Half the square of a difference up to `delta`, and beyond it the straight line that goes on from there.

    >>> mo.nn.huber_loss(mo.asarray([0.0, 0.0]), mo.asarray([1.0, 3.0]), reduction="none").numpy()
    array([0.5, 2.5], dtype=float32)
    """
    if not delta > 0:
        raise fail(ArgumentError, "huber_loss", f"delta={delta} is not positive")
    one, other = _alike("huber_loss", prediction, target)
    away = mo.abs(one - other)
    return _reduced("huber_loss", mo.where(away <= delta, 0.5 * mo.square(away), delta * (away - 0.5 * delta)),
                    reduction)


def smooth_l1_loss(prediction: Any, target: Any, beta: float = 1.0, reduction: str = "mean") -> mo.Tensor:
    """The Huber loss divided by `beta`; with beta=0 the absolute difference.

    >>> mo.nn.smooth_l1_loss(mo.asarray([0.0]), mo.asarray([3.0]), beta=2.0).item()
    2.0
    """
    if beta == 0:
        return l1_loss(prediction, target, reduction)
    if not beta > 0:
        raise fail(ArgumentError, "smooth_l1_loss", f"beta={beta} is negative")
    one, other = _alike("smooth_l1_loss", prediction, target)
    away = mo.abs(one - other)
    return _reduced("smooth_l1_loss", mo.where(away < beta, 0.5 / beta * mo.square(away), away - 0.5 * beta), reduction)


def binary_cross_entropy(probability: Any, target: Any, weight: Any = None, reduction: str = "mean") -> mo.Tensor:
    """-(target * log(p) + (1 - target) * log(1 - p)); logarithms are at least -100, so that 0 and 1 are allowed.

    >>> round(mo.nn.binary_cross_entropy(mo.asarray([0.5]), mo.asarray([1.0])).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy"
    one, other = _alike(name, probability, target)
    loss = _binary_entropy(one, other)
    return _reduced(name, loss if weight is None else loss * weight, reduction)


@mo.custom_gradient
def _binary_entropy(p: mo.Tensor, target: mo.Tensor) -> Any:
    """Where a logarithm is cut off the gradient goes on, and is large instead of infinite."""
    yes, no = mo.maximum(mo.log(p), -100.0), mo.maximum(mo.log1p(-p), -100.0)
    loss = -(target * yes + (1 - target) * no)
    return loss, lambda g: (g * (p - target) / mo.maximum(p * (1 - p), 1e-12), g * (no - yes))


def binary_cross_entropy_with_logits(logits: Any, target: Any, weight: Any = None, pos_weight: Any = None,
                                     reduction: str = "mean") -> mo.Tensor:
    """Binary cross-entropy of sigmoid(logits), without its loss of precision: no finite logit gives NaN or infinity.
    `pos_weight` is what a target of 1 counts for beside one of 0.

    >>> round(mo.nn.binary_cross_entropy_with_logits(mo.asarray([0.0]), mo.asarray([1.0])).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy_with_logits"
    one, other = _alike(name, logits, target)
    if pos_weight is None:
        loss = mo.softplus(one) - other * one
    else:
        loss = (1 - other) * mo.softplus(one) + pos_weight * other * mo.softplus(-one)
    return _reduced(name, loss if weight is None else loss * weight, reduction)


def kl_div(log_prediction: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> mo.Tensor:
    """target * (log(target) - log_prediction): how much the wanted distribution says beyond the predicted one, which is
    given by its logarithms. `reduction` may also be "batchmean": the sum divided by the length of the first axis.

    >>> mo.nn.kl_div(mo.log(mo.asarray([[0.5, 0.5]])), mo.asarray([[0.5, 0.5]]), reduction="batchmean").item()
    0.0
    """
    one, other = _alike("kl_div", log_prediction, target)
    if log_target:
        loss = mo.exp(other) * (other - one)
    else:
        positive = other > 0
        logarithm = mo.log(mo.where(positive, other, mo.ones((), dtype=other.dtype)))  # 0 log 0 is 0
        loss = mo.where(positive, other * logarithm, mo.zeros((), dtype=other.dtype)) - other * one
    if reduction == "batchmean":
        if not one.ndim:
            raise fail(ShapeError, "kl_div", "a 0-dimensional tensor has no batch")
        return mo.sum(loss) / one.shape[0]
    return _reduced("kl_div", loss, reduction)


def cosine_similarity(one: Any, other: Any, axis: int = -1, eps: float = 1e-8) -> mo.Tensor:
    """The cosine of the angle between vectors along an axis; lengths count as at least `eps`.

    >>> mo.nn.cosine_similarity(mo.asarray([3.0, 4.0]), mo.asarray([3.0, 4.0])).item()
    1.0
    """
    one, other = _full(one), _full(other)
    product = mo.sum(one * other, axis=axis)
    return product / (_length(one, axis, eps) * _length(other, axis, eps))


def _length(x: mo.Tensor, axis: int, least: float) -> mo.Tensor:
    """The Euclidean length, at least `least`, with a gradient of 0 where it is less."""
    return mo.sqrt(mo.maximum(mo.sum(mo.square(x), axis=axis), least * least))


def cosine_embedding_loss(one: Any, other: Any, target: Any, margin: float = 0.0,
                          reduction: str = "mean") -> mo.Tensor:
    """1 - cosine for pairs whose target is 1, and for pairs whose target is -1 what the cosine exceeds `margin` by.

    >>> x, y = mo.asarray([[1.0, 0.0]]), mo.asarray([[0.0, 1.0]])
    >>> mo.nn.cosine_embedding_loss(x, y, mo.asarray([1])).item()
    1.0
    """
    name = "cosine_embedding_loss"
    one, other = _alike(name, one, other)
    wanted = mo.asarray(target)
    if wanted.shape != one.shape[:-1]:
        raise fail(ShapeError, name, f"targets of shape {tuple(wanted.shape)} do not fit pairs of {tuple(one.shape)}")
    tiny = 1e-12  # added to both squares, so that vectors of zeros have a gradient
    squares = (mo.sum(mo.square(one), axis=-1) + tiny) * (mo.sum(mo.square(other), axis=-1) + tiny)
    cosine = mo.sum(one * other, axis=-1) / mo.sqrt(squares)
    loss = mo.where(wanted > 0, 1 - cosine, mo.relu(cosine - margin))
    return _reduced(name, loss, reduction)


def pairwise_distance(one: Any, other: Any, p: float = 2.0, eps: float = 1e-6) -> mo.Tensor:
    """The p-norm of one - other + eps along the last axis.

    >>> round(mo.nn.pairwise_distance(mo.asarray([3.0, 4.0]), mo.asarray([0.0, 0.0])).item(), 4)
    5.0
    """
    away = _full(one) - _full(other) + eps
    if p == 2:
        return mo.sqrt(mo.sum(mo.square(away), axis=-1))
    if p == 1:
        return mo.sum(mo.abs(away), axis=-1)
    if p == math.inf:
        return mo.max(mo.abs(away), axis=-1)
    if not p > 0:
        raise fail(ArgumentError, "pairwise_distance", f"p={p} is not positive")
    return mo.sum(mo.abs(away) ** p, axis=-1) ** (1 / p)


def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, swap: bool = False, reduction: str = "mean") -> mo.Tensor:
    """What the distance to a positive example, with a margin, exceeds that to a negative one by: max(0, d(a, p)
    - d(a, n) + margin). With `swap` the latter is the smaller one of the distances from the anchor and the positive.

    >>> zero, one = mo.zeros((1, 2)), mo.ones((1, 2))
    >>> round(mo.nn.triplet_margin_loss(zero, zero, one).item(), 3)
    0.0
    """
    name = "triplet_margin_loss"
    anchor, positive = _alike(name, anchor, positive)
    _, negative = _alike(name, anchor, negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = mo.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(name, mo.relu(near - far + margin), reduction)


def focal_loss(logits: Any, target: Any, gamma: float = 2.0, alpha: float | None = 0.25,
               reduction: str = "mean") -> mo.Tensor:
    """Binary cross-entropy of sigmoid(logits) times (1 - p)^gamma, where p is the probability of what was wanted: easy
    examples count for little. `alpha` weighs targets of 1 and 1 - alpha those of 0; None weighs none.

    >>> easy, hard = mo.nn.focal_loss(mo.asarray([5.0, -5.0]), mo.asarray([1.0, 1.0]), reduction="none").tolist()
    >>> hard > 1000 * easy
    True
    """
    if gamma < 0 or (alpha is not None and not 0 <= alpha <= 1):
        raise fail(ArgumentError, "focal_loss", f"gamma={gamma} is negative, or alpha={alpha} not between 0 and 1")
    one, other = _alike("focal_loss", logits, target)
    entropy = mo.softplus(one) - other * one
    signed = one * (2 * other - 1)
    missed = mo.sigmoid(-signed) if gamma else 1.0  # 1 - p for targets of 0 and 1
    loss = entropy * missed ** gamma if gamma else entropy
    if alpha is not None:
        loss = loss * (alpha * other + (1 - alpha) * (1 - other))
    return _reduced("focal_loss", loss, reduction)


def _shares(name: str, weight: Any, classes: mo.Tensor, ignore_index: int | None,
            dtype: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """What each target counts for, 0 where it is ignored; and the classes with 0 in those places."""
    kept = None if ignore_index is None else classes != ignore_index
    safe = classes if kept is None else mo.where(kept, classes, mo.zeros((), dtype=classes.dtype))
    if weight is None:
        shares = mo.ones(classes.shape, dtype=dtype)
    else:
        shares = mo.squeeze(rows_of(name, mo.asarray(weight).astype(dtype)[:, None], safe), axis=-1)
    return shares if kept is None else mo.where(kept, shares, mo.zeros((), dtype=dtype)), safe


def nll_loss(log_probabilities: Any, target: Any, axis: int = -1, weight: Any = None,
             ignore_index: int | None = None, reduction: str = "mean") -> mo.Tensor:
    """The negative of the wanted classes' log-probabilities; `weight` per class, and a mean divides by the weights. A
    mean over no targets is 0.

    >>> mo.nn.nll_loss(mo.asarray([[-1.0, -2.0]]), mo.asarray([1])).item()
    2.0
    """
    return _picked("nll_loss", log_probabilities, target, axis, weight, ignore_index, reduction)


def _picked(name: str, log_probabilities: Any, target: Any, axis: int, weight: Any, ignore_index: int | None,
            reduction: str) -> mo.Tensor:
    """`nll_loss`, also as a part of the loss of this name."""
    one, classes = _full(log_probabilities), mo.asarray(target)
    axis = normalise_axis(axis, one.ndim, name)
    wanted = tuple(size for i, size in enumerate(one.shape) if i != axis)
    if tuple(classes.shape) != wanted or not classes.dtype.is_integer:
        raise fail(ShapeError, name, f"targets {classes.dtype}{tuple(classes.shape)} are not classes of shape {wanted}",
                   "" if classes.dtype.is_integer else "class numbers are integers: targets.astype('int64')")
    if weight is not None and tuple(mo.asarray(weight).shape) != (one.shape[axis],):
        raise fail(ShapeError, name, f"a weight of shape {tuple(mo.asarray(weight).shape)} is given for "
                                     f"{one.shape[axis]} classes")
    shares, safe = _shares(name, weight, classes, ignore_index, one.dtype)
    found = mo.squeeze(classes_along(name, one, mo.expand_dims(safe, axis=axis), axis), axis=axis)
    return _weighed(name, -found, shares, shares, reduction)


def _weighed(name: str, loss: mo.Tensor, times: mo.Tensor, shares: mo.Tensor, reduction: str) -> mo.Tensor:
    """loss * times, nothing where the share is 0; a mean divides by the sum of the shares."""
    loss = mo.where(shares != 0, loss * times, mo.zeros((), dtype=loss.dtype))
    if reduction != "mean":
        return _reduced(name, loss, reduction)
    total = mo.sum(shares)
    return mo.sum(loss) / mo.where(total != 0, total, mo.ones((), dtype=total.dtype))


def cross_entropy(logits: Any, target: Any, axis: int = -1, weight: Any = None, label_smoothing: float = 0.0,
                  ignore_index: int | None = None, reduction: str = "mean") -> mo.Tensor:
    """`mo.cross_entropy`, with a `weight` per class where given: a mean divides by the weights of the targets.

    >>> round(mo.nn.cross_entropy(mo.zeros((2, 4)), mo.asarray([1, 3]), weight=mo.ones(4)).item(), 4)
    1.3863
    """
    if weight is None:
        return mo.cross_entropy(logits, target, axis=axis, label_smoothing=label_smoothing, ignore_index=ignore_index,
                                reduction=reduction)
    logarithms, classes = mo.log_softmax(logits, axis=axis), mo.asarray(target)
    if not classes.dtype.is_integer:
        raise fail(DTypeError, "cross_entropy", f"with a weight, targets are classes and not {classes.dtype}")
    plain = _picked("cross_entropy", logarithms, classes, axis, weight, ignore_index, reduction)
    if not label_smoothing:
        return plain
    along = [1] * logarithms.ndim
    along[axis] = count = logarithms.shape[axis]
    weights = mo.asarray(weight).astype(logarithms.dtype)
    even = -mo.sum(logarithms * mo.reshape(weights, tuple(along)), axis=axis)  # every class alike
    shares, _ = _shares("cross_entropy", weights, classes, ignore_index, even.dtype)
    even = _weighed("cross_entropy", even, mo.ones_like(even), shares, reduction)
    return (1 - label_smoothing) * plain + label_smoothing / count * even
