"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import (
    FLOAT,
    biased_power_of_two,
    fast_two_sum,
    polynomial,
    scale,
    two_product,
)
from morpho.backends.code.vector_math.exponential import (
    exp_minus_one_reduced,
    exp_reduced,
    expm1,
    reduced,
    tables,
)
from morpho.backends.code.vector_math.logarithm import DOUBLE_ATANH_TAIL, log, log1p

# (tanh(x) / x - 1) / x**2 in x**2 on 0 <= x <= 1; relative error of tanh 2**-27.7.
FLOAT_TANH_TAIL = (
    -0.000358611229,
    0.00230192975,
    -0.00794689357,
    0.0214871988,
    -0.0538799912,
    0.133323476,
    -0.333332956,
)
# (sinh(x) - x) / x**3 in x**2 on 0 <= x <= 1; relative error of sinh 2**-62.9.
SINH_TAIL = (
    5.7624303721779944e-15,
    7.52931382345191e-13,
    1.606096236984326e-10,
    2.5052092142474278e-08,
    2.755731929981501e-06,
    0.0001984126984107976,
    0.00833333333333356,
    0.16666666666666666,
)
# (asinh(x) - x) / x**3 in x**2 on 0 <= x <= 0.5; relative error of asinh 2**-64.5.
ASINH_TAIL = (
    -0.0013604160339043552,
    0.0039178709451307605,
    -0.006319626995772874,
    0.00811912834175788,
    -0.009709131273994259,
    0.011544553158416272,
    -0.01396413176406095,
    0.01735271542870775,
    -0.022372156798509242,
    0.030381944375100493,
    -0.044642857141611356,
    0.07499999999998862,
    -0.16666666666666663,
)
FLOAT_SINH_TAIL = (2.7822131869470468e-06, 0.00019842895562760532, 0.00833331048488617, 0.1666666716337204)  # 2**-31.6
FLOAT_ASINH_TAIL = (-0.013231032527983189, 0.028164956718683243, -0.04438357800245285, 0.07498643547296524,
                    -0.1666664332151413)  # 2**-29.6
# (atanh(x) - x) / x**3 in x**2 on 0 <= x <= 0.1717; relative error of atanh 2**-30.2, and 2**-66 as twice that.
FLOAT_ATANH_TAIL = (0.14936012029647827, 0.19988778233528137, 0.3333338797092438)
ATANH_TAIL = tuple(coefficient / 2 for coefficient in DOUBLE_ATANH_TAIL)
LN2 = 0.6931471805599453


def half_exp(e: Emitter, t: Value) -> Value:
    """e**t / 2, which overflows only where sinh and cosh do."""
    r, count = reduced(e, e.minimum(t, tables(t).highest + 1.0))
    return scale(e, exp_reduced(e, r), count - 1)


def sinh(e: Emitter, x: Value) -> Value:
    """(e**x - e**-x) / 2; a polynomial below 1."""
    t = e.absolute(x)
    square = x * x
    near = e.fma(polynomial(e, square, FLOAT_SINH_TAIL if x.element == "float" else SINH_TAIL), square * t, t)
    half = half_exp(e, t)
    return e.copysign(e.select(e.fcmp("olt", t, 1.0), near, half - 0.25 / half), x)


def cosh(e: Emitter, x: Value) -> Value:
    """(e**x + e**-x) / 2."""
    half = half_exp(e, e.absolute(x))
    return half + 0.25 / half


def tanh_float(e: Emitter, x: Value) -> Value:
    """tanh in float arithmetic: an odd polynomial below 1, 1 - 2 / (e**(2|x|) + 1) beyond."""
    t = e.absolute(x)
    square = x * x
    near = e.fma(polynomial(e, square, FLOAT_TANH_TAIL) * square, t, t)
    clamped = e.minimum(t, 9.02)  # where tanh rounds to 1
    r, count = reduced(e, clamped + clamped, FLOAT.bias)
    power = biased_power_of_two(e, count, "float")
    far = 1.0 - 2.0 / e.fma(power, exp_minus_one_reduced(e, r), power + 1.0)
    return e.copysign(e.select(e.fcmp("olt", t, 1.0), near, far), x)


def tanh_double(e: Emitter, x: Value) -> Value:
    """tanh in double arithmetic: m / (m + 2) with m = e**(2|x|) - 1, the quotient corrected by its residual."""
    t = e.minimum(e.absolute(x), 20.0)
    m = expm1(e, t + t)
    denominator, low = fast_two_sum(e.like(2.0, m), m)
    swapped = e.fcmp("ogt", m, 2.0)
    low = e.select(swapped, 2.0 - (denominator - m), low)
    inverse = 1.0 / denominator
    quotient = m * inverse
    residual = e.fma(-quotient, low, e.fma(-quotient, denominator, m))
    far = 1.0 - (inverse + inverse)
    return e.copysign(e.select(e.fcmp("olt", t, 1.0), e.fma(residual, inverse, quotient), far), x)


def tanh(e: Emitter, x: Value) -> Value:
    """Hyperbolic tangent."""
    return tanh_float(e, x) if x.element == "float" else tanh_double(e, x)


def asinh(e: Emitter, x: Value) -> Value:
    """Inverse of sinh: a polynomial below 1/2, log(t + sqrt(t**2 + 1)) beyond, log(2t) for huge t."""
    t = e.absolute(x)
    square = x * x
    near = e.fma(polynomial(e, square, FLOAT_ASINH_TAIL if x.element == "float" else ASINH_TAIL), square * t, t)
    huge = e.fcmp("ogt", t, 2.0**28)
    root = e.square_root(e.fma(t, t, 1.0))
    argument = e.select(huge, t, t + root)
    # what the rounding of the sum lost, relative to the sum, is what log misses
    error = e.select(
        huge, 0.0, ((t - (argument - root)) + 0.5 * e.fma(-root, root, e.fma(t, t, 1.0)) / root) / argument
    )
    far = log(e, argument) + e.select(huge, e.like(LN2, x), error)
    return e.copysign(e.select(e.fcmp("olt", t, 0.5), near, far), x)


def acosh(e: Emitter, x: Value) -> Value:
    """Inverse of cosh for x >= 1: log(1 + (u + sqrt(u * (u + 2)))) with u = x - 1, log(2x) for huge x."""
    huge = e.fcmp("ogt", x, 2.0**28)
    u = e.select(huge, 1.0, x - 1.0)
    above, above_low = fast_two_sum(e.like(2.0, u), u)
    above_low = e.select(e.fcmp("ogt", u, 2.0), 2.0 - (above - u), above_low)
    inner, inner_low = two_product(e, u, above)
    root = e.square_root(inner)
    residual = e.fma(u, above_low, e.fma(-root, root, inner) + inner_low)
    root_low = e.select(e.fcmp("ogt", root, 0.0), residual / (root + root), 0.0)
    total, total_low = fast_two_sum(root, u)
    moderate = log1p(e, total) + (total_low + root_low) / (total + 1.0)
    result = e.select(huge, log(e, x) + LN2, moderate)
    return e.select(e.fcmp("olt", x, 1.0), float("nan"), result)


def atanh(e: Emitter, x: Value) -> Value:
    """Inverse of tanh: a polynomial below 0.17, log1p(2t / (1 - t)) / 2 beyond; infinite at 1 and -1."""
    t = e.absolute(x)
    square = x * x
    near = e.fma(polynomial(e, square, FLOAT_ATANH_TAIL if x.element == "float" else ATANH_TAIL), square * t, t)
    far = log1p(e, (t + t) / (1.0 - t)) * 0.5
    far = e.select(e.fcmp("ogt", t, 1.0), float("nan"), far)
    return e.copysign(e.select(e.fcmp("olt", t, 0.17), near, far), x)
