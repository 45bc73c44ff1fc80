"""Arithmetic of complex numbers on their parts, every real operation rounded: NumPy's formulas and special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from morpho.ir.node import Node, build
from morpho.ops.algebra import add, constant_like, div, mul, neg, sub, where, zeros_like


class Pair(NamedTuple):
    """The parts of a complex value, of one shape and dtype."""

    re: Node
    im: Node


def number(x: Node, value: float) -> Node:
    """A number in the shape of x."""
    return constant_like(x, value)


def both(x: Pair, function: Callable[[Node], Node]) -> Pair:
    """A function of each part."""
    return Pair(function(x.re), function(x.im))


def absolute(x: Node) -> Node:
    return build("absolute", x)


def is_zero(x: Node) -> Node:
    return build("equal", x, zeros_like(x))


def both_true(a: Node, b: Node) -> Node:
    return build("logical_and", a, b)


def plus(a: Pair, b: Pair) -> Pair:
    return Pair(add(a.re, b.re), add(a.im, b.im))


def minus(a: Pair, b: Pair) -> Pair:
    return Pair(sub(a.re, b.re), sub(a.im, b.im))


def times(a: Pair, b: Pair) -> Pair:
    """(ac - bd, ad + bc), four products and two sums."""
    return Pair(sub(mul(a.re, b.re), mul(a.im, b.im)), add(mul(a.re, b.im), mul(a.im, b.re)))


def square(a: Pair) -> Pair:
    return times(a, a)


def quotient(a: Pair, b: Pair) -> Pair:
    """Smith's algorithm: the smaller part of the divisor is divided by the larger one first. Divided by zero, both
    parts are."""
    turned = build("less", absolute(b.re), absolute(b.im))
    large, small = where(turned, b.im, b.re), where(turned, b.re, b.im)
    ratio = div(small, large)
    scale = div(number(large, 1), add(large, mul(small, ratio)))
    first, second = where(turned, a.im, a.re), where(turned, a.re, a.im)
    re = mul(add(first, mul(second, ratio)), scale)
    crossed = mul(first, ratio)
    im = mul(where(turned, sub(crossed, second), sub(second, crossed)), scale)
    none = both_true(is_zero(b.re), is_zero(b.im))
    zero = absolute(b.re)
    return Pair(where(none, div(a.re, zero), re), where(none, div(a.im, zero), im))


def reciprocal(a: Pair) -> Pair:
    return quotient(Pair(number(a.re, 1), zeros_like(a.re)), a)


def conjugate(a: Pair) -> Pair:
    return Pair(a.re, neg(a.im))


def negative(a: Pair) -> Pair:
    return both(a, neg)


def magnitude(a: Pair) -> Node:
    return build("hypot", a.re, a.im)


def sign(a: Pair) -> Pair:
    """z / |z|, 0 of 0. An infinite part is the whole direction; two of them have none."""
    size = magnitude(a)
    none = is_zero(size)
    endless = both_true(build("isinf", size), build("logical_xor", build("isinf", a.re), build("isinf", a.im)))

    def each(part: Node) -> Node:
        along = where(build("isinf", part), build("sign", part), zeros_like(part))
        return where(endless, along, where(none, zeros_like(part), div(part, size)))

    return both(a, each)


def equal(a: Pair, b: Pair) -> Node:
    return both_true(build("equal", a.re, b.re), build("equal", a.im, b.im))


def not_equal(a: Pair, b: Pair) -> Node:
    return build("logical_or", build("not_equal", a.re, b.re), build("not_equal", a.im, b.im))


def any_part(name: str) -> Callable[[Pair], Node]:
    return lambda a: build("logical_or", build(name, a.re), build(name, a.im))


def is_finite(a: Pair) -> Node:
    return both_true(build("isfinite", a.re), build("isfinite", a.im))


def whole_power(a: Pair, exponent: int) -> Pair:
    """A power by squaring, from the lowest bit of the exponent on; a negative one is divided at the end."""
    if exponent == 0:
        return Pair(number(a.re, 1), zeros_like(a.re))
    left, found, base = abs(exponent), None, a
    while left:
        if left & 1:
            found = base if found is None else times(found, base)
        left >>= 1
        base = times(base, base) if left else base
    assert found is not None
    return reciprocal(found) if exponent < 0 else found
