"""Losses of vectors that should be near or far: cosines, distances, and the margins between them."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.nn.losses.reduction import alike, full, reduced, rounded_loss
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.convert import following
from morpho.tensor.recorded import recorded


@rounded_once
@recorded
def cosine_similarity(x1: Any, x2: Any, dim: int | None = None, eps: float = 1e-8) -> mo.Tensor:
    """The cosine of the angle between vectors along an axis: axis 1, as PyTorch's, or the only one of a pair of
    vectors. Both are broadcast to one shape first; lengths count as at least `eps`.

    >>> mo.nn.cosine_similarity(mo.asarray([3.0, 4.0]), mo.asarray([3.0, 4.0])).item()
    1.0
    """
    name = "cosine_similarity"
    check_numbers(name, 0, eps=eps)
    one, other = mo.broadcast_arrays(full(x1), full(x2))  # a length is that of the whole vector
    for given in (one, other):
        if given.dtype.is_complex:
            raise fail(DTypeError, name, f"{given.dtype} has no angle of one number")
    if not one.ndim:
        raise fail(ShapeError, name, "0-dimensional tensors hold no vectors")
    axis, dtype = min(1, one.ndim - 1) if dim is None else dim, one.dtype
    one, other = _wide(one), _wide(other)
    product = mo.sum(one * other, axis=axis)
    return (product / (_length(one, axis, eps) * _length(other, axis, eps))).astype(dtype)


def _wide(x: mo.Tensor) -> mo.Tensor:
    """Half floats as float32, which holds the squares of all of them."""
    return x.astype(mo.float32) if x.dtype.itemsize == 2 else x


def _length(x: mo.Tensor, axis: int, least: float) -> mo.Tensor:
    """The Euclidean length, at least `least`, with a gradient of 0 where it is less."""
    return mo.sqrt(mo.maximum(mo.sum(mo.square(x), axis=axis), least * least))


@rounded_once
@recorded
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> mo.Tensor:
    """The p-norm of x1 - x2 + eps along the last axis: a real number, of complex ones too.

    >>> round(mo.nn.pairwise_distance(mo.asarray([3.0, 4.0]), mo.asarray([0.0, 0.0])).item(), 4)
    5.0
    """
    away = full(x1) - full(x2) + eps
    if not away.ndim:
        raise fail(ShapeError, "pairwise_distance", "0-dimensional tensors hold no vectors")
    if not p > 0:
        raise fail(ArgumentError, "pairwise_distance", f"p={p} is not positive")
    return mo.linalg.vector_norm(away, ord=p, axis=-1, keepdims=keepdim)  # type: ignore[no-any-return]


def _signs(name: str, target: Any, shape: Any, dtype: Any) -> mo.Tensor:
    """Targets of 1 and -1 for values of a shape."""
    wanted = following(target)
    if wanted.shape != shape:
        raise fail(ShapeError, name, f"targets of shape {tuple(wanted.shape)} do not fit {tuple(shape)}")
    return wanted.astype(dtype)


@recorded
@rounded_loss
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, *,
                          reduction: str = "mean") -> mo.Tensor:
    """1 - cosine for pairs whose target is 1, and for pairs whose target is -1 what the cosine exceeds `margin` by.

    >>> x, y = mo.asarray([[1.0, 0.0]]), mo.asarray([[0.0, 1.0]])
    >>> mo.nn.cosine_embedding_loss(x, y, mo.asarray([1])).item()
    1.0
    """
    name = "cosine_embedding_loss"
    check_numbers(name, margin=margin)
    one, other = alike(name, input1, input2)
    wanted = following(target)
    if wanted.shape != one.shape[:-1]:
        raise fail(ShapeError, name, f"targets of shape {tuple(wanted.shape)} do not fit pairs of {tuple(one.shape)}")
    dtype, one, other = one.dtype, _wide(one), _wide(other)
    tiny = 1e-12  # added to both squares, so that vectors of zeros have a gradient
    squares = (mo.sum(mo.square(one), axis=-1) + tiny) * (mo.sum(mo.square(other), axis=-1) + tiny)
    cosine = (mo.sum(one * other, axis=-1) / mo.sqrt(squares)).astype(dtype)
    loss = mo.where(wanted > 0, 1 - cosine, mo.relu(cosine - margin))
    return reduced(name, loss, reduction)


@recorded
@rounded_loss
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean") -> mo.Tensor:
    """Triplet loss with a margin: the distance to a positive example must be smaller than to a negative one, max(0,
    d(a, p) - d(a, n) + margin). With `swap` the latter is the smaller one of the distances from the anchor and the
    positive.

    >>> zero, one = mo.zeros((1, 2)), mo.ones((1, 2))
    >>> round(mo.nn.triplet_margin_loss(zero, zero, one).item(), 3)
    0.0
    """
    name = "triplet_margin_loss"
    check_numbers(name, 0, margin=margin)
    anchor, positive = alike(name, anchor, positive)
    _, negative = alike(name, anchor, negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = mo.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(name, mo.relu(near - far + margin), reduction)


@recorded
@rounded_loss
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, *,
                        reduction: str = "mean") -> mo.Tensor:
    """max(0, -target * (input1 - input2) + margin): a target of 1 wants the first to be larger, one of -1 the second.

    >>> a, b = mo.asarray([1.0, 1.0]), mo.asarray([3.0, 3.0])
    >>> mo.nn.margin_ranking_loss(a, b, mo.asarray([1, -1]), reduction="none").numpy()
    array([2., 0.], dtype=float32)
    """
    name = "margin_ranking_loss"
    check_numbers(name, margin=margin)
    one, other = alike(name, input1, input2)
    signs = _signs(name, target, one.shape, one.dtype)
    return reduced(name, mo.relu(margin - signs * (one - other)), reduction)


@recorded
@rounded_loss
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, *, reduction: str = "mean") -> mo.Tensor:
    """The input where the target is 1, and max(0, margin - input) where it is -1: for distances of pairs.

    >>> mo.nn.hinge_embedding_loss(mo.asarray([0.5, 0.25]), mo.asarray([1, -1]), reduction="none").numpy()
    array([0.5 , 0.75], dtype=float32)
    """
    name = "hinge_embedding_loss"
    check_numbers(name, margin=margin)
    one, signs = alike(name, input, target)
    zero = mo.zeros((), dtype=one.dtype)
    loss = mo.where(signs != -1, one, zero) + mo.where(signs != 1, mo.relu(margin - one), zero)
    return reduced(name, loss, reduction)
