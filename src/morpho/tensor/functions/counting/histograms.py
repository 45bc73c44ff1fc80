"""Bins: which one a number falls into, and how many fall into each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.dtypes import float64, int32, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer
from morpho.ir.node import build
from morpho.ops.index import require
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.create import zeros
from morpho.tensor.functions.move import flip, reshape
from morpho.tensor.functions.searching.search import scatter_add, searchsorted
from morpho.tensor.operands import as_node, promoted
from morpho.tensor.sync import realised_array


def digitize(x: Any, bins: Any, /, *, right: bool = False) -> Tensor:
    """The number of the bin of every element, `bins` being their borders in order, up or down: 0 before the first one.
    A border belongs to the bin above it, or below it with `right`.

    >>> mo.digitize([0.2, 6.4, 3.0], [0.0, 1.0, 2.5, 4.0]).tolist()
    [1, 4, 3]
    """
    edges = Tensor.of_node(as_node(bins, "digitize"))
    if edges.ndim != 1:
        raise fail(ShapeError, "digitize", f"bins of shape {edges.shape} are not a line of borders")
    side = "left" if right else "right"
    if not isinstance(bins, Tensor):  # known numbers: which way they go is known too
        known = np.asarray(bins)
        if known.size > 1 and known[0] > known[-1]:
            return ew.subtract(edges.shape[0], searchsorted(flip(edges), x, side=side))
    elif edges.shape[0] != 0:
        count, last = edges.shape[0], edges[-1]
        falling = ew.greater(edges[0], last)
        place = searchsorted(ew.where(falling, flip(edges), edges), x, side=side)
        return ew.where(falling, ew.subtract(count, place), place)
    return searchsorted(edges, x, side=side)


def bucketize(x: Any, boundaries: Any, /, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of boundaries, which rise, before every element; with `right` one that it equals counts too
    (PyTorch's meaning). `out_int32` gives int32, int64 otherwise.

    >>> mo.bucketize([1, 2, 6], [2, 4, 6]).tolist()
    [0, 0, 2]
    """
    numbers = searchsorted(boundaries, x, side="right" if right else "left")
    return numbers.astype(int32) if out_int32 else numbers


def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Tensor:
    """How often each of 0, 1, 2, ... occurs among x, or the sum of its weights. Without `length` the largest number
    says how many counts there are, `minlength` at least, and x is realised at once; a number beyond `length` is an
    error.

    >>> mo.bincount([0, 2, 2]).tolist(), mo.bincount([0, 2], length=4).tolist(), mo.bincount([1], minlength=3).tolist()
    ([1, 0, 2], [1, 0, 1, 0], [0, 1, 0])
    """
    values = Tensor.of_node(as_node(x, "bincount"))
    if values.ndim != 1:
        raise fail(ShapeError, "bincount", f"shape {values.shape} is not a line")
    if not values.dtype.is_integer and values.dtype.kind != "b":
        raise fail(DTypeError, "bincount", f"dtype {values.dtype} is not an integer", "convert with astype")
    if length is None:
        known = realised_array(values, "bincount", "the number of counts depends on data", "give length=")
        count = int(known.max()) + 1 if known.size else 0
        if known.size and known.min() < 0:
            raise fail(ValueFault, "bincount", f"{known.min()} is negative, and only 0, 1, 2, ... are counted")
        least = as_integer(minlength, "bincount", "minlength")
        if least < 0:
            raise fail(ArgumentError, "bincount", f"minlength {least} is negative")
        count = max(count, least)
    else:
        if minlength:
            raise fail(ArgumentError, "bincount", "both length and minlength are given", "length says it all")
        count = as_integer(length, "bincount", "length")
    if count < 0:
        raise fail(ArgumentError, "bincount", f"length {count} is negative")
    if count == 0 and values.shape[0] == 0:
        return zeros(0, dtype=int64 if weights is None else Tensor.of_node(as_node(weights, "bincount")).dtype)
    index = values.node if values.dtype.is_integer else ew.astype(values, int64).node
    given = unplaced(1) if weights is None else Tensor.of_node(as_node(weights, "bincount"))
    if weights is not None and given.shape != values.shape:
        raise fail(ShapeError, "bincount", f"weights of shape {given.shape} do not fit {values.shape}")
    base = zeros(count, dtype=given.dtype)
    from morpho.ops.algebra import cast, expand

    return Tensor.of_node(build("scatter", base.node, cast(index, int64), expand(given.node, index.shape), axis=0,
                                mode="add", called="bincount"))


def histogram_bin_edges(x: Any, bins: Any = 10, /, *, range: Any = None) -> Tensor:
    """The borders of `bins` bins of one width between the least and the largest element, or over `range`; a line of
    borders is what it is.

    >>> mo.histogram_bin_edges([0.0, 1.0, 4.0], 4).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return _edges("histogram_bin_edges", Tensor.of_node(as_node(x, "histogram_bin_edges")), bins, range)[0]


def _edges(name: str, x: Tensor, bins: Any, span: Any) -> tuple[Tensor, Any]:
    """The borders, and for bins of one width their first and last."""
    given = bins if isinstance(bins, Tensor) else None if np.ndim(bins) == 0 else unplaced(np.asarray(bins))
    if given is not None:
        if given.ndim != 1 or given.shape[0] < 2:
            raise fail(ShapeError, name, f"bins of shape {given.shape} are not a line of two borders or more")
        known = None if isinstance(bins, Tensor) else np.asarray(bins)
        if known is not None and (known[1:] < known[:-1]).any():
            raise fail(ValueFault, name, "the borders of the bins do not rise")
        return given, None
    count = as_integer(bins, name, "bins")
    if count < 1:
        raise fail(ArgumentError, name, f"{count} bins cannot be made")
    if x.dtype.is_complex:
        raise fail(DTypeError, name, f"dtype {x.dtype} has no order", "take abs(), real() or imag() first")
    if span is not None:
        low, high = (float(end) for end in span)
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise fail(ValueFault, name, f"the range {low}..{high} is not one")
        ends = (unplaced(np.float64(low)), unplaced(np.float64(high)))
    elif x.size == 0:
        ends = (unplaced(np.float64(0)), unplaced(np.float64(1)))
    else:
        ends = (ew.astype(reduce.min(x), float64), ew.astype(reduce.max(x), float64))
        if x.dtype.is_float:
            right = ew.logical_and(ew.isfinite(ends[0]), ew.isfinite(ends[1])).node
            low_end, high_end = (Tensor.of_node(require(name, end.node, right)) for end in ends)
            ends = low_end, high_end
    same = ew.equal(*ends)
    low_, high_ = ew.where(same, ends[0] - 0.5, ends[0]), ew.where(same, ends[1] + 0.5, ends[1])
    steps = unplaced(np.arange(count + 1, dtype=np.float64))
    line = ew.where(ew.equal(steps, count), high_, steps * ((high_ - low_) / count) + low_)
    dtype = x.dtype if x.dtype.is_float and x.dtype.itemsize >= 4 else None
    return (line if dtype is None else ew.astype(line, dtype)), (line, low_, high_)


def histogram(x: Any, bins: Any = 10, /, *, range: Any = None, weights: Any = None,
              density: bool = False) -> tuple[Tensor, Tensor]:
    """How many elements lie in each bin, and the borders: a number of bins of one width between the least and the
    largest element (or over `range`), or the borders themselves. The last bin holds its upper border too. `weights`
    are summed instead of counted; with `density` the counts are those of a density.

    >>> counts, edges = mo.histogram([1.0, 2.0, 1.0, 4.0], 3)
    >>> counts.tolist(), edges.tolist()
    ([2, 1, 1], [1.0, 2.0, 3.0, 4.0])
    """
    values = reshape(Tensor.of_node(as_node(x, "histogram")), (-1,))
    edges, uniform = _edges("histogram", values, bins, range)
    count = edges.shape[0] - 1
    given: Any = None
    if weights is not None:
        given = Tensor.of_node(as_node(weights, "histogram"))
        if given.shape != Tensor.of_node(as_node(x, "histogram")).shape:
            raise fail(ShapeError, "histogram", f"weights of shape {given.shape} do not fit x")
        given = reshape(given, (-1,))
    borders, place, inside = _bins("histogram", values, edges, uniform)
    ones = ew.astype(inside, int64) if given is None else ew.where(inside, given, 0)
    found = scatter_add(zeros(count + 1, dtype=ones.dtype), place, ones)[:count]
    if density:
        wide = ew.astype(found, ew.astype(edges, float64).dtype)
        found = wide / ew.astype(borders[1:] - borders[:-1], float64) / reduce.sum(wide)
    return found, edges


def _bins(name: str, values: Tensor, edges: Tensor, uniform: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The borders as they are compared with, the bin of every number, and whether it is in one; the others get the
    number of bins."""
    count = edges.shape[0] - 1
    line = edges if uniform is None else uniform[0]
    nodes = promoted(name, line, ew.astype(values, float64) if uniform is not None else values)
    borders, numbers = Tensor.of_node(nodes[0]), Tensor.of_node(nodes[1])
    place = searchsorted(borders, numbers, side="right") - 1
    place = ew.where(ew.equal(numbers, borders[-1]), count - 1, place)
    inside = ew.logical_and(ew.greater_equal(place, 0), ew.less(place, count))  # NaN lies behind all
    return borders, ew.where(inside, place, count), inside


def histogram2d(x: Any, y: Any, bins: Any = 10, /, *, range: Any = None, weights: Any = None,
                density: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """How many points lie in each cell, and the borders along both axes. `bins` is a number for both, a line of borders
    for both, or a pair of such; `range` a pair of ranges. Sums of `weights`, and densities, as in `histogram`.

    >>> counts, _, _ = mo.histogram2d([0.0, 0.1, 1.0], [0.0, 0.9, 1.0], 2)
    >>> counts.tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    points = [reshape(Tensor.of_node(as_node(one, "histogram2d")), (-1,)) for one in (x, y)]
    if points[0].shape != points[1].shape:
        raise fail(ShapeError, "histogram2d", f"shapes {points[0].shape} and {points[1].shape} are no points")
    pair = isinstance(bins, (tuple, list)) and len(bins) == 2
    found = [_edges("histogram2d", one, bins[axis] if pair else bins, None if range is None else range[axis])
             for axis, one in enumerate(points)]
    places = [_bins("histogram2d", one, *of) for one, of in zip(points, found, strict=True)]
    rows, columns = (of[0].shape[0] - 1 for of in found)
    inside = ew.logical_and(places[0][2], places[1][2])
    cell = ew.where(inside, places[0][1] * columns + places[1][1], rows * columns)
    given = unplaced(1.0) if weights is None else reshape(Tensor.of_node(as_node(weights, "histogram2d")), (-1,))
    values = ew.where(inside, ew.astype(given, float64), 0.0)
    total = reshape(scatter_add(zeros(rows * columns + 1, dtype=float64), cell, values)[:-1], (rows, columns))
    if density:
        areas = [ew.astype(of[0][1:] - of[0][:-1], float64) for of in places]
        total = total / reduce.sum(total) / areas[0][:, None] / areas[1]
    return total, found[0][0], found[1][0]
