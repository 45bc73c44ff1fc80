"""Keys, and the random bits that follow from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.checks import shown
from morpho.base.dims import Shape, is_static, product
from morpho.base.dtypes import DType, as_dtype, bfloat16, float16, float32, float64, int64, uint32, uint64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_sizes, broadcast
from morpho.ir.node import Node, build
from morpho.ops.algebra import add, cast, constant, constant_like, expand, mul, reshape
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded
from morpho.tensor.scalars import is_scalar, rounded

SECOND, SPLIT = 0x9E3779B9, 0x85EBCA6B  # lanes: what the second half of the key is changed by
MOST_ELEMENTS = 1 << 32


def key(seed: int, /) -> Tensor:
    """A key from a number of 0..2**64-1: its two 32-bit halves, as a uint32 tensor of shape (2,). Other numbers are an
    error, so that no two seeds give the same key.

    >>> mo.random.key((3 << 32) + 5).tolist()
    [3, 5]
    """
    number = as_integer(seed, "random.key", "the seed")
    if not 0 <= number < 1 << 64:
        raise fail(ValueFault, "random.key", f"the seed {shown(number)} is not in 0..2**64-1",
                   "take it modulo 2**64, or hash a longer number")
    return unplaced(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32))


def halves(name: str, key: Any) -> tuple[Node, Node]:
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


def counters(name: str, shape: Shape, start: int) -> Node:
    """The number of each element in row-major order, from `start`."""
    size, start = product(shape), as_integer(start, name, "start")
    if is_static(shape) and not 0 <= start <= MOST_ELEMENTS - size:
        raise fail(ValueFault, name, f"elements {start}..{start + size} leave the 2**32 that one key gives",
                   "split the key and draw in parts")
    line = build("iota", shape=(size,), axis=0, dtype=int64)
    if start:
        line = add(line, expand(constant(start, int64), line.shape))
    return reshape(cast(line, uint32), shape)


def words_of(name: str, key: Any, shape: Shape, start: int, lane: int = 0) -> Node:
    """32 random bits per element."""
    first, second = halves(name, key)
    if lane:
        second = build("bitwise_xor", second, constant_like(second, lane))
    full = (*first.shape, *shape)
    spread = [expand(reshape(half, (*half.shape, *[1] * len(shape))), full) for half in (first, second)]
    return build("threefry", *spread, expand(counters(name, shape, start), full))


@recorded
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
    return Tensor.of_node(words_of("random.split", key, (count, 2), 0, SPLIT))


def double_words(name: str, key: Any, shape: Shape, start: int) -> Node:
    high, low = (cast(words_of(name, key, shape, start, lane), uint64) for lane in (0, SECOND))
    return build("bitwise_or", build("bitwise_left_shift", high, constant_like(high, 32)), low)


@recorded
def bits(key: Any, shape: Any = (), *, dtype: Any = uint32, start: int = 0) -> Tensor:
    """Random bits as unsigned integers.

    >>> mo.random.bits(mo.random.key(0), (4,)).dtype
    uint32
    """
    target, sizes = as_dtype(dtype), as_sizes(shape, "random.bits")
    if target.kind != "u":
        raise fail(DTypeError, "random.bits", f"dtype {target} is not unsigned")
    if target is uint64:
        return Tensor.of_node(double_words("random.bits", key, sizes, start))
    words = words_of("random.bits", key, sizes, start)
    return Tensor.of_node(words if target is uint32 else cast(_top(words, target.itemsize * 8), target))


def _top(words: Node, count: int) -> Node:
    """The highest bits of each word."""
    width = words.dtype.itemsize * 8
    return build("bitwise_right_shift", words, constant_like(words, width - count))


_DIGITS = {float16: 11, bfloat16: 8, float32: 24, float64: 53}


def unit_of(name: str, key: Any, shape: Shape, dtype: DType, start: int, lane: int = 0) -> Node:
    """Multiples of 2**-digits in [0, 1), every one equally likely."""
    digits = _DIGITS[dtype]
    double = dtype is float64 and not lane
    words = double_words(name, key, shape, start) if double else words_of(name, key, shape, start, lane)
    digits = min(digits, words.dtype.itemsize * 8)
    whole = cast(_top(words, digits), dtype)
    return mul(whole, constant_like(whole, 2.0**-digits))


def float_dtype(name: str, dtype: Any) -> DType:
    target = as_dtype(dtype)
    if not target.is_float:
        raise fail(DTypeError, name, f"dtype {target} is not floating")
    return target


def is_held(value: Any, dtype: DType) -> bool:
    """Whether a number is finite at the precision of a dtype."""
    try:
        return math.isfinite(rounded(float(value), dtype))
    except OverflowError:  # an integer beyond float64
        return False


def check_held(name: str, dtype: DType, /, **numbers: Any) -> None:
    """Refuse numbers that become infinite in the dtype; tensors have their own."""
    for what, number in numbers.items():
        number = number.item() if isinstance(number, np.generic) else number
        if isinstance(number, complex):
            raise fail(DTypeError, name, f"{what} {number} is complex")
        if is_scalar(number) and not is_held(number, dtype):
            raise fail(ValueFault, name, f"{what} {shown(number)} is not a finite number of {dtype}")


_FOLD = 0xC2B2AE35  # another lane


@recorded
def fold_in(key: Any, number: Any, /) -> Tensor:
    """A new key from a key and a number of 0..2**31-1, which may be a tensor: independent keys for turns of a loop.

    >>> key = mo.random.key(0)
    >>> mo.random.fold_in(key, 3).shape
    (2,)
    """
    first, second = halves("random.fold_in", key)
    second = build("bitwise_xor", second, constant_like(second, _FOLD))
    given = as_node(number, "random.fold_in")
    if not given.dtype.is_integer:
        raise fail(DTypeError, "random.fold_in", f"dtype {given.dtype} is not an integer", "convert it with astype")
    if len(given.shape) > 0:
        raise fail(ShapeError, "random.fold_in", f"a number of shape {given.shape} is not one", "use mo.random.split")
    full = (*first.shape, 2)
    places = build("iota", shape=full, axis=len(full) - 1, dtype=int64)
    twice = mul(cast(given, int64), constant(2, int64))
    counters_ = cast(add(expand(twice, full), places), uint32)
    spread = [expand(reshape(half, (*half.shape, 1)), full) for half in (first, second)]
    return Tensor.of_node(build("threefry", *spread, counters_))


def open_unit(name: str, key: Any, shape: Shape, dtype: DType, start: int, lane: int = 0) -> Tensor:
    """Numbers in the open interval (0, 1), the middles of 2**23 or 2**52 equal parts; halves go through float32."""
    wide = float64 if dtype is float64 else float32
    words = double_words(name, key, shape, start) if wide is float64 else words_of(name, key, shape, start, lane)
    digits = 52 if wide is float64 else 23
    whole = cast(_top(words, digits), wide)
    return Tensor.of_node(mul(add(whole, constant_like(whole, 0.5)), constant_like(whole, 2.0**-digits)))


def parameter(name: str, value: Any, dtype: DType) -> Tensor:
    """A parameter of a distribution in `dtype`; a plain number goes there at once, not by way of float32."""
    wide = unplaced(np.float64(value)) if is_scalar(value) else value
    return Tensor.of_node(cast(as_node(wide, name), dtype))


def shape_with(name: str, shape: Any, *parameters: Any) -> Shape:
    """The shape of a draw: what is given, or that of the parameters broadcast together."""
    if shape is not None:
        sizes = as_sizes(shape, name)
        found = broadcast(name, sizes, *[as_node(p, name).shape for p in parameters if not is_scalar(p)])
        if found != sizes:
            raise fail(ShapeError, name, f"parameters of shape {found} do not fit a draw of shape {sizes}")
        return sizes
    return broadcast(name, *[as_node(p, name).shape for p in parameters if not is_scalar(p)])


def with_keys(name: str, key: Any, sizes: Shape) -> Shape:
    """The shape of what a stack of keys draws."""
    return (*halves(name, key)[0].shape, *sizes)
