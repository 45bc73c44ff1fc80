"""The rules of docs/numerics.md once more, in NumPy and independent of the kernels, and errors in last places.

Sums, products, scans and matrix products have one order, so native code must agree with these to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16, float16, float32, float64
from morpho.ir.node import Node
from morpho.ops.neural.convolution import window_matrix
from morpho.ops.special import round_bfloat16

Array = Any
LANES, BLOCK = 64, 4096
WIDE = np.longdouble
HAS_QUAD = np.finfo(np.longdouble).nmant > 100  # a product of two float64 is exact in it

_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add, "prod": np.multiply, "any": np.logical_or, "all": np.logical_and}


def _extreme(name: str) -> Callable[[Array, Array], Array]:
    from morpho.ops import special

    return special.maximum if name == "max" else special.minimum


def tree(name: str, row: Array, identity: Any) -> Array:
    """Rule 4 on one row, in the dtype of `row`."""
    combine = _COMBINE.get(name) or _extreme(name)
    one = row.dtype.type(identity)
    stack: list[tuple[int, Array]] = []  # (how many blocks, value)
    with np.errstate(all="ignore"):
        for start in range(0, len(row), BLOCK):
            part = row[start:start + BLOCK]
            lanes = np.full(LANES, one)
            for first in range(0, len(part), LANES):
                piece = part[first:first + LANES]
                lanes[:len(piece)] = combine(lanes[:len(piece)], piece)
            while len(lanes) > 1:
                half = len(lanes) // 2
                lanes = combine(lanes[:half], lanes[half:])
            count, value = 1, lanes[0]
            while stack and stack[-1][0] == count:
                earlier = stack.pop()
                count, value = 2 * count, combine(earlier[1], value)
            stack.append((count, value))
        total = one
        for _, value in reversed(stack):
            total = combine(value, total)
    return total


@np.errstate(all="ignore")  # a NaN may have any bits, and some trap in a cast
def reduce_by_rule(name: str, x: Array, axes: tuple[int, ...], dtype: DType, identity: Any) -> Array:
    """A reduction that keeps its axes, by rule 4; `x` holds numbers (bfloat16 widened). Rounded to `dtype`."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    moved = np.transpose(x, (*rest, *axes)).reshape(*[x.shape[axis] for axis in rest], -1)
    work = moved.astype(dtype.compute.numpy)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    rows = work.reshape(int(np.prod(work.shape[:-1], dtype=np.int64)), work.shape[-1])
    result = np.array([tree(name, row, identity) for row in rows], work.dtype).reshape(shape)
    return rounded(result, dtype) if name in ("sum", "prod") else result


@np.errstate(all="ignore")
def scan_by_rule(name: str, x: Array, axis: int, dtype: DType) -> Array:
    """Rule 5: one chain in index order; half floats carry float32 and round each element."""
    work = np.moveaxis(x.astype(dtype.compute.numpy), axis, -1)
    result = np.empty_like(work)
    total = np.full(work.shape[:-1], -0.0 if name == "sum" else 1, work.dtype)  # -0 + x is x, also where x is -0
    with np.errstate(all="ignore"):
        for i in range(work.shape[-1]):
            total = total + work[..., i] if name == "sum" else total * work[..., i]
            result[..., i] = rounded(total, dtype)
    return np.moveaxis(result, -1, axis)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once."""
    if a.dtype == np.float64 and not HAS_QUAD:
        total, known = _fma_of_parts(a, b, c)
        total[~known] = [_exact_fma(*rare) for rare in zip(a[~known], b[~known], c[~known], strict=True)]
        return total
    product, other = a.astype(WIDE) * b.astype(WIDE), c.astype(WIDE)  # the product is exact
    total = product + other
    part = total - product
    error = (product - (total - part)) + (other - part)
    # A total that looks like a tie is none if something was lost: a step towards what was lost decides it.
    towards = np.where(error > 0, np.inf, -np.inf).astype(WIDE)
    lost = np.isfinite(total) & np.isfinite(error) & (error != 0)
    return np.where(lost, np.nextafter(total, towards), total).astype(a.dtype)


@np.errstate(all="ignore")
def _fma_of_parts(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """By error-free sums and products in float64, and where that holds: not near overflow and underflow.

    What the sum of product and addend loses is added up rounded to odd, so that the last rounding is the only one
    (Boldo and Melquiond 2008).
    """
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    rest = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    middle, low = _two_sum(c, rest)
    high, more = _two_sum(product, middle)
    odd, lost = _two_sum(low, more)
    is_even = odd.view(np.int64) & 1 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    total = high + np.where((lost != 0) & is_even, np.nextafter(odd, towards), odd)
    known = np.isfinite(total) & (total != 0)
    for x in (a, b, c):
        known &= (x == 0) | (np.abs(np.frexp(x)[1]) < 400)
    return total, known & (product != 0)


def _halves(x: Array) -> tuple[Array, Array]:
    """Veltkamp's: two numbers of 26 bits whose sum is x."""
    large = x * (2.0**27 + 1)
    high = large - (large - x)
    return high, x - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _exact_fma(a: float, b: float, c: float) -> float:
    """By rational arithmetic, where no wider float holds the product."""
    from fractions import Fraction

    plain = float(np.float64(a) * np.float64(b) + np.float64(c))
    if not np.isfinite(c) and np.isfinite(a) and np.isfinite(b):
        return c  # the product is a number, even where float64 has none so large
    if not all(np.isfinite((a, b, c))):
        return plain
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return plain
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


@np.errstate(all="ignore")
def matmul_by_rule(a: Array, b: Array, dtype: DType, flushes: bool = False) -> Array:
    """Rule 6 on two matrices of numbers; matrix units take subnormal ones, also in between, for zero (`flushes`)."""

    def kept(x: Array) -> Array:
        return np.where(np.abs(x) < 2.0**-126, np.float32(0), x) if flushes else x

    if dtype.is_integer:
        with np.errstate(all="ignore"):
            return np.matmul(a, b)
    work = dtype.compute.numpy
    a, b = kept(a.astype(work)), kept(b.astype(work))
    shape = (a.shape[0], b.shape[1])

    def step(total: Array, k: int) -> Array:
        left, right = np.broadcast_to(a[:, k, None], shape), np.broadcast_to(b[None, k], shape)
        return kept(fma(left, right, total))

    total = np.zeros(shape, work)
    with np.errstate(all="ignore"):
        if dtype is not bfloat16:
            for k in range(a.shape[1]):
                total = step(total, k)
            return rounded(total, dtype)
        for start in range(0, a.shape[1], 32):
            chains = [np.zeros(shape, work), np.zeros(shape, work)]
            for k in range(start, min(start + 32, a.shape[1])):
                chains[k % 2] = step(chains[k % 2], k)
            total = kept(total + kept(chains[0] + chains[1]))
    return rounded(total, dtype)


@np.errstate(all="ignore")
def conv_by_rule(node: Node, x: Array, weight: Array, dtype: DType) -> Array:
    """Rule 6 on the windows of images: k is (channel, row, column) of the kernel, zeros stand for the padding."""
    groups, count = node["groups"], weight.shape[0] // node["groups"]
    windows = window_matrix(node.attributes, x, weight.shape)
    found = np.zeros((x.shape[0], weight.shape[0], windows.shape[2]), dtype.compute.numpy)
    for image in range(x.shape[0]):
        for group in range(groups):
            kernels = weight[group * count:(group + 1) * count].reshape(count, windows.shape[3])
            found[image, group * count:(group + 1) * count] = matmul_by_rule(kernels, windows[image, group].T, dtype)
    sizes = (x.shape[0], *node.shape[1:3])
    return found.reshape(*sizes, windows.shape[2] // sizes[2])


def rounded(x: Array, dtype: DType) -> Array:
    """Numbers of `dtype`, in the form the reference computes with."""
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return round_bfloat16(x)
        if dtype is float16:
            return x.astype(np.float16).astype(np.float32)
    return x


# -- errors in units of the last place -------------------------------------------------------------------------------
FORMATS = {float16: (10, -14, 16), bfloat16: (7, -126, 128), float32: (23, -126, 128), float64: (52, -1022, 1024)}


def ulps(got: Array, true: Array, dtype: DType) -> Array:
    """|got - true| in last places of `true` in `dtype`; wrong NaN or infinity is infinite.

    `true` is wider. Past the largest finite number infinity stands for 2**maxexp, as rounding has it.
    """
    mantissa, least, most = FORMATS[dtype]
    true = true.astype(WIDE)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(true)[1] - 1, least, most - 1)
        unit = np.ldexp(WIDE(1), exponent - mantissa)
        wide = got.astype(WIDE)
        top = np.ldexp(WIDE(1), most)
        overflow = np.isinf(wide) & (np.abs(true) >= top - unit) & (np.sign(wide) == np.sign(true))
        error = np.abs(wide - true) / unit
        error = np.where(overflow | (wide == true) | (np.isnan(wide) & np.isnan(true)), 0, error)
    return np.where(np.isnan(error), np.inf, error).astype(np.float64)


# -- functions in a wider format -------------------------------------------------------------------------------------
_NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
          "atanh": "arctanh", "atan2": "arctan2", "pow": "power"}
_LIMITS = {"gelu": 1, "gelu_tanh": 1, "silu": 1, "mish": 1}  # x f(x): -0.0 at minus infinity


def _precise(name: str, x: float) -> Any:
    """Functions that NumPy lacks, by mpmath."""
    import mpmath as m

    x = m.mpf(x)
    if name == "erf":
        return m.erf(x)
    if name == "erfc":
        return m.erfc(x)
    if name == "gelu":
        return x * m.erfc(-x / m.sqrt(2)) / 2
    if name == "gelu_slope":
        return m.erfc(-x / m.sqrt(2)) / 2 + x * m.exp(-x * x / 2) / m.sqrt(2 * m.pi)
    if name == "gelu_tanh":
        return x / (1 + m.exp(-2 * m.sqrt(2 / m.pi) * (x + m.mpf("0.044715") * x**3)))
    if name == "sigmoid":
        return 1 / (1 + m.exp(-x))
    if name == "silu":
        return x / (1 + m.exp(-x))
    if name == "softplus":
        return m.log1p(m.exp(x)) if x < 500 else x
    if name == "mish":
        return x * m.tanh(m.log1p(m.exp(x))) if x < 500 else x
    raise KeyError(name)


_AT_INFINITY = {"gelu_slope": (-0.0, 1), "erf": (-1, 1),
                "erfc": (2, 0), "gelu": (-0.0, math.inf), "gelu_tanh": (-0.0, math.inf),
                "sigmoid": (0, 1), "silu": (-0.0, math.inf), "softplus": (0, math.inf), "mish": (-0.0, math.inf)}


def _one(name: str, x: float) -> Any:
    import mpmath

    if math.isnan(x):
        return WIDE(x)
    if math.isinf(x):
        return WIDE(_AT_INFINITY[name][int(x > 0)])
    if (x == 0 and name in _LIMITS) or (x == 0 and name == "erf"):
        return WIDE(x)
    if abs(x) > 1e5:  # every one of these has reached its limit long before
        low, high = _AT_INFINITY[name]
        return WIDE(low) if x < 0 else WIDE(x) if math.isinf(high) else WIDE(high)
    with mpmath.workprec(200):
        value = _precise(name, x)
        high = float(value)
        if math.isinf(high) or high == 0:
            return WIDE(high)
        return WIDE(high) + WIDE(float(value - mpmath.mpf(high)))


def wide_function(name: str, arrays: list[Array]) -> Array:
    """A polynomial op in `longdouble` from numbers."""
    if name in _AT_INFINITY:
        flat = arrays[0].reshape(-1)
        return np.array([_one(name, float(x)) for x in flat], WIDE).reshape(arrays[0].shape)
    with np.errstate(all="ignore"):
        return getattr(np, _NUMPY.get(name, name))(*[array.astype(WIDE) for array in arrays])


def identity_of(name: str, dtype: DType) -> Any:
    """What rule 4 starts with."""
    if name in ("sum", "any"):
        return 0
    if name in ("prod", "all"):
        return 1
    if dtype.is_float:
        return -math.inf if name == "max" else math.inf
    info = np.iinfo(dtype.numpy)
    return info.min if name == "max" else info.max
