"""Elementwise functions: arithmetic, comparisons, logic, exponentials, trigonometry; the Array API's and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.backends.registry import canonical, memory_of
from morpho.base.dtypes import DType, as_dtype, bool_
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import build
from morpho.ops.algebra import constant, expand, zeros_like
from morpho.tensor.autodiff.precision import FULL, widened
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions.examples import documented
from morpho.tensor.operands import as_node, broadcasted, promoted
from morpho.tensor.scalars import is_scalar


def _unary(name: str, summary: str, floating: bool = False) -> Callable[[Any], Tensor]:
    full = name in FULL

    def function(x: Any, /) -> Tensor:
        (node,) = promoted(name, x, floating=floating)
        return Tensor.of_node(build(name, widened(node) if full else node))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary)
    return function


def _binary(name: str, summary: str, floating: bool = False) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        return Tensor.of_node(build(name, *broadcasted(name, *promoted(name, x1, x2, floating=floating))))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary, places=2)
    return function


# -- arithmetic ------------------------------------------------------------------------------------------------------
add = _binary("add", "Sum, element by element.")
subtract = _binary("subtract", "Difference, element by element.")
multiply = _binary("multiply", "Product, element by element.")
divide = _binary("divide", "Quotient; integers divide as floats.", floating=True)
floor_divide = _binary("floor_divide", "Quotient rounded down, x % y being the rest; an integer divided by zero is 0.")
remainder = _binary("remainder", "What is left of x1 / x2, with the sign of x2.")
maximum = _binary("maximum", "The larger of two; NaN wins.")
minimum = _binary("minimum", "The smaller of two; NaN wins.")
atan2 = _binary("atan2", "The angle of the point (x2, x1).", floating=True)
hypot = _binary("hypot", "sqrt(x1*x1 + x2*x2) without overflow.", floating=True)
copysign = _binary("copysign", "The magnitude of x1 with the sign of x2.", floating=True)
nextafter = _binary("nextafter", "The next float from x1 towards x2.", floating=True)
logaddexp = _binary("logaddexp", "log(exp(x1) + exp(x2)) without overflow.", floating=True)
negative = _unary("negative", "-x.")
sign = _unary("sign", "-1, 0 or 1; NaN stays NaN.")
square = _unary("square", "x * x.")
sqrt = _unary("sqrt", "Square root, correctly rounded.", floating=True)
reciprocal = _unary("reciprocal", "1 / x, correctly rounded.", floating=True)


def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power x2. A literal exponent of 2 is x1 * x1, one of 3 x1 * x1 * x1 (not for half floats, which would
    lose digits); 0.5 is not special (pow, not sqrt).

    >>> mo.pow(mo.asarray([2.0, 3.0]), 3)
    Tensor([ 8., 27.], dtype=float32)
    """
    if type(x2) in (int, float) and x2 in (2, 3) and not is_scalar(x1):
        base = x1 if isinstance(x1, Tensor) else Tensor.of_node(as_node(x1, "pow"))
        takes = base.dtype.kind in ("iufc" if type(x2) is int else "fc")
        if takes and (x2 == 2 or base.dtype.compute is base.dtype):
            return square(base) if x2 == 2 else square(base) * base
    return Tensor.of_node(build("pow", *broadcasted("pow", *map(widened, promoted("pow", x1, x2)))))


def absolute(x: Any, /) -> Tensor:
    """The magnitude.

    >>> mo.abs([-2.0, 3.0])
    Tensor([2., 3.], dtype=float32)
    """
    node = as_node(x, "abs")
    return Tensor.of_node(node if node.dtype is bool_ else build("absolute", node))


abs = absolute


def positive(x: Any, /) -> Tensor:
    """x itself.

    >>> mo.positive([-1.0, 2.0])
    Tensor([-1.,  2.], dtype=float32)
    """
    return Tensor.of_node(as_node(x, "positive"))


def real(x: Any, /) -> Tensor:
    """The real part; a real tensor is its own.

    >>> mo.real(mo.asarray([1 + 2j]))
    Tensor([1.], dtype=float32)
    """
    node = as_node(x, "real")
    return Tensor.of_node(build("real", node) if node.dtype.is_complex else node)


def imag(x: Any, /) -> Tensor:
    """The imaginary part; zero for a real tensor.

    >>> mo.imag(mo.asarray([1 + 2j]))
    Tensor([2.], dtype=float32)
    """
    node = as_node(x, "imag")
    return Tensor.of_node(build("imag", node) if node.dtype.is_complex else zeros_like(node))


def conj(x: Any, /) -> Tensor:
    """The complex conjugate; a real tensor is its own.

    >>> mo.conj(mo.asarray([1 + 2j]))
    Tensor([1.-2.j], dtype=complex64)
    """
    node = as_node(x, "conj")
    return Tensor.of_node(build("conj", node) if node.dtype.is_complex else node)


def _rounding(name: str, summary: str) -> Callable[[Any], Tensor]:
    def function(x: Any, /) -> Tensor:
        node = as_node(x, name)
        if node.dtype is bool_:
            raise fail(DTypeError, name, "dtype bool is not taken")
        if name == "round" and node.dtype.is_complex:  # each part by itself
            return Tensor.of_node(build("complex", build(name, build("real", node)), build(name, build("imag", node))))
        return Tensor.of_node(node if node.dtype.is_integer else build(name, node))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary)
    return function


floor = _rounding("floor", "The largest integer not above x.")
ceil = _rounding("ceil", "The smallest integer not below x.")
trunc = _rounding("trunc", "x without its fraction.")
round = _rounding("round", "The nearest integer, ties to even.")

# -- comparisons and logic -------------------------------------------------------------------------------------------
equal = _binary("equal", "x1 == x2.")
not_equal = _binary("not_equal", "x1 != x2.")
less = _binary("less", "x1 < x2.")
less_equal = _binary("less_equal", "x1 <= x2.")
greater = _binary("greater", "x1 > x2.")
greater_equal = _binary("greater_equal", "x1 >= x2.")
logical_and = _binary("logical_and", "Both true.")
logical_or = _binary("logical_or", "At least one true.")
logical_xor = _binary("logical_xor", "Exactly one true.")
logical_not = _unary("logical_not", "Not true.")
bitwise_and = _binary("bitwise_and", "Bits set in both.")
bitwise_or = _binary("bitwise_or", "Bits set in either.")
bitwise_xor = _binary("bitwise_xor", "Bits set in one.")
bitwise_invert = _unary("bitwise_invert", "All bits flipped.")
bitwise_left_shift = _binary("bitwise_left_shift", "Bits moved up; a shift by the width or more gives 0.")
bitwise_right_shift = _binary("bitwise_right_shift", "Bits moved down; the sign fills in.")


def _test(name: str, summary: str, for_integers: bool) -> Callable[[Any], Tensor]:
    def function(x: Any, /) -> Tensor:
        node = as_node(x, name)
        if node.dtype.kind in "biu":
            return Tensor.of_node(expand(constant(for_integers, bool_), node.shape))
        return Tensor.of_node(build(name, node))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary)
    return function


isnan = _test("isnan", "Where x is NaN.", False)
isinf = _test("isinf", "Where x is infinite.", False)
isfinite = _test("isfinite", "Where x is neither NaN nor infinite.", True)
signbit = _unary("signbit", "Where the sign bit is set, also of -0.0 and NaN.", floating=True)

# -- exponentials, trigonometry --------------------------------------------------------------------------------------
exp = _unary("exp", "e to the x; within 1 ulp in float32.", floating=True)
exp2 = _unary("exp2", "2 to the x.", floating=True)
expm1 = _unary("expm1", "exp(x) - 1, precise near 0.", floating=True)
log = _unary("log", "Natural logarithm; within 1 ulp in float32.", floating=True)
log2 = _unary("log2", "Logarithm to base 2.", floating=True)
log10 = _unary("log10", "Logarithm to base 10.", floating=True)
log1p = _unary("log1p", "log(1 + x), precise near 0.", floating=True)
sin = _unary("sin", "Sine.", floating=True)
cos = _unary("cos", "Cosine.", floating=True)
tan = _unary("tan", "Tangent.", floating=True)
asin = _unary("asin", "Inverse sine.", floating=True)
acos = _unary("acos", "Inverse cosine.", floating=True)
atan = _unary("atan", "Inverse tangent.", floating=True)
sinh = _unary("sinh", "Hyperbolic sine.", floating=True)
cosh = _unary("cosh", "Hyperbolic cosine.", floating=True)
tanh = _unary("tanh", "Hyperbolic tangent; within 1 ulp in float32.", floating=True)
asinh = _unary("asinh", "Inverse hyperbolic sine.", floating=True)
acosh = _unary("acosh", "Inverse hyperbolic cosine.", floating=True)
atanh = _unary("atanh", "Inverse hyperbolic tangent.", floating=True)
erf = _unary("erf", "The error function; within 1 ulp in float32.", floating=True)
erfc = _unary("erfc", "1 - erf(x), precise for large x.", floating=True)


# -- choosing --------------------------------------------------------------------------------------------------------
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere.

    >>> mo.where(mo.asarray([True, False]), 1.0, mo.asarray([5.0, 6.0]))
    Tensor([1., 6.], dtype=float32)
    """
    mask = as_node(condition, "where")
    if mask.dtype is not bool_:
        raise fail(DTypeError, "where", f"the condition is {mask.dtype}, not bool", "compare it with something")
    return Tensor.of_node(build("where", *broadcasted("where", mask, *promoted("where", x1, x2))))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """x kept between `min` and `max`, either of which may be left out; NaN stays NaN, the dtype is that of x.

    >>> mo.clip(mo.asarray([-2.0, 0.5, 2.0]), 0.0, 1.0)
    Tensor([0. , 0.5, 1. ], dtype=float32)
    """
    result = Tensor.of_node(as_node(x, "clip"))
    dtype = result.dtype
    if not dtype.is_integer and not dtype.is_float:
        raise fail(DTypeError, "clip", f"dtype {dtype} has no order")
    if min is not None:
        result = astype(maximum(result, min), dtype)
    return result if max is None else astype(minimum(result, max), dtype)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x converted: floats to integers truncate and saturate (NaN to 0), integers wrap.

    >>> mo.astype(mo.asarray([1.7, -2.5]), "int32").tolist()
    [1, -2]
    """
    if device is not None:
        x = on(x, memory_of(canonical(device, "astype")))
    target: DType = as_dtype(dtype)
    node = as_node(x, "astype")
    if node.dtype is target:
        return x if isinstance(x, Tensor) and not copy else Tensor.of_node(node)
    return Tensor.of_node(build("cast", node, dtype=target))
