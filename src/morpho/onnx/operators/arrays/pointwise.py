"""Arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, dtype_of, is_static, is_symbolic, same_size, scalar, space, tensor

FAMILY = Family("pointwise")

UNARY = {"Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
         "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
         "Log": "log", "Neg": "negative", "Round": "round", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
         "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh", "IsNaN": "isnan", "BitwiseNot": "bitwise_invert"}
# Exact in NumPy as in Morpho: these may be computed on shapes while tracing.
EXACT = {"abs", "ceil", "floor", "negative", "round", "sign", "sqrt", "isnan"}


def _unary(name: str) -> Callable[..., Any]:
    def apply(call: Call, x: Any) -> Any:
        if name in EXACT and is_static(x):
            return getattr(np, {"negative": "negative"}.get(name, name))(x)
        return getattr(mo, name)(tensor(x))

    return apply


for _op, _name in UNARY.items():
    FAMILY.op(_op)(_unary(_name))


def aligned(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands; before opset 7 the second one may stand at an axis of the first."""
    axis = call.get("axis")
    if call.version < 7 and axis is not None and call.get("broadcast"):
        trailing = len(a.shape) - axis - len(b.shape)
        b = space(b).reshape(b, (*b.shape, *[1] * trailing))
    return a, b


def _binary(name: str) -> Callable[..., Any]:
    def apply(call: Call, a: Any, b: Any) -> Any:
        a, b = aligned(call, a, b)
        if is_static(a, b):
            if a.dtype == object or b.dtype == object:
                return getattr(np, name)(a.astype(object), b.astype(object))
            return getattr(np, name)(a, b)
        return getattr(mo, name)(tensor(a), tensor(b))

    return apply


for _op, _name in {"Add": "add", "Sub": "subtract", "Mul": "multiply", "And": "logical_and", "Or": "logical_or",
                   "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
                   "BitwiseXor": "bitwise_xor"}.items():
    FAMILY.op(_op)(_binary(_name))


@FAMILY.op("Not")
def logical_not(call: Call, x: Any) -> Any:
    return space(x).logical_not(x)


@FAMILY.op("Div")
def divide(call: Call, a: Any, b: Any) -> Any:
    """Integers are divided towards zero."""
    a, b = aligned(call, a, b)
    if is_static(a, b) and object in (a.dtype, b.dtype):
        return np.floor_divide(a.astype(object), b.astype(object))
    xp = space(a, b)
    if not dtype_of(a).is_integer:
        with np.errstate(divide="ignore", invalid="ignore"):
            return xp.divide(tensor(a), tensor(b)) if xp is mo else np.divide(a, b)
    if xp is mo:
        a, b = tensor(a), tensor(b)
    elif not np.all(b):
        raise call.error("a shape is divided by zero")
    quotient = xp.floor_divide(a, b)
    if dtype_of(a).kind == "u":
        return quotient
    inexact = xp.not_equal(xp.multiply(quotient, b), a) & xp.less(quotient, scalar(0, quotient))
    return quotient + cast(inexact, dtype_of(a))


@FAMILY.op("Mod")
def modulo(call: Call, a: Any, b: Any) -> Any:
    if call.get("fmod", 0):
        return np.fmod(a, b) if is_static(a, b) else mo.fmod(tensor(a), tensor(b))
    return np.remainder(a, b) if is_static(a, b) else mo.remainder(tensor(a), tensor(b))


@FAMILY.op("Pow")
def power(call: Call, base: Any, exponent: Any) -> Any:
    base, exponent = aligned(call, base, exponent)
    kind, other = dtype_of(base), dtype_of(exponent)
    if is_static(base, exponent) and kind.is_float:
        with np.errstate(all="ignore"):
            return np.power(base, exponent.astype(base.dtype))
    if is_static(exponent) and exponent.size == 1 and kind.is_float:
        number = float(exponent.reshape(()))
        if number == 2.0 and exponent.ndim <= len(base.shape):
            return mo.square(tensor(base))
        if number == 0.5 and exponent.ndim <= len(base.shape):
            return mo.sqrt(tensor(base))
    base, exponent = tensor(base), tensor(exponent)
    if kind is other:
        return mo.pow(base, exponent)
    if kind.is_float:
        return mo.pow(base, cast(exponent, kind))
    if other.is_integer:
        return mo.pow(base, cast(exponent, kind))
    return cast(mo.pow(cast(base, mo.float64), cast(exponent, mo.float64)), kind)


@FAMILY.op("BitShift")
def shift(call: Call, x: Any, count: Any) -> Any:
    left = call.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return (mo.bitwise_left_shift if left else mo.bitwise_right_shift)(tensor(x), tensor(count))


def _compare(name: str) -> Callable[..., Any]:
    def apply(call: Call, a: Any, b: Any) -> Any:
        a, b = aligned(call, a, b)
        if is_static(a, b):
            by_bounds = name == "equal" and (is_symbolic(a) or is_symbolic(b))
            found = np.frompyfunc(same_size, 2, 1)(a, b) if by_bounds else getattr(np, name)(a, b)
            return np.asarray(found, np.bool_)
        return getattr(mo, name)(tensor(a), tensor(b))

    return apply


for _op, _name in {"Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
                   "LessOrEqual": "less_equal"}.items():
    FAMILY.op(_op)(_compare(_name))


@FAMILY.op("IsInf")
def is_infinite(call: Call, x: Any) -> Any:
    negative, positive = call.get("detect_negative", 1), call.get("detect_positive", 1)
    x = tensor(x)
    if negative and positive:
        return mo.isinf(x)
    if not negative and not positive:
        return mo.zeros(x.shape, dtype=mo.bool)
    return mo.isinf(x) & ((x < 0) if negative else (x > 0))


@FAMILY.op("Where")
def where(call: Call, condition: Any, a: Any, b: Any) -> Any:
    if is_static(condition, a, b):
        return np.where(condition, a, b)
    return mo.where(tensor(condition), tensor(a), tensor(b))


def _folded(name: str) -> Callable[..., Any]:
    def apply(call: Call, *values: Any) -> Any:
        if not values:
            raise call.error("it has no inputs")
        if is_static(*values):
            return reduce(getattr(np, name), values)
        return reduce(getattr(mo, name), map(tensor, values))

    return apply


for _op, _name in {"Max": "maximum", "Min": "minimum", "Sum": "add"}.items():
    FAMILY.op(_op)(_folded(_name))


@FAMILY.op("Mean")
def mean(call: Call, *values: Any) -> Any:
    return reduce(mo.add, map(tensor, values)) / len(values)


@FAMILY.op("Clip")
def clip(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """Bounds are attributes before opset 11; where the lower is above the upper one, the upper holds."""
    if call.version < 11:
        low, high = (None if (bound := call.get(name)) is None else scalar(bound, x) for name in ("min", "max"))
    if not is_static(x):
        low, high = (None if bound is None else tensor(bound) for bound in (low, high))
    xp = space(x, low, high)
    if xp is mo:
        x = tensor(x)
    if low is not None:
        x = xp.maximum(x, low)
    return x if high is None else xp.minimum(x, high)


@FAMILY.op("Reciprocal")
def reciprocal(call: Call, x: Any) -> Any:
    return scalar(1, tensor(x)) / tensor(x)


@FAMILY.op("Identity")
def identity(call: Call, x: Any) -> Any:
    return x
