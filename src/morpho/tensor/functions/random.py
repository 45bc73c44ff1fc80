"""`mo.random`: counter-based random numbers with keys.

A draw is a pure function: element i depends on the key and on i, not on a hidden state, the shape, the number of
threads or the machine. Hence recomputing, batching and sharding repeat the same numbers:

>>> k = mo.random.key(7)
>>> whole = mo.random.uniform(k, (1000,))
>>> part = mo.random.uniform(k, (10,), start=500)           # elements 500..509 of the same draw, made elsewhere
>>> first, second = mo.random.split(k)                      # independent keys; use each for one purpose only

A stack of keys, of shape (..., 2), draws a stack of results, each as its key alone would. The numbers are those of
Threefry-2x32 with 20 rounds (Salmon et al., 2011) at the counter i; a second word of an element comes from the key
with its second half changed by a fixed number, and `split` uses another such number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.checks import shown
from morpho.base.dims import Shape, is_static, product
from morpho.base.dtypes import DType, as_dtype, bfloat16, float16, float32, float64, int64, uint32, uint64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_sizes, normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, constant, constant_like, expand, mul, reshape, sub
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar, rounded
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["key", "split", "bits", "uniform", "normal", "randint", "bernoulli", "permutation"]

_SECOND, _SPLIT = 0x9E3779B9, 0x85EBCA6B  # lanes: what the second half of the key is changed by
MOST_ELEMENTS = 1 << 32


def __dir__() -> list[str]:
    return __all__


def key(seed: int, /) -> Tensor:
    """A key from a number of 0..2**64-1: its two 32-bit halves, as a uint32 tensor of shape (2,). Other numbers are an
    error, so that no two seeds give the same key.

    >>> mo.random.key((3 << 32) + 5).tolist()
    [3, 5]
    """
    number = as_integer(seed, "random.key", "the seed")
    if not 0 <= number < 1 << 64:
        raise fail(ValueFault, "random.key", f"the seed {shown(number)} is not in 0..2**64-1",
                   "take it modulo 2**64, or hash what is longer")
    return asarray(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32))


def _halves(name: str, key: Any) -> tuple[Node, Node]:
    node = as_node(key, name)
    if node.dtype is not uint32 or not node.shape or node.shape[-1] != 2:
        raise fail(ArgumentError, name, f"{node.dtype}{node.shape} is not a key", "make one with mo.random.key(seed)")
    rank = len(node.shape)
    halves = []
    for position in (0, 1):
        starts = (0,) * (rank - 1) + (position,)
        part = build("slice", node, starts=starts, sizes=(*node.shape[:-1], 1), steps=(1,) * rank)
        halves.append(reshape(part, node.shape[:-1]))
    return halves[0], halves[1]


def _counters(name: str, shape: Shape, start: int) -> Node:
    """The number of each element in row-major order, from `start`."""
    size, start = product(shape), as_integer(start, name, "start")
    if is_static(shape) and not 0 <= start <= MOST_ELEMENTS - size:
        raise fail(ValueFault, name, f"elements {start}..{start + size} leave the 2**32 that one key gives",
                   "split the key and draw in parts")
    line = build("iota", shape=(size,), axis=0, dtype=int64)
    if start:
        line = add(line, expand(constant(start, int64), line.shape))
    return reshape(cast(line, uint32), shape)


def _words(name: str, key: Any, shape: Shape, start: int, lane: int = 0) -> Node:
    """32 random bits per element."""
    first, second = _halves(name, key)
    if lane:
        second = build("bitwise_xor", second, constant_like(second, lane))
    full = (*first.shape, *shape)
    spread = [expand(reshape(half, (*half.shape, *[1] * len(shape))), full) for half in (first, second)]
    return build("threefry", *spread, expand(_counters(name, shape, start), full))


def split(key: Any, n: int = 2, /) -> Tensor:
    """n new keys, of shape (n, 2), independent of each other and of what `key` itself draws.

    >>> key = mo.random.key(0)
    >>> left, right = mo.random.split(key)
    >>> left.shape
    (2,)
    """
    count = as_integer(n, "random.split", "the number of keys")
    if count < 0:
        raise fail(ArgumentError, "random.split", f"{count} keys cannot be made")
    return Tensor.of_node(_words("random.split", key, (count, 2), 0, _SPLIT))


def _double_words(name: str, key: Any, shape: Shape, start: int) -> Node:
    high, low = (cast(_words(name, key, shape, start, lane), uint64) for lane in (0, _SECOND))
    return build("bitwise_or", build("bitwise_left_shift", high, constant_like(high, 32)), low)


def bits(key: Any, shape: Any = (), *, dtype: Any = uint32, start: int = 0) -> Tensor:
    """Random bits as unsigned integers.

    >>> mo.random.bits(mo.random.key(0), (4,)).dtype
    uint32
    """
    target, sizes = as_dtype(dtype), as_sizes(shape, "random.bits")
    if target.kind != "u":
        raise fail(DTypeError, "random.bits", f"dtype {target} is not unsigned")
    if target is uint64:
        return Tensor.of_node(_double_words("random.bits", key, sizes, start))
    words = _words("random.bits", key, sizes, start)
    return Tensor.of_node(words if target is uint32 else cast(_top(words, target.itemsize * 8), target))


def _top(words: Node, count: int) -> Node:
    """The highest bits of each word."""
    width = words.dtype.itemsize * 8
    return build("bitwise_right_shift", words, constant_like(words, width - count))


_DIGITS = {float16: 11, bfloat16: 8, float32: 24, float64: 53}


def _unit(name: str, key: Any, shape: Shape, dtype: DType, start: int, lane: int = 0) -> Node:
    """Multiples of 2**-digits in [0, 1), every one equally likely."""
    digits = _DIGITS[dtype]
    double = dtype is float64 and not lane
    words = _double_words(name, key, shape, start) if double else _words(name, key, shape, start, lane)
    digits = min(digits, words.dtype.itemsize * 8)
    whole = cast(_top(words, digits), dtype)
    return mul(whole, constant_like(whole, 2.0**-digits))


def _float_dtype(name: str, dtype: Any) -> DType:
    target = as_dtype(dtype)
    if not target.is_float:
        raise fail(DTypeError, name, f"dtype {target} is not floating")
    return target


def _is_held(value: Any, dtype: DType) -> bool:
    """Whether a number is finite at the precision of a dtype."""
    try:
        return math.isfinite(rounded(float(value), dtype))
    except OverflowError:  # an integer beyond float64
        return False


def _check_held(name: str, dtype: DType, /, **numbers: Any) -> None:
    """Refuse numbers that become infinite in the dtype; tensors have their own."""
    for what, number in numbers.items():
        number = number.item() if isinstance(number, np.generic) else number
        if isinstance(number, complex):
            raise fail(DTypeError, name, f"{what} {number} is complex")
        if is_scalar(number) and not _is_held(number, dtype):
            raise fail(ValueFault, name, f"{what} {shown(number)} is not a finite number of {dtype}")


def uniform(key: Any, shape: Any = (), *, low: Any = 0.0, high: Any = 1.0, dtype: Any = float32,
            start: int = 0) -> Tensor:
    """Numbers evenly spread over [low, high), which may be as far apart as the dtype's numbers are.

    >>> wide = mo.random.uniform(mo.random.key(0), (100,), low=-60000, high=60000, dtype="float16").numpy()
    >>> bool(wide.min() < -50000 and wide.max() > 50000)
    True
    """
    target = _float_dtype("random.uniform", dtype)
    unit = Tensor.of_node(_unit("random.uniform", key, as_sizes(shape, "random.uniform"), target, start))
    _check_held("random.uniform", target, low=low, high=high)
    if is_scalar(low) and is_scalar(high):
        if not low <= high:
            raise fail(ValueFault, "random.uniform", f"low {low} is above high {high}")
        if (low, high) == (0, 1):
            return unit
    low = low if is_scalar(low) else ew.astype(low, target)
    high = high if is_scalar(high) else ew.astype(high, target)
    spread = _between(unit, low, high)
    return ew.where(ew.less(spread, high), spread, low)  # a product may round up to `high` itself


def _between(unit: Tensor, low: Any, high: Any) -> Tensor:
    """low + unit * (high - low); where that difference is infinite, a sum of two shares that cannot overflow."""
    numbers = is_scalar(low) and is_scalar(high)
    size = high - low if numbers else ew.subtract(high, low)
    if numbers and _is_held(size, unit.dtype):
        return ew.add(ew.multiply(unit, size), low)
    shares = ew.add(ew.multiply(ew.subtract(1, unit), low), ew.multiply(unit, high))
    return shares if numbers else ew.where(ew.isfinite(size), ew.add(ew.multiply(unit, size), low), shares)


def normal(key: Any, shape: Any = (), *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = float32,
           start: int = 0) -> Tensor:
    """Normally distributed numbers, by Box and Muller's formula from two words per element; halves go through float32.
    Numbers beyond the largest of the dtype are infinite.

    >>> mo.random.normal(mo.random.key(0), (2, 3)).shape
    (2, 3)
    """
    target, sizes = _float_dtype("random.normal", dtype), as_sizes(shape, "random.normal")
    _check_held("random.normal", target, mean=mean, std=std)
    if is_scalar(std) and std < 0:
        raise fail(ValueFault, "random.normal", f"std {std} is negative")
    wide = target.compute
    unit = _unit("random.normal", key, sizes, wide, start)
    if wide is float64:  # the angle needs no 53 digits of its own: 32 bits of another lane
        angle = _unit("random.normal", key, sizes, wide, start, _SPLIT ^ _SECOND)
    else:
        angle = _unit("random.normal", key, sizes, wide, start, _SECOND)
    radius = build("sqrt", mul(constant_like(unit, -2.0), build("log", sub(constant_like(unit, 1.0), unit))))
    node = cast(mul(radius, build("cos", mul(constant_like(angle, 2 * math.pi), angle))), target)
    result = Tensor.of_node(node)
    if not (is_scalar(std) and std == 1):
        result = ew.multiply(result, std if is_scalar(std) else ew.astype(std, target))
    if not (is_scalar(mean) and mean == 0):
        result = ew.add(result, mean if is_scalar(mean) else ew.astype(mean, target))
    return result


def randint(key: Any, shape: Any = (), low: int = 0, high: int | None = None, *, dtype: Any = int64,
            start: int = 0) -> Tensor:
    """Integers from low up to but without high: 64 random bits modulo the range, a bias below range / 2**64.

    >>> mo.random.randint(mo.random.key(0), (3,), 0, 10).dtype
    int64
    """
    target = as_dtype(dtype)
    if not target.is_integer:
        raise fail(DTypeError, "random.randint", f"dtype {target} is not an integer")
    if high is None:
        low, high = 0, low
    order = "the order is mo.random.randint(key, shape, low, high)"
    low, high = (as_integer(value, "random.randint", name, order) for name, value in (("low", low), ("high", high)))
    info = np.iinfo(target.numpy)
    if not info.min <= low < high <= int(info.max) + 1:
        raise fail(ValueFault, "random.randint", f"the range {low}..{high} is empty or leaves {target}", order)
    words = _double_words("random.randint", key, as_sizes(shape, "random.randint"), start)
    if high - low < 1 << 64:
        words = build("remainder", words, constant_like(words, high - low))
    shifted = add(words, constant_like(words, low % (1 << 64))) if low else words
    return Tensor.of_node(cast(shifted, target))  # integers wrap: a negative low comes out right


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, *, start: int = 0) -> Tensor:
    """True with probability p, which may be a tensor; then `shape` defaults to its shape.

    >>> mo.random.bernoulli(mo.random.key(0), 0.5, (1000,)).astype(mo.float32).mean().item() < 0.6
    True
    """
    if is_scalar(p) and not 0 <= p <= 1:
        raise fail(ValueFault, "random.bernoulli", f"the probability {p} is not between 0 and 1")
    sizes = (() if is_scalar(p) else as_node(p, "random.bernoulli").shape) if shape is None else shape
    return ew.less(uniform(key, sizes, start=start), p if is_scalar(p) else ew.astype(p, float32))


def permutation(key: Any, x: Any, /, *, axis: int = 0) -> Tensor:
    """The numbers 0..x-1, or x along an axis, in random order: sorted by 64 random bits each (on the host).

    >>> sorted(mo.random.permutation(mo.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    from morpho.tensor.functions.search import take

    tensor = None if isinstance(x, int | np.integer) else (x if isinstance(x, Tensor) else asarray(x))
    if tensor is not None and tensor.ndim == 0:
        raise fail(ShapeError, "random.permutation", "a 0-dimensional tensor has no order")
    count = x if tensor is None else tensor.shape[normalise_axis(axis, tensor.ndim, "random.permutation")]
    order = bits(key, as_sizes((count,), "random.permutation"), dtype=uint64)
    found = Tensor.of_node(build("argsort", order.node, axis=order.ndim - 1, descending=False, stable=True))
    return found if tensor is None else take(tensor, found, axis=axis)


hint_calls(globals(), __all__)
__getattr__ = module_attribute("random", __name__)  # a hint for names of other libraries
