"""Special functions in float arithmetic: straight lines for float32, at most two units in the last place off.

The formulas of `ops/special_functions` are for double; these are as many numbers at a time as there are floats in a
register, and have no steps of refinement.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math import error_function
from morpho.backends.code.vector_math import single_coefficients as c
from morpho.backends.code.vector_math.core import FLOAT, fast_two_sum, polynomial, round_to_integer, two_difference
from morpho.backends.code.vector_math.error_function import FLOAT_SMALL
from morpho.backends.code.vector_math.exponential import FLOAT as TABLE
from morpho.backends.code.vector_math.exponential import FLOAT_EXP_TAIL, LOG2_E, exp_minus_one_reduced
from morpho.backends.code.vector_math.logarithm import FLOAT_LN2_HIGH, FLOAT_LN2_LOW, FLOAT_LOG_TAIL, split_exponent
from morpho.backends.code.vector_math.power import both

INFINITY, NAN = float("inf"), float("nan")
POLE, END = 4.0, 1 / (4 * math.pi**0.5)  # of the quotients that `ERFC_TAIL` and `NDTR_TAIL` are fitted for
MIDDLE, NDTRI_FIRST = 4.0, 1.35  # of `NDTRI_FAR`
ROOT_TWO, SLOPE = 2**0.5, math.pi**0.5 / 2  # SLOPE: of erfinv at 0


def _lost(number: float) -> float:
    """The part of a number that rounding to a float loses."""
    return number - float(struct.unpack("<f", struct.pack("<f", number))[0])


def _log_parts(e: Emitter, x: Value) -> Value:
    """The logarithm of a positive finite number."""
    k, m = split_exponent(e, x, 0x3F2AAAAB)
    r = m - 1.0
    square = r * r
    tail = polynomial(e, r, FLOAT_LOG_TAIL, square)
    return e.fma(k, FLOAT_LN2_HIGH, e.fma(tail, square, e.fma(k, FLOAT_LN2_LOW, r)))


def _gaussian_tail(e: Emitter, t: Value, half: float, end: float, centre: float,
                   coefficients: tuple[float, ...]) -> Value:
    """exp(-half t**2) z (end + z Q(z)) with z = 4 / (t + 4), for t >= 0.

    What the roundings of the square, of t + 4 and of z lose is part of the last sum.
    """
    part = t * half
    square = part * t
    rest = e.fma(part, t, -square)
    below = t + POLE
    inverse = 1.0 / below
    shift = t - (below - POLE)
    miss = e.fma(-inverse, below, 1.0)  # of `inverse`, relative
    z = inverse * POLE
    rise = e.polynomial(z - centre, coefficients[:-1])
    product = z * coefficients[-1]
    high, line_rest = fast_two_sum(product, e.like(end, z))  # of the inner factor
    line_rest = line_rest + e.fma(z, _lost(coefficients[-1]), e.fma(z, coefficients[-1], -product))
    curve = e.fma(z * (z - centre), rise, line_rest)
    whole = z * high
    slope = e.fma(rise, (z + z) - centre, coefficients[-1])  # of the inner factor, nearly
    low = e.fma(z, curve, e.fma(z, high, -whole))
    low = e.fma(miss, e.fma(z * z, slope, whole), low)
    low = e.fma(shift, e.fma(part + part, whole + low, -2 / math.pi**0.5 * half**0.5), low)  # times its derivative
    half_range = FLOAT.mantissa + 1  # as `exp_nonpositive`: powers of two that are no subnormal numbers
    k, count = round_to_integer(e, e.maximum(-square, TABLE.lowest), LOG2_E, FLOAT.bias + half_range)
    r = e.fma(k, -TABLE.ln2_high, -square) + e.fma(k, -TABLE.ln2_low, -rest)
    growth = exp_minus_one_reduced(e, r, FLOAT_EXP_TAIL)
    found = whole + e.fma(whole, growth, e.fma(low, growth, low))
    return found * e.from_bits(count << FLOAT.mantissa, "float") * 2.0**-half_range


def erfc(e: Emitter, x: Value) -> Value:
    """1 - erf(x), with its own relative accuracy where it is small."""
    if x.element == "double":
        return error_function.erfc(e, x)
    t = e.absolute(x)
    tail = _gaussian_tail(e, e.minimum(t, 10.2), 1.0, END, 0.66, c.ERFC_TAIL)
    far = e.select(e.fcmp("olt", x, 0.0), 2.0 - tail, tail)
    less, lost = two_difference(e.like(1.0, x), x)
    near = less + e.fma(-e.polynomial(x * x, FLOAT_SMALL), x, lost)
    return e.select(e.fcmp("olt", t, 0.86), near, far)


def ndtr(e: Emitter, x: Value) -> Value:
    """The share of the normal distribution below x."""
    t = e.absolute(x)
    tail = _gaussian_tail(e, e.minimum(t, 14.4), 0.5, END * ROOT_TWO, 0.64, c.NDTR_TAIL) * 0.5
    far = e.select(e.fcmp("olt", x, 0.0), tail, 1.0 - tail)
    z = x * (1 / ROOT_TWO)
    near = e.fma(e.fma(polynomial(e, z * z, FLOAT_SMALL), z, z), 0.5, 0.5)
    return e.select(e.fcmp("olt", t, 0.5), near, far)


def _near(e: Emitter, x: Value, w: Value, scale: float) -> Value:
    """`scale` times erfinv(x) for w = -log(1 - x**2) up to 4."""
    slope = scale * SLOPE
    high = e.like(slope, x)
    rest = e.fma(polynomial(e, w, tuple(scale * k for k in c.ERFINV_SLOPE)), w, _lost(slope))
    return e.fma(x, high, x * rest)


def erfinv(e: Emitter, x: Value) -> Value:
    """y with erf(y) = x: infinite at -1 and 1, NaN beyond."""
    size = e.absolute(x)
    rest = e.maximum(e.fma(-size, size, 1.0), 2.0**-24)
    w = -_log_parts(e, rest)
    beyond = e.square_root(e.maximum(w, MIDDLE)) - 2.0
    first = c.ERFINV_FAR[-1]
    far = e.fma(x, first, x * e.fma(e.polynomial(beyond, c.ERFINV_FAR[:-1]), beyond, _lost(first)))
    found = e.select(e.fcmp("olt", w, MIDDLE), _near(e, x, w, 1.0), far)
    ends = e.select(e.fcmp("oeq", size, 1.0), e.copysign(e.like(INFINITY, x), x), e.like(NAN, x))
    return e.select(e.fcmp("olt", size, 1.0), found, ends)


def _inverse_tail(e: Emitter, twice: Value, factor: float) -> Value:
    """`factor` times y with erfc(y) = `twice`, for 0 to 1; infinite at 0, NaN below."""
    safe = e.maximum(twice, 2.0**-149)
    w = -_log_parts(e, safe * (2.0 - safe))
    wide = e.maximum(w, MIDDLE)
    root = e.square_root(wide)
    inverse = 1.0 / root
    root_low = e.fma(-root, root, wide) * (inverse * 0.5)
    first = factor / ROOT_TWO * NDTRI_FIRST
    rest = polynomial(e, inverse - 0.27, tuple(factor * k for k in c.NDTRI_FAR))
    far = e.fma(root, first, e.fma(root_low, first, root * (rest + _lost(first))))
    size = e.select(e.fcmp("olt", w, MIDDLE), _near(e, 1.0 - twice, w, factor), far)
    size = e.select(e.fcmp("oeq", twice, 0.0), e.like(INFINITY, twice), size)
    return e.select(e.fcmp("olt", twice, 0.0), e.like(NAN, twice), size)


def ndtri(e: Emitter, p: Value) -> Value:
    """x with ndtr(x) = p: infinite at 0 and 1, NaN outside."""
    low = e.fcmp("olt", p, 0.5)
    size = _inverse_tail(e, e.select(low, p, 1.0 - p) * 2.0, ROOT_TWO)
    return e.select(e.is_nan(p), p, e.select(low, -size, size))


def erfcinv(e: Emitter, x: Value) -> Value:
    """y with erfc(y) = x: infinite at 0 and 2, NaN outside."""
    low = e.fcmp("olt", x, 1.0)
    size = _inverse_tail(e, e.select(low, x, 2.0 - x), 1.0)
    return e.select(e.is_nan(x), x, e.select(low, size, -size))


def cbrt(e: Emitter, x: Value) -> Value:
    """The cube root, of negative numbers too: a third of the exponent by whole numbers, then two steps of Halley's
    method, the last one with the exact rest."""
    size = e.absolute(x)
    small = e.fcmp("olt", size, 2.0**-60)
    large = e.fcmp("ogt", size, 2.0**60)
    scaled = size * e.select(small, e.like(2.0**96, x), e.select(large, e.like(2.0**-96, x), 1.0))
    third = e.convert("sitofp", e.bits(scaled), "float") * (1 / 3)
    y = e.from_bits(e.convert("fptosi", third, "i32") + 709958130, "float")
    cube = y * y * y
    y = y * ((cube + (scaled + scaled)) / (cube + (cube + scaled)))
    square = y * y
    cube = square * y
    rest = e.fma(e.fma(y, y, -square), y, e.fma(square, y, -cube))
    y = e.fma(((scaled - cube) - rest) / (cube + (cube + scaled)), y, y)
    y = y * e.select(small, e.like(2.0**-32, x), e.select(large, e.like(2.0**32, x), 1.0))
    ordinary = e.icmp("ult", e.bits(size) - 1, FLOAT.infinity - 1)
    return e.copysign(e.select(ordinary, y, size), x)


def logit(e: Emitter, p: Value) -> Value:
    """log(p / (1 - p)): infinite at 0 and 1, NaN outside."""
    other = 1.0 - p
    t = (p - 0.5) * 2.0
    square = t * t
    near = e.fma(polynomial(e, square, c.LOGIT_MIDDLE) * square, t, t + t)
    inside = both(e, e.fcmp("ogt", p, 0.0), e.fcmp("olt", p, 1.0))
    far = _log_parts(e, e.select(inside, p / other, 1.0))
    ends = e.select(e.fcmp("oeq", p, 0.0), e.like(-INFINITY, p),
                    e.select(e.fcmp("oeq", p, 1.0), e.like(INFINITY, p), NAN))
    return e.select(inside, e.select(e.fcmp("olt", e.absolute(t), 0.5), near, far), ends)


SINGLE: dict[str, Callable[[Emitter, Value], Value]] = {
    "erfinv": erfinv, "erfcinv": erfcinv, "ndtri": ndtri, "ndtr": ndtr, "cbrt": cbrt, "logit": logit}
