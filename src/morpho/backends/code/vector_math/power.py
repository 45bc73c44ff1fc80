"""pow, hypot and logaddexp: functions of two arguments made of exp, log and sqrt."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import (
    fast_two_sum,
    polynomial,
    round_to_integer,
    scale,
    scale_exponent,
    through_double,
    two_product,
)
from morpho.backends.code.vector_math.exponential import DOUBLE, LOG2_E, exp, exp_reduced
from morpho.backends.code.vector_math.logarithm import DOUBLE_LOWEST, log1p, log_exact

INFINITY = float("inf")


def both(e: Emitter, a: Value, b: Value) -> Value:
    """a and b, of masks."""
    return e.instruction("and", a, b)


def either(e: Emitter, a: Value, b: Value) -> Value:
    """a or b, of masks."""
    return e.instruction("or", a, b)


# 2 * log2(e) * atanh(s) / s in s**2 on |s| <= 0.1716, relative error 2**-37.8; 2**r on |r| <= 1/2, 2**-29.
SHORT_LOG2 = (0.340737053998414, 0.41167236127784756, 0.5770835905999844, 0.9617966733142491, 2.885390081790106)
SHORT_EXP2 = (0.00015345807547298881, 0.0013399931183163297, 0.009618488973633049, 0.05550328777077406,
              0.24022646890482463, 0.6931472057371981, 1.0000000005541863)
MOST_FLOAT = 200.0  # 2**200 is an infinite float, 2**-200 is 0


def positive_float_power(e: Emitter, base: Value, exponent: Value) -> Value:
    """base**exponent of floats, base finite and positive: 2**(exponent * log2(base)) in double, to 2**-28."""
    wide = e.convert("fpext", base, "double")
    shifted = e.bits(wide) - DOUBLE_LOWEST  # no float is a subnormal double
    k = e.convert("sitofp", shifted.shift_right(52, arithmetic=True), "double")
    m = e.from_bits((shifted & ((1 << 52) - 1)) + DOUBLE_LOWEST, "double")
    s = (m - 1.0) / (m + 1.0)
    product = e.fma(s, polynomial(e, s * s, SHORT_LOG2), k) * e.convert("fpext", exponent, "double")
    bounded = e.minimum(e.maximum(product, -MOST_FLOAT), MOST_FLOAT)
    n, count = round_to_integer(e, bounded, 1.0)
    return e.convert("fptrunc", scale_exponent(e, polynomial(e, bounded - n, SHORT_EXP2), count), "float")


def positive_power(e: Emitter, base: Value, exponent: Value) -> Value:
    """base**exponent of doubles, base finite and positive; the logarithm is the sum of two."""
    # |y| beyond 2**65 gives 0, 1 or inf whatever its value, and its product with the low part must not be NaN
    exponent = e.minimum(e.maximum(exponent, -(2.0**65)), 2.0**65)
    high, low = log_exact(e, base)
    product, product_low = two_product(e, high, exponent)
    product_low = e.fma(low, exponent, product_low)
    clamped = e.minimum(e.maximum(product, DOUBLE.lowest - 1.0), DOUBLE.highest + 1.0)
    product_low = e.select(e.fcmp("oeq", clamped, product), product_low, 0.0)
    k, count = round_to_integer(e, clamped, LOG2_E)
    r = e.fma(k, -DOUBLE.ln2_high, clamped) + e.fma(k, -DOUBLE.ln2_low, product_low)
    return scale(e, exp_reduced(e, r), count)


def pow(e: Emitter, x: Value, y: Value) -> Value:
    """x**y with the special cases of IEEE 754."""
    t, size = e.absolute(x), e.absolute(y)
    zero, infinite = e.fcmp("oeq", t, 0.0), e.fcmp("oeq", t, INFINITY)
    ordinary = e.select(either(e, zero, infinite), 1.0, t)
    result = (positive_float_power if x.element == "float" else positive_power)(e, ordinary, y)
    grows = either(e, both(e, infinite, e.fcmp("ogt", y, 0.0)), both(e, zero, e.fcmp("olt", y, 0.0)))
    result = e.select(either(e, zero, infinite), e.select(grows, e.like(INFINITY, x), 0.0), result)
    result = e.select(e.is_nan(x), x, e.select(e.is_nan(y), y, result))
    whole = e.fcmp("oeq", e.round_even(y), y)
    half = size * 0.5
    odd = both(e, whole, e.fcmp("une", e.round_even(half), half))
    negative = e.icmp("slt", e.bits(x), 0)
    result = e.select(both(e, negative, odd), -result, result)
    fails = both(e, both(e, e.fcmp("olt", x, 0.0), e.fcmp("one", e.round_even(y), y)), e.fcmp("one", t, INFINITY))
    result = e.select(fails, float("nan"), result)
    trivial = either(e, e.fcmp("oeq", x, 1.0), e.fcmp("oeq", y, 0.0))
    minus_one = both(e, e.fcmp("oeq", x, -1.0), e.fcmp("oeq", size, INFINITY))
    return e.select(either(e, trivial, minus_one), 1.0, result)


@through_double
def hypot(e: Emitter, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2) without overflow on the way; infinite if either is, even beside NaN."""
    a, b = e.absolute(x), e.absolute(y)
    larger = e.select(e.fcmp("ogt", a, b), a, b)
    smaller = e.select(e.fcmp("ogt", a, b), b, a)
    huge, tiny = e.fcmp("ogt", larger, 2.0**500), e.fcmp("olt", larger, 2.0**-400)
    factor = e.select(huge, 2.0**-600, e.select(tiny, e.like(2.0**600, a), 1.0))
    back = e.select(huge, 2.0**600, e.select(tiny, e.like(2.0**-600, a), 1.0))
    p, q = larger * factor, smaller * factor
    root = e.square_root(e.fma(p, p, q * q))
    infinite = either(e, e.fcmp("oeq", a, INFINITY), e.fcmp("oeq", b, INFINITY))
    return e.select(infinite, INFINITY, root * back)


@through_double
def logaddexp(e: Emitter, x: Value, y: Value) -> Value:
    """log(e**x + e**y); relative accuracy is lost only where the result itself passes through zero."""
    larger = e.maximum(x, y)
    equal = e.fcmp("oeq", x, y)  # also both infinite, whose difference is NaN
    distance = e.select(equal, 0.0, -e.absolute(x - y))
    tail = log1p(e, exp(e, distance))
    total, rest = fast_two_sum(larger, tail)
    infinite = e.fcmp("oeq", e.absolute(larger), INFINITY)
    return e.select(infinite, larger, total + e.select(e.fcmp("oeq", rest, rest), rest, 0.0))
