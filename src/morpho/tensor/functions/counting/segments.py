"""Rows gathered by segment, and elements by index: sums, products, means and extremes."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import DType, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import as_integer
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant, constant_like, expand, reshape, zeros_like
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.indexing.fancy import wrapped
from morpho.tensor.functions.searching.search import along, checked_indices
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar, scalar_node
from morpho.tensor.sync import realised_array

# PyTorch's names, and shorter ones -> the mode of the op
MODES = {"sum": "add", "add": "add", "prod": "mul", "mul": "mul", "amax": "max", "max": "max", "amin": "min",
         "min": "min", "mean": "mean"}


def first_value(mode: str, dtype: DType) -> Any:
    """Initial value of a combination, and its result if it is empty."""
    if mode in ("add", "mean"):
        return 0
    if mode == "mul":
        return 1
    if dtype.kind == "b":
        return mode == "min"
    if dtype.is_float:
        return -np.inf if mode == "max" else np.inf
    info = np.iinfo(dtype.numpy)
    return int(info.min if mode == "max" else info.max)


def _check_mode(name: str, mode: str, dtype: DType) -> None:
    if mode in ("max", "min") and dtype.is_complex:
        raise fail(DTypeError, name, f"dtype {dtype} has no order", "take abs(), real() or imag() first")
    if mode == "mean" and dtype.kind == "b":
        raise fail(DTypeError, name, "dtype bool is not taken", "convert with astype")


def scatter_reduce(x: Any, indices: Any, values: Any, /, *, reduce: str, axis: int = -1,
                   include_self: bool = True) -> Tensor:
    """x with `values` combined at `indices` along an axis, line by line: `reduce` is "sum", "prod", "mean", "amax" or
    "amin". Without `include_self` what was there does not count where an index points.

    >>> x, index = mo.asarray([1.0, 2.0, 3.0]), mo.asarray([0, 0, 2])
    >>> mo.scatter_reduce(x, index, mo.asarray([5.0, 4.0, 1.0]), reduce="amax").tolist()
    [5.0, 2.0, 3.0]
    """
    name = "scatter_reduce"
    if not isinstance(reduce, str) or reduce not in MODES:
        raise fail(ArgumentError, name, f"reduce {reduce!r} is unknown", "one of sum, prod, mean, amax, amin")
    node, index, number = along(name, as_node(x, name), checked_indices(name, indices), axis)
    index, mode = wrapped(index, node.shape[number]), MODES[reduce]
    _check_mode(name, mode, node.dtype)
    given = scalar_node(values, node.dtype, name) if is_scalar(values) else as_node(values, name)
    if given.dtype is not node.dtype:
        raise fail(DTypeError, name, f"values of {given.dtype} do not fit {node.dtype}", "convert them with astype")
    return Tensor.of_node(_combined(name, node, index, expand(given, index.shape), number, mode, include_self))


def _combined(name: str, node: Node, index: Node, values: Node, axis: int, mode: str, include_self: bool) -> Node:
    how = {"axis": axis, "called": name}
    ones = expand(constant(1, int64), index.shape)
    hits = None
    if mode == "mean" or not include_self:
        hits = build("scatter", expand(constant(0, int64), node.shape), index, ones, mode="add", **how)
    base = node
    if not include_self:
        assert hits is not None
        base = build("where", build("greater", hits, zeros_like(hits)),
                     constant_like(node, first_value(mode, node.dtype)), node)
    found = build("scatter", base, index, values, mode="add" if mode == "mean" else mode, **how)
    if mode != "mean":
        return found
    assert hits is not None
    count = build("add", hits, constant_like(hits, 1 if include_self else 0))
    return _divided(found, build("maximum", count, constant_like(count, 1)))


def _divided(total: Node, count: Node) -> Node:
    """A sum by a number of elements; integers round down, as PyTorch's do."""
    if total.dtype.is_integer:
        return build("floor_divide", total, cast(count, total.dtype))
    wide = total.dtype.compute
    if wide.is_complex:
        return build("divide", total, cast(count, wide))
    return cast(build("divide", cast(total, wide), cast(count, wide)), total.dtype)


def segment_sum(x: Any, segment_ids: Any, /, num_segments: int | None = None) -> Tensor:
    """Rows of x added up by segment: row i goes to row segment_ids[i]. Without `num_segments` the largest id says how
    many there are, and the ids are realised at once.

    >>> mo.segment_sum(mo.asarray([1.0, 2.0, 3.0]), mo.asarray([0, 0, 2]), 3).tolist()
    [3.0, 0.0, 3.0]
    """
    return _segment("segment_sum", "add", x, segment_ids, num_segments)


def segment_prod(x: Any, segment_ids: Any, /, num_segments: int | None = None) -> Tensor:
    """Rows of x multiplied by segment; 1 where there is none. See `segment_sum`.

    >>> mo.segment_prod(mo.asarray([4.0, 2.0, 3.0]), mo.asarray([0, 0, 2]), 3).tolist()
    [8.0, 1.0, 3.0]
    """
    return _segment("segment_prod", "mul", x, segment_ids, num_segments)


def segment_max(x: Any, segment_ids: Any, /, num_segments: int | None = None) -> Tensor:
    """The largest of the rows of x by segment; the least number of the dtype, -inf for floats, where there is none.

    >>> mo.segment_max(mo.asarray([4.0, 2.0, 3.0]), mo.asarray([0, 0, 1]), 2).tolist()
    [4.0, 3.0]
    """
    return _segment("segment_max", "max", x, segment_ids, num_segments)


def segment_min(x: Any, segment_ids: Any, /, num_segments: int | None = None) -> Tensor:
    """The smallest of the rows of x by segment; the largest number of the dtype, inf for floats, where there is none.

    >>> mo.segment_min(mo.asarray([4.0, 2.0, 3.0]), mo.asarray([0, 0, 1]), 2).tolist()
    [2.0, 3.0]
    """
    return _segment("segment_min", "min", x, segment_ids, num_segments)


def segment_mean(x: Any, segment_ids: Any, /, num_segments: int | None = None) -> Tensor:
    """The mean of the rows of x by segment; 0 where there is none. See `segment_sum`.

    >>> mo.segment_mean(mo.asarray([4.0, 2.0, 3.0]), mo.asarray([0, 0, 1]), 2).tolist()
    [3.0, 3.0]
    """
    return _segment("segment_mean", "mean", x, segment_ids, num_segments)


def _segment(name: str, mode: str, x: Any, ids: Any, count: Any) -> Tensor:
    node, index = as_node(x, name), checked_indices(name, ids)
    if not node.shape or index.shape != node.shape[:1]:
        raise fail(ShapeError, name, f"segment ids of shape {index.shape} are not one for each row of {node.shape}")
    if mode == "mean" and node.dtype.kind != "c":
        node = node if node.dtype.is_float else ew.astype(Tensor.of_node(node), "float32").node
    _check_mode(name, mode, node.dtype)
    if count is None:
        known = realised_array(Tensor.of_node(index), name, "the number of segments depends on data",
                               "give num_segments")
        count = int(known.max()) + 1 if known.size else 0
    number = as_integer(count, name, "num_segments")
    if number < 0:
        raise fail(ArgumentError, name, f"{number} segments cannot be made")
    shape = (number, *node.shape[1:])
    base = expand(constant(first_value(mode, node.dtype), node.dtype), shape)
    spread = expand(reshape(cast(index, int64), (*index.shape, *[1] * (len(shape) - 1))), node.shape)
    if node.shape[0] == 0:
        return Tensor.of_node(base)
    return Tensor.of_node(_combined(name, base, spread, node, 0, mode, mode != "mean"))
