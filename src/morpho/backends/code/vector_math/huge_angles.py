"""The reduction of huge doubles modulo pi/2, by Payne and Hanek: only the bits of 2/pi that matter are multiplied.

x = m * 2**s with a whole m below 2**53. Bits of 2/pi above place s - 1 give whole turns of x * 2/pi and drop out; the
192 bits from there on, times m and modulo 2**192, are x * 2/pi modulo 4 with 190 bits after the point. No double comes
nearer than 2**-62 to a multiple of pi/2, so that at least 66 digits of the remainder are right. Such angles are rare:
they take their turn one by one (`one_by_one`).
"""

from __future__ import annotations

from collections.abc import Sequence

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.vector_math.core import DOUBLE, magnitude, one_by_one

HUGE_BITS = (1023 + 48) << 52  # of 2**48
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
TWO_OVER_PI_BITS = int(  # the first 1216 after the point
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73e"
    "e88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b7"
    "4f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab", 16)
WORDS = [0, *((TWO_OVER_PI_BITS >> (1216 - 64 * n)) & ((1 << 64) - 1) for n in range(1, 20))]
LOW_HALF = (1 << 32) - 1


def reduce_huge(e: Emitter, x: Value, parts: Sequence[Value]) -> list[Value]:
    """The multiple of pi/2, the remainder and its rest, as in `parts`, but right for huge x."""
    return one_by_one(e, magnitude(e, x), (HUGE_BITS, DOUBLE.infinity), [x], parts, "reduce_huge", _reduce_one)


def _reduce_one(e: Emitter, x: Value) -> list[Value]:
    table = ", ".join(f"i64 {word}" for word in WORDS)
    e.declarations.add(f"@two_over_pi = private unnamed_addr constant [{len(WORDS)} x i64] [{table}], align 64")
    bits = e.bits(x)
    exponent = bits.shift_right(52) & 0x7FF
    exponent = e.intrinsic("smin", e.intrinsic("smax", exponent, e.like(1071, bits)), e.like(2046, bits))
    high, middle, low = _product(e, exponent - 1013, (bits & ((1 << 52) - 1)) | (1 << 52))
    first, second = _funnel(e, high, middle, e.like(2, bits)), _funnel(e, middle, low, e.like(2, bits))
    turns = e.convert("sitofp", high.shift_right(62) + first.shift_right(63), "double")
    below = first.shift_right(63, arithmetic=True)  # all ones where the nearest multiple of pi/2 is above
    r, rest = _angle(e, first ^ below, second ^ below)
    sign = (below ^ bits) & (-1 << 63)
    r, rest = (e.from_bits(e.bits(value) ^ sign, "double") for value in (r, rest))
    return [e.from_bits(e.bits(turns) | (bits & (-1 << 63)), "double"), r, rest]


def _funnel(e: Emitter, high: Value, low: Value, count: Value) -> Value:
    """The upper word of two, shifted left together."""
    return e.intrinsic("fshl", high, low, count)


def _product(e: Emitter, start: Value, mantissa: Value) -> tuple[Value, Value, Value]:
    """The mantissa times the 192 bits of 2/pi from `start` on, modulo 2**192, by halves of words."""
    place = e.offset("@two_over_pi", "i64", start.shift_right(6))
    words = [e.load(e.offset(place, "i64", n), "i64", 1) for n in range(4)]
    window = [_funnel(e, words[n], words[n + 1], start & 63) for n in range(3)]
    halves = [half for word in reversed(window) for half in (word & LOW_HALF, word.shift_right(32))]
    sums = [e.constant(0, "i64", 1)] * 6
    for first, factor in enumerate((mantissa & LOW_HALF, mantissa.shift_right(32))):
        carry = e.constant(0, "i64", 1)
        for number in range(first, 6):
            total = halves[number - first] * factor + sums[number] + carry
            sums[number], carry = total & LOW_HALF, total.shift_right(32)
    low, middle, high = (sums[n] | (sums[n + 1] << 32) for n in (0, 2, 4))
    return high, middle, low


def _angle(e: Emitter, high: Value, low: Value) -> tuple[Value, Value]:
    """A fraction of 128 bits times pi/2, in two parts. Dropping what is left of a complement costs its last bit."""
    zeros = e.intrinsic("ctlz", high, e.constant(False, "i1", 1), suffix="i64")
    top, under = _funnel(e, high, low, zeros), low << zeros
    scale = e.from_bits((1023 - zeros) << 52, "double")
    first = e.convert("sitofp", top.shift_right(11), "double") * 2.0**-53 * scale
    rest = e.convert("sitofp", ((top & 0x7FF) << 52) | under.shift_right(12), "double") * 2.0**-116 * scale
    product = first * HALF_PI[0]
    product_low = e.fma(first, HALF_PI[0], -product) + e.fma(first, HALF_PI[1], rest * HALF_PI[0])
    r = product + product_low
    return r, (product - r) + product_low
