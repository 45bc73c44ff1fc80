"""Floats taken apart and put together: fractions, powers of two, angles without jumps."""

from __future__ import annotations

import math
from typing import Any

from morpho.base.dtypes import float32, float64, int32
from morpho.ops.algebra import cast
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.move import concat
from morpho.tensor.functions.reduce import cumulative_sum
from morpho.tensor.functions.utility import diff
from morpho.tensor.operands import promoted

SPAN = {float32: 150, float64: 1100}  # exponents beyond the last one that makes a difference, halved below


def _floating(name: str, x: Any) -> Tensor:
    (node,) = promoted(name, x, floating=True)
    return Tensor.of_node(node if node.dtype in SPAN else cast(node, float32))


def modf(x: Any, /) -> tuple[Tensor, Tensor]:
    """The fractional and the whole part of every number, both with its sign.

    >>> fraction, whole = mo.modf([2.5, -1.25])
    >>> fraction.tolist(), whole.tolist()
    ([0.5, -0.25], [2.0, -1.0])
    """
    value = _floating("modf", x)
    whole = ew.trunc(value)
    return ew.copysign(ew.where(ew.isinf(value), 0.0, value - whole), value), whole


def ldexp(x: Any, exponent: Any, /) -> Tensor:
    """x times two to the power of whole numbers, rounded once.

    >>> mo.ldexp([0.5, 3.0], [4, -1]).tolist()
    [8.0, 1.5]
    """
    value = _floating("ldexp", x)
    (whole,) = (Tensor.of_node(node) for node in promoted("ldexp", exponent))
    most = 2 * SPAN[value.dtype]
    whole = ew.clip(whole, -most, most)
    third = whole // 3
    steps = (third, third, whole - 2 * third)
    for step in steps:  # each is a number of this dtype
        value = value * ew.exp2(ew.astype(step, value.dtype))
    return value


def frexp(x: Any, /) -> tuple[Tensor, Tensor]:
    """Every number as a mantissa, from 0.5 to 1 without sign, times two to the power of a whole one; (0, 0) for zero.

    >>> mantissa, exponent = mo.frexp([8.0, -0.75, 0.0])
    >>> mantissa.tolist(), exponent.tolist()
    ([0.5, -0.75, 0.0], [4, 0, 0])
    """
    value = _floating("frexp", x)
    plain = ew.logical_and(ew.isfinite(value), value != 0)
    size = ew.abs(ew.where(plain, value, 1.0))
    lift = 64.0  # subnormal numbers are made normal first
    small = size < 2.0 ** (-100 if value.dtype is float32 else -1000)
    size = ew.where(small, size * 2.0**lift, size)
    guess = ew.floor(ew.log2(size)) + 1
    half = ew.floor(guess / 2)
    mantissa = size * ew.exp2(-half) * ew.exp2(half - guess)
    guess = ew.where(mantissa >= 1, guess + 1, ew.where(mantissa < 0.5, guess - 1, guess))
    mantissa = ew.where(mantissa >= 1, mantissa / 2, ew.where(mantissa < 0.5, mantissa * 2, mantissa))
    exponent = ew.where(small, guess - lift, guess)
    return (ew.where(plain, ew.copysign(mantissa, value), value),
            ew.astype(ew.where(plain, exponent, 0.0), int32))


def unwrap(p: Any, /, *, discont: float | None = None, axis: int = -1, period: float = 2 * math.pi) -> Tensor:
    """Angles along an axis without jumps: wherever one differs from the one before it by more than half a period (or
    `discont`), whole periods are added.

    >>> mo.unwrap([0.0, 3.0, -3.0, 0.0]).tolist()
    [0.0, 3.0, 3.283..., 6.283...]
    """
    value = _floating("unwrap", p)
    steps, half = diff(value, axis=axis), period / 2
    within = ew.remainder(steps + half, period) - half
    within = ew.where(ew.logical_and(within == -half, steps > 0), half, within)
    added = ew.where(ew.abs(steps) < (half if discont is None else max(discont, half)), 0.0, within - steps)
    key: list[Any] = [slice(None)] * value.ndim
    key[axis] = slice(None, 1)
    first = value[tuple(key)]
    key[axis] = slice(1, None)
    return concat([first, value[tuple(key)] + cumulative_sum(added, axis=axis)], axis=axis)
