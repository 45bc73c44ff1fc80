"""Bessel functions of orders 0 and 1: J and Y, and the modified I, plain and scaled by exp(-|x|)."""

from __future__ import annotations

import math
from typing import Any

from morpho.ops.special_functions import coefficients as c
from morpho.ops.special_functions.arrays import chebyshev, powers

SMALL = 8.0  # up to which the functions are polynomials


def _scaled(m: Any, x: Any, small: tuple[float, ...], large: tuple[float, ...], odd: bool) -> Any:
    """exp(-|x|) I(|x|); of order 1 its small part is a multiple of x."""
    size = m.absolute(x)
    inner = m.minimum(size, m.constant(SMALL, x))
    low = chebyshev(m, inner * 0.25 - 1.0, small)
    low = low * inner if odd else low
    outer = m.maximum(size, m.constant(SMALL, x))
    high = chebyshev(m, 16.0 / outer - 1.0, large) / m.sqrt(outer)
    found = m.where(m.less(size, SMALL), low, high)
    found = m.where(m.equal(x, 0.0), m.constant(0.0 if odd else 1.0, x), found)
    return m.where(m.isnan(x), x, found)


def i0e(m: Any, x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    return _scaled(m, x, c.I0_SMALL, c.I0_LARGE, odd=False)


def i1e(m: Any, x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    return m.copysign(_scaled(m, x, c.I1_SMALL, c.I1_LARGE, odd=True), x)


def _grown(m: Any, x: Any, scaled: Any) -> Any:
    """Times exp(|x|), which may overflow before the product does."""
    size = m.absolute(x)
    half = m.exp(0.5 * m.minimum(size, m.constant(1430.0, x)))
    found = m.where(m.less(size, 700.0), scaled * m.exp(m.minimum(size, m.constant(700.0, x))), scaled * half * half)
    return m.where(m.equal(size, math.inf), m.copysign(m.constant(math.inf, x), scaled), found)


def i0(m: Any, x: Any) -> Any:
    """I0(x)."""
    return m.where(m.isnan(x), x, _grown(m, x, i0e(m, x)))


def i1(m: Any, x: Any) -> Any:
    """I1(x)."""
    return m.where(m.isnan(x), x, _grown(m, x, i1e(m, x)))


def _factored(m: Any, x: Any, roots: Any, rest: tuple[float, ...]) -> Any:
    """A polynomial in x**2 times the distances from two zeros, each known to twice the digits."""
    square = x * x
    product = powers(m, square * (1 / 32) - 1.0, rest)
    for root, tail in roots:
        product = product * ((x - root) - tail) * (x + root)
    return product


def _waves(m: Any, x: Any, p: tuple[float, ...], q: tuple[float, ...]) -> tuple[Any, Any, Any, Any]:
    """P and Q times sqrt(1 / (pi x)), and sin and cos of x, for x of at least `SMALL`."""
    inverse = SMALL / x
    t = 2 * inverse * inverse - 1.0
    scale = m.sqrt(1 / math.pi / x)
    return powers(m, t, p) * scale, powers(m, t, q) / x * scale, m.sin(x), m.cos(x)


def _parts(m: Any, x: Any) -> tuple[Any, Any, Any]:
    """|x|, and it kept below and above the border."""
    size = m.absolute(x)
    far = m.minimum(m.maximum(size, m.constant(SMALL, x)), m.constant(1e300, x))
    return size, m.minimum(size, m.constant(SMALL, x)), far


def bessel_j0(m: Any, x: Any) -> Any:
    """J0(x); sqrt(2) cos(x - pi / 4) is cos(x) + sin(x)."""
    size, near, far = _parts(m, x)
    p, q, sine, cosine = _waves(m, far, c.P0, c.Q0)
    high = p * (cosine + sine) - q * (sine - cosine)
    found = m.where(m.less(size, SMALL), _factored(m, near, c.J0_ROOTS, c.J0), high)
    found = m.where(m.less(1e300, size), m.constant(0.0, x), found)
    return m.where(m.isnan(x), x, found)


def bessel_j1(m: Any, x: Any) -> Any:
    """J1(x); sqrt(2) cos(x - 3 pi / 4) is sin(x) - cos(x)."""
    size, near, far = _parts(m, x)
    p, q, sine, cosine = _waves(m, far, c.P1, c.Q1)
    high = p * (sine - cosine) + q * (sine + cosine)
    low = near * _factored(m, near, c.J1_ROOTS, c.J1)
    found = m.where(m.less(size, SMALL), low, high)
    found = m.where(m.less(1e300, size), m.constant(0.0, x), found)
    found = m.where(m.less(x, 0.0), found * -1.0, found)
    return m.where(m.isnan(x), x, m.where(m.equal(x, 0.0), x, found))


def _outside(m: Any, x: Any, found: Any) -> Any:
    """Y ends at 0."""
    found = m.where(m.less(1e300, x), m.constant(0.0, x), found)
    found = m.where(m.equal(x, 0.0), m.constant(-math.inf, x), found)
    return m.where(m.isnan(x), x, m.where(m.less(x, 0.0), m.constant(math.nan, x), found))


def bessel_y0(m: Any, x: Any) -> Any:
    """Y0(x)."""
    size, near, far = _parts(m, x)
    p, q, sine, cosine = _waves(m, far, c.P0, c.Q0)
    high = p * (sine - cosine) + q * (cosine + sine)
    rest = m.polynomial(near * near * (1 / 32) - 1.0, c.Y0)
    positive = m.maximum(near, m.constant(5e-324, x))
    low = rest + 2 / math.pi * m.log(positive) * _factored(m, near, c.J0_ROOTS, c.J0)
    return _outside(m, x, m.where(m.less(size, SMALL), low, high))


def bessel_y1(m: Any, x: Any) -> Any:
    """Y1(x)."""
    size, near, far = _parts(m, x)
    p, q, sine, cosine = _waves(m, far, c.P1, c.Q1)
    high = q * (sine - cosine) - p * (sine + cosine)
    positive = m.maximum(near, m.constant(5e-324, x))
    rest = positive * m.polynomial(near * near * (1 / 32) - 1.0, c.Y1)
    line = positive * _factored(m, near, c.J1_ROOTS, c.J1)
    low = rest + 2 / math.pi * (m.log(positive) * line - 1.0 / positive)
    return _outside(m, x, m.where(m.less(size, SMALL), low, high))
