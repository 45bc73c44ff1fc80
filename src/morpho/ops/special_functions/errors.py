"""Functions of the normal distribution: erfcx, ndtr and its logarithm, the inverses erfinv, erfcinv and ndtri; and two
inverses beside them, logit and the cube root."""

from __future__ import annotations

import math
from typing import Any

from morpho.ops.special_functions.arrays import chebyshev
from morpho.ops.special_functions.coefficients import ERFCX, ERFINV_MIDDLE, ERFINV_TAIL

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _erfcx_positive(m: Any, x: Any) -> Any:
    wide = m.minimum(x, m.constant(1e10, x))
    t = (wide - 3.75) / (wide + 3.75)
    found = chebyshev(m, t, ERFCX) / (1.0 + 2 * wide)
    return m.where(m.less(1e8, x), (1 / math.sqrt(math.pi)) / x, found)


def _square_power(m: Any, x: Any, sign: float) -> Any:
    """exp(sign * x * x), the rounding of the square made good."""
    square = x * x
    error = m.square_error(x, square)
    power = m.exp(square * sign)
    found = power + power * (error * sign)
    return m.where(m.less(m.absolute(x), 28.0), found, power)


def erfcx(m: Any, x: Any) -> Any:
    """exp(x**2) erfc(x)."""
    size = m.absolute(x)
    positive = _erfcx_positive(m, size)
    negative = 2 * _square_power(m, size, 1.0) - positive
    found = m.where(m.equal(x, 0.0), m.constant(1.0, x), m.where(m.less(x, 0.0), negative, positive))
    return m.where(m.isnan(x), x, found)


def _beyond(m: Any, x: Any) -> Any:
    """The share of the normal distribution beyond |x|."""
    z = m.absolute(x) * math.sqrt(0.5)
    square = x * x
    power = m.exp(-0.5 * square)
    power = power - power * (0.5 * m.square_error(x, square))
    return m.where(m.less(z, 27.3), 0.5 * _erfcx_positive(m, z) * power, m.constant(0.0, x))


def ndtr(m: Any, x: Any) -> Any:
    """The share of the normal distribution below x."""
    z = m.absolute(x) * math.sqrt(0.5)
    low = _beyond(m, x)
    inner = 0.5 + 0.5 * m.erf(x * math.sqrt(0.5))
    found = m.where(m.less(z, 0.5), inner, m.where(m.less(x, 0.0), low, 1.0 - low))
    return m.where(m.isnan(x), x, found)


def log_ndtr(m: Any, x: Any) -> Any:
    """log(ndtr(x)), also where that underflows."""
    z = m.absolute(x) * math.sqrt(0.5)
    low = m.log(0.5 * _erfcx_positive(m, z)) - 0.5 * (x * x)
    beyond = _beyond(m, x)
    found = m.where(m.less(x, -1.0), low, m.where(m.less(x, 0.0), m.log(beyond), m.log1p(beyond * -1.0)))
    found = m.where(m.equal(x, -math.inf), x, found)
    return m.where(m.isnan(x), x, found)


def _middle(m: Any, x: Any) -> Any:
    """erfinv for |x| <= 0.5, and near that."""
    w = m.log((1.0 - x) * (1.0 + x)) * -1.0
    y = x * m.polynomial(w * 0.4 - 1.0, ERFINV_MIDDLE)
    for _ in range(1):  # Halley's step
        miss = (m.erf(y) - x) / (_TWO_OVER_ROOT_PI * m.exp(y * y * -1.0))
        y = y - miss / (1.0 + y * miss)
    return y


def _tail(m: Any, q: Any) -> Any:
    """y with erfc(y) = q, for q up to 0.5 and a little more."""
    small = m.maximum(q, m.constant(5e-324, q))
    s = m.sqrt((m.log(small) + m.log1p(small * -0.5) + math.log(2)) * -1.0)
    u = 1.0 / m.maximum(s, m.constant(2.0, q))
    far = s * m.polynomial((u - (0.55 + 0.036) / 2) / ((0.55 - 0.036) / 2), ERFINV_TAIL)
    near = (1.0 - small) * m.polynomial(m.minimum(s * s, m.constant(5.0, q)) * 0.4 - 1.0, ERFINV_MIDDLE)
    y = m.where(m.less(s, 2.2), near, far)
    for _ in range(2):  # Halley's steps on log(erfc(y)) = log(q), both scaled by exp(y**2)
        scaled = _erfcx_positive(m, y)
        square = y * y
        wanted = m.log(small) + square + m.square_error(y, square)  # log(q exp(y**2))
        miss = m.log(scaled) - wanted
        slope = _TWO_OVER_ROOT_PI / scaled
        step = miss / slope
        y = y + step / (1.0 - 0.5 * step * (slope - 2 * y))
    return y


def erfinv(m: Any, x: Any) -> Any:
    """y with erf(y) = x: infinite at -1 and 1, NaN beyond."""
    size = m.absolute(x)
    inner = _middle(m, m.minimum(size, m.constant(0.5, x)))
    tail = _tail(m, m.maximum(1.0 - size, m.constant(1e-20, x)))
    found = m.copysign(m.where(m.less(size, 0.5), inner, tail), x)
    found = m.where(m.equal(size, 1.0), m.copysign(m.constant(math.inf, x), x), found)
    return m.where(m.less(1.0, size), m.constant(math.nan, x), m.where(m.isnan(x), x, found))


def ndtri(m: Any, p: Any) -> Any:
    """x with ndtr(x) = p: infinite at 0 and 1, NaN outside."""
    low = m.less(p, 0.5)
    q = 2 * m.where(low, p, 1.0 - p)
    inner = _middle(m, m.minimum(m.maximum(2 * p - 1.0, m.constant(-0.5, p)), m.constant(0.5, p)))
    tail = _tail(m, m.maximum(q, m.constant(0.0, p)))
    tail = m.where(low, tail * -1.0, tail)
    found = m.where(m.less(m.absolute(p - 0.5), 0.25), inner, tail) * math.sqrt(2)
    found = m.where(m.equal(p, 0.0), m.constant(-math.inf, p), found)
    found = m.where(m.equal(p, 1.0), m.constant(math.inf, p), found)
    outside = m.either(m.less(p, 0.0), m.less(1.0, p))
    return m.where(m.isnan(p), p, m.where(outside, m.constant(math.nan, p), found))


def erfcinv(m: Any, x: Any) -> Any:
    """y with erfc(y) = x: infinite at 0 and 2, NaN outside."""
    return ndtri(m, x * 0.5) * -math.sqrt(0.5)


def logit(m: Any, p: Any) -> Any:
    """log(p / (1 - p)): infinite at 0 and 1, NaN outside."""
    far = m.log(p) - m.log1p(p * -1.0)
    middle = m.less(m.absolute(p - 0.5), 0.2500001)  # where those two cancel
    t = m.where(middle, 2 * p - 1.0, m.constant(0.0, p))
    return m.where(middle, m.log1p(t) - m.log1p(t * -1.0), far)


def cbrt(m: Any, x: Any) -> Any:
    """The cube root, of negative numbers too."""
    size = m.absolute(x)
    ordinary = m.both(m.less(0.0, size), m.less(size, math.inf))
    safe = m.where(ordinary, size, m.constant(1.0, x))
    root = m.pow(safe, m.constant(1 / 3, x))
    root = root - (root - safe / (root * root)) / 3.0  # a step of Newton's: the last digits
    return m.copysign(m.where(ordinary, root, size), x)
