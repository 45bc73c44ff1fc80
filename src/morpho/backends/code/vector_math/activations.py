"""sigmoid, silu, softplus, gelu, gelu_tanh and mish.

All but sigmoid are written as max(x, 0) plus or minus a term that falls like e**-|x| or e**(-x**2 / 2). For x < 0 the
result is that term alone, with its own relative accuracy down to the smallest subnormal: it is kept times 2**offset
and brought to size by the last fma, which is the only instruction that may round to a subnormal number. That takes x86
a hundred cycles, also where the result is zero: so arguments are bounded where the power of two that stands for e**-t
has the bits of zero, and everything after it is exact (`vanishing`).
"""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import (
    biased_power_of_two,
    fast_two_sum,
    format_of,
    polynomial,
    positive_part,
    round_to_integer,
    through_double,
    two_product,
)
from morpho.backends.code.vector_math.error_function import TAIL_OFFSET, erfc_scaled, one_minus_erf
from morpho.backends.code.vector_math.exponential import (
    LOG2_E,
    exp,
    exp_minus_one_reduced,
    reduced_negated,
    tables,
)
from morpho.backends.code.vector_math.logarithm import log1p
from morpho.backends.code.vector_math.normal import gelu_float, gelu_slope_float

# The power of two that keeps the falling term away from the subnormal numbers until the last instruction.
OFFSETS = {"float": 40, "double": 100}

# (log(1 + u) - u) / u**2 on 0 <= u <= 1; relative error of log(1 + u) 2**-27.5.
FLOAT_LOG1P_TAIL = (
    -0.00331249624,
    0.0201766267,
    -0.0576095879,
    0.106747031,
    -0.153517187,
    0.196940243,
    -0.249582931,
    0.333304793,
    -0.499999315,
)
# Numbers in two parts. gelu_tanh(x) = x * sigmoid(x * (LINEAR + CUBIC * x**2)) with LINEAR = 2 * sqrt(2/pi) and
# CUBIC = 0.044715 * LINEAR.
DENSITY = 0.3989422804014327  # 1 / sqrt(2 * pi), the normal density at 0
SQRT_HALF, SQRT_HALF_LOW = 0.7071067811865476, -4.833646656726457e-17
LINEAR, LINEAR_LOW = 1.5957691216057308, -9.96930880911092e-17
CUBIC, CUBIC_LOW = 0.07135481627260025, -6.175149918155315e-19


def offset(x: Value) -> int:
    """The exponent of the scale in the format of x."""
    return OFFSETS[x.element]


def biased_offset(x: Value) -> int:
    """The exponent of the scale plus the bias of the format, for `biased_power_of_two`."""
    return offset(x) + format_of(x).bias


def vanishing(x: Value) -> float:
    """The t for which `biased_power_of_two` makes zero of e**-t, long after the result is zero."""
    return biased_offset(x) / LOG2_E


def shrink_factor(x: Value) -> float:
    """Factor that undoes the scale."""
    return 2.0 ** -offset(x)


def exp_of_negative(e: Emitter, t: Value) -> tuple[Value, Value]:
    """e**-t = 2**k / (1 + growth) for t >= 0: growth, and 2**(k + offset); 1 + growth is in [0.7, 1.42]."""
    r, count = reduced_negated(e, t, biased_offset(t))
    return exp_minus_one_reduced(e, r), biased_power_of_two(e, count, t.element)


def sigmoid(e: Emitter, x: Value) -> Value:
    """1 / (1 + e**-x).

    The small side is 2**k / (1 + growth + 2**k). The quotient is corrected by its residual, for which the sum is taken
    term by term, so that about one rounding remains.
    """
    t = e.minimum(e.absolute(x), vanishing(x))
    growth, power = exp_of_negative(e, t)
    small = power * shrink_factor(x)
    y, y_low = fast_two_sum(e.like(1.0, growth), growth)
    quotient = 1.0 / (y + small)
    residual = e.fma(-quotient, y_low, e.fma(-quotient, small, e.fma(-quotient, y, 1.0)))
    side = e.fma(quotient, residual, quotient) * power * shrink_factor(x)
    return e.select(e.fcmp("olt", x, 0.0), side, 1.0 - side)


def weighted_sigmoid(e: Emitter, x: Value, t: Value, growth: Value, power: Value) -> Value:
    """x * sigmoid(z), where t = |x| as far as it matters, e**-|z| = 2**k / (1 + growth) and power = 2**(k + offset).

    The denominator 1 + growth + 2**k is summed around 1/4, where the first two sums are small or exact.
    """
    denominator = (e.fma(power, shrink_factor(x), -0.25) + growth) + 1.25
    return e.fma(t / denominator * power, -shrink_factor(x), positive_part(e, x))


def silu(e: Emitter, x: Value) -> Value:
    """x * sigmoid(x); silu(-inf) is -0.0, its limit."""
    t = e.minimum(e.absolute(x), vanishing(x))
    growth, power = exp_of_negative(e, t)
    return weighted_sigmoid(e, x, t, growth, power)


def softplus_float(e: Emitter, x: Value) -> Value:
    """log(1 + e**x) in float arithmetic: max(x, 0) + log(1 + e**-|x|), the logarithm as a polynomial in e**-|x|."""
    t = e.minimum(e.absolute(x), vanishing(x))
    r, count = reduced_negated(e, t, biased_offset(t))
    tail = [c * (-1.0) ** power for c, power in zip(tables(x).exp_tail, range(6, 1, -1), strict=True)]
    decay = e.fma(polynomial(e, r, tail), r, -1.0) * r  # e**-r - 1
    power = biased_power_of_two(e, count, x.element)
    large = e.fma(decay, power, power)
    small = e.maximum(large, 1.0) * shrink_factor(x)  # e**-|x|, as far as its square matters
    logarithm = e.fma(polynomial(e, small, FLOAT_LOG1P_TAIL), large * small, large)
    return e.fma(logarithm, shrink_factor(x), positive_part(e, x))


def softplus(e: Emitter, x: Value) -> Value:
    """log(1 + e**x)."""
    if x.element == "float":
        return softplus_float(e, x)
    return e.maximum(x, 0.0) + log1p(e, exp(e, -e.absolute(x)))


def gelu_slope_double(e: Emitter, x: Value) -> Value:
    """Phi(x) + x phi(x) in double arithmetic, from the tail of erfc and the exponential of the exact square."""
    t = e.minimum(e.absolute(x), 38.8)
    half = t * 0.5
    square = half * t
    square_low = e.fma(half, t, -square)
    argument, argument_low = two_product(e, t, e.like(SQRT_HALF, t))
    argument_low = e.fma(t, SQRT_HALF_LOW, argument_low)
    tail = erfc_scaled(e, argument, argument_low, square, square_low, e.like(2.0**99, t))
    decay = exp(e, -square)
    side = e.fma(tail, 2.0 ** (-TAIL_OFFSET - 100), e.fma(decay, -square_low, decay) * t * -DENSITY)
    side = e.select(e.fcmp("oeq", side, 0.0), e.like(-0.0, side), side)  # far out the smaller part vanishes last
    return e.select(e.fcmp("olt", x, 0.0), side, 1.0 - side)


def gelu_slope(e: Emitter, x: Value) -> Value:
    """The derivative of gelu. It passes through zero near -0.75, where its error is relative to Phi."""
    return gelu_slope_float(e, x) if x.element == "float" else gelu_slope_double(e, x)


def gelu_double(e: Emitter, x: Value) -> Value:
    """x * Phi(x) in double arithmetic: |x| * erfc(|x| / sqrt(2)) / 2 from the tail of erfc, near zero from erf."""
    t = e.minimum(e.absolute(x), 38.8)
    half = t * 0.5
    square = half * t
    argument, argument_low = two_product(e, t, e.like(SQRT_HALF, t))
    argument_low = e.fma(t, SQRT_HALF_LOW, argument_low)
    numerator = half * 2.0**100  # far from the subnormals, so that its products have exact low parts
    side = erfc_scaled(e, argument, argument_low, square, e.fma(half, t, -square), numerator)
    far = e.fma(side, -(2.0 ** (-TAIL_OFFSET - 100)), e.maximum(x, -0.0))
    near = x * (one_minus_erf(e, x * -SQRT_HALF) * 0.5)
    return e.select(e.fcmp("olt", t, 0.75), near, far)


def gelu(e: Emitter, x: Value) -> Value:
    """x * Phi(x) with the normal distribution function Phi; gelu(-inf) is -0.0, its limit."""
    return gelu_float(e, x) if x.element == "float" else gelu_double(e, x)


def gelu_tanh(e: Emitter, x: Value) -> Value:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) = x * sigmoid(2 * ...), the argument in two parts.

    LINEAR is so short that its difference from the factor is exact: what that lost in rounding takes two instructions.
    """
    table = tables(x)
    linear, linear_low, cubic, cubic_low = constants(x)
    t = e.minimum(e.absolute(x), 11.12 if x.element == "float" else 21.84)  # z is `vanishing`
    square = t * t
    square_low = e.fma(t, t, -square)
    factor = e.fma(square, cubic, linear)
    lost = e.fma(square, cubic, linear - factor)
    factor_low = e.fma(square_low, cubic, e.fma(square, cubic_low, lost + linear_low))
    z = t * factor
    z_low = e.fma(t, factor_low, e.fma(t, factor, -z))
    k, count = round_to_integer(e, z, -LOG2_E, biased_offset(x))
    r = e.fma(k, table.ln2_high, z) + e.fma(k, table.ln2_low, z_low)
    return weighted_sigmoid(e, x, t, exp_minus_one_reduced(e, r), biased_power_of_two(e, count, x.element))


def constants(x: Value) -> tuple[float, float, float, float]:
    """LINEAR, to as many bits as the largest factor has after its point, and CUBIC, each with what is left of it."""
    bits, cubic = (20, 0.07135481387376785) if x.element == "float" else (47, CUBIC)
    linear = round(LINEAR * 2**bits) / 2**bits
    return linear, (LINEAR - linear) + LINEAR_LOW, cubic, (CUBIC - cubic) + CUBIC_LOW


@through_double
def mish(e: Emitter, x: Value) -> Value:
    """x * tanh(softplus(x)) = w * (1 - c), where n = e**-|x| and

    for x < 0: w = x * n, c = n * (n + 1) / (n * (n + 2) + 2); for x > 0: w = x, c = 2 n**2 / (2 n**2 + 2 n + 1).
    """
    t = e.minimum(e.absolute(x), vanishing(x))
    r, count = reduced_negated(e, t, biased_offset(x))
    decay = exp_minus_one_reduced(e, -r)
    power = biased_power_of_two(e, count, x.element)
    n = e.fma(decay, power, power) * shrink_factor(x)
    negative = e.fcmp("olt", x, 0.0)
    top = e.select(negative, e.fma(n, n, n), (n + n) * n)
    bottom = top + e.select(negative, n + 2.0, e.fma(n, 2.0, 1.0))
    quotient = top / bottom
    w = e.fma(t, decay, t)
    w_low = e.fma(t, decay, t - w)
    side = (w + e.fma(-w, quotient, w_low)) * power * -shrink_factor(x)
    return e.select(negative, side, e.fma(-t, quotient, x))
