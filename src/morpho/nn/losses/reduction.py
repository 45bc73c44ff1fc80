"""Parts of all losses: the reduction at the end, the dtype of the computation, and checks of shapes."""

from __future__ import annotations

from functools import wraps
from typing import Any

import morpho as mo
from morpho.base import settings
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.tensor.autodiff.precision import Composed, rounded_once, widened
from morpho.tensor.convert import following

REDUCTIONS = ("mean", "sum", "none")


def reduced(name: str, loss: mo.Tensor, reduction: str) -> mo.Tensor:
    """The mean of all values, their sum, or all of them."""
    check_reduction(name, reduction)
    if reduction == "none":
        return loss
    return mo.mean(loss) if reduction == "mean" else mo.sum(loss)


def check_reduction(name: str, reduction: object, *others: str) -> None:
    """Refuse a word that is no reduction."""
    if reduction not in (*REDUCTIONS, *others):
        raise fail(ArgumentError, name, f"reduction {reduction!r} is unknown", "use 'mean', 'sum' or 'none'")


def rounded_loss(function: Composed) -> Composed:
    """`rounded_once` of a loss; under autocast the loss stays float32, as all losses do."""
    once = rounded_once(function)

    @wraps(once)
    def call(*arguments: Any, **named: Any) -> Any:
        return (function if settings.get().autocast else once)(*arguments, **named)

    return call  # type: ignore[return-value]


def full(value: Any) -> mo.Tensor:
    """As a tensor; under autocast half floats as float32, for losses are never computed in less."""
    return mo.Tensor.of_node(widened(following(value).node))


def alike(name: str, input: Any, target: Any) -> tuple[mo.Tensor, mo.Tensor]:
    """Both as float tensors of one shape: broadcasting (8, 1) with (8,) to (8, 8) is never what was meant."""
    one, other = full(input), following(target)
    if one.shape != other.shape:
        raise fail(ShapeError, name, f"predictions of shape {tuple(one.shape)} and targets of {tuple(other.shape)} "
                                     "differ", "reshape or squeeze one of them")
    if not one.dtype.is_float:
        raise fail(DTypeError, name, f"predictions are {one.dtype}", "convert with astype")
    return one, other.astype(one.dtype)
