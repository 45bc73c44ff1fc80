"""Uniform and normal numbers, integers, truths and permutations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.dtypes import as_dtype, float32, float64, int64, uint64
from morpho.base.errors import DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_sizes, normalise_axis
from morpho.ir.node import build
from morpho.ops.algebra import add, cast, constant_like, mul, sub
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.random.keys import (
    SECOND,
    SPLIT,
    bits,
    check_held,
    double_words,
    float_dtype,
    is_held,
    unit_of,
)
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded
from morpho.tensor.scalars import is_scalar


@recorded
def uniform(key: Any, shape: Any = (), *, low: Any = 0.0, high: Any = 1.0, dtype: Any = float32,
            start: int = 0) -> Tensor:
    """Numbers evenly spread over [low, high), which may be as far apart as the dtype's numbers are.

    >>> wide = mo.random.uniform(mo.random.key(0), (100,), low=-60000, high=60000, dtype="float16").numpy()
    >>> bool(wide.min() < -50000 and wide.max() > 50000)
    True
    """
    target = float_dtype("random.uniform", dtype)
    unit = Tensor.of_node(unit_of("random.uniform", key, as_sizes(shape, "random.uniform"), target, start))
    check_held("random.uniform", target, low=low, high=high)
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
    if numbers and is_held(size, unit.dtype):
        return ew.add(ew.multiply(unit, size), low)
    shares = ew.add(ew.multiply(ew.subtract(1, unit), low), ew.multiply(unit, high))
    return shares if numbers else ew.where(ew.isfinite(size), ew.add(ew.multiply(unit, size), low), shares)


@recorded
def normal(key: Any, shape: Any = (), *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = float32,
           start: int = 0) -> Tensor:
    """Normally distributed numbers, by Box and Muller's formula from two words per element; halves go through float32.
    Numbers beyond the largest of the dtype are infinite.

    >>> mo.random.normal(mo.random.key(0), (2, 3)).shape
    (2, 3)
    """
    target, sizes = float_dtype("random.normal", dtype), as_sizes(shape, "random.normal")
    check_held("random.normal", target, mean=mean, std=std)
    if is_scalar(std) and std < 0:
        raise fail(ValueFault, "random.normal", f"std {std} is negative")
    wide = target.compute
    unit = unit_of("random.normal", key, sizes, wide, start)
    if wide is float64:  # the angle needs no 53 digits of its own: 32 bits of another lane
        angle = unit_of("random.normal", key, sizes, wide, start, SPLIT ^ SECOND)
    else:
        angle = unit_of("random.normal", key, sizes, wide, start, SECOND)
    radius = build("sqrt", mul(constant_like(unit, -2.0), build("log", sub(constant_like(unit, 1.0), unit))))
    node = cast(mul(radius, build("cos", mul(constant_like(angle, 2 * math.pi), angle))), target)
    result = Tensor.of_node(node)
    if not (is_scalar(std) and std == 1):
        result = ew.multiply(result, std if is_scalar(std) else ew.astype(std, target))
    if not (is_scalar(mean) and mean == 0):
        result = ew.add(result, mean if is_scalar(mean) else ew.astype(mean, target))
    return result


@recorded
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
    words = double_words("random.randint", key, as_sizes(shape, "random.randint"), start)
    if high - low < 1 << 64:
        words = build("remainder", words, constant_like(words, high - low))
    shifted = add(words, constant_like(words, low % (1 << 64))) if low else words
    return Tensor.of_node(cast(shifted, target))  # integers wrap: a negative low comes out right


@recorded
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
    """The numbers 0..x-1, or x along an axis, in random order: sorted by 64 random bits each.

    >>> sorted(mo.random.permutation(mo.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    from morpho.tensor.functions.searching.search import take

    tensor = None if isinstance(x, int | np.integer) else (x if isinstance(x, Tensor) else asarray(x))
    if tensor is not None and tensor.ndim == 0:
        raise fail(ShapeError, "random.permutation", "a 0-dimensional tensor has no order")
    count = x if tensor is None else tensor.shape[normalise_axis(axis, tensor.ndim, "random.permutation")]
    order = bits(key, as_sizes((count,), "random.permutation"), dtype=uint64)
    found = Tensor.of_node(build("argsort", order.node, axis=order.ndim - 1, descending=False, stable=True))
    return found if tensor is None else take(tensor, found, axis=axis)
