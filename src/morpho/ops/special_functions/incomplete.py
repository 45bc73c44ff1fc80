"""The incomplete gamma and beta functions, regularised: a series or a continued fraction, as far as they must go.

What stands before both is computed from how far x is from the middle of the distribution, so that nothing large
cancels. Where the parameters are very large, Temme's expansion about the middle takes the place of long sums.
"""

from __future__ import annotations

import math
from typing import Any

from morpho.ops.special_functions.coefficients import LGAMMA_1
from morpho.ops.special_functions.gamma import LARGE, lgamma, stirling

EPSILON = 2.0**-53
MOST = 6000  # terms: some sqrt(a) times 9 are needed
HUGE = 200000.0  # from which the expansion is used
POWERS = 600.0  # exponents of e up to which powers have all their digits


def _log_less_line(m: Any, u: Any, ratio: Any) -> Any:
    """log(1 + u) - u, by its series near 0: as a sum in v = u / (2 + u) that converges fast. `ratio` is 1 + u."""
    near = m.less(m.absolute(u), 0.4)
    small = m.where(near, u, m.constant(0.0, u))
    v = small / (2.0 + small)
    square = v * v
    terms = [2.0 / (2 * k + 1) for k in range(14, 0, -1)]
    odd = m.polynomial(square, terms) * square * v  # log(1 + u) = 2 v + odd
    return m.where(near, odd - small * v, m.log(m.where(near, m.constant(1.0, u), ratio)) - u)


def _gamma_front(m: Any, a: Any, x: Any) -> Any:
    """x**a exp(-x) / gamma(a + 1)."""
    wide = m.maximum(a, m.constant(LARGE, a))
    u = (x - wide) / wide
    large = m.exp(wide * _log_less_line(m, u, x / wide) - stirling(m, wide)) / m.sqrt(2 * math.pi * wide)
    small_a = m.minimum(a, m.constant(LARGE, a))
    small = m.exp(small_a * m.log(x) - x - lgamma(m, small_a + 1.0))
    return m.where(m.less(a, LARGE), small, large)


def _gamma_series(m: Any, a: Any, x: Any, use: Any) -> Any:
    """1 + x / (a + 1) + x**2 / ((a + 1) (a + 2)) + ..."""
    nothing = m.constant(0.0, a)
    x = m.where(use, x, nothing)

    def step(n: Any, term: Any, total: Any) -> tuple[Any, Any]:
        term = term * x / (a + n)
        return term, total + term

    start = (m.constant(1.0, a), m.constant(1.0, a))
    return m.repeat(MOST, start, step, lambda term, total: m.less(total * EPSILON, term))[1]


def _gamma_fraction(m: Any, a: Any, x: Any, use: Any) -> Any:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...)), as the quotient of two recurrences; x exceeds a there."""
    base = m.where(use, x - a, m.constant(1.0, a)) + 1.0
    a = m.where(use, a, m.constant(0.0, a))
    zero, one = m.constant(0.0, a), m.constant(1.0, a)

    def step(n: Any, top: Any, bottom: Any, top_before: Any, bottom_before: Any, found: Any, change: Any) -> Any:
        numerator, addend = (a - n) * n, base + (n + n)
        new_top = addend * top + numerator * top_before
        new_bottom = addend * bottom + numerator * bottom_before
        quotient = new_top / new_bottom
        large = m.less(1e100, m.absolute(new_bottom))
        scale = m.where(large, m.constant(1e-100, a), one)
        return (new_top * scale, new_bottom * scale, top * scale, bottom * scale, quotient,
                m.absolute((quotient - found) / quotient))

    start = (one, base, zero, one, 1.0 / base, one)
    return m.repeat(MOST, start, step, lambda *state: m.less(EPSILON, state[-1]))[4]


# Temme (1979): 1 / u - 1 / eta, and the next term, in powers of eta from the highest down
_FIRST = (-281 / 151559100, -571 / 261273600, 1 / 25515, -139 / 777600, 1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3)
_SECOND = (1 / 4860, -77 / 77760, 1 / 378, -1 / 288, -1 / 540)


def _middle(m: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q for huge a, by the normal distribution of eta: eta**2 / 2 = u - log(1 + u), u = (x - a) / a."""
    a = m.maximum(m.minimum(a, m.constant(1e300, a)), m.constant(HUGE, a))
    u = (m.minimum(x, a + a) - a) / a
    half = m.maximum(_log_less_line(m, u, 1.0 + u) * -1.0, m.constant(0.0, a))
    eta = m.copysign(m.sqrt(2 * half), u)
    scaled = eta * m.sqrt(0.5 * a)
    close = m.minimum(m.maximum(eta, m.constant(-0.2, a)), m.constant(0.2, a))
    rest = m.polynomial(close, _FIRST) + m.polynomial(close, _SECOND) / a
    rest = rest * m.exp(half * a * -1.0) / m.sqrt(2 * math.pi * a)
    return 0.5 * m.erfc(scaled * -1.0) - rest, 0.5 * m.erfc(scaled) + rest


def _both_gammas(m: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q, each to its own last digits."""
    inside = m.both(m.both(m.less(0.0, a), m.less(0.0, x)), m.both(m.less(a, math.inf), m.less(x, math.inf)))
    a, x = (m.where(inside, value, m.constant(1.0, value)) for value in (a, x))
    huge = m.less(HUGE, a)
    one = m.constant(1.0, a)
    b, y = m.where(huge, one, a), m.where(huge, one, x)
    series = m.either(m.less(y, b + 1.0), m.less(y, 1.1))
    front = _gamma_front(m, b, y)
    p = front * _gamma_series(m, b, y, series)
    small = m.both(m.less(b, 1.0), m.less(y, 1.1))
    q = front * b * _gamma_fraction(m, b, y, m.less(b + 1.0, m.maximum(y, b + 1.0 + 1e-9)))
    q = m.where(small, _gamma_complement(m, b, y), q)
    found_p = m.where(series, p, 1.0 - q)
    found_q = m.where(series, m.where(small, q, 1.0 - p), q)
    found_p = m.where(m.both(small, m.less(q, 0.1)), 1.0 - q, found_p)
    middle_p, middle_q = _middle(m, a, x)
    return m.where(huge, middle_p, found_p), m.where(huge, middle_q, found_q)


def _gamma_complement(m: Any, a: Any, x: Any) -> Any:
    """Q for a below 1 and x up to 1.1, where 1 - P would cancel: 1 - x**a / gamma(a + 1) and the rest of the series."""
    use = m.both(m.less(a, 1.0), m.less(x, 1.1))
    a, x = m.where(use, a, m.constant(0.5, a)), m.where(use, x, m.constant(0.5, x))
    power = a * m.log(x) - m.where(m.less(a, 0.5), a * m.polynomial(2 * a, LGAMMA_1), lgamma(m, a + 1.0))
    whole = m.expm1(power) * -1.0  # 1 - x**a / gamma(a + 1)
    term, total = m.constant(1.0, x), m.constant(0.0, x)
    for k in range(1, 24):
        term = term * (x * (-1.0 / k))
        total = total + term / (a + float(k))
    return whole - m.exp(power) * a * total


def gammainc(m: Any, a: Any, x: Any) -> Any:
    """P(a, x), the share of the gamma distribution below x."""
    return _gamma_edges(m, a, x, _both_gammas(m, a, x)[0], 0.0)


def gammaincc(m: Any, a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x)."""
    return _gamma_edges(m, a, x, _both_gammas(m, a, x)[1], 1.0)


def _gamma_edges(m: Any, a: Any, x: Any, found: Any, at_zero: float) -> Any:
    """At x = 0 and beyond all, at a = 0 and a infinite; NaN for negative ones."""
    low, high = m.constant(at_zero, x), m.constant(1.0 - at_zero, x)
    found = m.where(m.equal(x, math.inf), high, found)
    found = m.where(m.equal(x, 0.0), low, found)
    found = m.where(m.equal(a, math.inf), low, found)
    found = m.where(m.equal(a, 0.0), high, found)
    nan = m.constant(math.nan, x)
    found = m.where(m.both(m.equal(a, math.inf), m.equal(x, math.inf)), nan, found)
    found = m.where(m.both(m.equal(a, 0.0), m.equal(x, 0.0)), nan, found)
    found = m.where(m.either(m.less(a, 0.0), m.less(x, 0.0)), nan, found)
    return m.where(m.either(m.isnan(a), m.isnan(x)), a + x, found)


# -- beta -------------------------------------------------------------------------------------------------------------
def _beta_front(m: Any, a: Any, b: Any, x: Any) -> Any:
    """x**a y**b / B(a, b), y = 1 - x; both large: from the distances to the middle, or far from it by powers, whose
    exponents are then the smaller numbers."""
    y = 1.0 - x
    wide_a, wide_b = m.maximum(a, m.constant(LARGE, a)), m.maximum(b, m.constant(LARGE, b))
    whole = wide_a + wide_b
    away = (x * wide_b - y * wide_a)  # x whole - a
    lines = (wide_a * _log_less_line(m, away / wide_a, x * (whole / wide_a))
             + wide_b * _log_less_line(m, away / wide_b * -1.0, y * (whole / wide_b)))
    rest = stirling(m, whole) - stirling(m, wide_a) - stirling(m, wide_b)
    scale = wide_a / whole * wide_b / (2 * math.pi)
    near = m.exp(lines + 0.5 * m.log(scale) + rest)
    of_x, of_y = a * m.log(x), b * m.log1p(x * -1.0)
    inside = m.both(m.less(-2 * POWERS, of_x), m.less(-POWERS, of_y))
    one = m.constant(1.0, a)
    exact = m.less(0.5, x)  # then y is
    by_power = m.pow(m.where(exact, y, one), m.where(inside, b, one))
    of_y = m.where(exact, by_power, m.exp(of_y))
    half = m.pow(x, m.where(inside, a * 0.5, one))  # x**a alone may be too small a number
    tail = m.both(m.both(m.less(whole, lines * -1.0), m.less(whole, POWERS)), inside)
    even_a, even_b = m.where(tail, wide_a, one), m.where(tail, wide_b, one)
    middle = m.pow((even_a + even_b) / even_a, even_a) * m.pow((even_a + even_b) / even_b, even_b)
    large = m.where(tail, half * of_y * middle * (m.sqrt(scale) * m.exp(rest)) * half, near)
    # one or both are small: lgamma of the smaller, and the difference of the others
    small, big = m.minimum(a, b), m.maximum(a, b)
    far = m.maximum(big, m.constant(LARGE, a))
    ratio = small / (far + small)
    difference = ((far - 0.5) * m.log1p(ratio * -1.0) - small * (m.log(far + small) - 1.0)
                  + stirling(m, far) - stirling(m, far + small))
    near_big = m.minimum(big, m.constant(LARGE, a))
    plain = lgamma(m, near_big) - lgamma(m, near_big + small)
    log_beta = lgamma(m, small) + m.where(m.less(big, LARGE), plain, difference)
    inside = m.both(inside, m.less(m.absolute(log_beta), POWERS / 2))
    other = m.where(inside, half * of_y * m.exp(m.where(inside, log_beta * -1.0, one)) * half,
                    m.exp(of_x + b * m.log1p(x * -1.0) - log_beta))
    both_large = m.both(m.less(LARGE, a), m.less(LARGE, b))
    return m.where(both_large, large, other)


def _beta_fraction(m: Any, a: Any, b: Any, x: Any) -> Any:
    """The continued fraction of DiDonato and Morris, by Lentz's rule."""
    one, tiny = m.constant(1.0, a), m.constant(1e-300, a)
    total = a + b

    def kept(value: Any) -> Any:
        return m.where(m.equal(value, 0.0), tiny, value)

    def step(n: Any, c: Any, d: Any, h: Any, change: Any) -> tuple[Any, ...]:
        twice = a + (n + n)
        even = (b - n) * x * n / ((twice - 1.0) * twice)
        d = 1.0 / kept(one + even * d)
        c = kept(one + even / c)
        h = h * (d * c)
        odd = (a + n) * x * (total + n) / (twice * (twice + 1.0)) * -1.0
        d = 1.0 / kept(one + odd * d)
        c = kept(one + odd / c)
        return c, d, h * (d * c), d * c

    first = 1.0 / kept(one - total * x / (a + 1.0))
    start = (one, first, first, m.constant(2.0, a))
    return m.repeat(MOST, start, step, lambda c, d, h, change: m.less(EPSILON * 2, m.absolute(change - 1.0)))[2]


def betainc(m: Any, a: Any, b: Any, x: Any) -> Any:
    """The share of the beta distribution below x."""
    inside = m.both(m.both(m.less(0.0, a), m.less(0.0, b)), m.both(m.less(0.0, x), m.less(x, 1.0)))
    inside = m.both(inside, m.both(m.less(a, math.inf), m.less(b, math.inf)))
    p, q = (m.where(inside, value, m.constant(1.0, value)) for value in (a, b))
    z = m.where(inside, x, m.constant(0.5, x))
    turned = m.less(m.maximum((p + 1.0) / (p + q + 2.0), p / (p + q)), z)  # the smaller share is the one that is found
    first, second = m.where(turned, q, p), m.where(turned, p, q)
    at = m.where(turned, 1.0 - z, z)
    found = _beta_front(m, p, q, z) * _beta_fraction(m, first, second, at) / first
    found = m.where(turned, 1.0 - found, found)
    found = m.where(m.equal(x, 0.0), m.constant(0.0, x), m.where(m.equal(x, 1.0), m.constant(1.0, x), found))
    bad = m.either(m.either(m.less(a, 0.0), m.less(b, 0.0)), m.either(m.less(x, 0.0), m.less(1.0, x)))
    found = m.where(m.both(m.equal(b, 0.0), m.less(x, 1.0)), m.constant(0.0, x), found)  # all lies at 1
    found = m.where(m.equal(a, 0.0), m.constant(1.0, x), found)  # at 0
    bad = m.either(bad, m.both(m.equal(a, 0.0), m.equal(b, 0.0)))
    bad = m.either(bad, m.either(m.equal(a, math.inf), m.equal(b, math.inf)))
    found = m.where(bad, m.constant(math.nan, x), found)
    return m.where(m.either(m.isnan(a), m.either(m.isnan(b), m.isnan(x))), a + b + x, found)
