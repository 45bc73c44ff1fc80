"""Gradients kept small before a step: by their common norm, or each element by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.optim.optimizer import listed_parameters
from morpho.tensor.autodiff.autograd import take_pending
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import Across, Parameter


def _with_gradients(name: str, parameters: Iterable[Parameter] | Parameter) -> list[Parameter]:
    listed = [parameters] if isinstance(parameters, Parameter) else listed_parameters(name, parameters)
    found = [parameter for parameter in listed if parameter.grad is not None]
    if not found:
        raise fail(ArgumentError, name, "no parameter has a gradient", "call loss.backward() first")
    return found


def _limit(name: str, most: float) -> float:
    if not (isinstance(most, Real) and most > 0):
        raise fail(ArgumentError, name, f"a limit of {most!r} is not a positive number")
    return float(most)  # one of NumPy's would decide the dtype of the gradients


def total(parts: list[mo.Tensor]) -> mo.Tensor:
    """The sum of a few numbers, neighbours first: each part stays where it was computed, nothing is copied together."""
    while len(parts) > 1:
        pairs = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) // 2 * 2:]
    return parts[0]


def squares_of(gradients: Sequence[mo.Tensor], wide: Any) -> list[mo.Tensor]:
    """The sum of squares of each gradient, as a `wide` number."""
    return [mo.sum(mo.square(gradient.astype(gradient.dtype.compute))).astype(wide) for gradient in gradients]


def norm_of_squares(squares: list[mo.Tensor]) -> mo.Tensor:
    return mo.sqrt(total(squares))


def scale_gradients(parameters: Sequence[Parameter], norm: mo.Tensor, max_norm: float) -> None:
    """Scale the gradients, which have this common norm, to at most `max_norm`."""
    with mo.no_grad():
        factor = mo.minimum(max_norm / (norm + 1e-6), 1.0)
        for parameter in parameters:
            parameter.grad = parameter.grad * factor.astype(parameter.dtype)


def clip_grad_norm(parameters: Iterable[Parameter] | Parameter, max_norm: float, norm_type: float = 2.0) -> mo.Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm they had. `norm_type` is 2,
    or `mo.inf` for the largest magnitude. Of parameters that are shared out among ranks (`mo.cluster.shard`, layers in
    parts, stages) it is the norm of the whole model, equal on all ranks, which must all call it.

    >>> w = mo.nn.Parameter([3.0, 4.0])
    >>> (0.5 * w * w).sum().backward()
    >>> mo.optim.clip_grad_norm([w], 1.0).item(), w.grad.numpy().round(3).tolist()
    (5.0, [0.6..., 0.8...])
    """
    listed = _with_gradients("clip_grad_norm", parameters)
    max_norm = _limit("clip_grad_norm", max_norm)
    if norm_type not in (2, math.inf):
        raise fail(ArgumentError, "clip_grad_norm", f"norm_type={norm_type!r} is neither 2 nor mo.inf")
    parts: dict[Across | None, list[mo.Tensor]] = {}
    if current_trace() is None and any(parameter.across is not None for parameter in listed):
        mo.realise(*[parameter.grad for parameter in listed], *take_pending())  # once: they have collectives in them
    with mo.no_grad():
        wide = mo.float64 if any(parameter.dtype is mo.float64 for parameter in listed) else mo.float32
        for parameter in listed:
            gradient = parameter.grad.astype(parameter.dtype.compute)
            parts.setdefault(parameter.across, []).append(
                squares_of([gradient], wide)[0] if norm_type == 2 else mo.max(mo.abs(gradient)).astype(wide))
        whole = [each for across, own in parts.items() for each in
                 (own if across is None else [across.sum(total(own)) if norm_type == 2 else across.max(_largest(own))])]
        norm = norm_of_squares(whole) if norm_type == 2 else _largest(whole)
    scale_gradients(listed, norm, max_norm)
    return norm


def _largest(parts: list[mo.Tensor]) -> mo.Tensor:
    return mo.max(mo.stack(parts))


def clip_grad_value(parameters: Iterable[Parameter] | Parameter, clip_value: float) -> None:
    """Keep every element of the gradients between -clip_value and clip_value.

    >>> w = mo.nn.Parameter([3.0, -0.5])
    >>> (0.5 * w * w).sum().backward()
    >>> mo.optim.clip_grad_value([w], 1.0); w.grad.numpy()
    array([ 1. , -0.5], dtype=float32)
    """
    clip_value = _limit("clip_grad_value", clip_value)
    with mo.no_grad():
        for parameter in _with_gradients("clip_grad_value", parameters):
            parameter.grad = mo.clip(parameter.grad, -clip_value, clip_value)
