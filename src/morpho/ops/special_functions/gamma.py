"""lgamma, digamma and Hurwitz's zeta."""

from __future__ import annotations

import math
from typing import Any

from morpho.ops.special_functions.coefficients import DIGAMMA, LGAMMA_1, LGAMMA_2, PSI_ROOT

# Stirling's series: B_2k / (2k (2k - 1)), and for digamma B_2k / 2k, k falling
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_DIGAMMA_TAIL = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_HALF_LOG_2PI, _LOG_PI = 0.5 * math.log(2 * math.pi), math.log(math.pi)
LARGE = 10.0  # from which Stirling's series is used


def stirling(m: Any, x: Any) -> Any:
    """lgamma(x) - (x - 0.5) log(x) + x - log(2 pi) / 2, for x of at least `LARGE`."""
    inverse = 1.0 / x
    return m.polynomial(inverse * inverse, _STIRLING) * inverse


def sine_pi(m: Any, x: Any) -> Any:
    """|sin(pi x)|, exact at whole numbers."""
    return m.absolute(m.sin((x - m.round(x)) * math.pi))


def _lgamma_small(m: Any, x: Any) -> Any:
    """For x in 0..LARGE: near 1 and 2, where it is 0, as a multiple of the distance."""
    near = m.round(x)
    steps = m.maximum(near - 2.0, m.constant(0.0, x))  # how often x - 1, x - 2, ... is split off
    product = m.constant(1.0, x)
    for k in range(1, int(LARGE) - 1):
        product = m.where(m.less(k - 0.5, steps), product * (x - float(k)), product)
    y = m.where(m.less(x, 0.5), x, x - m.where(m.less(x, 1.5), m.constant(1.0, x), near))
    one = y * m.polynomial(2 * y, LGAMMA_1)
    two = y * m.polynomial(2 * y, LGAMMA_2)
    low = m.where(m.less(x, 0.5), one - m.log(x), one)
    return m.where(m.less(x, 1.5), low, m.where(m.less(x, 2.5), two, two + m.log(product)))


def _lgamma_positive(m: Any, x: Any) -> Any:
    small = _lgamma_small(m, m.minimum(x, m.constant(LARGE, x)))
    wide = m.maximum(x, m.constant(LARGE, x))
    # (x - 0.5) (log(x) - 1) - 0.5 ...: the two large parts are one product, which does not overflow before the result
    large = (wide - 0.5) * (m.log(wide) - 1.0) + (_HALF_LOG_2PI - 0.5) + stirling(m, wide)
    large = m.where(m.less(1e300, wide), wide * (m.log(wide) - 1.0), large)
    return m.where(m.less(x, LARGE), small, large)


def lgamma(m: Any, x: Any) -> Any:
    """The logarithm of |gamma(x)|: by reflection below 0, infinite at its poles."""
    size = m.absolute(x)
    negative = m.less(x, 0.0)
    positive = _lgamma_positive(m, size)
    whole = m.equal(m.floor(x), x)
    reflected = _LOG_PI - m.log(size * sine_pi(m, x)) - positive
    found = m.where(negative, m.where(whole, m.constant(math.inf, x), reflected), positive)
    found = m.where(m.equal(size, 0.0), m.constant(math.inf, x), found)
    found = m.where(m.equal(size, math.inf), m.constant(math.inf, x), found)
    return m.where(m.isnan(x), x, found) + 0.0  # at 1 and 2 no -0.0


def _digamma_positive(m: Any, x: Any) -> Any:
    wide = m.maximum(x, m.constant(LARGE, x))
    inverse = 1.0 / wide
    large = m.log(wide) - 0.5 * inverse - m.polynomial(inverse * inverse, _DIGAMMA_TAIL) * (inverse * inverse)
    small = m.minimum(x, m.constant(LARGE, x))
    below = m.less(small, 1.0)
    steps = m.floor(m.maximum(small, m.constant(1.0, x))) - 1.0
    total = m.constant(0.0, x)
    for k in range(int(LARGE) - 1, 0, -1):  # small terms first
        total = m.where(m.less(k - 0.5, steps), total + 1.0 / (small - float(k)), total)
    y = m.where(below, small + 1.0, small - steps)
    root = PSI_ROOT[0]
    near = ((y - root[0]) - root[1]) * m.polynomial(2 * y - 3.0, DIGAMMA)
    tiny = m.where(below, small, m.constant(1.0, x))
    found = m.where(below, near - 1.0 / tiny, near + total)
    return m.where(m.less(x, LARGE), found, large)


def digamma(m: Any, x: Any) -> Any:
    """The slope of lgamma: by reflection below 0; NaN at its poles, -inf at 0 and inf at -0."""
    negative = m.less(x, 0.0)
    positive = _digamma_positive(m, m.where(negative, 1.0 - x, x))
    rest = (x - m.round(x)) * math.pi
    reflected = positive - math.pi * m.cos(rest) / m.sin(rest)
    whole = m.both(m.equal(m.floor(x), x), negative)
    found = m.where(negative, m.where(whole, m.constant(math.nan, x), reflected), positive)
    found = m.where(m.equal(x, 0.0), m.copysign(m.constant(math.inf, x), x) * -1.0, found)
    found = m.where(m.equal(x, math.inf), x, found)
    found = m.where(m.equal(x, -math.inf), m.constant(math.nan, x), found)
    return m.where(m.isnan(x), x, found)


_TERMS = 9  # of the sum before Euler and Maclaurin's formula takes over
_FACTORS = tuple(b / math.factorial(2 * k) for k, b in enumerate((
    *_BERNOULLI, 854513 / 138, -236364091 / 2730), 1))


def zeta(m: Any, s: Any, q: Any) -> Any:
    """The sum of (q + k)**-s over k = 0, 1, ..., for s > 1 and q > 0: by Euler and Maclaurin's formula."""
    inside = m.both(m.less(1.0, s), m.less(0.0, q))
    power, first = m.where(inside, s, m.constant(2.0, s)), m.where(inside, q, m.constant(1.0, s))
    end = first + float(_TERMS)
    base = m.pow(end, -1.0 * power)
    total = base * end / (power - 1.0) + 0.5 * base
    factor, rest = power * base / end, m.constant(0.0, s)
    terms = []
    for k, share in enumerate(_FACTORS, 1):
        terms.append(factor * share)
        factor = factor * ((power + (2.0 * k - 1)) * (power + 2.0 * k)) / (end * end)
    for term in reversed(terms):
        rest = rest + term
    rest = m.where(m.less(m.absolute(rest), math.inf), rest, m.constant(0.0, s))
    total = total + rest
    for k in range(_TERMS - 1, -1, -1):
        total = total + m.pow(first + float(k), -1.0 * power)
    total = m.where(m.equal(power, math.inf), m.where(
        m.less(first, 1.0), m.constant(math.inf, s), m.where(m.equal(first, 1.0), m.constant(1.0, s),
                                                              m.constant(0.0, s))), total)
    total = m.where(m.both(m.equal(first, math.inf), inside), m.constant(0.0, s), total)
    pole = m.either(m.equal(s, 1.0), m.both(m.both(m.less(1.0, s), m.less(q, 0.5)), m.equal(m.floor(q), q)))
    found = m.where(inside, total, m.where(pole, m.constant(math.inf, s), m.constant(math.nan, s)))
    return m.where(m.either(m.isnan(s), m.isnan(q)), s + q, found)
