"""Small arithmetic: the other remainder, extremes that pass NaN by, means of two, degrees, closeness."""

from __future__ import annotations

import math
from typing import Any

from morpho.base.dtypes import bool_
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import build
from morpho.ops.algebra import zeros_like
from morpho.tensor.autodiff.precision import rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.operands import as_node, broadcasted, promoted


def _pair(name: str, a: Any, b: Any, floating: bool = False) -> tuple[Tensor, Tensor]:
    first, second = broadcasted(name, *promoted(name, a, b, floating=floating))
    return Tensor.of_node(first), Tensor.of_node(second)


def _ordered(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    first, second = _pair(name, a, b)
    if first.dtype.kind not in ("iuf" if name == "fmod" else "biuf"):
        raise fail(DTypeError, name, f"dtype {first.dtype} is not taken", "convert with astype")
    return first, second


def fmax(x1: Any, x2: Any, /) -> Tensor:
    """The larger of two; a NaN gives way to the other.

    >>> mo.fmax([1.0, mo.nan], [0.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    a, b = _ordered("fmax", x1, x2)
    return ew.where(ew.isnan(a), b, ew.where(ew.isnan(b), a, ew.maximum(a, b)))


def fmin(x1: Any, x2: Any, /) -> Tensor:
    """The smaller of two; a NaN gives way to the other.

    >>> mo.fmin([1.0, mo.nan], [0.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    a, b = _ordered("fmin", x1, x2)
    return ew.where(ew.isnan(a), b, ew.where(ew.isnan(b), a, ew.minimum(a, b)))


def fmod(x1: Any, x2: Any, /) -> Tensor:
    """Rest of x1 / x2, with the sign of x1 (`mo.remainder` has that of x2); an integer by 0 is 0.

    >>> mo.fmod([7.0, -7.0], [3.0, 3.0]).tolist()
    [1.0, -1.0]
    """
    a, b = _ordered("fmod", x1, x2)
    if a.dtype.is_float:
        return ew.copysign(ew.remainder(ew.abs(a), ew.abs(b)), a)
    rest = ew.remainder(a, b)
    if a.dtype.kind == "u":
        return rest
    other = ew.logical_and(ew.not_equal(rest, 0), ew.not_equal(ew.less(rest, 0), ew.less(a, 0)))
    return ew.where(other, rest - b, rest)


def lcm(x1: Any, x2: Any, /) -> Tensor:
    """The least common multiple, never negative; of 0 and x it is 0.

    >>> mo.lcm([4, 0], [6, 5]).tolist()
    [12, 0]
    """
    a, b = _pair("lcm", x1, x2)
    if not a.dtype.is_integer:
        raise fail(DTypeError, "lcm", f"dtype {a.dtype} is not an integer", "convert with astype")
    divisor = Tensor.of_node(build("gcd", a.node, b.node))
    return ew.multiply(ew.floor_divide(ew.abs(a), divisor), ew.abs(b))


@rounded_once
def lerp(a: Any, b: Any, weight: Any, /) -> Tensor:
    """a + weight * (b - a), from the nearer end.

    >>> mo.lerp([0.0, 10.0], [10.0, 20.0], 0.5).tolist()
    [5.0, 15.0]
    """
    first, second = _pair("lerp", a, b, floating=True)
    size = second - first
    share = weight if not isinstance(weight, Tensor) else ew.astype(weight, first.dtype)
    low, high = first + size * share, second - size * (1 - share)
    share = Tensor.of_node(as_node(share, "lerp"))
    size = ew.abs(share) if share.dtype.is_complex else share
    return ew.where(ew.less(size, 0.5), low, high)


def rsqrt(x: Any, /) -> Tensor:
    """1 / sqrt(x).

    >>> mo.rsqrt([4.0, 0.25]).tolist()
    [0.5, 2.0]
    """
    return ew.reciprocal(ew.sqrt(x))


def cbrt(x: Any, /) -> Tensor:
    """The cube root, of negative numbers too.

    >>> mo.cbrt([-8.0, 27.0]).tolist()
    [-2.0, 3.0]
    """
    node = promoted("cbrt", x, floating=True)[0]
    if node.dtype.is_complex:
        raise fail(DTypeError, "cbrt", f"dtype {node.dtype} is not taken", "use mo.pow")
    return Tensor.of_node(build("cbrt", node))


def deg2rad(x: Any, /) -> Tensor:
    """Degrees as radians.

    >>> mo.deg2rad([180.0]).tolist()
    [3.1415927410125732]
    """
    return ew.multiply(Tensor.of_node(promoted("deg2rad", x, floating=True)[0]), math.pi / 180)


def rad2deg(x: Any, /) -> Tensor:
    """Radians as degrees.

    >>> mo.rad2deg([mo.pi]).tolist()
    [180.0]
    """
    return ew.multiply(Tensor.of_node(promoted("rad2deg", x, floating=True)[0]), 180 / math.pi)


def sinc(x: Any, /) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0.

    >>> mo.sinc([0.0, 0.5]).tolist()
    [1.0, 0.6366197466850281]
    """
    value = Tensor.of_node(promoted("sinc", x, floating=True)[0])
    small = ew.equal(value, 0)
    wide = ew.where(small, 1.0, value)
    wide = ew.astype(wide, "float64") if wide.dtype.is_float else wide
    nearest = ew.round(wide) if wide.dtype.is_float else wide * 0
    rest = (wide - nearest) * math.pi  # exact at whole numbers
    odd = ew.remainder(nearest, 2.0) if wide.dtype.is_float else nearest
    top = ew.sin(rest) * (1 - 2 * odd)
    return ew.where(small, 1.0, ew.astype(top / (wide * math.pi), value.dtype))


def heaviside(x1: Any, x2: Any, /) -> Tensor:
    """0 below zero, 1 above it, x2 at it; NaN stays.

    >>> mo.heaviside([-1.0, 0.0, 2.0], 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    a, b = _pair("heaviside", x1, x2, floating=True)
    return ew.where(ew.isnan(a), a, ew.where(ew.equal(a, 0), b, ew.astype(ew.greater(a, 0), a.dtype)))


def divmod(x1: Any, x2: Any, /) -> tuple[Tensor, Tensor]:
    """Quotient rounded down, and what is left, with the sign of x2.

    >>> [part.tolist() for part in mo.divmod([7, -7], 3)]
    [[2, -3], [1, 2]]
    """
    return ew.floor_divide(x1, x2), ew.remainder(x1, x2)


def isclose(x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where |x1 - x2| <= atol + rtol * |x2|; infinities only where they are equal.

    >>> mo.isclose([1.0, 2.0], [1.000001, 2.1]).tolist()
    [True, False]
    """
    a, b = _pair("isclose", x1, x2)
    if a.dtype is bool_:
        return ew.equal(a, b)
    if a.dtype.is_integer:  # exact as they are; a tolerance is a float
        a, b = ew.astype(a, "float64"), ew.astype(b, "float64")
    elif a.dtype.itemsize == 2:
        a, b = ew.astype(a, "float32"), ew.astype(b, "float32")
    near = ew.less_equal(ew.abs(a - b), atol + rtol * ew.abs(b))
    same = ew.equal(a, b)
    found = ew.logical_or(same, ew.logical_and(near, ew.isfinite(b)))
    return ew.logical_or(found, ew.logical_and(ew.isnan(a), ew.isnan(b))) if equal_nan else found


def allclose(x1: Any, x2: Any, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds everywhere. A Python truth: it realises its arguments.

    >>> mo.allclose([1.0, 2.0], [1.0, 2.0000001])
    True
    """
    return bool(reduce.all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)).item())


def array_equal(x1: Any, x2: Any, /, *, equal_nan: bool = False) -> bool:
    """Whether two tensors have one shape and equal elements. A Python truth: it realises its arguments.

    >>> mo.array_equal([1, 2], [1, 2]), mo.array_equal([1], [1, 1])
    (True, False)
    """
    a, b = as_node(x1, "array_equal"), as_node(x2, "array_equal")
    if a.shape != b.shape:
        return False
    first, second = _pair("array_equal", Tensor.of_node(a), Tensor.of_node(b))
    same = ew.equal(first, second)
    if equal_nan and first.dtype.kind in "fc":
        same = ew.logical_or(same, ew.logical_and(ew.isnan(first), ew.isnan(second)))
    return bool(reduce.all(same).item())


def angle(z: Any, /, *, deg: bool = False) -> Tensor:
    """The angle of complex numbers with the positive real axis, from -pi to pi, or in degrees; of a negative real
    number it is pi.

    >>> mo.angle([1.0, -1.0]).tolist(), mo.angle(mo.asarray([1j, 1 + 1j]), deg=True).tolist()
    ([0.0, 3.14...], [90.0, 45.0])
    """
    node = as_node(z, "angle")
    if node.dtype.is_complex:
        value = Tensor.of_node(node)
        found = ew.atan2(ew.imag(value), ew.real(value))
    else:
        (plain,) = promoted("angle", z, floating=True)
        value = Tensor.of_node(plain)
        found = ew.atan2(Tensor.of_node(zeros_like(plain)), value)
    return rad2deg(found) if deg else found
