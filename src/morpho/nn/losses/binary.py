"""Losses of yes and no: binary cross-entropy of probabilities or logits, and the focal loss."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.losses.reduction import alike, reduced, rounded_loss
from morpho.tensor.autodiff.custom import custom_gradient
from morpho.tensor.recorded import recorded


@recorded
@rounded_loss
def binary_cross_entropy(input: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> mo.Tensor:
    """-(target * log(p) + (1 - target) * log(1 - p)) of probabilities p; logarithms are at least -100, so that 0 and 1
    are allowed.

    >>> round(mo.nn.binary_cross_entropy(mo.asarray([0.5]), mo.asarray([1.0])).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy"
    one, other = alike(name, input, target)
    loss = _binary_entropy(one, other)
    return reduced(name, loss if weight is None else loss * weight, reduction)


@custom_gradient
def _binary_entropy(p: mo.Tensor, target: mo.Tensor) -> Any:
    """Where a logarithm is cut off the gradient goes on, and is large instead of infinite."""
    yes, no = mo.maximum(mo.log(p), -100.0), mo.maximum(mo.log1p(-p), -100.0)
    loss = -(target * yes + (1 - target) * no)
    return loss, lambda g: (g * (p - target) / mo.maximum(p * (1 - p), 1e-12), g * (no - yes))


@recorded
def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, *, reduction: str = "mean",
                                     pos_weight: Any = None) -> mo.Tensor:
    """Binary cross-entropy of sigmoid(input), without its loss of precision: no finite logit gives NaN or infinity.
    `pos_weight` is what a target of 1 counts for beside one of 0.

    >>> round(mo.nn.binary_cross_entropy_with_logits(mo.asarray([0.0]), mo.asarray([1.0])).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy_with_logits"
    one, other = alike(name, input, target)
    if pos_weight is None:
        loss = mo.softplus(one) - other * one
    else:
        loss = (1 - other) * mo.softplus(one) + pos_weight * other * mo.softplus(-one)
    return reduced(name, loss if weight is None else loss * weight, reduction)


@recorded
@rounded_loss
def focal_loss(input: Any, target: Any, gamma: float = 2.0, alpha: float | None = 0.25,
               reduction: str = "mean") -> mo.Tensor:
    """Binary cross-entropy of sigmoid(input) times (1 - p)^gamma, where p is the probability of what was wanted: easy
    examples count for little. `alpha` weighs targets of 1 and 1 - alpha those of 0; None weighs none.

    >>> easy, hard = mo.nn.focal_loss(mo.asarray([5.0, -5.0]), mo.asarray([1.0, 1.0]), reduction="none").tolist()
    >>> hard > 1000 * easy
    True
    """
    if gamma < 0 or (alpha is not None and not 0 <= alpha <= 1):
        raise fail(ArgumentError, "focal_loss", f"gamma={gamma} is negative, or alpha={alpha} not between 0 and 1")
    one, other = alike("focal_loss", input, target)
    entropy = mo.softplus(one) - other * one
    signed = one * (2 * other - 1)
    missed = mo.sigmoid(-signed) if gamma else 1.0  # 1 - p for targets of 0 and 1
    loss = entropy * missed ** gamma if gamma else entropy
    if alpha is not None:
        loss = loss * (alpha * other + (1 - alpha) * (1 - other))
    return reduced("focal_loss", loss, reduction)
