"""lgamma, digamma and Hurwitz's zeta."""

from __future__ import annotations

import math
from typing import Any

from morpho.ops.special_functions.arrays import powers
from morpho.ops.special_functions.coefficients import DIGAMMA, LGAMMA_1, LGAMMA_2, PSI_ROOT

# Stirling's series: B_2k / (2k (2k - 1)), and for digamma B_2k / 2k, k falling
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_DIGAMMA_TAIL = tuple(b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))[::-1]
_HALF_LOG_2PI, _LOG_PI = 0.5 * math.log(2 * math.pi), math.log(math.pi)
LARGE, SHORT_LARGE = 10.0, 4.0  # from which Stirling's series is used
SHORT_TERMS = 8  # of that series, for float32


def _series(m: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    return m.polynomial(x, coefficients[-SHORT_TERMS:] if m.short else coefficients)


def stirling(m: Any, x: Any) -> Any:
    """lgamma(x) - (x - 0.5) log(x) + x - log(2 pi) / 2, for x of at least `LARGE`."""
    inverse = 1.0 / x
    return _series(m, inverse * inverse, _STIRLING) * inverse


def _large(m: Any) -> float:
    return SHORT_LARGE if m.short else LARGE


_SINE = tuple((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(8))[::-1]
_COSINE = tuple((-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k) for k in range(9))[::-1]


def _turn(m: Any, x: Any) -> tuple[Any, Any]:
    """sin(pi x) and cos(pi x) but for one common sign, exact at whole numbers."""
    rest = x - m.round(x)
    if m.short:
        square = rest * rest
        return rest * m.polynomial(square, _SINE), m.polynomial(square, _COSINE)
    return m.sin(rest * math.pi), m.cos(rest * math.pi)


def _lgamma_positive(m: Any, x: Any) -> Any:
    """In 0..`LARGE` near 1 and 2, where it is 0, as a multiple of the distance, and by Stirling's series beyond."""
    border = m.constant(_large(m), x)
    inner, wide = m.minimum(x, border), m.maximum(x, border)
    near = m.round(inner)
    steps = m.maximum(near - 2.0, m.constant(0.0, x))  # how often x - 1, x - 2, ... is split off
    product = m.constant(1.0, x)
    for k in range(1, int(_large(m)) - 1):
        product = m.where(m.less(k - 0.5, steps), product * (inner - float(k)), product)
    low, beyond = m.less(inner, 0.5), m.less(x, border)
    logarithm = m.log(m.where(beyond, m.where(low, inner, product), wide))
    y = m.where(low, inner, inner - m.where(m.less(inner, 1.5), m.constant(1.0, x), near))
    one = y * powers(m, 2 * y, LGAMMA_1)
    two = y * powers(m, 2 * y, LGAMMA_2)
    two = m.where(m.less(inner, 2.5), two, two + logarithm)
    small = m.where(m.less(inner, 1.5), m.where(low, one - logarithm, one), two)
    # (x - 0.5) (log(x) - 1) - 0.5 ...: the two large parts are one product, which does not overflow before the result
    large = (wide - 0.5) * (logarithm - 1.0) + (_HALF_LOG_2PI - 0.5) + stirling(m, wide)
    large = m.where(m.less(1e300, wide), wide * (logarithm - 1.0), large)
    return m.where(beyond, small, large)


def lgamma(m: Any, x: Any) -> Any:
    """The logarithm of |gamma(x)|: by reflection below 0, infinite at its poles."""
    size = m.absolute(x)
    negative = m.less(x, 0.0)
    positive = _lgamma_positive(m, size)
    whole = m.equal(m.floor(x), x)
    reflected = _LOG_PI - m.log(size * m.absolute(_turn(m, x)[0])) - positive
    found = m.where(negative, m.where(whole, m.constant(math.inf, x), reflected), positive)
    found = m.where(m.equal(size, 0.0), m.constant(math.inf, x), found)
    found = m.where(m.equal(size, math.inf), m.constant(math.inf, x), found)
    return m.where(m.isnan(x), x, found) + 0.0  # at 1 and 2 no -0.0


def _digamma_positive(m: Any, x: Any) -> Any:
    border = m.constant(_large(m), x)
    wide = m.maximum(x, border)
    inverse = 1.0 / wide
    large = m.log(wide) - 0.5 * inverse - _series(m, inverse * inverse, _DIGAMMA_TAIL) * (inverse * inverse)
    small = m.minimum(x, border)
    below = m.less(small, 1.0)
    steps = m.floor(m.maximum(small, m.constant(1.0, x))) - 1.0
    total = m.constant(0.0, x)
    for k in range(int(_large(m)) - 1, 0, -1):  # small terms first
        total = m.where(m.less(k - 0.5, steps), total + 1.0 / (small - float(k)), total)
    y = m.where(below, small + 1.0, small - steps)
    root = PSI_ROOT[0]
    near = ((y - root[0]) - root[1]) * powers(m, 2 * y - 3.0, DIGAMMA)
    tiny = m.where(below, small, m.constant(1.0, x))
    found = m.where(below, near - 1.0 / tiny, near + total)
    return m.where(m.less(x, border), found, large)


def digamma(m: Any, x: Any) -> Any:
    """The slope of lgamma: by reflection below 0; NaN at its poles, -inf at 0 and inf at -0."""
    negative = m.less(x, 0.0)
    positive = _digamma_positive(m, m.where(negative, 1.0 - x, x))
    sine, cosine = _turn(m, x)
    reflected = positive - math.pi * cosine / sine
    whole = m.both(m.equal(m.floor(x), x), negative)
    found = m.where(negative, m.where(whole, m.constant(math.nan, x), reflected), positive)
    found = m.where(m.equal(x, 0.0), m.copysign(m.constant(math.inf, x), x) * -1.0, found)
    found = m.where(m.equal(x, math.inf), x, found)
    found = m.where(m.equal(x, -math.inf), m.constant(math.nan, x), found)
    return m.where(m.isnan(x), x, found)


_TRIGAMMA_TAIL = _BERNOULLI[::-1]


def trigamma(m: Any, x: Any) -> Any:
    """The slope of digamma: by reflection below 0; infinite at its poles."""
    negative = m.less(x, 0.0)
    first = m.where(negative, 1.0 - x, x)
    count = int(_large(m))
    inverse = 1.0 / (first + float(count))
    square = inverse * inverse
    total = _series(m, square, _TRIGAMMA_TAIL) * (square * inverse) + (inverse + 0.5 * square)
    for k in range(count - 1, -1, -1):  # small terms first
        part = 1.0 / (first + float(k))
        total = total + part * part
    sine, _ = _turn(m, x)
    line = math.pi / sine
    return m.where(negative, line * line - total, total)


_TERMS, _SHORT_TERMS = 9, 4  # of the sum before Euler and Maclaurin's formula takes over
_FACTORS = tuple(b / math.factorial(2 * k) for k, b in enumerate((
    *_BERNOULLI, 854513 / 138, -236364091 / 2730), 1))


def zeta(m: Any, s: Any, q: Any) -> Any:
    """The sum of (q + k)**-s over k = 0, 1, ..., for s > 1 and q > 0: by Euler and Maclaurin's formula."""
    inside = m.both(m.less(1.0, s), m.less(0.0, q))
    power, first = m.where(inside, s, m.constant(2.0, s)), m.where(inside, q, m.constant(1.0, s))
    terms_before = _SHORT_TERMS if m.short else _TERMS
    end = first + float(terms_before)
    base = m.pow(end, -1.0 * power)
    total = base * end / (power - 1.0) + 0.5 * base
    factor, rest = power * base / end, m.constant(0.0, s)
    terms = []
    for k, share in enumerate(_FACTORS[:SHORT_TERMS] if m.short else _FACTORS, 1):
        terms.append(factor * share)
        factor = factor * ((power + (2.0 * k - 1)) * (power + 2.0 * k)) / (end * end)
    for term in reversed(terms):
        rest = rest + term
    rest = m.where(m.less(m.absolute(rest), math.inf), rest, m.constant(0.0, s))
    total = total + rest
    for k in range(terms_before - 1, -1, -1):
        total = total + m.pow(first + float(k), -1.0 * power)
    total = m.where(m.equal(power, math.inf), m.where(
        m.less(first, 1.0), m.constant(math.inf, s), m.where(m.equal(first, 1.0), m.constant(1.0, s),
                                                              m.constant(0.0, s))), total)
    total = m.where(m.both(m.equal(first, math.inf), inside), m.constant(0.0, s), total)
    pole = m.either(m.equal(s, 1.0), m.both(m.both(m.less(1.0, s), m.less(q, 0.5)), m.equal(m.floor(q), q)))
    found = m.where(inside, total, m.where(pole, m.constant(math.inf, s), m.constant(math.nan, s)))
    return m.where(m.either(m.isnan(s), m.isnan(q)), s + q, found)
