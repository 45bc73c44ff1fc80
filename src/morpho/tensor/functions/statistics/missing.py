"""Reductions that leave NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import DType, as_dtype, float64
from morpho.base.errors import ArgumentError, fail
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.statistics.lines import floating
from morpho.tensor.namespace import finfo
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import is_scalar


def _without(name: str, x: Any, instead: float) -> tuple[Tensor, Tensor | None]:
    """x with a number in place of NaN, and where that was; nothing is missing among integers."""
    tensor = Tensor.of_node(as_node(x, name))
    if tensor.dtype.kind not in "fc":
        return tensor, None
    missing = ew.isnan(tensor)
    return ew.where(missing, instead, tensor), missing


def nansum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements that are not NaN.

    >>> mo.nansum([1.0, mo.nan, 3.0]).item()
    4.0
    """
    return reduce.sum(_without("nansum", x, 0.0)[0], axis=axis, dtype=dtype, keepdims=keepdims)


def nanprod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product of the elements that are not NaN.

    >>> mo.nanprod([2.0, mo.nan, 3.0]).item()
    6.0
    """
    return reduce.prod(_without("nanprod", x, 1.0)[0], axis=axis, dtype=dtype, keepdims=keepdims)


def nanmax(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest of the elements that are not NaN; NaN where all are.

    >>> mo.nanmax([1.0, mo.nan, 3.0]).item()
    3.0
    """
    return _extreme("nanmax", reduce.max, x, -np.inf, axis, keepdims)


def nanmin(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The smallest of the elements that are not NaN; NaN where all are.

    >>> mo.nanmin([1.0, mo.nan, 3.0]).item()
    1.0
    """
    return _extreme("nanmin", reduce.min, x, np.inf, axis, keepdims)


def _extreme(name: str, take: Any, x: Any, instead: float, axis: Any, keepdims: bool) -> Tensor:
    filled, missing = _without(name, x, instead)
    found = take(filled, axis=axis, keepdims=keepdims)
    if missing is None:
        return found  # type: ignore[no-any-return]
    return ew.where(reduce.all(missing, axis=axis, keepdims=keepdims), float("nan"), found)


def nanargmax(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The first index of the largest element that is not NaN; 0 where all are.

    >>> mo.nanargmax([1.0, mo.nan, 3.0]).item()
    2
    """
    filled, missing = _without("nanargmax", x, -np.inf)
    return _position(reduce.argmax, filled, missing, axis, keepdims)


def nanargmin(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The first index of the smallest element that is not NaN; 0 where all are.

    >>> mo.nanargmin([mo.nan, 5.0, 3.0]).item()
    2
    """
    filled, missing = _without("nanargmin", x, np.inf)
    return _position(reduce.argmin, filled, missing, axis, keepdims)


def _position(take: Any, filled: Tensor, missing: Tensor | None, axis: Any, keepdims: bool) -> Tensor:
    """The first place of the extreme; of infinities that stand where a NaN was and those of x, the first of x."""
    found = take(filled, axis=axis, keepdims=True)
    if missing is not None:
        best = (reduce.max if take is reduce.argmax else reduce.min)(filled, axis=axis, keepdims=True)
        hit = ew.logical_and(ew.logical_not(missing), ew.equal(filled, best))
        found = reduce.argmax(hit, axis=axis, keepdims=True)
    if keepdims:
        return found  # type: ignore[no-any-return]
    return reduce.max(found, axis=axis)


def nanmean(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean of the elements that are not NaN; NaN where all are.

    >>> mo.nanmean([1.0, mo.nan, 3.0]).item()
    2.0
    """
    found = floating("nanmean", x)
    return _mean(found if dtype is None else ew.astype(found, as_dtype(dtype)), axis, keepdims)


def _mean(x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    missing = ew.isnan(x)
    wide = x.dtype.compute
    total = reduce.sum(ew.where(missing, 0.0, ew.astype(x, wide)), axis=axis, keepdims=keepdims)
    return ew.astype(total / _count(missing, wide, axis, keepdims), x.dtype)


def _count(missing: Tensor, dtype: Any, axis: Any, keepdims: bool) -> Tensor:
    return ew.astype(reduce.count_nonzero(ew.logical_not(missing), axis=axis, keepdims=keepdims), dtype)


def nanvar(x: Any, /, *, axis: Any = None, dtype: Any = None, ddof: float | None = None, correction: float = 0.0,
           keepdims: bool = False) -> Tensor:
    """The variance of the elements that are not NaN; NaN where no more are left than `correction`, which NumPy and
    those who call its functions name `ddof`.

    >>> mo.nanvar([1.0, mo.nan, 3.0]).item()
    1.0
    """
    found, rounded = _variance("nanvar", x, axis, dtype, ddof, correction, keepdims)
    return ew.astype(found, rounded)


def nanstd(x: Any, /, *, axis: Any = None, dtype: Any = None, ddof: float | None = None, correction: float = 0.0,
           keepdims: bool = False) -> Tensor:
    """The square root of `nanvar`.

    >>> mo.nanstd([1.0, mo.nan, 3.0]).item()
    1.0
    """
    found, rounded = _variance("nanstd", x, axis, dtype, ddof, correction, keepdims)
    return ew.astype(ew.sqrt(found), rounded)


def _variance(name: str, x: Any, axis: Any, dtype: Any, ddof: Any, correction: Any,
              keepdims: bool) -> tuple[Tensor, DType]:
    """The variance as wide as it is computed, and the dtype that it is rounded to."""
    if ddof is not None and is_scalar(correction) and correction != 0:
        raise fail(ArgumentError, name, "ddof and correction are two names of one number", "give one of them")
    correction = correction if ddof is None else ddof
    if not is_scalar(correction) or isinstance(correction, complex):
        raise fail(ArgumentError, name, f"correction {correction!r} is not a number")
    values = floating(name, x)
    values = values if dtype is None else ew.astype(values, as_dtype(dtype))
    missing, wide = ew.isnan(values), values.dtype.compute
    full = ew.astype(values, wide)
    centred = ew.where(missing, 0.0, full - _mean(full, axis, True))
    total = reduce.sum(centred * centred, axis=axis, keepdims=keepdims)
    left = _count(missing, float64, axis, keepdims) - float(correction)
    divisor = ew.where(ew.greater(left, 0), left, float("nan"))
    return total / ew.astype(divisor, wide), values.dtype


def nan_to_num(x: Any, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in place of NaN and infinities: 0 and the largest and smallest of the dtype unless given.

    >>> mo.nan_to_num([mo.nan, 1.0, -mo.inf], neginf=-9.0).tolist()
    [0.0, 1.0, -9.0]
    """
    tensor = Tensor.of_node(as_node(x, "nan_to_num"))
    if tensor.dtype.is_complex:
        from morpho.ir.node import build

        parts = [nan_to_num(part(tensor), nan=nan, posinf=posinf, neginf=neginf) for part in (ew.real, ew.imag)]
        return Tensor.of_node(build("complex", *[part.node for part in parts]))
    if not tensor.dtype.is_float:
        return tensor
    limits = finfo(tensor.dtype)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    found = ew.where(ew.isnan(tensor), nan, tensor)
    found = ew.where(ew.equal(found, float("inf")), high, found)
    return ew.where(ew.equal(tensor, float("-inf")), low, found)
