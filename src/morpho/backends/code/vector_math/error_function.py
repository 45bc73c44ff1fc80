"""erf and erfc, and the scaled tail both share."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import (
    fast_two_sum,
    polynomial,
    power_of_two,
    round_to_integer,
    through_double,
    two_product,
    two_sum,
)
from morpho.backends.code.vector_math.exponential import DOUBLE, LOG2_E, exp_minus_one_reduced

# erf(x) / x - 1 in x**2 on 0 <= x <= 0.875; relative error of erf 2**-30.1.
FLOAT_SMALL = (
    8.44675305e-05,
    -0.000815498643,
    0.00520148594,
    -0.0268592462,
    0.112836838,
    -0.376126319,
    0.128379166,
)
# sqrt(erfc(x)) in x - 1 on 0.85 <= x <= 3.95; absolute error of its square 2**-27.5. The square root falls only half
# as steeply as erfc and so needs fewer terms, and its error shrinks with it.
FLOAT_LARGE = (
    6.7765468e-06,
    -0.000101648613,
    0.000596366415,
    -0.00147967518,
    -8.34372258e-05,
    0.00725153415,
    -0.00230028713,
    -0.0473588109,
    0.0605088472,
    0.178064629,
    -0.52331996,
    0.396609634,
)
FLOAT_CROSSOVER, FLOAT_SATURATION = 0.875, 3.95

# erf(x) / x - 1 in x**2 on 0 <= x <= 1; relative error of erf 2**-56.3.
DOUBLE_SMALL = (
    -7.708295571798242e-11,
    5.785581708517919e-10,
    -2.689268586475289e-09,
    1.737545141010922e-08,
    -1.6658632384063664e-07,
    1.6484801059027757e-06,
    -1.4926867966392874e-05,
    0.00012055378237360376,
    -0.000854832816839438,
    0.005223977644443496,
    -0.026866170647067977,
    0.11283791670965898,
    -0.3761263890318401,
    0.1283791670955126,
)
# log(exp(x**2) * erfc(x) * (x + 3)) in x / (x + 3) - 1/2 on 0 <= x <= 27.5; absolute error 2**-57.8.
DOUBLE_TAIL = (
    -0.18167411672334502,
    -0.18528889446642013,
    0.31681081407124356,
    0.26761488989214877,
    -0.40446720491642685,
    -0.15148540240348632,
    0.4622904221711271,
    -0.055297567894962096,
    -0.4456907582690377,
    0.2543011246229416,
    0.3369626408731879,
    -0.39085475717928225,
    -0.1595558914447429,
    0.43709547145634886,
    -0.04448964400976287,
    -0.3842574646617795,
    0.23071918039570627,
    0.23740435333824153,
    -0.3584251339694231,
    -0.00537388806440798,
    0.3826518308196162,
    -0.3218131264994851,
    -0.18032945774155165,
    0.8451439565437975,
    -1.645044268038813,
    0.07139642724694244,
)
TAIL_OFFSET = 200  # erfc is kept times 2**200 until the end, away from the subnormals


def erf_float(e: Emitter, x: Value) -> Value:
    """erf in float arithmetic: an odd polynomial near zero, 1 - (polynomial)**2 further out."""
    t = e.absolute(x)
    near = e.fma(polynomial(e, x * x, FLOAT_SMALL), t, t)
    root = polynomial(e, e.minimum(t, FLOAT_SATURATION) - 1.0, FLOAT_LARGE)
    far = e.fma(-root, root, 1.0)
    return e.copysign(e.select(e.fcmp("olt", t, FLOAT_CROSSOVER), near, far), x)


def erfc_scaled(e: Emitter, t: Value, t_low: Value, square: Value, square_low: Value, numerator: Value) -> Value:
    """numerator * erfc(t + t_low) * 2**200 for 0 <= t <= 27.5 in double, where square + square_low is its square.

    erfc(t) = exp(-t**2 + tail) / (t + 3): as part of the exponent the polynomial adds only its absolute error, and
    the quotient is kept in two parts, which leaves one rounding at full size.
    """
    denominator = t + 3.0
    denominator_low = (t - (denominator - 3.0)) + t_low
    inverse = 1.0 / denominator
    inverse_low = e.fma(-inverse, denominator_low, e.fma(-inverse, denominator, 1.0)) * inverse
    v = e.fma(inverse, -3.0, 0.5) + inverse_low * -3.0  # t / (t + 3) - 1/2
    product, product_low = two_product(e, polynomial(e, v, DOUBLE_TAIL[:-1]), v)
    tail, tail_low = two_sum(product, e.like(DOUBLE_TAIL[-1], v))
    k, count = round_to_integer(e, tail - square, LOG2_E, TAIL_OFFSET)
    low = e.fma(k, -DOUBLE.ln2_low, (tail_low + product_low) - square_low)
    r = (e.fma(k, -DOUBLE.ln2_high, -square) + tail) + low
    quotient = numerator * inverse
    quotient_low = e.fma(numerator, inverse, -quotient) + numerator * inverse_low
    growth = exp_minus_one_reduced(e, r)
    result = quotient + e.fma(quotient, growth, e.fma(quotient_low, growth, quotient_low))
    return result * power_of_two(e, count, "double")


def erfc_positive(e: Emitter, t: Value) -> Value:
    """erfc of 0 <= t <= 27.5 in double, times 2**200."""
    square = t * t
    return erfc_scaled(e, t, e.like(0.0, t), square, e.fma(t, t, -square), e.like(1.0, t))


def erf_double(e: Emitter, x: Value) -> Value:
    """erf in double arithmetic."""
    t = e.absolute(x)
    near = e.fma(polynomial(e, x * x, DOUBLE_SMALL), t, t)
    far = e.fma(erfc_positive(e, e.minimum(t, 6.0)), -(2.0**-TAIL_OFFSET), 1.0)
    return e.copysign(e.select(e.fcmp("olt", t, 1.0), near, far), x)


def erf(e: Emitter, x: Value) -> Value:
    """The error function."""
    return erf_float(e, x) if x.element == "float" else erf_double(e, x)


@through_double
def erfc(e: Emitter, x: Value) -> Value:
    """1 - erf(x), with its own relative accuracy where it is small; below zero 2 - erfc(-x)."""
    t = e.absolute(x)
    tail = erfc_positive(e, e.minimum(t, 27.5))
    small = tail * 2.0**-TAIL_OFFSET
    near = one_minus_erf(e, x)
    far = e.select(e.fcmp("olt", x, 0.0), 2.0 - small, small)
    return e.select(e.fcmp("olt", t, 0.75), near, far)


def one_minus_erf(e: Emitter, x: Value) -> Value:
    """1 - erf(x) for |x| <= 1, with erf(x) = x + x * polynomial in two parts."""
    product, product_low = two_product(e, polynomial(e, x * x, DOUBLE_SMALL), x)
    high, low = fast_two_sum(x, product)
    total, rest = fast_two_sum(e.like(1.0, x), -high)
    return total + (rest - (low + product_low))
