"""Elementwise ops: every input has the output's shape (broadcasting is an explicit `expand`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bool_, complex64, complex128, float32, float64, int32, uint32
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, THREE, TWO, Arity, Attributes, Gradient, Infer, NoGradient, Op, Spec, register
from morpho.ir.views import literal
from morpho.ops import special
from morpho.ops.algebra import add, cast, conj, constant_like, div, mul, neg, sub, where, zeros_like
from morpho.ops.complex.gradients import absolute_rule, holomorphic, real_as, sign_rule

_STEP = NoGradient("piecewise constant")
_WHOLE = NoGradient("defined on integers or booleans")


# -- shape and dtype rules -------------------------------------------------------------------------------------------
def _same_shape(name: str, inputs: Sequence[Spec]) -> None:
    if any(spec.shape != inputs[0].shape for spec in inputs):
        raise fail(ShapeError, name, f"shapes {' and '.join(str(s.shape) for s in inputs)} differ")


def _check_kinds(name: str, inputs: Sequence[Spec], kinds: str) -> None:
    for spec in inputs:
        if spec.dtype.kind not in kinds:
            words = {"b": "bool", "i": "signed", "u": "unsigned", "f": "floating", "c": "complex"}
            raise fail(DTypeError, name, f"dtype {spec.dtype} is not taken",
                       "it takes " + ", ".join(words[k] for k in kinds) + " dtypes; convert with astype")


def same(name: str, kinds: str) -> Infer:
    """All inputs of one dtype, which is the result's."""

    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        _check_kinds(name, inputs, kinds)
        _same_shape(name, inputs)
        if any(spec.dtype is not inputs[0].dtype for spec in inputs):
            raise fail(DTypeError, name, f"dtypes {[s.dtype for s in inputs]} differ", "promote them first")
        return inputs[0]

    return infer


def to_bool(name: str, kinds: str) -> Infer:
    """All inputs of one dtype, a boolean result."""
    rule = same(name, kinds)
    return lambda inputs, attributes: Spec(rule(inputs, attributes).shape, bool_)  # type: ignore[union-attr]


def _real_part(name: str, kinds: str) -> Infer:
    """Complex becomes the float of half its width, the rest stays."""
    rule = same(name, kinds)

    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        found = rule(inputs, attributes)
        assert isinstance(found, Spec)
        halves = {complex64: float32, complex128: float64}
        return Spec(found.shape, halves.get(found.dtype, found.dtype))

    return infer


# -- registration ----------------------------------------------------------------------------------------------------
def _unary(name: str, kinds: str, numpy: Callable[..., Any], vjp: Gradient | NoGradient, flops: int = 1,
           numerics: str = "exact", properties: frozenset[str] = frozenset(), rule: Callable[..., Infer] = same,
           arity: Arity = ONE, autocast: str = "", summary: str = "", floating: bool = False) -> Op:
    if "c" in kinds and not isinstance(vjp, NoGradient) and name not in ("absolute", "sign", "real", "imag", "conj"):
        vjp = holomorphic(vjp)
    return register(Op(name, "elementwise", rule(name, kinds), vjp, lambda attributes, *x: numpy(*x), flops, numerics,
                       properties, None, arity, autocast, summary, floating))


_binary = partial(_unary, arity=TWO)
COMMUTES = frozenset({"commutative"})
LIFTS = frozenset({"lifts constants"})
COSTLY = 16  # flops of a polynomial, roughly; fusion stores such a value rather than computing it twice


def _chain(derivative: Callable[[Node, Node], Node]) -> Gradient:
    """The gradient of a unary function from its derivative d(x, y)."""
    return lambda node, ct: [mul(ct, derivative(node.inputs[0], node))]


def _one(x: Node) -> Node:
    return constant_like(x, 1)


def _square(x: Node) -> Node:
    return mul(x, x)


# At an infinity, and where a square overflows, 0 * inf would be NaN though the slope has a limit: what is multiplied by
# a zero there is itself put to zero. Outside the domain of a logarithm and of atanh the slope is what its formula
# gives, as in other libraries: a finite number, so that `where`, which multiplies it by 0, is left with 0.
def _nonzero_with(factor: Node, x: Node) -> Node:
    """x, but 0 where the factor that it is multiplied by is 0."""
    return where(build("equal", factor, zeros_like(factor)), zeros_like(x), x)


def _gelu_curvature(x: Node) -> Node:
    """phi(x) * (2 - x**2), the second derivative of gelu."""
    pdf = mul(constant_like(x, 1 / math.sqrt(2 * math.pi)), build("exp", mul(_square(x), constant_like(x, -0.5))))
    return mul(pdf, sub(constant_like(x, 2), _square(_nonzero_with(pdf, x))))


def _clipped(x: Node, most: float) -> Node:
    """x between -most and most; NaN stays."""
    return build("minimum", build("maximum", x, constant_like(x, -most)), constant_like(x, most))


def _gelu_tanh_slope(x: Node) -> Node:
    x = _clipped(x, 100)  # the slope is 0 or 1 from there on, and x**3 stays finite
    root = math.sqrt(2 / math.pi)
    inner = mul(constant_like(x, root), add(x, mul(constant_like(x, 0.044715), mul(x, _square(x)))))
    t = build("tanh", inner)
    flat = sub(_one(x), _square(t))
    x = _nonzero_with(flat, x)
    slope = mul(constant_like(x, root), add(_one(x), mul(constant_like(x, 3 * 0.044715), _square(x))))
    half = constant_like(x, 0.5)
    return add(mul(half, add(_one(x), t)), mul(mul(mul(half, x), flat), slope))


SATURATED = 6e4  # sigmoid is 0 or 1 here in every dtype, float16 holds the number, and 0 * SATURATED is 0


def _silu_slope(x: Node) -> Node:
    s, x = build("sigmoid", x), _clipped(x, SATURATED)
    return mul(s, add(_one(x), mul(x, sub(_one(x), s))))


def _mish_slope(x: Node) -> Node:
    t = build("tanh", build("softplus", x))
    return add(t, mul(mul(_clipped(x, SATURATED), build("sigmoid", x)), sub(_one(x), _square(t))))


def _sqrt_one_minus(x: Node) -> Node:
    return build("sqrt", mul(sub(_one(x), x), add(_one(x), x)))


_ROUND = "one rounding"
_ULP1, _ULP2 = "polynomial, 1 ulp", "polynomial, 2 ulp"

_unary("negative", "iufc", np.negative, lambda n, ct: [neg(ct)], summary="-x.")
_unary("absolute", "iufc", np.abs, absolute_rule, rule=_real_part)
_unary("sign", "iufc", special.sign, sign_rule, summary="-1, 0 or 1; NaN stays NaN.")
_unary("square", "iufc", lambda x: x * x, lambda n, ct: [mul(ct, add(n.inputs[0], n.inputs[0]))], summary="x * x.")
_unary("sqrt", "fc", special.quiet(np.sqrt), lambda n, ct: [div(ct, add(n, n))], 4, _ROUND,
       summary="Square root, correctly rounded.", floating=True)
_unary("reciprocal", "fc", special.quiet(lambda x: 1 / x), lambda n, ct: [neg(mul(ct, _square(n)))], 4, _ROUND,
       summary="1 / x, correctly rounded.", floating=True)
_unary("floor", "f", np.floor, _STEP)
_unary("ceil", "f", np.ceil, _STEP)
_unary("trunc", "f", np.trunc, _STEP)
_unary("round", "f", np.rint, _STEP)
_unary("isnan", "fc", np.isnan, _STEP, rule=to_bool)
_unary("isinf", "fc", np.isinf, _STEP, rule=to_bool)
_unary("isfinite", "fc", np.isfinite, _STEP, rule=to_bool)
_unary("signbit", "f", np.signbit, _STEP, rule=to_bool, summary="Where the sign bit is set, also of -0.0 and NaN.",
       floating=True)
_unary("logical_not", "b", np.logical_not, _WHOLE, summary="Not true.")
_unary("bitwise_invert", "biu", np.invert, _WHOLE, summary="All bits flipped.")
_unary("real", "c", np.real, lambda n, ct: [cast(ct, n.inputs[0].dtype)], rule=_real_part)
_unary("imag", "c", np.imag, lambda n, ct: [build("complex", zeros_like(ct), ct)], rule=_real_part)
_unary("conj", "c", np.conj, lambda n, ct: [conj(ct)])

_unary("exp", "fc", special.quiet(np.exp), _chain(lambda x, y: y), COSTLY, _ULP1, autocast="full",
       summary="e to the x; within 1 ulp in float32.", floating=True)
_unary("exp2", "f", special.quiet(np.exp2), _chain(lambda x, y: mul(y, constant_like(x, math.log(2)))), COSTLY, _ULP2,
       autocast="full", summary="2 to the x.", floating=True)
_unary("expm1", "fc", special.quiet(np.expm1), _chain(lambda x, y: add(y, _one(x))), COSTLY, _ULP2, autocast="full",
       summary="exp(x) - 1, precise near 0.", floating=True)
_unary("log", "fc", special.quiet(np.log),
       lambda n, ct: [div(ct, n.inputs[0])], COSTLY, _ULP1, autocast="full",
       summary="Natural logarithm; within 1 ulp in float32.", floating=True)
_unary("log2", "fc", special.quiet(np.log2),
       lambda n, ct: [div(ct, mul(n.inputs[0], constant_like(ct, math.log(2))))], COSTLY, _ULP2,
       autocast="full", summary="Logarithm to base 2.", floating=True)
_unary("log10", "fc", special.quiet(np.log10),
       lambda n, ct: [div(ct, mul(n.inputs[0], constant_like(ct, math.log(10))))], COSTLY, _ULP2,
       autocast="full", summary="Logarithm to base 10.", floating=True)
_unary("log1p", "fc", special.quiet(np.log1p),
       lambda n, ct: [div(ct, add(n.inputs[0], _one(ct)))], COSTLY, _ULP2,
       autocast="full", summary="log(1 + x), precise near 0.", floating=True)
_unary("sin", "fc", special.quiet(np.sin), _chain(lambda x, y: build("cos", x)), 2 * COSTLY, _ULP2, summary="Sine.",
       floating=True)
_unary("cos", "fc", special.quiet(np.cos), _chain(lambda x, y: neg(build("sin", x))), 2 * COSTLY, _ULP2,
       summary="Cosine.", floating=True)
_unary("tan", "fc", special.quiet(np.tan), _chain(lambda x, y: add(_one(x), _square(y))), 2 * COSTLY, _ULP2,
       autocast="full", summary="Tangent.", floating=True)
_unary("asin", "fc", special.quiet(np.arcsin), lambda n, ct: [div(ct, _sqrt_one_minus(n.inputs[0]))], COSTLY, _ULP2,
       summary="Inverse sine.", floating=True)
_unary("acos", "fc", special.quiet(np.arccos),
       lambda n, ct: [neg(div(ct, _sqrt_one_minus(n.inputs[0])))], COSTLY, _ULP2, summary="Inverse cosine.",
       floating=True)
_unary("atan", "fc", np.arctan, lambda n, ct: [div(ct, add(_one(ct), _square(n.inputs[0])))], COSTLY, _ULP2,
       summary="Inverse tangent.", floating=True)
_unary("sinh", "fc", special.quiet(np.sinh), _chain(lambda x, y: build("cosh", x)), COSTLY, _ULP2, autocast="full",
       summary="Hyperbolic sine.", floating=True)
_unary("cosh", "fc", special.quiet(np.cosh), _chain(lambda x, y: build("sinh", x)), COSTLY, _ULP2, autocast="full",
       summary="Hyperbolic cosine.", floating=True)
_unary("tanh", "fc", np.tanh, _chain(lambda x, y: sub(_one(x), _square(y))), COSTLY, _ULP1,
       summary="Hyperbolic tangent; within 1 ulp in float32.", floating=True)
_unary("asinh", "fc", np.arcsinh,
       lambda n, ct: [div(ct, build("sqrt", add(_square(n.inputs[0]), _one(ct))))], COSTLY, _ULP2,
       summary="Inverse hyperbolic sine.", floating=True)
_unary("acosh", "fc", special.quiet(np.arccosh),
       lambda n, ct: [div(ct, build("sqrt", sub(_square(n.inputs[0]), _one(ct))))], COSTLY, _ULP2,
       summary="Inverse hyperbolic cosine.", floating=True)
_unary("atanh", "fc", special.quiet(np.arctanh),
       lambda n, ct: [div(ct, mul(sub(_one(ct), n.inputs[0]), add(_one(ct), n.inputs[0])))],
       COSTLY, _ULP2, summary="Inverse hyperbolic tangent.", floating=True)
_unary("erf", "f", special.erf, _chain(lambda x, y: mul(
    constant_like(x, 2 / math.sqrt(math.pi)), build("exp", neg(_square(x))))), COSTLY, _ULP1,
       summary="The error function; within 1 ulp in float32.", floating=True)
_unary("erfc", "f", special.erfc, _chain(lambda x, y: mul(
    constant_like(x, -2 / math.sqrt(math.pi)), build("exp", neg(_square(x))))), COSTLY, "polynomial, 3 ulp",
       summary="1 - erf(x), precise for large x.", floating=True)
_unary("sigmoid", "f", special.sigmoid, _chain(lambda x, y: mul(y, build("sigmoid", neg(x)))), COSTLY, _ULP1,
       summary="1 / (1 + exp(-x)); within 1 ulp in float32.", floating=True)
_unary("gelu", "f", special.gelu, _chain(lambda x, y: build("gelu_slope", x)), 2 * COSTLY, _ULP2)
_unary("gelu_slope", "f", special.gelu_slope, _chain(lambda x, y: _gelu_curvature(x)), 2 * COSTLY,
       "polynomial, 5 ulp")
_unary("gelu_tanh", "f", special.gelu_tanh, _chain(lambda x, y: _gelu_tanh_slope(x)), 2 * COSTLY, _ULP2)
_unary("silu", "f", special.silu, _chain(lambda x, y: _silu_slope(x)), COSTLY, _ULP2, summary="x * sigmoid(x).",
       floating=True)
_unary("softplus", "f", special.softplus, _chain(lambda x, y: build("sigmoid", x)), COSTLY, _ULP2, autocast="full",
       summary="log(1 + exp(x)).", floating=True)
_unary("mish", "f", special.mish, _chain(lambda x, y: _mish_slope(x)), 2 * COSTLY, _ULP2,
       summary="x * tanh(softplus(x)).", floating=True)


def _product_rule(node: Node, ct: Node) -> list[Node]:
    a, b = node.inputs
    return [mul(ct, b), mul(ct, a)]


def _quotient_rule(node: Node, ct: Node) -> list[Node]:
    a, b = node.inputs
    return [div(ct, b), neg(div(mul(ct, node), b))]


def _power_rule(node: Node, ct: Node) -> list[Node]:
    x, y = node.inputs
    exponent = literal(y)
    if exponent is None:  # 0 ** 0 has slope 0, where 0 * 0 ** -1 would be NaN
        nothing = build("logical_and", build("equal", x, zeros_like(x)), build("equal", y, zeros_like(y)))
        slope = mul(mul(ct, y), build("pow", x, sub(where(nothing, _one(y), y), _one(y))))
    else:
        slope = zeros_like(ct) if exponent == 0 else mul(mul(ct, y), build("pow", x, sub(y, _one(y))))
    return [slope, _exponent_rule(node, ct)]


def _exponent_rule(node: Node, ct: Node) -> Node:
    """x ** y * log(x): NaN for a negative base, of which no function of y is left but at integers; 0 where the power is
    0, whatever the logarithm, and for 0 ** 0."""
    x, y = node.inputs
    zero = zeros_like(x)
    if x.dtype.is_complex:
        return where(build("equal", x, zero), zeros_like(ct), mul(mul(ct, node), build("log", x)))
    origin = build("logical_and", build("equal", x, zero), build("equal", y, zero))
    flat = build("logical_and", build("greater_equal", x, zero),
                 build("logical_or", build("equal", node, zero), origin))
    return where(flat, zeros_like(ct), mul(mul(ct, node), build("log", x)))


def _choice_rule(loses: str) -> Gradient:
    """The gradient goes to the winner, half to each at a tie, and to both where one is NaN."""

    def rule(node: Node, ct: Node) -> list[Node | None]:
        half, tie = mul(ct, constant_like(ct, 0.5)), build("equal", *node.inputs)
        return [where(tie, half, where(build(loses, one, other), zeros_like(ct), ct))
                for one, other in (node.inputs, node.inputs[::-1])]

    return rule


def _remainder_rule(node: Node, ct: Node) -> list[Node]:
    a, b = node.inputs
    return [ct, neg(mul(ct, build("floor_divide", a, b)))]


def _atan2_rule(node: Node, ct: Node) -> list[Node]:
    y, x = node.inputs
    squared = add(_square(x), _square(y))
    return [div(mul(ct, x), squared), neg(div(mul(ct, y), squared))]


def _copysign_rule(node: Node, ct: Node) -> list[Node | None]:
    x, _ = node.inputs
    return [mul(ct, mul(build("sign", x), build("sign", node))), None]


def _logaddexp_rule(node: Node, ct: Node) -> list[Node]:
    """The shares of both. Equal infinities have no difference: halves of +inf, none of -inf, as logsumexp has it."""
    a, b = node.inputs
    nothing = build("equal", node, constant_like(node, -math.inf))
    same = build("logical_and", build("equal", a, b), build("isinf", node))
    apart, ct = where(same, zeros_like(node), sub(a, b)), where(nothing, zeros_like(ct), ct)
    return [mul(ct, build("sigmoid", apart)), mul(ct, build("sigmoid", neg(apart)))]


_binary("add", "iufc", np.add, lambda n, ct: [ct, ct], properties=COMMUTES | LIFTS, summary="Sum, element by element.")
_binary("subtract", "iufc", np.subtract, lambda n, ct: [ct, neg(ct)], properties=LIFTS,
        summary="Difference, element by element.")
_binary("multiply", "iufc", np.multiply, _product_rule, properties=COMMUTES | LIFTS,
        summary="Product, element by element.")
_binary("multiply_from_zero", "f", special.multiply_from_zero, _product_rule, properties=COMMUTES)
_binary("divide", "fc", special.quiet(np.divide), _quotient_rule, 4, _ROUND, properties=LIFTS,
        summary="Quotient; integers divide as floats.", floating=True)
_binary("floor_divide", "iuf", special.floor_divide, _STEP, 2 * COSTLY,
        summary="Quotient rounded down, x % y being the rest; an integer divided by zero is 0.")
_binary("remainder", "iuf", special.remainder, _remainder_rule, 2 * COSTLY,
        summary="What is left of x1 / x2, with the sign of x2.")
_binary("pow", "iufc", special.power, _power_rule, 4 * COSTLY, _ULP2, autocast="full")
_binary("atan2", "f", np.arctan2, _atan2_rule, COSTLY, _ULP2, summary="The angle of the point (x2, x1).", floating=True)
_binary("hypot", "f", special.quiet(np.hypot),
        lambda n, ct: [mul(ct, div(n.inputs[0], n)), mul(ct, div(n.inputs[1], n))], COSTLY, _ULP2,
        summary="sqrt(x1*x1 + x2*x2) without overflow.", floating=True)
_binary("copysign", "f", np.copysign, _copysign_rule, summary="The magnitude of x1 with the sign of x2.", floating=True)
_binary("logaddexp", "f", special.quiet(np.logaddexp), _logaddexp_rule, 2 * COSTLY, _ULP2,
        summary="log(exp(x1) + exp(x2)) without overflow.", floating=True)
_binary("maximum", "iuf", special.maximum, _choice_rule("less"), properties=COMMUTES | LIFTS,
        summary="The larger of two; NaN wins.")
_binary("minimum", "iuf", special.minimum, _choice_rule("greater"), properties=COMMUTES | LIFTS,
        summary="The smaller of two; NaN wins.")
_binary("equal", "biufc", np.equal, _STEP, properties=COMMUTES | LIFTS, rule=to_bool, summary="x1 == x2.")
_binary("not_equal", "biufc", np.not_equal, _STEP, properties=COMMUTES | LIFTS, rule=to_bool, summary="x1 != x2.")
_binary("less", "iuf", np.less, _STEP, rule=to_bool, properties=LIFTS, summary="x1 < x2.")
_binary("less_equal", "iuf", np.less_equal, _STEP, rule=to_bool, properties=LIFTS, summary="x1 <= x2.")
_binary("greater", "iuf", np.greater, _STEP, rule=to_bool, properties=LIFTS, summary="x1 > x2.")
_binary("greater_equal", "iuf", np.greater_equal, _STEP, rule=to_bool, properties=LIFTS, summary="x1 >= x2.")
_binary("logical_and", "b", np.logical_and, _WHOLE, properties=COMMUTES, summary="Both true.")
_binary("logical_or", "b", np.logical_or, _WHOLE, properties=COMMUTES, summary="At least one true.")
_binary("logical_xor", "b", np.logical_xor, _WHOLE, properties=COMMUTES, summary="Exactly one true.")
_binary("bitwise_and", "biu", np.bitwise_and, _WHOLE, properties=COMMUTES, summary="Bits set in both.")
_binary("bitwise_or", "biu", np.bitwise_or, _WHOLE, properties=COMMUTES, summary="Bits set in either.")
_binary("bitwise_xor", "biu", np.bitwise_xor, _WHOLE, properties=COMMUTES, summary="Bits set in one.")
_binary("bitwise_left_shift", "iu", special.left_shift, _WHOLE,
        summary="Bits moved up; a shift by the width or more gives 0.")
_binary("bitwise_right_shift", "iu", special.right_shift, _WHOLE, summary="Bits moved down; the sign fills in.")

register(Op("nextafter", "elementwise", same("nextafter", "f"), lambda n, ct: [ct, None], special.reference_nextafter,
            numerics="a step of the dtype", properties=frozenset({"by dtype"}), arity=TWO,
            summary="The next float from x1 towards x2.", floating=True))

# -- where, cast, random bits ----------------------------------------------------------------------------------------
def _infer_where(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    mask, a, b = inputs
    _check_kinds("where", [mask], "b")
    _same_shape("where", inputs)
    if a.dtype is not b.dtype:
        raise fail(DTypeError, "where", f"dtypes {a.dtype} and {b.dtype} differ", "promote them first")
    return a


def _where_rule(node: Node, ct: Node) -> list[Node | None]:
    mask = node.inputs[0]
    return [None, where(mask, ct, zeros_like(ct)), where(mask, zeros_like(ct), ct)]


def _infer_cast(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    dtype: DType = attributes["dtype"]
    if inputs[0].dtype.is_complex and not dtype.is_complex:
        raise fail(DTypeError, "astype", f"{inputs[0].dtype} does not convert to {dtype}", "take real() or abs() first")
    return Spec(inputs[0].shape, dtype)


def _cast_rule(node: Node, ct: Node) -> list[Node | None]:
    source = node.inputs[0].dtype
    return [real_as(ct, source) if source.is_inexact and ct.dtype.is_inexact else None]


def _infer_threefry(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    _same_shape("random", inputs)
    if any(spec.dtype is not uint32 for spec in inputs):
        raise fail(DTypeError, "random", "keys and counters are uint32")
    return inputs[0]


WHERE = register(Op("where", "elementwise", _infer_where, _where_rule, lambda attributes, m, a, b: np.where(m, a, b),
                    properties=LIFTS, arity=THREE))
CAST = register(Op("cast", "elementwise", _infer_cast, _cast_rule, special.reference_cast, numerics=_ROUND,
                   arity=ONE))
THREEFRY = register(Op("threefry", "elementwise", _infer_threefry, _WHOLE,
                       lambda attributes, *x: special.threefry(*x), 2 * COSTLY, arity=THREE))

assert int32.itemsize == 4
