"""Order statistics: medians, quantiles and percentiles, by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import float32, float64, int64
from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.ops.algebra import size_value
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.move import broadcast_to, moveaxis, reshape
from morpho.tensor.functions.searching.search import take_along_axis
from morpho.tensor.functions.searching.sorting import sort
from morpho.tensor.functions.statistics.lines import Lines, floating

# Hyndman and Fan's methods between two elements, as NumPy has them: q of n elements lies at the place
# q * n + alpha + q * (1 - alpha - beta) - 1.
BETWEEN = {"interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
           "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8)}
STEPPED = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation")
METHODS = ("linear", "lower", "higher", "midpoint", "nearest", *STEPPED, *BETWEEN)


def median(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The middle element along axes, or the mean of the two middle ones; NaN where there is a NaN.

    >>> mo.median([3.0, 1.0, 2.0, 10.0]).item()
    2.5
    """
    return _quantile("median", x, 0.5, axis, keepdims, "linear", skip=False)


def nanmedian(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """`median` of the elements that are not NaN; NaN where all are.

    >>> mo.nanmedian([3.0, mo.nan, 1.0]).item()
    2.0
    """
    return _quantile("nanmedian", x, 0.5, axis, keepdims, "linear", skip=True)


def quantile(x: Any, /, q: Any, *, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Tensor:
    """The value below which a share q of the elements along axes lies; several q are the first axis of the result.

    method: between two elements "linear" (the default), or another of NumPy's: "lower", "higher", "midpoint",
        "nearest", "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen",
        "weibull", "median_unbiased", "normal_unbiased".

    >>> mo.quantile([1.0, 2.0, 3.0, 4.0], 0.25).item()
    1.75
    >>> mo.quantile([1.0, 2.0, 3.0], [0.0, 1.0]).tolist()
    [1.0, 3.0]
    """
    return _quantile("quantile", x, q, axis, keepdims, method, skip=False)


def nanquantile(x: Any, /, q: Any, *, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where all are.

    >>> mo.nanquantile([1.0, mo.nan, 3.0], 0.5).item()
    2.0
    """
    return _quantile("nanquantile", x, q, axis, keepdims, method, skip=True)


def percentile(x: Any, /, q: Any, *, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Tensor:
    """`quantile` of q hundredths.

    >>> mo.percentile([1.0, 2.0, 3.0, 4.0], 50).item()
    2.5
    """
    return _quantile("percentile", x, _hundredths("percentile", q), axis, keepdims, method, skip=False)


def nanpercentile(x: Any, /, q: Any, *, axis: Any = None, keepdims: bool = False, method: str = "linear") -> Tensor:
    """`nanquantile` of q hundredths.

    >>> mo.nanpercentile([1.0, mo.nan, 3.0], 50).item()
    2.0
    """
    return _quantile("nanpercentile", x, _hundredths("nanpercentile", q), axis, keepdims, method, skip=True)


def _hundredths(name: str, q: Any) -> Any:
    if isinstance(q, Tensor):
        return ew.divide(ew.astype(q, float64), 100)
    found = np.asarray(q)
    if found.dtype.kind not in "iuf":
        raise fail(ArgumentError, name, f"q {q!r} is not a number or several")
    return found / 100


def _shares(name: str, q: Any) -> Tensor:
    """q in float64; numbers that are known are checked, those of a tensor give NaN outside 0..1."""
    if isinstance(q, Tensor):
        return ew.astype(q, float64)
    found = np.asarray(q)
    if found.dtype.kind not in "iuf" or found.ndim > 1:
        raise fail(ArgumentError, name, f"q {q!r} is not a number or several")
    if found.size and not (found.min() >= 0 and found.max() <= 1):
        most = 100 if "percent" in name else 1
        raise fail(ValueFault, name, f"q {(found * most).tolist()!r} leaves 0..{most}")
    return unplaced(found.astype(np.float64))


def _quantile(name: str, x: Any, q: Any, axis: Any, keepdims: bool, method: str, skip: bool) -> Tensor:
    if method not in METHODS:
        raise fail(ArgumentError, name, f"method {method!r} is unknown", "the methods are " + ", ".join(METHODS))
    values, shares = floating(name, x), _shares(name, q)
    lines = Lines(name, values, axis)
    lines.need_elements()
    ordered = sort(lines.values, axis=-1)
    wide = ew.astype(ordered, float32) if ordered.dtype.itemsize == 2 else ordered
    missing = ew.isnan(wide)
    if skip:
        count = reduce.sum(ew.astype(ew.logical_not(missing), int64), axis=-1, keepdims=True)
        found = _at(wide, shares, count, method)
        found = ew.where(ew.equal(count, 0), float("nan"), found)
    else:
        count = Tensor.of_node(size_value(lines.length, int64))
        found = ew.where(missing[..., -1:], float("nan"), _at(wide, shares, count, method))
    found = moveaxis(ew.astype(found, values.dtype), -1, 0)
    found = reshape(found, (*shares.shape, *found.shape[1:]))
    return lines.finished(found, keepdims, leading=shares.ndim)


def _at(ordered: Tensor, shares: Tensor, count: Tensor, method: str) -> Tensor:
    """Elements at shares of the way through the first `count` of each line, as the last axis: (..., Q)."""
    flat = reshape(shares, (-1,))
    inside = ew.logical_and(ew.greater_equal(flat, 0), ew.less_equal(flat, 1))
    last = ew.maximum(count - 1, 0)
    place, half = _places(ew.where(inside, flat, 0.0), ew.astype(count, float64), ew.astype(last, float64), method)
    low = ew.floor(place)  # (..., Q)
    if method == "nearest":
        low = ew.round(place)
    elif method == "higher":
        low = ew.ceil(place)
    first = ew.astype(low, int64)
    found = take_along_axis(ordered, _full(first, ordered), axis=-1)
    if method in ("linear", "midpoint", "averaged_inverted_cdf", *BETWEEN):
        second = ew.minimum(first + 1, last)
        other = take_along_axis(ordered, _full(second, ordered), axis=-1)
        share = ew.astype(place - low, found.dtype)
        if method == "midpoint":
            share = ew.where(ew.equal(share, 0), 0.0, 0.5)
        if half is not None:
            share = ew.where(half, 0.5, 0.0)
        found = _between(found, other, share)
    return ew.where(inside, found, float("nan"))


def _places(share: Tensor, count: Tensor, last: Tensor, method: str) -> tuple[Tensor, Tensor | None]:
    """Where among the elements a share lies; and where the mean of two elements is wanted, if the method has that."""
    if method in BETWEEN:
        alpha, beta = BETWEEN[method]
        place = share * count + (share * (1 - alpha - beta) + alpha) - 1
        return ew.minimum(ew.maximum(place, 0.0), last), None
    if method not in STEPPED:
        return share * last, None
    place = share * count - (1.5 if method == "closest_observation" else 1.0)
    low = ew.floor(place)
    whole = ew.equal(place, low)
    if method == "closest_observation":  # of two equally near ones that with the even number
        whole = ew.logical_and(whole, ew.equal(ew.remainder(low, 2.0), 1.0))
    step = ew.where(whole, low, low + 1)
    half = ew.logical_and(whole, ew.logical_and(ew.greater_equal(low, 0), ew.less(low, last)))
    return ew.minimum(ew.maximum(step, 0.0), last), half if method == "averaged_inverted_cdf" else None


def _full(index: Tensor, ordered: Tensor) -> Tensor:
    return broadcast_to(index, (*ordered.shape[:-1], index.shape[-1]))


def _between(a: Tensor, b: Tensor, share: Tensor) -> Tensor:
    """From the nearer end, so that equal ones stay what they are, infinities too; at an end itself the other one takes
    no part. Where the distance overflows the ends are weighted."""
    size = ew.where(ew.equal(a, b), 0.0, b - a)
    near = ew.where(ew.less(share, 0.5), a + size * share, b - size * (1 - share))
    found = ew.where(ew.isfinite(size), near, a * (1 - share) + b * share)
    return ew.where(ew.equal(share, 0), a, found)
