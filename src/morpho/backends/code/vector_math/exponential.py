"""exp, exp2 and expm1: reduce to |r| <= ln(2)/2, a polynomial, and 2**k put into the exponent bits."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import format_of, polynomial, power_of_two, round_to_integer, scale

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Tables:
    """Constants of one format; polynomials from the highest power down."""

    lowest: float  # below this e**x is zero: `round_to_integer` makes it -(bias + mantissa + 1), see `outer_exponent`
    highest: float  # above this e**x overflows
    ln2_high: float  # so few bits that its product with any exponent is exact
    ln2_low: float
    exp_tail: tuple[float, ...]  # (e**r - 1 - r) / r**2 on |r| <= 0.3467
    exp2_tail: tuple[float, ...]  # (2**r - 1) / r on |r| <= 0.5


# Relative error of e**r 2**-28.2, of 2**r 2**-28.3.
FLOAT = Tables(
    lowest=-104.67,
    highest=88.75,
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    exp_tail=(0.00138213951, 0.00836867467, 0.0416682586, 0.166665211, 0.49999994),
    exp2_tail=(0.00015326502, 0.00133909727, 0.00961850584, 0.0555035956, 0.240226477, 0.693147182),
)

# The tail for `exp` alone: relative error of e**r 2**-27.6, and 2**-29.6 for r < -1/4, where roundings weigh most.
FLOAT_EXP_TAIL = (0.00135764887, 0.00836906862, 0.041672606, 0.166665167, 0.499999762)

# For `exp_short`: relative error of e**r 2**-17.5.
SHORT_TAIL = (0.041276198, 0.16753863, 0.50005156)
SHORT_LN2, SHORT_LOWEST, SHORT_POWERS = 0.693147182, -44.36, 64

# Relative error of e**r 2**-57.9, of 2**r 2**-59.4.
DOUBLE = Tables(
    lowest=-746.0,
    highest=710.0,
    ln2_high=0.6931471803691238,
    ln2_low=1.9082149292705877e-10,
    exp_tail=(
        2.500729950427334e-08,
        2.7630477050279907e-07,
        2.755756326599294e-06,
        2.4801492404861946e-05,
        0.0001984126953284924,
        0.001388888894437261,
        0.008333333333482051,
        0.04166666666652691,
        0.16666666666666433,
        0.5000000000000011,
    ),
    exp2_tail=(
        2.8471032513755885e-11,
        4.471165241217018e-10,
        7.052826492856925e-09,
        1.0177947702614077e-07,
        1.3215492654829118e-06,
        1.5252734128090228e-05,
        0.00015403530385846005,
        0.0013333558146072706,
        0.0096181291076327,
        0.055504108664823255,
        0.24022650695910064,
        0.6931471805599453,
    ),
)


def tables(x: Value) -> Tables:
    """The constants for the format of x."""
    return FLOAT if x.element == "float" else DOUBLE


def reduced(e: Emitter, x: Value, offset: int = 0) -> tuple[Value, Value]:
    """x = k * ln(2) + r: r, and the integer that holds k + offset in its low bits."""
    t = tables(x)
    k, count = round_to_integer(e, x, LOG2_E, offset)
    return e.fma(k, -t.ln2_low, e.fma(k, -t.ln2_high, x)), count


def reduced_negated(e: Emitter, t: Value, offset: int) -> tuple[Value, Value]:
    """-t = k * ln(2) - r for t >= 0: r, and the integer that holds k + offset in its low bits."""
    table = tables(t)
    k, count = round_to_integer(e, t, -LOG2_E, offset)
    return e.fma(k, table.ln2_low, e.fma(k, table.ln2_high, t)), count


def exp_reduced(e: Emitter, r: Value) -> Value:
    """e**r for |r| <= ln(2)/2."""
    return e.fma(e.fma(polynomial(e, r, tables(r).exp_tail), r, 1.0), r, 1.0)


def exp_minus_one_reduced(e: Emitter, r: Value, tail: tuple[float, ...] | None = None) -> Value:
    """e**r - 1 for |r| <= ln(2)/2, with a small relative error also where it is near zero."""
    square = r * r
    return e.fma(polynomial(e, r, tail or tables(r).exp_tail, square), square, r)


def outer_exponent(x: Value) -> int:
    """h such that e**x = (2**(k + h) * e**r) * 2**-h, and the bits of 2**(k + h) are those of 0.0 for the lowest k.

    So e**-inf is a product of zeros. As a product of tiny numbers it would be zero too, but x86 takes a hundred cycles
    for one that is rounded to a subnormal number or to zero, and masked scores are full of it.
    """
    return format_of(x).mantissa + 1


def exp(e: Emitter, x: Value) -> Value:
    """e**x; overflows to inf and goes through the subnormals to zero.

    2**k is the product of a power chosen by the sign of x and the rest, so that only the last product rounds or
    overflows. Both are multiplied, not added to the exponent bits, so that a NaN stays one whatever its bits.
    """
    t, form = tables(x), format_of(x)
    clamped = e.minimum(e.maximum(x, t.lowest), t.highest)
    r, count = reduced(e, clamped, 2 * form.bias)
    half = outer_exponent(x)
    large, small = (form.bias + half) << form.mantissa, (form.bias - half) << form.mantissa
    outer = e.select(e.fcmp("olt", clamped, 0.0), e.constant(small, form.integer, x.lanes), large)
    inner = e.from_bits((count << form.mantissa) - outer, x.element)
    growth = exp_minus_one_reduced(e, r, FLOAT_EXP_TAIL if x.element == "float" else None)
    return e.fma(inner, growth, inner) * e.from_bits(outer, x.element)


def exp_nonpositive(e: Emitter, x: Value) -> Value:
    """The bits of `exp` for NaN and x up to 40, with a quarter fewer steps: nothing overflows, and the second power of
    two is always the same one."""
    t, form = tables(x), format_of(x)
    half = outer_exponent(x)
    r, count = reduced(e, e.maximum(x, t.lowest), form.bias + half)
    inner = e.from_bits(count << form.mantissa, x.element)
    growth = exp_minus_one_reduced(e, r, FLOAT_EXP_TAIL if x.element == "float" else None)
    return e.fma(inner, growth, inner) * 2.0**-half


def exp_short(e: Emitter, x: Value) -> Value:
    """float32 e**x for x <= 0 where fewer bits will do: relative error 2**-16; 1 for 0; 0 below some 2**-63.5.

    The lowest k gives a power of two whose bits are those of 0.0; it is 2**-63 times what it stands for, and the
    polynomial 2**63 times, so that nothing in between is subnormal.
    """
    x = e.maximum(x, SHORT_LOWEST)
    k, count = round_to_integer(e, x, LOG2_E, SHORT_POWERS)
    r = e.fma(k, -SHORT_LN2, x)
    large = 2.0 ** (format_of(x).bias - SHORT_POWERS)
    growth = e.polynomial(r, [large * c for c in (*SHORT_TAIL, 1.0, 1.0)])
    return growth * e.from_bits(count << format_of(x).mantissa, x.element)


def exp2(e: Emitter, x: Value) -> Value:
    """2**x, exact for integers."""
    lowest, highest = (-151.0, 129.0) if x.element == "float" else (-1076.0, 1025.0)
    clamped = e.minimum(e.maximum(x, lowest), highest)
    k, count = round_to_integer(e, clamped, 1.0)
    r = clamped - k
    return scale(e, e.fma(polynomial(e, r, tables(x).exp2_tail), r, 1.0), count)


def expm1(e: Emitter, x: Value) -> Value:
    """e**x - 1 without cancellation: 2**k * (e**r - 1) + (2**k - 1), at half size so that 2**k does not overflow."""
    clamped = e.minimum(e.maximum(x, -40.0), tables(x).highest)
    r, count = reduced(e, clamped)
    half = power_of_two(e, count, x.element, -1)
    result = e.fma(half, exp_minus_one_reduced(e, r), half - 0.5) * 2.0
    return e.copysign(result, x)  # keeps -0.0
