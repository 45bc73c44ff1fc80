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
MOST_LINES = 100000  # of a continued fraction: some sqrt(a) are needed, for which parameters may be 1e12; then NaN
HUGE = 200000.0  # from which the expansion is used
TINY = 2.0**-300
VAST = 1e300  # the sum of two may be none, and all that is not in the middle is at an end
FAR = 1e9  # where nothing is left above, for parameters up to HUGE
MANY = 1e10  # smaller parameter from which the middle of the beta distribution is an expansion
NEAR = 2.0  # standard deviations that the middle goes out to; farther off few lines are needed
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
    a = m.maximum(a, m.constant(HUGE, a))
    u = m.minimum(x - a, a) / a
    half = m.maximum(_log_less_line(m, u, 1.0 + u) * -1.0, m.constant(0.0, a))
    eta = m.copysign(m.sqrt(2 * half), u)
    scaled = eta * m.sqrt(0.5 * a)
    close = m.minimum(m.maximum(eta, m.constant(-0.2, a)), m.constant(0.2, a))
    rest = m.polynomial(close, _FIRST) + m.polynomial(close, _SECOND) / a
    rest = rest * m.exp(half * a * -1.0) / m.sqrt(2 * math.pi * m.minimum(a, m.constant(1e307, a)))
    return 0.5 * m.erfc(scaled * -1.0) - rest, 0.5 * m.erfc(scaled) + rest


def _both_gammas(m: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q, each to its own last digits."""
    inside = m.both(m.both(m.less(0.0, a), m.less(0.0, x)), m.both(m.less(a, math.inf), m.less(x, math.inf)))
    a, x = (m.where(inside, value, m.constant(1.0, value)) for value in (a, x))
    huge = m.less(HUGE, a)
    one = m.constant(1.0, a)
    b, y = m.where(huge, one, a), m.where(huge, one, m.minimum(x, m.constant(FAR, x)))
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
def _off_middle(m: Any, a: Any, b: Any, x: Any, y: Any, low: Any) -> Any:
    """a y - b x with the rounding errors of both products, and y + low = 1 - x."""
    left, right = a * y, b * x
    rest = m.product_error(a, y, left) - m.product_error(b, x, right)
    return (left - right) + (rest + a * low)


def _power_of_ratio(m: Any, a: Any, b: Any) -> Any:
    """((a + b) / a)**a, what the quotient lacks included."""
    whole = a + b
    lost = (m.minimum(a, b) - (whole - m.maximum(a, b)))  # of the sum
    ratio = whole / a
    product = ratio * a
    lost = (whole - product) - m.product_error(ratio, a, product) + lost
    return m.pow(ratio, a) * (1.0 + a * (lost / whole))


def _beta_front(m: Any, a: Any, b: Any, x: Any) -> Any:
    """x**a y**b / B(a, b), y = 1 - x; both large: from the distances to the middle, or far from it by powers, whose
    exponents are then the smaller numbers."""
    y = 1.0 - x
    low = (1.0 - y) - x
    wide_a, wide_b = m.maximum(a, m.constant(LARGE, a)), m.maximum(b, m.constant(LARGE, b))
    whole = wide_a + wide_b
    away = _off_middle(m, wide_a, wide_b, x, y, low) * -1.0  # x whole - a
    lines = (wide_a * _log_less_line(m, away / wide_a, x * (whole / wide_a))
             + wide_b * _log_less_line(m, away / wide_b * -1.0, y * (whole / wide_b)))
    rest = stirling(m, whole) - stirling(m, wide_a) - stirling(m, wide_b)
    scale = wide_a / whole * wide_b / (2 * math.pi)
    near = m.exp(lines + 0.5 * m.log(scale) + rest)
    of_x, of_y = a * m.log(x), b * m.log1p(x * -1.0)
    inside = m.both(m.less(-2 * POWERS, of_x), m.less(-POWERS, of_y))
    one = m.constant(1.0, a)
    even_b = m.where(inside, b, one)
    of_y = m.pow(y, even_b) * m.exp(even_b * (low / y))
    half = m.pow(x, m.where(inside, a * 0.5, one))  # x**a alone may be too small a number
    tail = m.both(m.both(m.less(lines, -4.0), m.less(whole, POWERS * 1.1)), inside)
    even_a, even_b = m.where(tail, wide_a, one), m.where(tail, wide_b, one)
    middle = _power_of_ratio(m, even_a, even_b) * _power_of_ratio(m, even_b, even_a)
    large = m.where(tail, half * middle * (m.sqrt(scale) * m.exp(rest)) * of_y * half, near)
    # one or both are small: lgamma of the smaller, and the difference of the others
    small, big = m.minimum(a, b), m.maximum(a, b)
    far = m.maximum(big, m.constant(LARGE, a))
    ratio = small / (far + small)
    difference = ((far - 0.5) * m.log1p(ratio * -1.0) - small * (m.log(far + small) - 1.0)
                  + stirling(m, far) - stirling(m, far + small))
    near_big = m.minimum(big, m.constant(LARGE, a))
    below_one = m.where(m.less(small, 1.0), small, one)  # 1 / gamma(s) is s / gamma(s + 1)
    log_small = lgamma(m, m.where(m.less(small, 1.0), small + 1.0, small))
    plain = m.exp(lgamma(m, near_big + small + 1.0) - log_small - lgamma(m, near_big + 1.0))
    plain = plain * (below_one * (near_big / (near_big + small)))
    shared = m.both(m.less(LARGE, big), m.less(big, 1e5))  # then by powers
    base, power = m.where(shared, far, m.constant(LARGE, a)), m.where(shared, small, one)
    both = base + power
    by_powers = (m.pow(both, power) * (1.0 + power * ((power - (both - base)) / both)) * _power_of_ratio(m, base, power)
                 / m.sqrt(both / base) * m.exp(stirling(m, both) - stirling(m, base) - power - log_small) * below_one)
    log_beta = log_small + difference
    modest = m.less(big, LARGE)
    inside = m.both(inside, m.either(m.less(m.absolute(log_beta), POWERS / 2), m.either(shared, modest)))
    other = m.exp(m.where(inside, log_beta * -1.0, one)) * below_one
    other = m.where(modest, plain, m.where(shared, by_powers, other))
    other = m.where(inside, half * other * of_y * half, m.exp(of_x + b * m.log1p(x * -1.0) - log_beta) * below_one)
    both_large = m.both(m.less(LARGE, a), m.less(LARGE, b))
    return m.where(both_large, large, other)


def _beta_fraction(m: Any, a: Any, b: Any, x: Any, away: Any) -> Any:
    """The continued fraction of DiDonato and Morris, whose parts are positive up to term b: how many terms are wanted
    by Lentz's rule, then from the last of them back, where an error becomes less with every term. `away` is
    a - (a + b) x."""
    one, zero, tiny = m.constant(1.0, a), m.constant(0.0, a), m.constant(1e-300, a)
    total = a + b
    first = (away + 1.0) / (a + 1.0)

    def kept(value: Any) -> Any:
        return m.where(m.equal(value, 0.0), tiny, value)

    def term(n: Any) -> tuple[Any, Any]:
        """Numerator of the n-th fraction, and the term added to its denominator."""
        twice = a + (n + n)
        before = twice - 1.0
        left = (b - n) * x * n
        above = ((a + n) - 1.0) / before * (((total + n) - 1.0) / before * x) * left
        return above, n + left / before + (a + n) * ((away + 1.0 + n * (2.0 - x)) / (twice + 1.0))

    def step(n: Any, c: Any, d: Any, change: Any, terms: Any) -> tuple[Any, ...]:
        above, addend = term(n)
        d = 1.0 / kept(addend + above * d)
        c = kept(addend + above / c)
        return c, d, d * c, zero + n

    start = (kept(a * first), zero, m.constant(2.0, a), zero)
    def going(c: Any, d: Any, change: Any, n: Any) -> Any:
        return m.less(EPSILON * 8, m.absolute(change - 1.0))  # its own rounding errors are some 4

    found = m.repeat(MOST_LINES, start, step, going)
    terms = m.where(going(*found), m.constant(math.nan, a), m.floor(found[3] * 1.125) + 2.0)

    def back(turn: Any, n: Any, above: Any, below: Any) -> tuple[Any, ...]:
        above_next, addend = term(n)
        return n - 1.0, above_next, addend + above / below

    _, above, below = m.repeat(2 * MOST_LINES, (terms, zero, one), back, lambda n, above, below: m.less(0.5, n))
    return m.where(m.isnan(terms), terms, 1.0 / (first + above / a / below))


def _beta_middle(m: Any, a: Any, b: Any, away: Any) -> tuple[Any, Any]:
    """The share where both parameters are very large, by the normal distribution of eta (DLMF 8.18.9), and where that
    is used. `away` is a - (a + b) x; in standard deviations it is `off`, and eta**2 = off**2 (1 + v), a series."""
    many = m.less(MANY, m.minimum(a, b))
    a, b = (m.maximum(value, m.constant(MANY, value)) for value in (a, b))
    root = m.sqrt(m.minimum(a, b))
    spread = m.sqrt(1.0 + m.minimum(a, b) / m.maximum(a, b))
    off = away / root * spread * -1.0
    use = m.both(many, m.less(m.absolute(off), NEAR))
    off = m.where(use, off, m.constant(0.0, a))
    one, other = root / (a * spread), root / (b * spread)
    skew = one - other
    v_over_off = (skew * (-2.0 / 3.0) + off * (one * one - one * other + other * other) * 0.5
                  - off * off * skew * (one * one + other * other) * 0.4)
    stretch = m.sqrt(1.0 + v_over_off * off)
    eta = off * stretch
    rest = v_over_off / (stretch * (1.0 + stretch))  # 1 / off - 1 / eta
    density = m.exp(eta * eta * -0.5) * (1.0 / math.sqrt(2 * math.pi))
    return use, 0.5 * m.erfc(eta * -math.sqrt(0.5)) - density * rest


def betainc(m: Any, a: Any, b: Any, x: Any) -> Any:
    """The share of the beta distribution below x."""
    inside = m.both(m.both(m.less(0.0, a), m.less(0.0, b)), m.both(m.less(0.0, x), m.less(x, 1.0)))
    inside = m.both(inside, m.both(m.less(a, math.inf), m.less(b, math.inf)))
    p, q = (m.where(inside, value, m.constant(1.0, value)) for value in (a, b))
    # of two tiny or vast ones only the quotient matters; where b alone is tiny, the share is a multiple of it
    tiny, vast = m.less(m.maximum(p, q), TINY), m.less(VAST, m.minimum(p, q))
    p, q = (m.where(tiny, value * (1.0 / TINY), m.where(vast, value * TINY, value)) for value in (p, q))
    wide_q = m.maximum(q, m.constant(TINY**3, x))
    p, q, rest = m.maximum(p, m.constant(TINY**3, x)), wide_q, q / wide_q
    half = m.constant(0.5, x)
    z = m.where(inside, x, half)
    y = 1.0 - z
    away = _off_middle(m, p, q, z, y, (1.0 - y) - z)
    middle, there = _beta_middle(m, p, q, away)
    p, q, z = m.where(middle, half, p), m.where(middle, half, q), m.where(middle, half, z)
    y, away = m.where(middle, half, y), m.where(middle, m.constant(0.0, x), away)
    turned = m.less(m.maximum((p + 1.0) / (p + q + 2.0), p / (p + q)), z)  # the smaller share is the one that is found
    first, second = m.where(turned, q, p), m.where(turned, p, q)
    found = _beta_front(m, p, q, z) * _beta_fraction(m, first, second, m.where(turned, y, z),
                                                     m.where(turned, away * -1.0, away)) / first
    found = m.where(middle, there, m.where(turned, 1.0 - found, found))
    found = m.where(m.less(1.0, found), m.constant(1.0, x), found) * rest
    found = m.where(m.equal(x, 0.0), m.constant(0.0, x), m.where(m.equal(x, 1.0), m.constant(1.0, x), found))
    bad = m.either(m.either(m.less(a, 0.0), m.less(b, 0.0)), m.either(m.less(x, 0.0), m.less(1.0, x)))
    found = m.where(m.both(m.equal(b, 0.0), m.less(x, 1.0)), m.constant(0.0, x), found)  # all lies at 1
    found = m.where(m.equal(a, 0.0), m.constant(1.0, x), found)  # at 0
    bad = m.either(bad, m.both(m.equal(a, 0.0), m.equal(b, 0.0)))
    bad = m.either(bad, m.either(m.equal(a, math.inf), m.equal(b, math.inf)))
    found = m.where(bad, m.constant(math.nan, x), found)
    return m.where(m.either(m.isnan(a), m.either(m.isnan(b), m.isnan(x))), a + b + x, found)
