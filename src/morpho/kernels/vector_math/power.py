"""pow, hypot and logaddexp: functions of two arguments made of exp, log and sqrt."""

from __future__ import annotations

from morpho.kernels.emit import Emitter, Value
from morpho.kernels.vector_math.core import fast_two_sum, round_to_integer, scale, through_double, two_product
from morpho.kernels.vector_math.exponential import DOUBLE, LOG2_E, exp, exp_reduced
from morpho.kernels.vector_math.logarithm import (
    DOUBLE_LOWEST,
    NATURAL,
    in_base,
    log1p,
    log_exact,
    log_near_one,
    split_exponent,
)

INFINITY = float("inf")


def both(e: Emitter, a: Value, b: Value) -> Value:
    """a and b, of masks."""
    return e.instruction("and", a, b)


def either(e: Emitter, a: Value, b: Value) -> Value:
    """a or b, of masks."""
    return e.instruction("or", a, b)


def positive_power(e: Emitter, base: Value, exponent: Value, exact: bool) -> Value:
    """base**exponent in double for finite base > 0; `exact` carries the logarithm in two parts."""
    if exact:
        high, low = log_exact(e, base)
        product, product_low = two_product(e, high, exponent)
        product_low = e.fma(low, exponent, product_low)
    else:
        k, m = split_exponent(e, base, DOUBLE_LOWEST)
        product, product_low = in_base(e, k, *log_near_one(e, m), NATURAL) * exponent, e.like(0.0, base)
    clamped = e.minimum(e.maximum(product, DOUBLE.lowest - 1.0), DOUBLE.highest + 1.0)
    product_low = e.select(e.fcmp("oeq", clamped, product), product_low, 0.0)
    k, count = round_to_integer(e, clamped, LOG2_E)
    r = e.fma(k, -DOUBLE.ln2_high, clamped) + e.fma(k, -DOUBLE.ln2_low, product_low)
    return scale(e, exp_reduced(e, r), count)


def pow(e: Emitter, x: Value, y: Value) -> Value:
    """x**y with the special cases of IEEE 754."""
    if x.element == "float":
        base, exponent = e.convert("fpext", x, "double"), e.convert("fpext", y, "double")
        return e.convert("fptrunc", power_double(e, base, exponent, exact=False), "float")
    return power_double(e, x, y, exact=True)


def power_double(e: Emitter, x: Value, y: Value, exact: bool) -> Value:
    """x**y in double; `exact` as the result is a double itself and not rounded to float."""
    t, size = e.absolute(x), e.absolute(y)
    zero, infinite = e.fcmp("oeq", t, 0.0), e.fcmp("oeq", t, INFINITY)
    ordinary = e.select(either(e, zero, infinite), 1.0, t)
    # |y| beyond 2**65 gives 0, 1 or inf whatever its value, and its product with the low part must not be NaN
    bounded = e.minimum(e.maximum(y, -(2.0**65)), 2.0**65)
    result = positive_power(e, ordinary, bounded, exact)
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
