"""Inverse trigonometric and hyperbolic functions of complex numbers (Hull, Fairgrieve and Tang 1997), on their parts.

With x = |a|, y = |b|: r = |z + 1|, s = |z - 1|, A = (r + s) / 2 and B = x / A, of which asin B and acosh A are the
parts. Beyond 1 / epsilon the functions are a logarithm and an angle.
"""

from __future__ import annotations

import math

from morpho.base.dtypes import float32
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, div, mul, neg, sub, where, zeros_like
from morpho.passes.complex.arithmetic import Pair, absolute, both_true, is_zero, number
from morpho.passes.complex.exponential import log

CROSSED = 0.6417  # B from which asin B is an arctangent
FAR = 1.5  # A up to which its distance from 1 counts


def _angles(z: Pair) -> tuple[Node, Node, Node]:
    """asin B, acos B and acosh A for the first quadrant."""
    x, y = absolute(z.re), absolute(z.im)
    one, half = number(x, 1), number(x, 0.5)
    huge = build("logical_or", build("greater", x, number(x, _large(x))), build("greater", y, number(x, _large(x))))
    a, b = where(huge, one, x), where(huge, one, y)
    right, left = add(a, one), sub(a, one)
    r, s = build("hypot", right, b), build("hypot", left, b)
    middle = mul(half, add(r, s))
    ratio = div(a, middle)
    inside = build("less_equal", a, one)
    first = div(mul(b, b), add(r, right))  # r - (x + 1)
    gap = sub(one, a)
    near_s = where(inside, add(s, gap), div(mul(b, b), where(inside, one, add(s, left))))  # s - (x - 1)
    far_s = where(inside, div(mul(b, b), where(inside, add(s, gap), one)), add(s, left))  # s - (1 - x)
    # asin B = atan(x / sqrt(A**2 - x**2)), the difference without cancellation.
    below = build("sqrt", mul(half, mul(add(middle, a), add(first, near_s))))
    crossed = build("greater", ratio, number(x, CROSSED))
    sine = where(crossed, build("atan2", a, below), build("asin", build("minimum", ratio, one)))
    cosine = where(crossed, build("atan2", below, a), build("acos", build("minimum", ratio, one)))
    above = mul(half, add(first, where(both_true(inside, is_zero(gap)), s, far_s)))  # A - 1
    close = build("less_equal", middle, number(x, FAR))
    grown = where(close, build("log1p", add(above, build("sqrt", mul(above, add(middle, one))))),
                  build("log", add(middle, build("sqrt", mul(sub(middle, one), add(middle, one))))))
    # Squares of a tiny y are lost, where its quotient is not.
    flat = build("less", b, number(x, 2.0**-60 if x.dtype is float32 else 2.0**-500))
    edge = div(b, build("sqrt", mul(absolute(left), right)))
    grown = where(both_true(flat, build("less", a, one)), edge, grown)
    cosine = where(both_true(flat, build("greater", a, one)), edge, cosine)
    size = add(log(Pair(x, y)).re, number(x, math.log(2)))
    return (where(huge, build("atan2", x, y), sine), where(huge, build("atan2", y, x), cosine),
            where(huge, size, grown))


def _large(x: Node) -> float:
    return 2.0**25 if x.dtype is float32 else 2.0**54


def asin(z: Pair) -> Pair:
    sine, _, grown = _angles(z)
    lost = both_true(is_zero(z.re), build("isnan", z.im))
    sine = where(lost, zeros_like(sine), where(both_true(build("isinf", z.im), build("isnan", z.re)), z.re, sine))
    return Pair(build("copysign", sine, z.re), build("copysign", grown, z.im))


def acos(z: Pair) -> Pair:
    _, cosine, grown = _angles(z)
    lost = both_true(is_zero(z.re), build("isnan", z.im))
    cosine = where(lost, number(cosine, math.pi / 2), cosine)
    whole = where(build("signbit", z.re), sub(number(cosine, math.pi), cosine), cosine)
    return Pair(whole, neg(build("copysign", grown, z.im)))


def asinh(z: Pair) -> Pair:
    """-i asin(iz)."""
    found = asin(Pair(neg(z.im), z.re))
    return Pair(found.im, neg(found.re))


def acosh(z: Pair) -> Pair:
    """i acos z or -i acos z, right of the imaginary axis."""
    found = acos(z)
    return Pair(absolute(found.im), build("copysign", found.re, z.im))


def atanh(z: Pair) -> Pair:
    """log1p(4x / ((1 - x)**2 + y**2)) / 4 and half the angle of (1 - x)(1 + x) - y**2 + 2iy."""
    x, y = absolute(z.re), absolute(z.im)
    one = number(x, 1)
    huge = build("logical_or", build("greater", x, number(x, _large(x))), build("greater", y, number(x, _large(x))))
    a, b = where(huge, one, x), where(huge, one, y)
    gap = sub(one, a)
    around = add(mul(gap, gap), mul(b, b))
    re = mul(number(x, 0.25), build("log1p", div(mul(number(x, 4), a), around)))
    lone = both_true(is_zero(gap), build("less", b, number(x, 2.0**-60 if x.dtype is float32 else 2.0**-500)))
    re = where(lone, mul(number(x, 0.5), sub(number(x, math.log(2)), build("log", b))), re)
    angle = build("atan2", mul(number(x, 2), b), sub(mul(gap, add(one, a)), mul(b, b)))
    im = mul(number(x, 0.5), angle)
    # x / (x**2 + y**2) without overflow
    large = build("maximum", x, y)
    u, v = div(x, large), div(y, large)
    away = div(div(u, add(mul(u, u), mul(v, v))), large)
    endless = build("logical_or", build("isinf", x), build("isinf", y))
    re = where(huge, where(endless, zeros_like(re), away), re)
    unknown = both_true(build("isnan", x), build("isfinite", y))
    beyond = where(build("isnan", y), y, where(unknown, x, number(im, math.pi / 2)))
    im = where(huge, beyond, im)
    re = where(both_true(is_zero(x), build("isnan", y)), zeros_like(re), re)
    return Pair(build("copysign", re, z.re), build("copysign", im, z.im))


def atan(z: Pair) -> Pair:
    """-i atanh(iz)."""
    found = atanh(Pair(neg(z.im), z.re))
    return Pair(found.im, neg(found.re))
