"""NumPy meanings that NumPy does not have: the definitions the kernels are checked against, slow and plain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base.dtypes import bfloat16, float16

Array = Any


def multiply_from_zero(a: Array, b: Array) -> Array:
    """fma(a, b, +0.0), a chain of one product: as a * b, but an exact zero is +0.0; one by underflow keeps its sign."""
    with np.errstate(all="ignore"):
        found = a * b
        return np.where((a == 0) | (b == 0), found + found.dtype.type(0), found)


def quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """The same function without NumPy's warnings: infinities and NaN are results here, not accidents."""

    def call(*arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return call


def _wide(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A scalar function of `math` over an array, in float64, rounded to the input's dtype."""
    vector = np.vectorize(function, otypes=[np.float64])
    return lambda x: vector(np.asarray(x, np.float64)).astype(x.dtype) if np.size(x) else np.asarray(x)


def _gelu(x: float) -> float:
    if x == -math.inf:
        return -0.0
    return 0.5 * x * math.erfc(-x / math.sqrt(2)) if x < 0 else 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(max(x, -800.0)) / (1 + math.exp(max(x, -800.0)))


def _softplus(x: float) -> float:
    return x if math.isnan(x) else max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _silu(x: float) -> float:
    return -0.0 if x == -math.inf else x * _sigmoid(x)


def _gelu_slope(x: float) -> float:
    if math.isinf(x):
        return 1.0 if x > 0 else -0.0
    return 0.5 * math.erfc(-x * math.sqrt(0.5)) + x * math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _gelu_tanh(x: float) -> float:
    if math.isinf(x):
        return x if x > 0 else -0.0
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3) if abs(x) < 1e60 else math.copysign(1e9, x)
    return x * _sigmoid(2 * inner)  # 0.5 (1 + tanh(u)) = sigmoid(2u), without the cancellation


def _mish(x: float) -> float:
    return -0.0 if x == -math.inf else x * math.tanh(_softplus(x))


erf, erfc = _wide(math.erf), _wide(math.erfc)
gelu, gelu_tanh, silu, mish = _wide(_gelu), _wide(_gelu_tanh), _wide(_silu), _wide(_mish)
gelu_slope = _wide(_gelu_slope)
sigmoid, softplus = _wide(_sigmoid), _wide(_softplus)


def sign(x: Array) -> Array:
    return np.sign(x)


def maximum(a: Array, b: Array) -> Array:
    """NaN wins; +0.0 is larger than -0.0."""
    result = np.maximum(a, b)
    if result.dtype.kind == "f":
        result = np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), result)
    return result


def minimum(a: Array, b: Array) -> Array:
    result = np.minimum(a, b)
    if result.dtype.kind == "f":
        result = np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), result)
    return result


@quiet
def floor_divide(a: Array, b: Array) -> Array:
    """Rounds down, as Python does. Integers: 0 for a zero divisor, and the least value by -1 wraps."""
    return np.floor_divide(a, b)


@quiet
def remainder(a: Array, b: Array) -> Array:
    """The sign of the divisor; 0 for a zero integer divisor."""
    return np.remainder(a, b)


@quiet
def power(a: Array, b: Array) -> Array:
    """Integers wrap; a negative integer exponent is 1, -1 or 0 as the exact result rounds toward zero."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    result = np.power(a, np.maximum(b, 0))
    if a.dtype.kind == "i":
        odd = (b & 1).astype(bool)
        inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(a.dtype)
        result = np.where(b < 0, inverse, result)
    return result.astype(a.dtype)


@quiet
def left_shift(a: Array, b: Array) -> Array:
    """Shifts by the width or more give 0, as do negative ones."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0).astype(a.dtype)), 0).astype(a.dtype)


@quiet
def right_shift(a: Array, b: Array) -> Array:
    """Arithmetic for signed; shifts by the width or more leave only the sign."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    full = np.where(a < 0, -1, 0).astype(a.dtype) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(inside, np.right_shift(a, np.where(inside, b, 0).astype(a.dtype)), full).astype(a.dtype)


def round_bfloat16(x: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even, kept as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32)
    rounded = np.where(np.isnan(x), np.uint32(0x7FC00000), rounded)
    return rounded.view(np.float32).reshape(np.shape(x))


def reference_nextafter(attributes: Any, x: Array, y: Array) -> Array:
    """The neighbour of x towards y among the numbers of `dtype`, which may be held in a wider one."""
    dtype = attributes.get("dtype")
    if dtype is float16:
        x, y = x.astype(np.float16), y.astype(np.float16)
        return np.where(x == y, y, np.nextafter(x, y))  # of zeros NumPy gives x, here alone
    return _next_bfloat16(x, y) if dtype is bfloat16 else np.nextafter(x, y)


def _next_bfloat16(x: Array, y: Array) -> Array:
    """On float32 arrays of bfloat16 numbers, whose last place is bit 16."""
    bits, up, least = np.ascontiguousarray(x).view(np.int32).reshape(np.shape(x)), y > x, 1 << 16
    moved = bits + np.where(up == (bits >= 0), least, -least).astype(np.int32)
    from_zero = np.where(up, least, least - (1 << 31)).astype(np.int32)
    found = np.where(x == 0, from_zero, moved).view(np.float32)
    return np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), np.where(x == y, y, found))


@quiet
def reference_cast(attributes: Any, x: Array) -> Array:
    """Floats become integers by truncation, saturating, NaN to 0; integers wrap; anything non-zero is True."""
    target = attributes["dtype"]
    x = np.asarray(x)
    if target.kind == "b":
        return x != 0
    if target.is_integer and x.dtype.kind == "f":
        info = np.iinfo(target.numpy)
        cut = np.trunc(np.where(np.isnan(x), 0, x)).astype(np.float64)
        low, high = cut <= float(info.min), cut >= float(info.max)
        whole = np.where(low | high, 0, cut).astype(target.numpy)
        return np.where(high, info.max, np.where(low, info.min, whole)).astype(target.numpy)
    return x.astype(target.compute.numpy)


def threefry(key0: Array, key1: Array, counter: Array) -> Array:
    """The first word of Threefry-2x32 with 20 rounds at (counter, 0) under the key (key0, key1)."""
    k0, k1 = np.asarray(key0, np.uint32), np.asarray(key1, np.uint32)
    keys: tuple[Array, ...] = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    with np.errstate(over="ignore"):
        x0: Array = np.asarray(counter, np.uint32) + keys[0]
        x1: Array = np.zeros_like(x0) + keys[1]
        for group in range(5):
            for r in rotations[group % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0
