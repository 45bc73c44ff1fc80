"""The arithmetic of formulas on NumPy's arrays of float64. `Lanes` of the CPU backend is the same on registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

Array = Any


class Arrays:
    """Functions that a formula may use beside the operators + - * / of its values."""

    short = False  # whether the result is rounded to float32, so that a relative error of 2**-32 does no harm

    exp, log, log1p, expm1, sin, cos = np.exp, np.log, np.log1p, np.expm1, np.sin, np.cos
    sqrt, absolute, floor, round, copysign = np.sqrt, np.abs, np.floor, np.rint, np.copysign
    maximum, minimum, less, equal, pow = np.fmax, np.fmin, np.less, np.equal, np.power
    both, either, isnan, where = np.logical_and, np.logical_or, np.isnan, staticmethod(np.where)
    erf = staticmethod(np.vectorize(math.erf, otypes=[np.float64]))
    erfc = staticmethod(np.vectorize(math.erfc, otypes=[np.float64]))

    def constant(self, value: float, like: Array) -> Array:
        return np.full(np.shape(like), value, np.float64)

    def polynomial(self, x: Array, coefficients: Sequence[float]) -> Array:
        """From the highest power down."""
        result = self.constant(coefficients[0], x)
        for coefficient in coefficients[1:]:
            result = result * x + coefficient
        return result

    def square_error(self, x: Array, square: Array) -> Array:
        """x * x less its rounded value, exactly where nothing overflows."""
        big = x * 134217729.0
        high = big - (big - x)
        low = x - high
        return ((high * high - square) + 2 * high * low) + low * low

    def product_error(self, x: Array, y: Array, product: Array) -> Array:
        """x * y less its rounded value, exactly where nothing overflows; 0 where something does."""
        big, wide = x * 134217729.0, y * 134217729.0
        high, far = big - (big - x), wide - (wide - y)
        low, near = x - high, y - far
        error = ((high * far - product) + (high * near + low * far)) + low * near
        return np.where(np.isfinite(error), error, 0.0)

    def repeat(self, most: int, state: Sequence[Array], step: Callable[..., Sequence[Array]],
               going: Callable[..., Array]) -> Sequence[Array]:
        """`state = step(n, *state)` for n = 1, 2, ..., at most so often, while `going(*state)` holds; each element
        stops by itself, so that its value does not depend on those beside it."""
        state = tuple(state)
        with np.errstate(all="ignore"):
            for number in range(1, most + 1):
                on = going(*state)
                if not np.any(on):
                    break
                news = step(float(number), *state)
                state = tuple(np.where(on, new, old) for new, old in zip(news, state, strict=True))
        return state


SHORT_ERROR = 2.0**-34


@cache
def shortened(coefficients: tuple[float, ...], powers: bool) -> tuple[float, ...]:
    """A polynomial in t of -1..1 by its powers, without the Chebyshev polynomials that matter to no float32; its
    coefficients are those of powers, or of Chebyshev polynomials, from the highest down."""
    series = np.array(coefficients[::-1])
    series = np.polynomial.chebyshev.poly2cheb(series) if powers else series
    tails = np.cumsum(np.abs(series[::-1]))[::-1]
    count = max(2, int(np.sum(tails > SHORT_ERROR * np.abs(series[0]))))
    return tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(series[:count])[::-1])


def chebyshev(m: Any, t: Any, coefficients: Sequence[float]) -> Any:
    """A sum of Chebyshev polynomials of t, from the highest down, by Clenshaw's rule."""
    if m.short:
        return m.polynomial(t, shortened(tuple(coefficients), powers=False))
    twice = t + t
    before, now = m.constant(0.0, t), m.constant(coefficients[0], t)
    for coefficient in coefficients[1:-1]:
        before, now = now, twice * now - before + coefficient
    return t * now - before + coefficients[-1]


def powers(m: Any, t: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial of t in -1..1 that is nowhere near zero, from the highest power down."""
    return m.polynomial(t, shortened(tuple(coefficients), powers=True) if m.short else coefficients)


def reference(formula: Callable[..., Array]) -> Callable[..., Array]:
    """A formula as the meaning of an op: in float64, rounded once."""

    def call(attributes: Any, *arrays: Array) -> Array:
        dtype = np.asarray(arrays[0]).dtype
        with np.errstate(all="ignore"):
            found = formula(Arrays(), *[np.asarray(x, np.float64) for x in arrays])
        return np.asarray(found).astype(dtype)

    return call
