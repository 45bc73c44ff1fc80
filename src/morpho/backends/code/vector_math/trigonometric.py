"""sin, cos and tan: x = n * pi/2 + r with |r| <= pi/4, polynomials for sin(r) and cos(r), and n mod 4 picks which and
the sign.

x is reduced with pi/2 in three parts, r being the sum of two: a float up to |x| < 2**18, a double up to 2**48. Larger
floats go through double, with the bits of 2/pi that their exponent asks for; larger doubles are for `huge_angles`.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.backends.code.vector_math.core import (
    FLOAT,
    fast_two_sum,
    magnitude,
    one_by_one,
    polynomial,
    round_to_integer,
    two_difference,
    two_sum,
)
from morpho.backends.code.vector_math.huge_angles import reduce_huge

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2/2) / r**4 in r**2 on |r| <= 0.7855; relative errors 2**-63.
SIN_TAIL = (
    -7.426241339828025e-13,
    1.605503165386079e-10,
    -2.505207625767749e-08,
    2.755731909237608e-06,
    -0.0001984126984099124,
    0.008333333333333057,
    -0.16666666666666666,
)
COS_TAIL = (
    -1.1358759022774169e-11,
    2.0875705607700473e-09,
    -2.755731421868681e-07,
    2.4801587289007548e-05,
    -0.0013888888888873348,
    0.041666666666666595,
)
FLOAT_SIN_TAIL = (-0.00019506497483234853, 0.00833209976553917, -0.16666653752326965)  # on |r| <= 0.7976; 2**-27.8
FLOAT_COS_TAIL = (2.4412080165348016e-05, -0.0013887130189687014, 0.04166664183139801)  # 2**-32.6
FLOAT_TAN_TAIL = (0.0045657167211174965, -0.00029106432339176536, 0.011133020743727684, 0.021168803796172142,
                  0.05408161133527756, 0.1333247423171997, 0.3333335518836975)  # 2**-29.1
# As the first with relative errors 2**-37 and 2**-33, for results that are rounded to float.
SHORT_SIN_TAIL = (2.71811324443515e-06, -0.00019839311418636617, 0.008333329302319155, -0.16666666640776864)
SHORT_COS_TAIL = (2.4433049999982532e-05, -0.0013887315318150116, 0.04166664566362316)

FLOAT_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
# Of 2**18: from there on x * 2/pi in float may be a hundredth off, and r too large for the polynomials.
LARGE_BITS = (127 + 18) << 23
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
TWO_OVER_PI = 0.6366197723675814

# (least exponent of x, shift, 2/pi * 2**shift modulo 4 in four parts of 29 bits). x * 2**-shift is an integer in every
# row but the first, so that whole turns drop out; it is below 2**56, and its product with each part is exact.
TURNS = (
    (-1000, 0, (0.636619770899415, 1.4681663246252086e-09, 2.2760100671971816e-18, 5.8812147387730434e-27)),
    (33, 10, (3.8986468985676765, 5.835618752114691e-09, 1.304375090195913e-17, 2.5304462086760463e-26)),
    (66, 43, (2.127583496272564, 2.862583364793281e-10, 9.196857093799354e-18, 2.2152233565177327e-26)),
    (99, 76, (2.4589404612779617, 4.494595098880616e-09, 9.874995941691059e-18, 1.2170201689475714e-26)),
)


def take_off(e: Emitter, x: Value, n: Value, half_pi: tuple[float, float, float]) -> tuple[Value, Value]:
    """x - n * pi/2 in two parts; the difference to the first product is exact."""
    first = e.fma(n, -half_pi[0], x)
    product = n * half_pi[1]
    high, low = two_difference(first, product)
    return high, e.fma(n, -half_pi[2], low + e.fma(n, -half_pi[1], product))  # that fma is the product's error


def reduce_double(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """n, r and the rest of r."""
    n = e.round_even(x * TWO_OVER_PI)
    r, rest = fast_two_sum(*take_off(e, x, n, HALF_PI))
    n, r, rest = reduce_huge(e, x, (n, r, rest))
    return n, r, rest


def reduce_float(e: Emitter, x: Value) -> tuple[Value, Value]:
    """n and r (doubles) of a float that was widened to double."""
    t = e.absolute(x)
    parts = [e.like(part, x) for part in TURNS[0][2]]
    factor = e.like(1.0, x)
    for exponent, shift, turns in TURNS[1:]:
        large = e.fcmp("oge", t, 2.0**exponent)
        parts = [e.select(large, turn, part) for turn, part in zip(turns, parts, strict=True)]
        factor = e.select(large, 2.0**-shift, factor)
    scaled = x * factor
    products = [scaled * part for part in parts]
    whole = products[0] - e.round_even(products[0] * 0.25) * 4.0
    fraction = products[1] - e.round_even(products[1] * 0.25) * 4.0
    high, low = two_sum(whole, fraction)
    high, lower = two_sum(high, products[2])
    n = e.round_even(high)
    return n, ((high - n) + ((low + products[3]) + lower)) * HALF_PI[0]


def quadrant(e: Emitter, n: Value) -> Value:
    """n modulo 4 in the low bits of an integer."""
    return e.bits(n - e.round_even(n * 0.25) * 4.0 + 1.5 * 2.0**52)


def sin_reduced(e: Emitter, r: Value, rest: Value, square: Value) -> Value:
    """sin(r + rest)."""
    correction = rest * e.fma(square, -0.5, 1.0)
    return r + e.fma(square * r, polynomial(e, square, SIN_TAIL), correction)


def cos_reduced(e: Emitter, r: Value, rest: Value, square: Value) -> Value:
    """cos(r + rest)."""
    half = square * 0.5
    rough = 1.0 - half
    return rough + (((1.0 - rough) - half) + e.fma(square * square, polynomial(e, square, COS_TAIL), -(r * rest)))


def sine_and_cosine(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """sin(r), cos(r) and the quadrant, in double."""
    if x.element == "float":
        n, r = reduce_float(e, e.convert("fpext", x, "double"))
        square = r * r
        sine = e.fma(square * r, e.polynomial(square, SHORT_SIN_TAIL), r)
        cosine = e.fma(square * square, e.polynomial(square, SHORT_COS_TAIL), e.fma(square, -0.5, 1.0))
        return sine, cosine, quadrant(e, n)
    n, r, rest = reduce_double(e, x)
    square = r * r
    return sin_reduced(e, r, rest, square), cos_reduced(e, r, rest, square), quadrant(e, n)


def small_sine_and_cosine(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """As `sine_and_cosine`, of floats below 2**18 and in float."""
    n, count = round_to_integer(e, x, TWO_OVER_PI)
    r, rest = take_off(e, x, n, FLOAT_HALF_PI)
    square = r * r
    sine = r + e.fma(square * r, e.polynomial(square, FLOAT_SIN_TAIL), rest)
    rough = e.fma(square, -0.5, 1.0)
    rough_low = e.fma(square, -0.5, 1.0 - rough)
    tail = e.fma(square * square, e.polynomial(square, FLOAT_COS_TAIL), e.fma(-r, rest, rough_low))
    return sine, rough + tail, count


def turned(e: Emitter, parts: tuple[Value, Value, Value], shift: int) -> Value:
    """sin(x + shift * pi/2) from sin(r), cos(r) and the quadrant."""
    sine, cosine, count = parts
    count = count + shift
    chosen = e.select(e.icmp("ne", count & 1, 0), cosine, sine)
    return e.from_bits(e.bits(chosen) ^ ((count & 2) << (BITS[count.element] - 2)), chosen.element)


def wave(e: Emitter, x: Value, shift: int) -> Value:
    """sin(x + shift * pi/2); NaN for infinite x."""
    if x.element == "double":
        return turned(e, sine_and_cosine(e, x), shift)
    found = turned(e, small_sine_and_cosine(e, x), shift)
    return large_too(e, x, found, f"large_wave{shift}", lambda e, parts: turned(e, parts, shift))


def large_too(e: Emitter, x: Value, found: Value, name: str,
              make: Callable[[Emitter, tuple[Value, Value, Value]], Value]) -> Value:
    """The result for floats, and where x is too large for it what `make` writes of `sine_and_cosine` in double.

    One by one: in all lanes at once they would take a sixth of the time, and every kernel 20 ms longer to compile.
    """

    def one(e: Emitter, x: Value) -> list[Value]:
        return [e.convert("fptrunc", make(e, sine_and_cosine(e, x)), "float")]

    return one_by_one(e, magnitude(e, x), (LARGE_BITS, FLOAT.infinity), [x], [found], name, one)[0]


def sin(e: Emitter, x: Value) -> Value:
    """Sine."""
    return e.select(e.fcmp("oeq", x, 0.0), x, wave(e, x, 0))


def cos(e: Emitter, x: Value) -> Value:
    """Cosine."""
    return wave(e, x, 1)


def tan_float(e: Emitter, x: Value) -> Value:
    """A polynomial for tan(r), or minus its inverse in the odd quadrants."""
    n, count = round_to_integer(e, x, TWO_OVER_PI)
    r, rest = take_off(e, x, n, FLOAT_HALF_PI)
    square = r * r
    tail = e.fma(square * r, polynomial(e, square, FLOAT_TAN_TAIL), e.fma(rest, square, rest))
    tangent, low = fast_two_sum(r, tail)
    inverse = -1.0 / tangent
    inverse = e.fma(inverse, e.fma(low, inverse, e.fma(inverse, tangent, 1.0)), inverse)  # of both parts
    found = e.select(e.icmp("ne", count & 1, 0), inverse, tangent)

    def quotient(e: Emitter, parts: tuple[Value, Value, Value]) -> Value:
        sine, cosine, count = parts
        even = e.icmp("eq", count & 1, 0)
        return e.select(even, sine, -cosine) / e.select(even, cosine, sine)

    return large_too(e, x, found, "large_tangent", quotient)


def tan(e: Emitter, x: Value) -> Value:
    """Tangent: sin(r) / cos(r), or minus its inverse in the odd quadrants."""
    if x.element == "float":
        return e.select(e.fcmp("oeq", x, 0.0), x, tan_float(e, x))
    n, r, rest = reduce_double(e, x)
    square = r * r
    correction = rest * e.fma(square, -0.5, 1.0)
    sine, sine_low = fast_two_sum(r, e.fma(square * r, polynomial(e, square, SIN_TAIL), correction))
    half = square * 0.5
    tail = e.fma(square * square, polynomial(e, square, COS_TAIL), -(r * rest))
    rough, rough_low = fast_two_sum(e.like(1.0, r), -half)
    square_low = e.fma(r, r, -square)
    cosine, cosine_low = fast_two_sum(rough, rough_low + e.fma(square_low, -0.5, tail))
    even = e.icmp("eq", quadrant(e, n) & 1, 0)
    top, top_low = e.select(even, sine, -cosine), e.select(even, sine_low, -cosine_low)
    bottom, bottom_low = e.select(even, cosine, sine), e.select(even, cosine_low, sine_low)
    inverse = 1.0 / bottom
    quotient = top * inverse
    residual = e.fma(-quotient, bottom_low, e.fma(-quotient, bottom, top) + top_low)
    return e.select(e.fcmp("oeq", x, 0.0), x, e.fma(residual, inverse, quotient))
