"""asin, acos, atan and atan2; what is taken from or added to a part of pi is kept in two parts."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import fast_two_sum, polynomial


@dataclass(frozen=True, slots=True)
class Angles:
    """Constants of one format; angles in two parts, polynomials from the highest power down."""

    atan_tail: tuple[float, ...]  # (atan(z) - z) / z**3 in z**2 on 0 <= z <= sqrt(2) - 1
    asin_tail: tuple[float, ...]  # (asin(z) - z) / z**3 in z**2 on 0 <= z <= 0.5
    quarter: tuple[float, float]  # of pi
    half: tuple[float, float]
    pi: tuple[float, float]
    huge: float  # from here on two numbers are made smaller before they are added
    tiny: float  # below this they are made larger, by `more`, so that no digits are lost
    more: float


# Relative error of atan 2**-30.4, of asin 2**-27.6.
FLOAT = Angles(
    atan_tail=(-0.06090046837925911, 0.1059916764497757, -0.14244391024112701, 0.19998528063297272,
               -0.33333316445350647),
    asin_tail=(0.042158305644989014, 0.024184778332710266, 0.04546914994716644, 0.074953094124794,
               0.16666752099990845),
    quarter=(0.7853981852531433, -2.1855694143368964e-08),
    half=(1.5707963705062866, -4.371138828673793e-08),
    pi=(3.1415927410125732, -8.742277657347586e-08),
    huge=2.0**124, tiny=2.0**-90, more=2.0**60,
)
# Relative error of atan 2**-63.8, of asin 2**-59.9.
DOUBLE = Angles(
    atan_tail=(
        0.01512521888907174,
        -0.03339998451879966,
        0.045000708817994464,
        -0.052174681233535455,
        0.05876861393318969,
        -0.06666208523653096,
        0.07692281368329186,
        -0.09090908074271735,
        0.11111111085909392,
        -0.14285714285344453,
        0.19999999999997237,
        -0.33333333333333326,
    ),
    asin_tail=(
        0.03262458737816419,
        -0.020992394803269334,
        0.02170256680276697,
        0.00370849265270578,
        0.010779677594562071,
        0.011399019649707756,
        0.01398080673632195,
        0.01735161323330748,
        0.0223722149151339,
        0.03038194271056646,
        0.04464285717454799,
        0.07499999999970876,
        0.1666666666666676,
    ),
    quarter=(0.7853981633974483, 3.061616997868383e-17),
    half=(1.5707963267948966, 6.123233995736766e-17),
    pi=(3.141592653589793, 1.2246467991473532e-16),
    huge=2.0**1020, tiny=2.0**-900, more=2.0**200,
)


def angles(x: Value) -> Angles:
    """The constants for the format of x."""
    return FLOAT if x.element == "float" else DOUBLE


def arc_tangent(e: Emitter, y: Value, x: Value) -> tuple[Value, Value]:
    """atan(y / x) of y, x >= 0 (not both 0 or both inf) as a sum of two; one division.

    The angle is turned by 0, pi/4 or pi/2 so that the tangent of the rest is at most sqrt(2) - 1.
    """
    low_third = e.fcmp("olt", y, x * 0.41421356237309503)
    high_third = e.fcmp("ogt", y * 0.41421356237309503, x)
    top = e.select(low_third, y, e.select(high_third, -x, y - x))
    bottom = e.select(low_third, x, e.select(high_third, y, y + x))
    table = angles(x)
    base, base_low = (e.select(low_third, 0.0, e.select(high_third, half, e.like(quarter, x)))
                      for half, quarter in zip(table.half, table.quarter, strict=True))
    z = top / bottom
    square = z * z
    high, low = fast_two_sum(base, z)
    return high, low + e.fma(polynomial(e, square, table.atan_tail), square * z, base_low)


def atan(e: Emitter, x: Value) -> Value:
    """Arc tangent."""
    high, low = arc_tangent(e, e.absolute(x), e.like(1.0, x))
    return e.copysign(high + low, x)


def atan2(e: Emitter, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), in [-pi, pi], with IEEE signs of zero and infinities."""
    a, b = e.absolute(y), e.absolute(x)
    infinite = e.fcmp("oeq", e.minimum(a, b), float("inf"))
    zero = e.fcmp("oeq", e.maximum(a, b), 0.0)
    table = angles(x)
    huge = e.fcmp("oge", e.maximum(a, b), table.huge)
    tiny = e.fcmp("olt", e.maximum(a, b), table.tiny)
    factor = e.select(huge, 0.0625, e.select(tiny, table.more, e.like(1.0, a)))
    top = e.select(infinite, 1.0, a * factor)
    bottom = e.select(e.instruction("or", zero, infinite), 1.0, b * factor)
    high, low = arc_tangent(e, top, bottom)
    behind = e.icmp("slt", e.bits(x), 0)
    total, rest = fast_two_sum(e.like(table.pi[0], high), -high)
    high, low = e.select(behind, total, high), e.select(behind, rest + (table.pi[1] - low), low)
    return e.copysign(high + low, y)


def arc_sine_tail(e: Emitter, z: Value, square: Value) -> Value:
    """asin(z) - z for |z| <= 0.5."""
    return polynomial(e, square, angles(z).asin_tail) * (square * z)


def asin(e: Emitter, x: Value) -> Value:
    """Arc sine; beyond 1/2 as pi/2 - 2 * asin(sqrt((1 - |x|) / 2))."""
    t = e.absolute(x)
    large = e.fcmp("ogt", t, 0.5)
    square = e.select(large, e.fma(t, -0.5, 0.5), t * t)
    z = e.select(large, e.square_root(square), t)
    tail = arc_sine_tail(e, z, square)
    half, half_low = angles(x).half
    difference, rest = fast_two_sum(e.like(half, z), -(z + z))
    far = difference + (rest + (half_low - (tail + tail)))
    return e.copysign(e.select(large, far, z + tail), x)


def acos(e: Emitter, x: Value) -> Value:
    """Arc cosine: pi/2 - asin(x), and near 1 and -1 from asin(sqrt((1 - |x|) / 2))."""
    t = e.absolute(x)
    large = e.fcmp("ogt", t, 0.5)
    square = e.select(large, e.fma(t, -0.5, 0.5), t * t)
    root = e.square_root(square)
    z = e.select(large, e.copysign(root + root, x), x)
    tail = arc_sine_tail(e, e.select(large, root, x), square)
    tail = e.select(large, e.copysign(tail + tail, x), tail)
    # base - (z + tail) near zero and for negative x, z + tail near one
    negative = e.fcmp("olt", x, 0.0)
    base, base_low = (e.select(large, e.select(negative, e.like(pi, x), 0.0), half)
                      for pi, half in zip(angles(x).pi, angles(x).half, strict=True))
    near_one = e.fcmp("ogt", x, 0.5)
    sign_z = e.select(e.fcmp("olt", x, -0.5), z, e.select(near_one, z, -z))
    sign_tail = e.select(e.fcmp("olt", x, -0.5), tail, e.select(near_one, tail, -tail))
    high, rest = fast_two_sum(base, sign_z)
    return high + (rest + (base_low + sign_tail))
