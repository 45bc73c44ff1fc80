"""log, log2, log10 and log1p: x = 2**k * m with m near one, and a polynomial for log(m)."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import (
    fast_two_sum,
    format_of,
    polynomial,
    two_product,
    two_sum,
)

# (log(1 + r) - r) / r**2 on -1/3 <= r <= 1/3; relative error of log(1 + r) 2**-27.6.
FLOAT_LOG_TAIL = (
    -0.128326148,
    0.140025869,
    -0.121985599,
    0.140016541,
    -0.166793868,
    0.200107127,
    -0.249998242,
    0.333332092,
    -0.5,
)
FLOAT_LN2_HIGH, FLOAT_LN2_LOW = 0.693359375, -2.12194440e-4
FLOAT_LOWEST = 0x3F2AAAAB  # the bits of 2/3

# 2 * (atanh(s) - s) / s**3 in s**2 on 0 <= s <= 0.1717; error relative to 2 * atanh(s) 2**-66.
DOUBLE_ATANH_TAIL = (
    0.13236454106825574,
    0.13251975187437445,
    0.15386995895718508,
    0.18181778212057192,
    0.22222222608476216,
    0.2857142856940357,
    0.40000000000004937,
    0.6666666666666666,
)
DOUBLE_LOWEST = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)

# 2 * (atanh(s) - s - s**3/3) / s**5 in s**2 on 0 <= s <= 0.1717; error relative to 2 * atanh(s) 2**-76.
EXACT_ATANH_TAIL = (
    0.11489452104383129,
    0.10351063987138223,
    0.11773269425458043,
    0.1333307847062609,
    0.15384620170102845,
    0.18181818125458926,
    0.22222222222619484,
    0.28571428571427077,
    0.4,
)


@dataclass(frozen=True, slots=True)
class Base:
    """log_b(x) = k * log_b(2) + log(m) / log(b), both factors in two parts; `two_high` times an exponent is exact."""

    two_high: float
    two_low: float
    factor_high: float
    factor_low: float


NATURAL = Base(0.6931471805598903, 5.497923018708371e-14, 1.0, 0.0)
BINARY = Base(1.0, 0.0, 1.4426950408889634, 2.0355273740931033e-17)
DECIMAL = Base(0.30102999566395283, 2.8363394551044964e-14, 0.4342944819032518, 1.098319650216765e-17)
FLOAT_NATURAL = Base(FLOAT_LN2_HIGH, FLOAT_LN2_LOW, 1.0, 0.0)
FLOAT_BINARY = Base(1.0, 0.0, 1.4426950216293335, 1.925963033500011e-08)
FLOAT_DECIMAL = Base(0.301025390625, 4.605039066518657e-06, 0.4342944920063019, -1.0103049952192578e-08)


def split_exponent(e: Emitter, x: Value, lowest: int) -> tuple[Value, Value]:
    """k (as a float) and m with x = 2**k * m for positive x; `lowest` are the bits of the smallest m.

    A subnormal x is first scaled up to a normal number.
    """
    form = format_of(x)
    small = e.fcmp("olt", x, 2.0 ** (1 - form.bias))
    scaled = e.select(small, x * 2.0 ** (form.mantissa + 1), x)
    shifted = e.bits(scaled) - lowest
    k = e.convert("sitofp", shifted.shift_right(form.mantissa, arithmetic=True), x.element)
    k = k + e.select(small, e.constant(-1.0 - form.mantissa, x.element, x.lanes), 0.0)
    m = e.from_bits((shifted & ((1 << form.mantissa) - 1)) + lowest, x.element)
    return k, m


def logarithm_specials(e: Emitter, x: Value, result: Value) -> Value:
    """`result` but for log's special inputs: 0 gives -inf, inf gives inf, negative numbers and NaN give NaN."""
    infinity = float("inf")
    result = e.select(e.fcmp("olt", x, infinity), result, x)
    result = e.select(e.fcmp("olt", x, 0.0), float("nan"), result)
    return e.select(e.fcmp("oeq", x, 0.0), -infinity, result)


def log_float(e: Emitter, x: Value) -> Value:
    """Natural logarithm in float arithmetic."""
    k, m = split_exponent(e, x, FLOAT_LOWEST)
    r = m - 1.0
    square = r * r
    tail = polynomial(e, r, FLOAT_LOG_TAIL, square)
    result = e.fma(k, FLOAT_LN2_HIGH, e.fma(tail, square, e.fma(k, FLOAT_LN2_LOW, r)))
    return logarithm_specials(e, x, result)


def log_float_in_base(e: Emitter, x: Value, base: Base, correction: Value | None = None) -> Value:
    """log of a positive float to a base, and a small number more, in float arithmetic, rounded about once.

    The part of first order, k * log_b(2) + r / log(b), is split into its rounded value and the error of that: the
    inner difference is exact, since r / log(b) is at most half of log_b(2).
    """
    k, m = split_exponent(e, x, FLOAT_LOWEST)
    r = m - 1.0
    square = r * r
    whole = k * base.two_high
    first = e.fma(r, base.factor_high, whole)
    rest = e.fma(r, base.factor_high, whole - first)
    if base.two_low:
        rest = e.fma(k, base.two_low, rest)
    if base.factor_low:
        rest = e.fma(r, base.factor_low, rest)
    if correction is not None:
        rest = rest + correction
    tail = polynomial(e, r, FLOAT_LOG_TAIL, square)
    return first + e.fma(tail * square, base.factor_high, rest)


def log_near_one(e: Emitter, m: Value) -> tuple[Value, Value]:
    """log(m) of a double m in [sqrt(1/2), sqrt(2)] as a sum of two.

    With f = m - 1, s = f / (2 + f): log(m) = 2 * atanh(s) = f - f**2/2 + s * (f**2/2 + s**2 * tail(s**2)), where the
    last product is small, so that its rounding does not matter.
    """
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square, half_square_low = two_product(e, f * 0.5, f)
    high, low = fast_two_sum(f, -half_square)
    return high, low - half_square_low + s * e.fma(polynomial(e, z, DOUBLE_ATANH_TAIL), z, half_square)


def in_base(e: Emitter, k: Value, high: Value, low: Value, base: Base) -> Value:
    """(k * log(2) + high + low) / log(base), rounded about once."""
    if base.factor_high != 1.0:
        product, rest = two_product(e, high, e.like(base.factor_high, high))
        low = rest + e.fma(low, base.factor_high, high * base.factor_low)
        high = product
    total, rest = fast_two_sum(k * base.two_high, high)
    return total + (rest + e.fma(k, base.two_low, low))


def log_double(e: Emitter, x: Value, base: Base = NATURAL) -> Value:
    """Logarithm to a base in double arithmetic."""
    k, m = split_exponent(e, x, DOUBLE_LOWEST)
    high, low = log_near_one(e, m)
    return logarithm_specials(e, x, in_base(e, k, high, low, base))


def log(e: Emitter, x: Value) -> Value:
    """Natural logarithm."""
    return log_float(e, x) if x.element == "float" else log_double(e, x)


def log2(e: Emitter, x: Value) -> Value:
    """Logarithm to base 2."""
    if x.element == "float":
        return logarithm_specials(e, x, log_float_in_base(e, x, FLOAT_BINARY))
    return log_double(e, x, BINARY)


def log10(e: Emitter, x: Value) -> Value:
    """Logarithm to base 10."""
    if x.element == "float":
        return logarithm_specials(e, x, log_float_in_base(e, x, FLOAT_DECIMAL))
    return log_double(e, x, DECIMAL)


def log1p(e: Emitter, x: Value) -> Value:
    """log(1 + x): log of the rounded sum, plus the relative rounding error of that sum."""
    total, error = two_sum(e.like(1.0, x), x)
    if x.element == "float":
        result = log_float_in_base(e, total, FLOAT_NATURAL, error / total)
    else:
        k, m = split_exponent(e, total, DOUBLE_LOWEST)
        high, low = log_near_one(e, m)
        result = in_base(e, k, high, low + error / total, NATURAL)
    result = e.select(e.fcmp("olt", x, float("inf")), result, x)
    result = e.select(e.fcmp("olt", x, -1.0), float("nan"), result)
    result = e.select(e.fcmp("oeq", x, -1.0), float("-inf"), result)
    return e.copysign(result, x)  # keeps -0.0


def log_exact(e: Emitter, x: Value) -> tuple[Value, Value]:
    """Natural logarithm of a positive finite double as a sum of two, relative error about 2**-66; for `pow`."""
    k, m = split_exponent(e, x, DOUBLE_LOWEST)
    f = m - 1.0
    denominator, denominator_low = fast_two_sum(e.like(2.0, f), f)
    inverse = 1.0 / denominator
    s = f * inverse
    s_low = e.fma(-s, denominator_low, e.fma(-s, denominator, f)) * inverse
    z, z_low = two_product(e, s, s)
    z_low = e.fma(s + s, s_low, z_low)
    cube, cube_low = two_product(e, s, z)
    cube_low = cube_low + e.fma(s, z_low, s_low * z)
    third, third_low = two_product(e, cube, e.like(0.6666666666666666, cube))
    third_low = third_low + e.fma(cube_low, 0.6666666666666666, cube * 3.700743415417188e-17)
    tail = polynomial(e, z, EXACT_ATANH_TAIL) * (z * cube)
    high, rest = fast_two_sum(s + s, third)
    low = rest + (s_low + s_low) + (third_low + tail)
    total, rest = fast_two_sum(k * NATURAL.two_high, high)
    return fast_two_sum(total, rest + e.fma(k, NATURAL.two_low, low))


# 2 * (atanh(s) - s) / s**3 in s**2 on 0 <= s <= 0.1717; error relative to 2 * atanh(s) 2**-52.
SHORT_ATANH_TAIL = (
    0.16821640053077497, 0.18123496895508528, 0.2222337596842459,
    0.28571417073820055, 0.4000000005258044, 0.666666666665867,
)


def log_short(e: Emitter, x: Value) -> Value:
    """Natural logarithm of a double, relative error 2**-43: for results that are rounded to float32."""
    k, m = split_exponent(e, x, DOUBLE_LOWEST)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    tail = polynomial(e, z, SHORT_ATANH_TAIL)
    half_square = (f * 0.5) * f
    result = e.fma(k, NATURAL.two_high, f - (half_square - s * e.fma(tail, z, half_square)))
    return logarithm_specials(e, x, result)
