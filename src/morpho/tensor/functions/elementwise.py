"""Elementwise functions: arithmetic, comparisons, logic, exponentials, trigonometry; the Array API's and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.backends.registry import holder
from morpho.base.dtypes import DType, as_dtype, bool_, int8
from morpho.base.errors import DTypeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, REGISTRY
from morpho.ops.algebra import constant, expand, zeros_like
from morpho.tensor.autodiff.precision import in_class
from morpho.tensor.core import Tensor
from morpho.tensor.device import on
from morpho.tensor.functions.examples import documented
from morpho.tensor.functions.reduce import truth
from morpho.tensor.lifted import LiftedNumber
from morpho.tensor.operands import as_node, broadcasted, promoted
from morpho.tensor.recorded import binary, recorded, unary
from morpho.tensor.scalars import is_scalar

# Arithmetic and order of truth values, as NumPy and PyTorch have them: false is below true, and a sum is true where one
# of both is. Differences and quotients of truth values stay refused.
_OF_TRUTH: dict[str, Callable[[Node, Node], Node]] = {
    "add": lambda a, b: build("logical_or", a, b), "multiply": lambda a, b: build("logical_and", a, b),
    "maximum": lambda a, b: build("logical_or", a, b), "minimum": lambda a, b: build("logical_and", a, b),
    "less": lambda a, b: build("logical_and", build("logical_not", a), b),
    "less_equal": lambda a, b: build("logical_or", build("logical_not", a), b),
    "greater": lambda a, b: build("logical_and", a, build("logical_not", b)),
    "greater_equal": lambda a, b: build("logical_or", a, build("logical_not", b)),
}
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})  # numbers are true where not zero


def of_record(name: str) -> Callable[..., Tensor]:
    """The public function of an elementwise op: everything about it stands in the op's record.

    >>> of_record("exp")(mo.zeros(2)).tolist()
    [1.0, 1.0]
    """
    op, of_truth, is_logical = REGISTRY[name], _OF_TRUTH.get(name), name in _LOGICAL

    def one(x: Any) -> Tensor:
        (node,) = promoted(name, x, floating=op.floating)
        if node.dtype.is_complex and name in ("sigmoid", "silu"):
            value = Tensor.of_node(node)
            rising = 1.0 + exp(negative(value))
            return divide(1.0 if name == "sigmoid" else value, rising)
        if is_logical:
            node = truth(node)
        elif node.dtype is bool_ and name == "sign":  # PyTorch's; NumPy has none
            return Tensor.of_node(node)
        elif node.dtype is bool_ and name == "square":
            node = build("cast", node, dtype=int8)
        return Tensor.of_node(build(name, in_class(name, node)))

    def two(x1: Any, x2: Any) -> Tensor:
        if is_logical:
            pair = [truth(promoted(name, x)[0]) for x in (x1, x2)]
            return Tensor.of_node(build(name, *broadcasted(name, *pair)))
        nodes = promoted(name, x1, x2, floating=op.floating)
        if nodes[0].dtype.is_complex and name in _ORDERS:
            return _complex_order(name, *[Tensor.of_node(node) for node in nodes])
        if of_truth is not None and nodes[0].dtype is bool_:
            return Tensor.of_node(of_truth(*broadcasted(name, *nodes)))
        return Tensor.of_node(build(name, *broadcasted(name, *[in_class(name, node) for node in nodes])))

    function: Callable[..., Tensor] = unary(one) if op.arity == ONE else binary(two)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, op.summary, places=1 if op.arity == ONE else 2)
    return function


_ORDERS = {"less": "less", "less_equal": "less", "greater": "greater", "greater_equal": "greater"}


def _complex_order(name: str, x: Tensor, y: Tensor) -> Tensor:
    """NumPy's order of complex numbers: by real parts, and by imaginary ones where those are equal."""
    apart = REGISTRY[_ORDERS[name]].name
    first = of_record(apart)(real(x), real(y))
    return logical_or(first, logical_and(equal(real(x), real(y)), of_record(name)(imag(x), imag(y))))


def is_public(name: str) -> bool:
    """Whether an op is a function by its record alone."""
    op = REGISTRY.get(name)
    return op is not None and bool(op.summary) and op.kind == "elementwise"


def public_names() -> list[str]:
    """The ops that are functions by their records, Morpho's in the order of these."""
    return [name for name in REGISTRY if is_public(name)]


# -- arithmetic ------------------------------------------------------------------------------------------------------
add = of_record("add")
subtract = of_record("subtract")
multiply = of_record("multiply")
divide = of_record("divide")
floor_divide = of_record("floor_divide")
remainder = of_record("remainder")
maximum = of_record("maximum")
minimum = of_record("minimum")
atan2 = of_record("atan2")
hypot = of_record("hypot")
copysign = of_record("copysign")
nextafter = of_record("nextafter")
logaddexp = of_record("logaddexp")
negative = of_record("negative")
sign = of_record("sign")
square = of_record("square")
sqrt = of_record("sqrt")
reciprocal = of_record("reciprocal")


@recorded
def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power x2. A literal exponent of 2 is x1 * x1, one of 3 x1 * x1 * x1 (not for half floats, which would
    lose digits); 0.5 is not special (pow, not sqrt).

    >>> mo.pow(mo.asarray([2.0, 3.0]), 3)
    Tensor([ 8., 27.], dtype=float32)
    """
    if type(x2) is LiftedNumber:  # which of the two ways it goes depends on its value
        x2 = x2.seen()
    if type(x2) in (int, float) and x2 in (2, 3) and not is_scalar(x1):
        base = x1 if isinstance(x1, Tensor) else Tensor.of_node(as_node(x1, "pow"))
        takes = base.dtype.kind in ("iufc" if type(x2) is int else "fc")
        if takes and (x2 == 2 or base.dtype.compute is base.dtype):
            return square(base) if x2 == 2 else square(base) * base
    nodes = [in_class("pow", node) for node in promoted("pow", x1, x2)]
    return Tensor.of_node(build("pow", *broadcasted("pow", *nodes)))


@recorded
def absolute(x: Any, /) -> Tensor:
    """The magnitude.

    >>> mo.abs([-2.0, 3.0])
    Tensor([2., 3.], dtype=float32)
    """
    node = as_node(x, "abs")
    return Tensor.of_node(node if node.dtype is bool_ else build("absolute", node))


abs = absolute


@recorded
def positive(x: Any, /) -> Tensor:
    """x itself.

    >>> mo.positive([-1.0, 2.0])
    Tensor([-1.,  2.], dtype=float32)
    """
    return Tensor.of_node(as_node(x, "positive"))


@recorded
def real(x: Any, /) -> Tensor:
    """The real part; a real tensor is its own.

    >>> mo.real(mo.asarray([1 + 2j]))
    Tensor([1.], dtype=float32)
    """
    node = as_node(x, "real")
    return Tensor.of_node(build("real", node) if node.dtype.is_complex else node)


@recorded
def imag(x: Any, /) -> Tensor:
    """The imaginary part; zero for a real tensor.

    >>> mo.imag(mo.asarray([1 + 2j]))
    Tensor([2.], dtype=float32)
    """
    node = as_node(x, "imag")
    return Tensor.of_node(build("imag", node) if node.dtype.is_complex else zeros_like(node))


@recorded
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
        if node.dtype is bool_ and name == "round":
            raise fail(DTypeError, name, "dtype bool is not taken", "write x.astype(mo.float32)")
        if name == "round" and node.dtype.is_complex:  # each part by itself
            return Tensor.of_node(build("complex", build(name, build("real", node)), build(name, build("imag", node))))
        return Tensor.of_node(node if node.dtype.kind in "biu" else build(name, node))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary)
    return recorded(function)


floor = _rounding("floor", "The largest integer not above x.")
ceil = _rounding("ceil", "The smallest integer not below x.")
trunc = _rounding("trunc", "x without its fraction.")
round = _rounding("round", "The nearest integer, ties to even.")

# -- comparisons and logic -------------------------------------------------------------------------------------------
equal = of_record("equal")
not_equal = of_record("not_equal")
less = of_record("less")
less_equal = of_record("less_equal")
greater = of_record("greater")
greater_equal = of_record("greater_equal")
logical_and = of_record("logical_and")
logical_or = of_record("logical_or")
logical_xor = of_record("logical_xor")
logical_not = of_record("logical_not")
bitwise_and = of_record("bitwise_and")
bitwise_or = of_record("bitwise_or")
bitwise_xor = of_record("bitwise_xor")
bitwise_invert = of_record("bitwise_invert")
bitwise_left_shift = of_record("bitwise_left_shift")
bitwise_right_shift = of_record("bitwise_right_shift")


def _test(name: str, summary: str, for_integers: bool) -> Callable[[Any], Tensor]:
    def function(x: Any, /) -> Tensor:
        node = as_node(x, name)
        if node.dtype.kind in "biu":
            return Tensor.of_node(expand(constant(for_integers, bool_), node.shape))
        return Tensor.of_node(build(name, node))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(name, summary)
    return recorded(function)


isnan = _test("isnan", "Where x is NaN.", False)
isinf = _test("isinf", "Where x is infinite.", False)
isfinite = _test("isfinite", "Where x is neither NaN nor infinite.", True)
signbit = of_record("signbit")

# -- exponentials, trigonometry --------------------------------------------------------------------------------------
exp = of_record("exp")
exp2 = of_record("exp2")
expm1 = of_record("expm1")
log = of_record("log")
log2 = of_record("log2")
log10 = of_record("log10")
log1p = of_record("log1p")
sin = of_record("sin")
cos = of_record("cos")
tan = of_record("tan")
asin = of_record("asin")
acos = of_record("acos")
atan = of_record("atan")
sinh = of_record("sinh")
cosh = of_record("cosh")
tanh = of_record("tanh")
asinh = of_record("asinh")
acosh = of_record("acosh")
atanh = of_record("atanh")
erf = of_record("erf")
erfc = of_record("erfc")


# -- choosing --------------------------------------------------------------------------------------------------------
@recorded
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere; a condition of numbers holds where they are not zero.

    >>> mo.where(mo.asarray([True, False]), 1.0, mo.asarray([5.0, 6.0]))
    Tensor([1., 6.], dtype=float32)
    """
    mask = truth(as_node(condition, "where"))
    return Tensor.of_node(build("where", *broadcasted("where", mask, *promoted("where", x1, x2))))


@recorded
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """x kept between `min` and `max`, either of which may be left out; NaN stays NaN. The dtype is that of x; integers
    with a floating bound are floating, as 0.5 is none of theirs.

    >>> mo.clip(mo.asarray([-2.0, 0.5, 2.0]), 0.0, 1.0)
    Tensor([0. , 0.5, 1. ], dtype=float32)
    >>> mo.clip(mo.asarray([0, 3]), 0.5)
    Tensor([0.5, 3. ], dtype=float32)
    """
    result = Tensor.of_node(as_node(x, "clip"))
    dtype = result.dtype
    if dtype.is_complex:
        raise fail(DTypeError, "clip", f"dtype {dtype} has no order")
    for bound, limited in ((min, maximum), (max, minimum)):
        if bound is not None:
            result = limited(result, bound)
            result = result if result.dtype.is_inexact and not dtype.is_inexact else astype(result, dtype)
    return result


@recorded
def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x converted: floats to integers truncate and saturate (NaN to 0), integers wrap.

    >>> mo.astype(mo.asarray([1.7, -2.5]), "int32").tolist()
    [1, -2]
    """
    if device is not None:
        x = on(x, holder(device, "astype"))
    target: DType = as_dtype(dtype)
    node = as_node(x, "astype")
    if node.dtype is target:
        return x if isinstance(x, Tensor) and not copy else Tensor.of_node(node)
    return Tensor.of_node(build("cast", node, dtype=target))
