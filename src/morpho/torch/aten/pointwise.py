"""Elementwise operations: PyTorch's promotion, then one Morpho function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast, category, floating, promoted, tensor
from morpho.torch.aten.table import Context, op

# -- of one operand ----------------------------------------------------------------------------------------------------
_FLOATING: dict[str, Callable[[Any], Any]] = {  # integers become floats first
    "acos": mo.acos, "acosh": mo.acosh, "asin": mo.asin, "asinh": mo.asinh, "atan": mo.atan, "atanh": mo.atanh,
    "cos": mo.cos, "cosh": mo.cosh, "sin": mo.sin, "sinh": mo.sinh, "tan": mo.tan, "tanh": mo.tanh,
    "exp": mo.exp, "exp2": mo.exp2, "expm1": mo.expm1, "log": mo.log, "log2": mo.log2, "log10": mo.log10,
    "log1p": mo.log1p, "sqrt": mo.sqrt, "rsqrt": lambda x: mo.rsqrt(x), "reciprocal": mo.reciprocal,
    "sigmoid": lambda x: mo.reciprocal(mo.exp(-x) + 1) if x.dtype.is_complex else mo.sigmoid(x),
    "erf": mo.erf, "erfc": mo.erfc, "erfinv": lambda x: mo.erfinv(x),
    "lgamma": lambda x: mo.lgamma(x), "digamma": lambda x: mo.digamma(x), "i0": lambda x: mo.i0(x),
    "silu": mo.silu, "mish": mo.mish, "selu": mo.selu,
    "special_i0e": lambda x: mo.special.i0e(x), "special_i1": lambda x: mo.special.i1(x),
    "special_i1e": lambda x: mo.special.i1e(x), "special_ndtri": lambda x: mo.special.ndtri(x),
    "special_erfcx": lambda x: mo.special.erfcx(x), "special_bessel_j0": lambda x: mo.special.bessel_j0(x),
    "special_bessel_j1": lambda x: mo.special.bessel_j1(x),
}
_KEEPING: dict[str, Callable[[Any], Any]] = {  # the dtype stays
    "abs": mo.abs, "neg": mo.negative, "relu": mo.relu, "ceil": mo.ceil, "floor": mo.floor,
    "trunc": mo.trunc, "bitwise_not": mo.bitwise_invert, "square": mo.square, "positive": mo.positive,
}


def _real_only(x: Any, *_: Any, **__: Any) -> str | None:
    return "complex numbers" if x.dtype.is_complex else None


for _name, _function in _FLOATING.items():
    op(f"{_name}.default")(lambda x, f=_function: f(cast(x, floating(x.dtype))))
for _name, _function in _KEEPING.items():
    if _name == "bitwise_not":
        op("bitwise_not.default")(lambda x, f=_function: f(x))
    else:  # of a bool: itself, as of 0 and 1
        op(f"{_name}.default")(lambda x, f=_function: x if x.dtype is mo.bool else f(x))


@op("sign.default")
def sign(x: Tensor) -> Tensor:
    """NaN has the sign 0 in PyTorch."""
    if x.dtype is mo.bool or not x.dtype.is_float:
        return x if x.dtype is mo.bool else mo.sign(x)
    return mo.where(mo.isnan(x), mo.zeros((), dtype=x.dtype), mo.sign(x))


@op("conj_physical.default", "_conj.default", "_conj_physical.default")
def conj(x: Tensor) -> Tensor:
    return mo.conj(x) if x.dtype.is_complex else x


@op("round.default")
def round_half_even(x: Tensor) -> Tensor:
    return mo.round(x)


@op("round.decimals")
def round_decimals(x: Tensor, *, decimals: int = 0) -> Tensor:
    scale = 10.0 ** abs(decimals)
    return mo.round(x * scale) / scale if decimals >= 0 else mo.round(x / scale) * scale


@op("isnan.default")
def isnan(x: Tensor) -> Tensor:
    return mo.isnan(x) if category(x.dtype) >= 2 else mo.zeros(x.shape, dtype=mo.bool)


@op("isinf.default")
def isinf(x: Tensor) -> Tensor:
    return mo.isinf(x) if category(x.dtype) >= 2 else mo.zeros(x.shape, dtype=mo.bool)


@op("signbit.default")
def signbit(x: Tensor) -> Tensor:
    if category(x.dtype) == 0:
        return mo.zeros(x.shape, dtype=mo.bool)
    return mo.signbit(x) if category(x.dtype) >= 2 else mo.less(x, 0)


@op("angle.default", refuse=_real_only)
def angle(x: Tensor) -> Tensor:
    x = cast(x, floating(x.dtype))
    return mo.where(mo.isnan(x), x, mo.where(mo.less(x, 0), mo.full_like(x, mo.pi), mo.zeros_like(x)))


def _truth(x: Any) -> Any:
    return x if x.dtype is mo.bool else mo.not_equal(x, cast(0, x.dtype))


@op("logical_not.default")
def logical_not(x: Tensor) -> Tensor:
    return mo.logical_not(_truth(x))


@op("gelu.default")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return mo.gelu(x, approximate=approximate)


@op("elu.default")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    negative = mo.expm1(mo.minimum(x, 0.0) * input_scale) * alpha
    return mo.where(mo.greater(x, 0), x, negative) * scale


@op("leaky_relu.default")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return mo.where(mo.greater(x, 0), x, x * cast(negative_slope, x.dtype))


@op("hardtanh.default")
def hardtanh(x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    return mo.clip(x, cast(low, x.dtype), cast(high, x.dtype))


@op("softplus.default")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    if beta == 1 and threshold == 20:
        return mo.softplus(x)  # beyond 20 it is x to the last bit of float32
    scaled = x * beta
    return mo.where(mo.greater(scaled, threshold), x, mo.softplus(scaled) / beta)


# -- of two ------------------------------------------------------------------------------------------------------------
def _both(function: Callable[[Any, Any], Any], x: Any, y: Any, as_float: bool = False) -> Any:
    dtype = promoted(x, y)
    dtype = floating(dtype) if as_float else dtype
    x, y = cast(x, dtype), cast(y, dtype)
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = tensor(x, dtype)
    return function(x, y)


def _of_numbers(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """As `_both`, for functions of numbers: False and True are 0 and 1, and an order of bools is theirs."""
    if promoted(x, y) is not mo.bool:
        return _both(function, x, y)
    return function(tensor(x, mo.bool).astype(mo.uint8), tensor(y, mo.bool).astype(mo.uint8))


def _scaled(y: Any, alpha: Any) -> Any:
    if isinstance(alpha, int | float) and alpha == 1:
        return y
    return _both(mo.multiply, y, alpha) if isinstance(y, Tensor) else y * alpha


@op("add.Tensor", "add.Scalar")
def add(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    if promoted(x, y) is mo.bool:
        return _both(mo.logical_or, x, y)
    return _both(mo.add, x, _scaled(y, alpha))


@op("sub.Tensor", "sub.Scalar")
def sub(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return _both(mo.subtract, x, _scaled(y, alpha))


@op("rsub.Tensor", "rsub.Scalar")
def rsub(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return _both(mo.subtract, y, _scaled(x, alpha))


@op("mul.Tensor", "mul.Scalar")
def mul(x: Any, y: Any) -> Tensor:
    if promoted(x, y) is mo.bool:
        return _both(mo.logical_and, x, y)
    return _both(mo.multiply, x, y)


def _truncated(x: Any, y: Any) -> Any:
    if category(promoted(x, y)) >= 2:
        return mo.trunc(_both(mo.divide, x, y))
    floor = _both(mo.floor_divide, x, y)
    rest = _both(mo.subtract, x, _both(mo.multiply, floor, y))
    inexact = mo.logical_and(mo.not_equal(rest, 0), mo.less(floor, 0))
    return floor + mo.astype(inexact, floor.dtype)


@op("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode == "trunc":
        return _truncated(x, y)
    if rounding_mode == "floor":
        return _both(mo.floor_divide, x, y)
    return _both(mo.divide, x, y, as_float=True)


@op("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(x: Any, y: Any) -> Tensor:
    return _both(mo.remainder, x, y)


@op("fmod.Tensor", "fmod.Scalar")
def fmod(x: Any, y: Any) -> Tensor:
    return _both(lambda a, b: mo.fmod(a, b), x, y)


@op("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", context=True)
def power(context: Context, x: Any, y: Any) -> Tensor:
    dtype = context.dtype
    if isinstance(x, Tensor) and not isinstance(y, Tensor | mo.Dim) and not dtype.is_complex:
        x = cast(x, dtype)
        if y in (0, 0.0):
            return mo.ones_like(x)
        if y == 1:
            return x
        if y == 2:
            return mo.square(x)
        if y == 3:
            return mo.square(x) * x
        if y == 0.5 and dtype.is_float:
            return mo.sqrt(x)
        if y == -0.5 and dtype.is_float:
            return mo.rsqrt(x)
    return mo.pow(tensor(x, dtype), tensor(y, dtype))


_FLOATING_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": mo.atan2, "xlogy": lambda x, y: mo.xlogy(x, y), "logaddexp": mo.logaddexp,
    "special_zeta": lambda x, y: mo.special.zeta(x, y),
}
_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "maximum": mo.maximum, "minimum": mo.minimum, "fmax": lambda x, y: mo.fmax(x, y),
    "fmin": lambda x, y: mo.fmin(x, y), "hypot": mo.hypot, "nextafter": mo.nextafter,
    "gcd": lambda x, y: mo.gcd(x, y), "lcm": lambda x, y: mo.lcm(x, y),
}
_COMPARISONS = {"eq": mo.equal, "ne": mo.not_equal, "lt": mo.less, "le": mo.less_equal, "gt": mo.greater,
                "ge": mo.greater_equal}
_BITS = {"bitwise_and": mo.bitwise_and, "bitwise_or": mo.bitwise_or, "bitwise_xor": mo.bitwise_xor,
         "bitwise_left_shift": mo.bitwise_left_shift, "bitwise_right_shift": mo.bitwise_right_shift}
_LOGICAL = {"logical_and": mo.logical_and, "logical_or": mo.logical_or, "logical_xor": mo.logical_xor}

for _name, _pair in _FLOATING_PAIRS.items():
    op("xlogy.Tensor" if _name == "xlogy" else f"{_name}.default")(
        lambda x, y, f=_pair: _both(f, x, y, as_float=True))
for _name, _pair in _PAIRS.items():
    op(f"{_name}.default")(lambda x, y, f=_pair: _of_numbers(f, x, y))
for _name, _pair in _COMPARISONS.items():
    op(f"{_name}.Tensor", f"{_name}.Scalar")(lambda x, y, f=_pair: _of_numbers(f, x, y))
for _name, _pair in _BITS.items():
    op(f"{_name}.Tensor", f"{_name}.Scalar", f"{_name}.Tensor_Scalar", f"{_name}.Scalar_Tensor")(
        lambda x, y, f=_pair: _both(f, x, y))
for _name, _pair in _LOGICAL.items():
    op(f"{_name}.default")(lambda x, y, f=_pair: f(_truth(x), _truth(y)))


@op("copysign.Tensor", "copysign.Scalar")
def copysign(x: Any, y: Any) -> Tensor:
    return _both(lambda a, b: mo.copysign(a, tensor(b, a.dtype)), x, y, as_float=True)


# -- of more -----------------------------------------------------------------------------------------------------------
@op("clamp.default", "clamp.Tensor", context=True)
def clamp(context: Context, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    dtype = mo.uint8 if context.dtype is mo.bool else context.dtype  # bools are ordered as 0 and 1
    x = cast(x, dtype)
    if low is not None:
        x = mo.maximum(x, cast(low, dtype))
    return x if high is None else mo.minimum(x, cast(high, dtype))


@op("where.self")
def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    dtype = promoted(x, y)
    return mo.where(_truth(condition), cast(x, dtype), cast(y, dtype))


@op("lerp.Tensor", "lerp.Scalar")
def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """From the nearer end, as PyTorch does: it is reached exactly, and an infinite one stays."""
    weight, step = cast(weight, x.dtype), end - x
    near, far = x + step * weight, end - step * (1 - weight)
    if isinstance(weight, Tensor):
        return mo.where(mo.less(mo.abs(weight), 0.5), near, far)
    return near if abs(weight) < 0.5 else far


@op("addcmul.default")
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return add(x, mul(_scaled(a, value), b))


@op("addcdiv.default")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return add(x, _scaled(div(a, b), value))


@op("prims.convert_element_type.default")
def convert(x: Tensor, dtype: Any) -> Tensor:
    return cast(x, dtype)


@op("_to_copy.default", context=True)
def to_copy(context: Context, x: Tensor, **_: Any) -> Tensor:
    if context.dtype is mo.bool:
        return _truth(x)
    if x.dtype.is_complex and not context.dtype.is_complex:
        x = mo.real(x)
    return cast(x, context.dtype)


@op("real.default")
def real(x: Tensor) -> Tensor:
    return mo.real(x) if x.dtype.is_complex else x


@op("imag.default")
def imag(x: Tensor) -> Tensor:
    return mo.imag(x)


@op("complex.default")
def make_complex(x: Tensor, y: Tensor) -> Tensor:
    dtype = mo.complex128 if x.dtype is mo.float64 else mo.complex64
    return mo.astype(x, dtype) + mo.astype(y, dtype) * 1j


@op("view_as_real.default")
def view_as_real(x: Tensor) -> Tensor:
    return mo.stack([mo.real(x), mo.imag(x)], axis=-1)


@op("view_as_complex.default")
def view_as_complex(x: Tensor) -> Tensor:
    return make_complex(x[..., 0], x[..., 1])
