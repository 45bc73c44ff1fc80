"""Losses of numbers: squared, absolute and Huber differences, and the divergence of distributions."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.losses.reduction import alike, reduced, rounded_loss
from morpho.tensor.recorded import recorded


@recorded
@rounded_loss
def mse_loss(input: Any, target: Any, *, reduction: str = "mean") -> mo.Tensor:
    """The squared difference.

    >>> mo.nn.mse_loss(mo.asarray([1.0, 2.0]), mo.asarray([1.0, 4.0])).item()
    2.0
    """
    one, other = alike("mse_loss", input, target)
    return reduced("mse_loss", mo.square(one - other), reduction)


@recorded
@rounded_loss
def l1_loss(input: Any, target: Any, *, reduction: str = "mean") -> mo.Tensor:
    """The absolute difference.

    >>> mo.nn.l1_loss(mo.asarray([1.0, 2.0]), mo.asarray([1.0, 4.0])).item()
    1.0
    """
    one, other = alike("l1_loss", input, target)
    return reduced("l1_loss", mo.abs(one - other), reduction)


@recorded
@rounded_loss
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> mo.Tensor:
    """Half the square of a difference up to `delta`, and beyond it the straight line that goes on from there.

    >>> mo.nn.huber_loss(mo.asarray([0.0, 0.0]), mo.asarray([1.0, 3.0]), reduction="none").numpy()
    array([0.5, 2.5], dtype=float32)
    """
    if not delta > 0:
        raise fail(ArgumentError, "huber_loss", f"delta={delta} is not positive")
    one, other = alike("huber_loss", input, target)
    away = mo.abs(one - other)
    return reduced("huber_loss", mo.where(away <= delta, 0.5 * mo.square(away), delta * (away - 0.5 * delta)),
                   reduction)


@recorded
@rounded_loss
def smooth_l1_loss(input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> mo.Tensor:
    """The Huber loss divided by `beta`; with beta=0 the absolute difference.

    >>> mo.nn.smooth_l1_loss(mo.asarray([0.0]), mo.asarray([3.0]), beta=2.0).item()
    2.0
    """
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    if not beta > 0:
        raise fail(ArgumentError, "smooth_l1_loss", f"beta={beta} is negative")
    one, other = alike("smooth_l1_loss", input, target)
    away = mo.abs(one - other)
    return reduced("smooth_l1_loss", mo.where(away < beta, 0.5 / beta * mo.square(away), away - 0.5 * beta), reduction)


@recorded
@rounded_loss
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> mo.Tensor:
    """target * (log(target) - input): how much the wanted distribution says beyond the predicted one, which is given by
    its logarithms. `reduction` may also be "batchmean": the sum divided by the length of the first axis.

    >>> mo.nn.kl_div(mo.log(mo.asarray([[0.5, 0.5]])), mo.asarray([[0.5, 0.5]]), reduction="batchmean").item()
    0.0
    """
    one, other = alike("kl_div", input, target)
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
    return reduced("kl_div", loss, reduction)
