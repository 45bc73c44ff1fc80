"""Short transforms in registers: the butterflies of every radix, and products with roots of unity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import cache
from typing import NamedTuple

from morpho.backends.code.emit import Emitter, Value

PI = Decimal("3.14159265358979323846264338327950288419716939937510")


class Complex(NamedTuple):
    """A vector of complex numbers in two registers."""

    re: Value
    im: Value


def plus(a: Complex, b: Complex) -> Complex:
    return Complex(a.re + b.re, a.im + b.im)


def minus(a: Complex, b: Complex) -> Complex:
    return Complex(a.re - b.re, a.im - b.im)


def times(e: Emitter, a: Complex, w: Complex) -> Complex:
    """(ac - bd, ad + bc): the second product of each part is rounded, the first one added with it at once."""
    return Complex(e.fma(a.re, w.re, -(a.im * w.im)), e.fma(a.re, w.im, a.im * w.re))


def turned(a: Complex) -> Complex:
    """-i a."""
    return Complex(a.im, -a.re)


def butterfly(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    """The transform of a few vectors, element by element."""
    if len(x) == 2:
        return [plus(*x), minus(*x)]
    if len(x) == 4:
        return _four(x)
    if len(x) == 8:
        return _eight(e, x)
    return _odd(e, x)


def _four(x: Sequence[Complex]) -> list[Complex]:
    even, odd = (plus(x[0], x[2]), minus(x[0], x[2])), (plus(x[1], x[3]), minus(x[1], x[3]))
    side = turned(odd[1])
    return [plus(even[0], odd[0]), plus(even[1], side), minus(even[0], odd[0]), minus(even[1], side)]


def _eight(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    even, odd = _four(x[::2]), _four(x[1::2])
    root = math.sqrt(0.5)
    first, third = odd[1], odd[3]
    sides = [odd[0], Complex((first.re + first.im) * root, (first.im - first.re) * root), turned(odd[2]),
             Complex((third.im - third.re) * root, -((third.re + third.im) * root))]
    return [*[plus(a, b) for a, b in zip(even, sides, strict=True)],
            *[minus(a, b) for a, b in zip(even, sides, strict=True)]]


def _odd(e: Emitter, x: Sequence[Complex]) -> list[Complex]:
    """An odd length: sums and differences of mirrored numbers, times cosines and sines, one chain for each result."""
    n, half = len(x), len(x) // 2
    sums = [plus(x[j], x[n - j]) for j in range(1, half + 1)]
    apart = [minus(x[j], x[n - j]) for j in range(1, half + 1)]
    first = x[0]
    for one in sums:
        first = plus(first, one)
    found = [first] * n
    for k in range(1, half + 1):
        even, odd = x[0], None
        for j in range(1, half + 1):
            cosine, sine = root(j * k, n)
            even = Complex(*[e.fma(part, _number(e, cosine, part), whole)
                             for part, whole in zip(sums[j - 1], even, strict=True)])
            odd = Complex(*[part * _number(e, sine, part) for part in apart[j - 1]]) if odd is None else Complex(
                *[e.fma(part, _number(e, sine, part), whole) for part, whole in zip(apart[j - 1], odd, strict=True)])
        assert odd is not None
        side = turned(odd)
        found[k], found[n - k] = plus(even, side), minus(even, side)
    return found


@cache
def root(number: int, n: int) -> tuple[float, float]:
    """Cosine and sine of 2 pi number / n, rounded once: the mathematical library of a machine has no say in bits.

    >>> root(1, 4), root(1, 3) == (-0.5, math.sqrt(0.75))
    ((0.0, 1.0), True)
    """
    with localcontext() as context:
        context.prec = 50
        number %= n
        angle = 2 * PI * (number - n if 2 * number > n else number) / n
        terms, power, k = [Decimal(0), Decimal(0)], Decimal(1), 0
        while abs(power) > Decimal(10)**-40:
            terms[k % 2] += power if k % 4 < 2 else -power
            k += 1
            power = power * angle / k
        cosine, sine = (Decimal(0) if abs(term) < Decimal(10)**-35 else term for term in terms)
        return float(cosine), float(sine)


def _number(e: Emitter, value: float, like: Value) -> Value:
    return e.constant(value, like.element, like.lanes)
