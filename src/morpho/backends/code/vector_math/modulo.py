"""remainder (floored modulo), the quotient that goes with it, and nextafter: exact functions.

The remainder of a huge quotient is found without a loop over its bits: |x| = m * 2**n * |y's last place|, so it is m
times 2**n, both modulo y's mantissa, and 2**n comes from squaring: one modular product for each bit of n.
"""

from __future__ import annotations

from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.backends.code.vector_math.core import DOUBLE, format_of, one_by_one, two_product


def modular_product(e: Emitter, a: Value, b: Value, modulus: Value, inverse: Value) -> Value:
    """a * b modulo an integer below 2**53, centred: |result| <= modulus / 2; a and b centred integers themselves.

    The quotient is off by less than one, so the residual is an exact integer, which a second step centres.
    """
    product, low = two_product(e, a, b)
    residual = e.fma(e.round_even(product * inverse), -modulus, product) + low
    return centred(e, residual, modulus, inverse)


def centred(e: Emitter, a: Value, modulus: Value, inverse: Value) -> Value:
    """a minus the nearest multiple of the modulus, for |a| below 2**54."""
    return e.fma(e.round_even(a * inverse), -modulus, a)


def integer_and_exponent(e: Emitter, t: Value) -> tuple[Value, Value]:
    """t = m * 2**exponent for positive finite double t, with m an integer below 2**53 (a double) and an i64."""
    subnormal = e.fcmp("olt", t, 2.0**-1022)
    bits = e.bits(e.select(subnormal, t * 2.0**54, t))
    exponent = bits.shift_right(52) - e.select(subnormal, e.constant(1075 + 54, "i64", t.lanes), 1075)
    mantissa = e.from_bits((bits & ((1 << 52) - 1)) | DOUBLE.one, "double") * 2.0**52
    return mantissa, exponent


def remainder_positive(e: Emitter, a: Value, b: Value, bits: int) -> Value:
    """a modulo b in [0, b) for positive finite doubles; exponents differ by less than 2**bits."""
    m, m_exponent = integer_and_exponent(e, a)
    modulus, b_exponent = integer_and_exponent(e, b)
    difference = m_exponent - b_exponent
    count = e.select(e.icmp("sgt", difference, 0), difference, 0)
    inverse = 1.0 / modulus
    power = centred(e, e.like(1.0, a), modulus, inverse)
    for bit in reversed(range(bits)):
        power = modular_product(e, power, power, modulus, inverse)
        twice = centred(e, power + power, modulus, inverse)
        power = e.select(e.icmp("ne", count & (1 << bit), 0), twice, power)
    residue = modular_product(e, centred(e, m, modulus, inverse), power, modulus, inverse)
    residue = e.select(e.fcmp("olt", residue, 0.0), residue + modulus, residue)
    whole = scale_by(e, residue, b_exponent)
    # the other way round a is below 2 * b: its last place is smaller than that of b
    return e.select(e.icmp("sge", difference, 0), whole, small_quotient(e, a, b))


def small_quotient(e: Emitter, a: Value, b: Value) -> Value:
    """a modulo b where a's last place is below b's, so that a < 2 * b."""
    return e.select(e.fcmp("oge", a, b), a - b, a)


def scale_by(e: Emitter, value: Value, exponent: Value) -> Value:
    """value * 2**exponent in two exact steps; the result is representable."""
    half = exponent.shift_right(1, arithmetic=True)
    first = e.from_bits((half + DOUBLE.bias) << DOUBLE.mantissa, "double")
    second = e.from_bits((exponent - half + DOUBLE.bias) << DOUBLE.mantissa, "double")
    return value * first * second


def truncated(e: Emitter, x: Value, y: Value) -> Value:
    """C's fmod, which is exact.

    A quotient up to 2**mantissa is rounded to the number above its whole part at most, so that what an fma leaves of x
    is exact and off by one |y| at most. Others are rare and take their turn.
    """
    a, b = e.absolute(x), e.absolute(y)
    quotient = a / b
    whole = e.intrinsic("trunc", quotient)
    left = e.fma(-whole, e.minimum(b, _largest(b)), a)  # 0 times infinity would be NaN
    left = e.copysign(e.select(e.fcmp("olt", left, 0.0), left + b, left), x)
    form = format_of(x)
    large = ((form.bias + form.mantissa) << form.mantissa) + 1, form.infinity + 1  # where it is NaN, so is the rest
    return one_by_one(e, e.bits(quotient), large, [x, y], [left], f"rare_remainder_{x.element}", _one)[0]


def _is_other_sign(e: Emitter, rest: Value, y: Value) -> Value:
    """Whether what is left has not the sign of y, so that the quotient is one less."""
    return e.instruction("and", e.icmp("slt", e.bits(rest) ^ e.bits(y), 0), e.fcmp("one", rest, 0.0))


def remainder(e: Emitter, x: Value, y: Value) -> Value:
    """x - floor(x / y) * y as Python and NumPy define it: exact fmod, then moved to the sign of y."""
    rest = truncated(e, x, y)
    moved = e.select(_is_other_sign(e, rest, y), rest + y, rest)
    return e.select(e.fcmp("oeq", moved, 0.0), e.copysign(moved, y), moved)


def floor_divide(e: Emitter, x: Value, y: Value) -> Value:
    """The quotient that belongs to `remainder`, as Python and NumPy define it: 1.0 // 0.1 is 9.0, since 0.1 is a little
    more than a tenth, while 1.0 / 0.1 is rounded to 10.0."""
    rest, quotient = truncated(e, x, y), x / y
    exact = (x - rest) / y
    exact = e.select(_is_other_sign(e, rest, y), exact - 1.0, exact)
    whole = e.intrinsic("floor", exact)
    whole = e.select(e.fcmp("ogt", exact - whole, 0.5), whole + 1.0, whole)  # it was rounded below
    whole = e.select(e.fcmp("oeq", exact, 0.0), e.copysign(e.like(0.0, x), quotient), whole)
    return e.select(e.fcmp("oeq", y, 0.0), quotient, whole)


def _largest(x: Value) -> float:
    form = format_of(x)
    return (2.0 - 2.0**-form.mantissa) * 2.0**form.bias


def _one(e: Emitter, x: Value, y: Value) -> list[Value]:
    if x.element == "double":
        return [truncated_remainder(e, x, y, bits=12)]
    a, b = e.convert("fpext", x, "double"), e.convert("fpext", y, "double")
    return [e.convert("fptrunc", truncated_remainder(e, a, b, bits=9), "float")]


def truncated_remainder(e: Emitter, x: Value, y: Value, bits: int) -> Value:
    """C's fmod of doubles: the sign of x; NaN for infinite x or zero y."""
    a, b = e.absolute(x), e.absolute(y)
    infinity = float("inf")
    result = remainder_positive(e, e.select(e.fcmp("oeq", a, 0.0), 1.0, a), b, bits)
    unchanged = e.instruction("or", e.fcmp("oeq", b, infinity), e.fcmp("oeq", a, 0.0))
    result = e.select(unchanged, a, result)
    invalid = e.instruction("or", e.fcmp("oeq", a, infinity), e.fcmp("oeq", b, 0.0))
    invalid = e.instruction("or", invalid, e.fcmp("uno", x, y))
    return e.select(invalid, float("nan"), e.copysign(result, x))


def nextafter(e: Emitter, x: Value, y: Value) -> Value:
    """The neighbour of x towards y: one step of its bits, through zero to the smallest subnormal."""
    return next_unless_equal(e, x, y, e.from_bits(next_bits(e, e.bits(x), e.fcmp("ogt", y, x)), x.element))


def next_bits(e: Emitter, bits: Value, up: Value) -> Value:
    """The bits of a float's neighbour above or below, in a format of any width."""
    sign = -(1 << (BITS[bits.element] - 1))
    toward_zero = e.instruction("xor", up, e.icmp("sge", bits, 0))
    moved = bits + e.select(toward_zero, e.like(-1, bits), 1)
    least = e.select(up, e.like(1, bits), sign + 1)
    return e.select(e.icmp("eq", bits & (-1 - sign), 0), least, moved)


def next_unless_equal(e: Emitter, x: Value, y: Value, moved: Value) -> Value:
    """The value of `nextafter`, where `moved` is the neighbour of x: y where the two are equal, NaN where one is."""
    return e.select(e.fcmp("uno", x, y), x + y, e.select(e.fcmp("oeq", x, y), y, moved))
