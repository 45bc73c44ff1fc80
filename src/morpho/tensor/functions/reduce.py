"""Reductions: sums, means, extremes, truth; along any axes."""

from __future__ import annotations

import builtins
from numbers import Real
from typing import Any

import numpy as np

from morpho.base.dims import Size, upper
from morpho.base.dtypes import (
    DType,
    as_dtype,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int32,
    int64,
    uint8,
    uint64,
)
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import normalise_axes, normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import (
    add as add_nodes,
)
from morpho.ops.algebra import (
    cast,
    constant,
    constant_like,
    count,
    div,
    expand,
    reduce,
    reshape,
    size_value,
    sub,
    where,
    zeros_like,
)
from morpho.tensor.autodiff.precision import widened
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded
from morpho.tensor.scalars import DEFAULT_FLOAT


def finished(name: str, node: Node, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """A reduction with its axes, or without them as `keepdims` says."""
    if not isinstance(keepdims, bool | np.bool_):  # a second axis by place would be taken for it
        raise fail(ArgumentError, name, f"keepdims is {keepdims!r}, not True or False",
                   "several axes are a tuple: axis=(0, 1)")
    if not keepdims:
        node = reshape(node, tuple(s for i, s in enumerate(node.shape) if i not in axes))
    return Tensor.of_node(node)


def reduced_axes(axis: Any, rank: int, name: str) -> tuple[int, ...]:
    """The axes of a reduction; a number has one, 0 or -1, as in NumPy, along which there is nothing to do.

    >>> reduced_axes(-1, 0, "sum"), reduced_axes(-1, 2, "sum")
    ((), (1,))
    """
    if rank == 0 and not isinstance(axis, tuple | list) and axis is not None:
        normalise_axis(axis, 1, name)
        return ()
    return normalise_axes(axis, rank, name)


def _summed_dtype(dtype: DType, asked: Any) -> DType:
    """Small integers add up in 64 bits; floats keep their dtype."""
    if asked is not None:
        return as_dtype(asked)
    if dtype.kind == "u":
        return uint64
    return int64 if dtype.kind in "bi" else dtype


@recorded
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum along axes, by the fixed tree of docs/numerics.md: the same bits for any number of threads.

    >>> mo.sum([[1.0, 2.0], [3.0, 4.0]], axis=0)
    Tensor([4., 6.], dtype=float32)
    """
    return _total("sum", x, axis, dtype, keepdims)


@recorded
def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product along axes.

    >>> mo.prod([2, 3, 4]).item()
    24
    """
    return _total("prod", x, axis, dtype, keepdims)


def _total(name: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> Tensor:
    node = as_node(x, name)
    node = widened(node) if dtype is None else node
    node = cast(node, _summed_dtype(node.dtype, dtype))
    axes = reduced_axes(axis, len(node.shape), name)
    return finished(name, reduce(name, node, axes), axes, keepdims)


@recorded
def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes; NaN wins.

    >>> mo.max([[1.0, 5.0], [7.0, 2.0]], axis=1)
    Tensor([5., 7.], dtype=float32)
    """
    return _extreme("max", x, axis, keepdims)


@recorded
def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes; NaN wins.

    >>> mo.min([[1.0, 5.0], [7.0, 2.0]], axis=1)
    Tensor([1., 2.], dtype=float32)
    """
    return _extreme("min", x, axis, keepdims)


def _extreme(name: str, x: Any, axis: Any, keepdims: bool) -> Tensor:
    node = as_node(x, name)
    axes = reduced_axes(axis, len(node.shape), name)
    if node.dtype is bool_:  # the larger of two truths is whether one of them holds
        _check_elements(name, node, axes)
        name = "any" if name == "max" else "all"
    return finished(name, reduce(name, node, axes), axes, keepdims)


def _check_elements(name: str, node: Node, axes: tuple[int, ...]) -> None:
    if builtins.any(node.shape[axis] == 0 for axis in axes):
        raise fail(ShapeError, name, f"shape {node.shape} has no elements along axis {axes} and {name} has no identity")


@recorded
def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether at least one element is true (non-zero).

    >>> mo.any([True, False]).item()
    True
    """
    return _truth("any", x, axis, keepdims)


@recorded
def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether every element is true (non-zero).

    >>> mo.all([True, False]).item()
    False
    """
    return _truth("all", x, axis, keepdims)


def truth(node: Node) -> Node:
    """Where elements are not zero."""
    if node.dtype.is_complex:
        return build("not_equal", node, zeros_like(node))
    return cast(node, bool_)


def _truth(name: str, x: Any, axis: Any, keepdims: bool) -> Tensor:
    node = truth(as_node(x, name))
    axes = reduced_axes(axis, len(node.shape), name)
    return finished(name, reduce(name, node, axes), axes, keepdims)


def _floating(name: str, x: Any) -> Node:
    node = widened(as_node(x, name))
    return node if node.dtype.kind in "fc" else cast(node, DEFAULT_FLOAT)


def _mean_node(node: Node, axes: tuple[int, ...]) -> Node:
    """Half floats add and divide in float32 and round once."""
    wide = cast(node, float32) if node.dtype.itemsize == 2 else node
    total = reduce("sum", wide, axes)
    return cast(div(total, expand(size_value(count(wide, axes), wide.dtype), total.shape)), node.dtype)


@recorded
def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The sum divided by the number of elements.

    >>> mo.mean([1.0, 2.0, 6.0]).item()
    3.0
    """
    node = _floating("mean", x)
    axes = reduced_axes(axis, len(node.shape), "mean")
    return finished("mean", _mean_node(node, axes), axes, keepdims)


@recorded
def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The mean of squared distances from the mean; `correction` is taken off the count (1 for a sample).

    >>> mo.var([1.0, 3.0]).item(), mo.var([1.0, 3.0], correction=1).item()
    (1.0, 2.0)
    """
    node = _floating("var", x)
    axes = reduced_axes(axis, len(node.shape), "var")
    found = cast(_variance("var", node, axes, correction), _real(node.dtype))
    return finished("var", found, axes, keepdims)


@recorded
def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`; its gradient where all elements are equal is taken to be 0.

    >>> mo.std([1.0, 3.0]).item()
    1.0
    """
    node = _floating("std", x)
    axes = reduced_axes(axis, len(node.shape), "std")
    found = cast(root_of_squares(_variance("std", node, axes, correction)), _real(node.dtype))
    return finished("std", found, axes, keepdims)


def _real(dtype: DType) -> DType:
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def root_of_squares(total: Node) -> Node:
    """The root of a sum of squares, whose slope at 0, which is infinite, is taken to be 0."""
    none = build("equal", total, zeros_like(total))
    return where(none, total, build("sqrt", where(none, constant_like(total, 1), total)))


def _variance(name: str, node: Node, axes: tuple[int, ...], correction: float) -> Node:
    """The variance, of half floats in float32."""
    if not isinstance(correction, Real):
        raise fail(ArgumentError, name, f"correction {correction!r} is not a number")
    wide = cast(node, float32) if node.dtype.itemsize == 2 else node
    centred = sub(wide, expand(_mean_node(wide, axes), wide.shape))
    if node.dtype.is_complex:  # squares of distances in the plane, which are real
        distances = add_nodes(*(build("square", build(part, centred)) for part in ("real", "imag")))
    else:
        distances = build("square", centred)
    squares = reduce("sum", distances, axes)
    divisor = _less_correction(count(wide, axes), correction, squares.dtype)
    return div(squares, expand(divisor, squares.shape))


def _less_correction(size: Size, correction: float, dtype: DType) -> Node:
    """A count less the correction, but not below zero; in float64 and rounded once, known before or not."""
    if isinstance(size, int):
        return constant(builtins.max(size - correction, 0.0), dtype)
    left = sub(size_value(size, float64), constant(correction, float64))
    return cast(build("maximum", left, constant(0.0, float64)), dtype)


def _position(name: str, extreme: str, x: Any, axis: Any, keepdims: bool) -> Tensor:
    """The first index that attains the extreme: a second reduction over index numbers, in the same kernel."""
    node = as_node(x, name)
    if node.dtype is bool_:
        node = cast(node, uint8)
    if node.dtype.kind not in "iuf":
        raise fail(DTypeError, name, f"dtype {node.dtype} is not taken")
    if not node.shape and axis is not None:
        reduced_axes(axis, 0, name)
        axis = None
    number = None if axis is None else normalise_axis(axis, len(node.shape), name)
    if 0 in (node.shape if number is None else node.shape[number:number + 1]):
        where = "" if number is None else f" along axis {number}"
        raise fail(ShapeError, name, f"shape {node.shape} has no elements{where}, so that none is the "
                                     f"{'largest' if extreme == 'max' else 'smallest'}")
    if number is None:
        node, shape = reshape(node, (count(node, tuple(range(len(node.shape)))),)), node.shape
        found = _position_node(extreme, node, 0)
        return Tensor.of_node(reshape(found, (1,) * len(shape) if keepdims else ()))
    return finished(name, _position_node(extreme, node, number), (number,), keepdims)


def _position_node(extreme: str, node: Node, axis: int) -> Node:
    best = expand(reduce(extreme, node, (axis,)), node.shape)
    hit = build("equal", node, best)
    if node.dtype.is_float:
        hit = build("logical_or", hit, build("isnan", node))
    narrow = upper(node.shape[axis]) < 1 << 31  # as wide as a float32: twice as many side by side
    index = build("iota", shape=node.shape, axis=axis, dtype=int32 if narrow else int64)
    most = constant_like(index, (1 << 31 if narrow else 1 << 63) - 1)
    return cast(reduce("min", build("where", hit, index, most), (axis,)), int64)


@recorded
def argmax(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The first index of the largest element; a NaN counts as largest.

    >>> mo.argmax([3.0, 9.0, 5.0]).item()
    1
    """
    return _position("argmax", "max", x, axis, keepdims)


@recorded
def argmin(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The first index of the smallest element; a NaN counts as smallest.

    >>> mo.argmin([3.0, 9.0, 5.0]).item()
    0
    """
    return _position("argmin", "min", x, axis, keepdims)


@recorded
def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero.

    >>> mo.count_nonzero([0, 2, 0, 4]).item()
    2
    """
    node = as_node(x, "count_nonzero")
    axes = reduced_axes(axis, len(node.shape), "count_nonzero")
    return finished("count_nonzero", reduce("sum", cast(truth(node), int64), axes), axes, keepdims)


@recorded
def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Running sums along an axis, one chain in index order.

    >>> mo.cumulative_sum([1, 2, 3, 4])
    Tensor([ 1,  3,  6, 10], dtype=int64)
    """
    return _scan("cumulative_sum", x, axis, dtype, include_initial, 0)


@recorded
def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Running products along an axis.

    >>> mo.cumulative_prod([1, 2, 3, 4])
    Tensor([ 1,  2,  6, 24], dtype=int64)
    """
    return _scan("cumulative_prod", x, axis, dtype, include_initial, 1)


def scanned(name: str, x: Any, axis: Any) -> tuple[Node, int]:
    """Input and axis of a running operation: a vector needs no axis named, and a number is a vector of one, as in
    NumPy."""
    node = as_node(x, name)
    node = node if node.shape else reshape(node, (1,))
    if axis is None:
        if len(node.shape) != 1:
            raise fail(ArgumentError, name, f"an axis is needed for {len(node.shape)} dimensions")
        axis = 0
    return node, normalise_axis(axis, len(node.shape), name)


def _scan(name: str, x: Any, axis: Any, dtype: Any, include_initial: bool, initial: int) -> Tensor:
    node, number = scanned(name, x, axis)
    node = widened(node) if dtype is None else node
    result = build(name, cast(node, _summed_dtype(node.dtype, dtype)), axis=number)
    if include_initial:
        shape = tuple(1 if i == number else s for i, s in enumerate(result.shape))
        first = expand(constant(initial, result.dtype), shape)
        result = build("concatenate", first, result, axis=number)
    return Tensor.of_node(result)
