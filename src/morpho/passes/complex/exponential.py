"""exp, log, powers, roots, and the hyperbolic and trigonometric functions of complex numbers, on their parts.

Special values are those of C99's Annex G, which NumPy follows. Where exp overflows though the result does not, the
argument is lowered and the result raised by a factor that is a constant of the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from morpho.base.dtypes import float32
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, constant, div, mul, neg, sub, where, zeros_like
from morpho.passes.complex.arithmetic import Pair, absolute, both, both_true, is_zero, number, times, whole_power

LARGEST_WHOLE = 64  # exponents written as a whole number up to this are products


def _is_narrow(x: Node) -> bool:
    return x.dtype is float32


def _lowered(x: Node) -> tuple[Node, Node]:
    """exp(x) as a number and a factor, which may be infinite together though a product with both is not."""
    top = 80.0 if _is_narrow(x) else 700.0
    high = build("greater", x, number(x, top))
    value = build("exp", where(high, sub(x, number(x, top)), x))
    scale = float(constant(math.exp(top), x.dtype)["value"])
    return value, where(high, number(x, scale), number(x, 1))


def exp(z: Pair) -> Pair:
    """exp(a) (cos b, sin b)."""
    size, factor = _lowered(z.re)
    real_line = is_zero(z.im)
    turns = build("isfinite", z.im)
    up = build("equal", z.re, number(z.re, math.inf))
    down = build("equal", z.re, number(z.re, -math.inf))
    cosine, sine = build("cos", z.im), build("sin", z.im)
    re, im = mul(mul(size, cosine), factor), mul(mul(size, sine), factor)
    # An infinite angle has no direction: infinity stays one, and zero is zero.
    lost = build("logical_not", turns)
    nothing = both_true(down, lost)
    re = where(real_line, mul(size, factor), where(both_true(up, lost), z.re, where(nothing, zeros_like(re), re)))
    im = where(real_line, z.im, where(nothing, zeros_like(im), im))
    return Pair(re, im)


def expm1(z: Pair) -> Pair:
    """expm1(a) cos b - 2 sin(b/2)**2 and exp(a) sin b."""
    half = build("sin", mul(z.im, number(z.im, 0.5)))
    re = sub(mul(build("expm1", z.re), build("cos", z.im)), mul(mul(number(half, 2), half), half))
    plain = exp(z)
    far = build("logical_or", build("isinf", plain.re), build("logical_not", build("isfinite", z.im)))
    return Pair(where(far, sub(plain.re, number(re, 1)), re), plain.im)


# -- logarithms --------------------------------------------------------------------------------------------------------
def _split(x: Node) -> tuple[Node, Node]:
    """x as two numbers of half as many bits (Veltkamp)."""
    shifted = mul(x, number(x, 4097.0 if _is_narrow(x) else 134217729.0))
    high = sub(shifted, sub(shifted, x))
    return high, sub(x, high)


def _squared(x: Node) -> tuple[Node, Node]:
    """x * x as a rounded product and what was rounded off (Dekker)."""
    high, low = _split(x)
    product = mul(x, x)
    rest = add(add(sub(mul(high, high), product), mul(mul(number(x, 2), high), low)), mul(low, low))
    return product, rest


def _less_one(large: Node, small: Node) -> Node:
    """large**2 + small**2 - 1 where that cancels: the largest terms first, and what each square rounded off last."""
    (a, a_rest), (b, b_rest) = _squared(large), _squared(small)
    return add(add(sub(a, number(a, 1)), b), add(a_rest, b_rest))


def log(z: Pair) -> Pair:
    """(log|z|, the angle of z). Near the unit circle |z|**2 - 1 is computed without cancellation."""
    a, b = absolute(z.re), absolute(z.im)
    swap = build("less", a, b)
    large, small = where(swap, b, a), where(swap, a, b)
    return Pair(_log_size(large, small, _less_one(large, small)), build("atan2", z.im, z.re))


def _log_size(large: Node, small: Node, less_one: Node) -> Node:
    """log of hypot, scaled where that would overflow or lose bits."""
    most, least, bits = (2.0**125, 2.0**-80, 30) if _is_narrow(large) else (2.0**1021, 2.0**-900, 120)
    huge, tiny = build("greater", large, number(large, most)), build("less", large, number(large, least))
    scale = where(huge, number(large, 2.0**-bits), where(tiny, number(large, 2.0**bits), number(large, 1)))
    shift = bits * math.log(2)
    moved = where(huge, number(large, shift), where(tiny, number(large, -shift), zeros_like(large)))
    far = add(build("log", build("hypot", mul(large, scale), mul(small, scale))), moved)
    near = mul(number(large, 0.5), build("log1p", less_one))
    inside = both_true(build("greater", large, number(large, 0.5)), build("less", large, number(large, 1.5)))
    endless = build("logical_or", build("isinf", large), build("isinf", small))
    return where(endless, number(large, math.inf), where(inside, near, far))


def log1p(z: Pair) -> Pair:
    """log(1 + z), |1 + z|**2 - 1 being a (2 + a) + b**2."""
    over = add(z.re, number(z.re, 1))
    plain = log(Pair(over, z.im))
    bits = number(z.re, 0.5)
    near = both_true(build("less", absolute(z.re), bits), build("less", absolute(z.im), bits))
    inside = add(mul(z.re, add(number(z.re, 2), z.re)), mul(z.im, z.im))
    return Pair(where(near, mul(bits, build("log1p", inside)), plain.re), plain.im)


def scaled_log(factor: float) -> Callable[[Pair], Pair]:
    """A logarithm to another base: both parts times a number."""
    return lambda z: both(log(z), lambda x: mul(x, number(x, factor)))


# -- powers ------------------------------------------------------------------------------------------------------------
def sqrt(z: Pair) -> Pair:
    """The root in the right half plane, from t = sqrt((|a| + |z|) / 2): (t, b / 2t), or (|b| / 2t, t) left of it."""
    a, b = z
    up, down = (2.0**-26, 2.0**60) if _is_narrow(a) else (2.0**-104, 2.0**400)
    large = build("maximum", absolute(a), absolute(b))
    huge = build("greater", large, number(a, 2.0**120 if _is_narrow(a) else 2.0**1020))
    tiny = build("less", large, number(a, 2.0**-80 if _is_narrow(a) else 2.0**-900))

    def chosen(when_huge: float, when_tiny: float) -> Node:
        return where(huge, number(a, when_huge), where(tiny, number(a, when_tiny), number(a, 1)))

    scale, back = chosen(up, down), chosen(math.sqrt(1 / up), math.sqrt(1 / down))
    x, y = mul(absolute(a), scale), mul(absolute(b), scale)
    root = build("sqrt", mul(add(x, build("hypot", x, y)), number(a, 0.5)))
    other = div(y, add(root, root))
    root, other = mul(root, back), mul(other, back)
    left = build("signbit", a)
    re, im = where(left, other, root), where(left, root, other)
    none = both_true(is_zero(a), is_zero(b))
    re, im = where(none, zeros_like(re), re), where(none, zeros_like(im), im)
    endless = build("isinf", a)
    flat = both_true(endless, build("isfinite", b))
    unknown = both_true(endless, build("isnan", b))
    infinity, zero = number(a, math.inf), zeros_like(a)
    # -inf has its root on the imaginary axis, +inf on the real one.
    re = where(flat, where(left, zero, infinity), where(unknown, where(left, b, infinity), re))
    im = where(flat, where(left, infinity, zero), where(unknown, where(left, infinity, b), im))
    re = where(build("isinf", b), infinity, re)
    im = where(build("isinf", b), infinity, im)
    return Pair(re, build("copysign", im, b))


def power(x: Pair, y: Pair, exponent: object = None) -> Pair:
    """exp(y log x); a product where the exponent is written as a small whole number. x**0 is 1; 0**y is 0
    where the real part of y is positive, else NaN."""
    if isinstance(exponent, complex | float | int) and complex(exponent).imag == 0:
        real = complex(exponent).real
        if real == int(real if math.isfinite(real) else 0) and 0 < abs(real) <= LARGEST_WHOLE:
            return _of_zero(x, y, whole_power(x, int(real)))
    return _of_zero(x, y, exp(times(y, log(x))))


def _of_zero(x: Pair, y: Pair, found: Pair) -> Pair:
    zero = both_true(is_zero(x.re), is_zero(x.im))
    one = both_true(is_zero(y.re), is_zero(y.im))
    nothing = where(build("greater", y.re, zeros_like(y.re)), zeros_like(x.re), number(x.re, math.nan))
    re, im = where(zero, nothing, found.re), where(zero, nothing, found.im)
    return Pair(where(one, number(re, 1), re), where(one, zeros_like(im), im))


# -- hyperbolic and trigonometric --------------------------------------------------------------------------------------
def _hyperbolic(x: Node) -> tuple[Node, Node, Node]:
    """sinh(x), cosh(x) and a factor: beyond the range of exp both are half of a lowered one."""
    top = 80.0 if _is_narrow(x) else 700.0
    size = absolute(x)
    high = build("greater", size, number(x, top))
    inner = where(high, zeros_like(x), x)
    half = mul(build("exp", sub(where(high, size, number(x, top)), number(x, top))), number(x, 0.5))
    scale = float(constant(math.exp(top), x.dtype)["value"])
    return (where(high, build("copysign", half, x), build("sinh", inner)), where(high, half, build("cosh", inner)),
            where(high, number(x, scale), number(x, 1)))


def sinh(z: Pair) -> Pair:
    """(sinh a cos b, cosh a sin b)."""
    grown, even, factor = _hyperbolic(z.re)
    cosine, sine = build("cos", z.im), build("sin", z.im)
    re, im = mul(mul(grown, cosine), factor), mul(mul(even, sine), factor)
    lost = build("logical_not", build("isfinite", z.im))
    stays = both_true(build("logical_or", build("isinf", z.re), is_zero(z.re)), lost)
    re = where(stays, z.re, where(is_zero(z.im), mul(grown, factor), re))
    return Pair(re, where(is_zero(z.im), z.im, im))


def cosh(z: Pair) -> Pair:
    """(cosh a cos b, sinh a sin b)."""
    grown, even, factor = _hyperbolic(z.re)
    cosine, sine = build("cos", z.im), build("sin", z.im)
    re, im = mul(mul(even, cosine), factor), mul(mul(grown, sine), factor)
    lost = build("logical_not", build("isfinite", z.im))
    re = where(both_true(build("isinf", z.re), lost), absolute(z.re), where(is_zero(z.im), mul(even, factor), re))
    flat = mul(build("copysign", number(im, 1), z.re), z.im)  # a zero with the sign of the product
    im = where(is_zero(z.im), where(build("isnan", z.re), z.im, flat), im)
    return Pair(re, where(both_true(is_zero(z.re), lost), zeros_like(im), im))


def tanh(z: Pair) -> Pair:
    """Kahan's formula from t = tan b and s = sinh a; from |a| = 22 (10 in float32) on 1 and 4 sin b cos b / e^2|a|."""
    a, b = z
    edge = 10.0 if _is_narrow(a) else 22.0
    far = build("greater", absolute(a), number(a, edge))
    near = where(far, zeros_like(a), a)
    t, s = build("tan", b), build("sinh", near)
    beta = add(number(a, 1), mul(t, t))
    rho = build("sqrt", add(number(a, 1), mul(s, s)))
    below = add(number(a, 1), mul(mul(beta, s), s))
    re, im = div(mul(mul(beta, rho), s), below), div(t, below)
    pole = build("isinf", t)
    re, im = where(pole, div(rho, s), re), where(pole, div(number(a, 1), t), im)
    small = build("exp", neg(absolute(a)))
    sine, cosine = build("sin", b), build("cos", b)
    beyond = mul(mul(mul(mul(number(a, 4), sine), cosine), small), small)
    turns = build("isfinite", b)
    beyond = where(turns, beyond, where(build("isinf", a), build("copysign", zeros_like(b), b), beyond))
    one = where(build("logical_or", turns, build("isinf", a)), build("copysign", number(a, 1), a), number(a, math.nan))
    re = where(far, one, where(is_zero(b), build("tanh", a), re))
    im = where(far, beyond, where(is_zero(b), b, im))
    re = where(both_true(is_zero(a), build("isfinite", b)), a, re)
    finite = both_true(is_zero(a), build("logical_not", turns))
    return Pair(where(finite, a, re), im)


def _turned(function: Callable[[Pair], Pair], z: Pair) -> Pair:
    """-i f(iz)."""
    found = function(Pair(neg(z.im), z.re))
    return Pair(found.im, neg(found.re))


def sin(z: Pair) -> Pair:
    return _turned(sinh, z)


def cos(z: Pair) -> Pair:
    return cosh(Pair(neg(z.im), z.re))


def tan(z: Pair) -> Pair:
    return _turned(tanh, z)

