"""Functions with all the arguments that NumPy and PyTorch give them, by the name of Morpho's function: they take the
calls that the plain function refuses."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import as_dtype
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.shapes import normalise_axes

Pair = namedtuple("Pair", "values indices")
WIDE: dict[str, Callable[..., Any]] = {}


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    WIDE[function.__name__.removesuffix("_")] = function
    return function


def unsaid(name: str, numpy_spelling: str, torch_spelling: str) -> Exception:
    """The error for a call that NumPy and PyTorch would answer differently."""
    return fail(ArgumentError, name, "NumPy and PyTorch mean different things by this call",
                f"write {numpy_spelling} for NumPy's meaning, {torch_spelling} for PyTorch's")


@wide
def round_(x: Any, decimals: int = 0, out: Any = None) -> mo.Tensor:
    """x rounded to so many decimals, ties to even; of a float x scaled by a power of ten, as NumPy rounds."""
    x = mo.asarray(x)
    if decimals == 0 or (x.dtype.is_integer and decimals > 0):
        return _put(out, mo.round(x))
    if x.dtype.is_integer:
        scale = 10 ** -decimals
        return _put(out, mo.astype(mo.round(mo.astype(x, mo.float64) / scale) * scale, x.dtype))
    scale = 10.0 ** abs(decimals)
    return _put(out, mo.round(x * scale) / scale if decimals > 0 else mo.round(x / scale) * scale)


def _put(out: Any, result: mo.Tensor) -> mo.Tensor:
    return result if out is None else put_out_of(out, result)


def put_out_of(out: Any, result: mo.Tensor) -> mo.Tensor:
    """Assign a result to the tensor of `out=`, as `out[...] = result` does, and return it."""
    if isinstance(out, tuple):
        (out,) = out
    if not isinstance(out, mo.Tensor | np.ndarray):
        raise fail(ArgumentError, "out", f"out={out!r} is neither a tensor nor an array of NumPy")
    if not isinstance(out, mo.Tensor):
        np.copyto(out, result.numpy(), casting="same_kind")
        return out  # type: ignore[return-value]
    if tuple(out.shape) != tuple(result.shape):
        raise fail(ShapeError, "out", f"a result of shape {tuple(result.shape)} is not put into a tensor of shape "
                                      f"{tuple(out.shape)}", "leave out= away")
    out[...] = result if result.dtype is out.dtype else result.astype(out.dtype)
    return out


@wide
def where_(condition: Any, input: Any = None, other: Any = None, x: Any = None, y: Any = None) -> Any:
    """With the condition alone the places at which it holds, an index array for each axis."""
    first, second = input if input is not None else x, other if other is not None else y
    mask = mo.asarray(condition)
    if first is None and second is None:
        return mo.nonzero(mask)
    return mo.where(mask if mask.dtype is mo.bool else mask != 0, first, second)


def _extreme(name: str, x: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any, dim: Any,
             keepdim: bool) -> Any:
    if isinstance(axis, mo.Tensor) or (isinstance(axis, np.ndarray) and axis.ndim):
        raise fail(ArgumentError, name, "NumPy reads a tensor as second argument as axes, and PyTorch as values to "
                   "compare with", f"write mo.{name}(a, axis=int(b)), or mo.{name}imum(a, b) for PyTorch's meaning")
    if isinstance(out, bool):
        raise unsaid(name, f"mo.{name}(x, axis={axis}, keepdims={out})", f"mo.{name}(x, dim={axis}, keepdim={out})")
    function = getattr(mo, name)
    if dim is not None:
        x = mo.asarray(x)
        indices = getattr(mo, f"arg{name}")(x, axis=dim, keepdims=True)
        values = mo.take_along_axis(x, indices, axis=dim) if x.ndim else x
        return Pair(values, indices) if keepdim or keepdims or not x.ndim else Pair(
            mo.squeeze(values, dim), mo.squeeze(indices, dim))
    result = _masked(name, x, where, initial)
    result = function(result, axis=axis, keepdims=bool(keepdims or keepdim))
    if initial is not None:
        result = getattr(mo, f"{name}imum")(result, initial)
    return _put(out, result)


def _masked(name: str, x: Any, where: Any, initial: Any) -> mo.Tensor:
    x = mo.asarray(x)
    if where is None or where is True:
        return x
    if initial is None:
        raise fail(ArgumentError, name, "where= needs initial=, the value of no elements", "give initial=")
    return mo.where(mo.asarray(where), x, initial)


@wide
def max_(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None, *,
         dim: Any = None, keepdim: bool = False) -> Any:
    """The largest elements; with PyTorch's `dim=` the pair (values, indices)."""
    return _extreme("max", x, axis, out, keepdims, initial, where, dim, keepdim)


@wide
def min_(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None, *,
         dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest elements; with PyTorch's `dim=` the pair (values, indices)."""
    return _extreme("min", x, axis, out, keepdims, initial, where, dim, keepdim)


def _total(name: str, neutral: Any, x: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, initial: Any,
           where: Any) -> mo.Tensor:
    if isinstance(dtype, bool):  # PyTorch's order: x, dim, keepdim
        dtype, keepdims = None, dtype
    x = mo.asarray(x)
    if where is not None and where is not True:
        x = mo.where(mo.asarray(where), x, mo.asarray(neutral, dtype=x.dtype))
    result = getattr(mo, name)(x, axis=axis, dtype=dtype, keepdims=bool(keepdims))
    if initial is not None:
        result = result + initial if name == "sum" else result * initial
    return _put(out, result)


@wide
def sum_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
         where: Any = None) -> mo.Tensor:
    return _total("sum", 0, x, axis, dtype, out, keepdims, initial, where)


@wide
def prod_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
          where: Any = None) -> mo.Tensor:
    return _total("prod", 1, x, axis, dtype, out, keepdims, initial, where)


def check_fractions(name: str, dtype: Any) -> None:
    """Refuse `dtype=` of whole numbers for a mean or a deviation, where NumPy drops fractions of sums too."""
    if dtype is not None and not as_dtype(dtype).is_inexact:
        raise fail(ArgumentError, name, f"dtype={dtype} holds no fractions", "leave dtype= out, and convert the result")


@wide
def mean_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *,
          where: Any = None) -> mo.Tensor:
    if isinstance(dtype, bool):
        dtype, keepdims = None, dtype
    check_fractions("mean", dtype)
    x = mo.asarray(x) if dtype is None else mo.astype(mo.asarray(x), dtype)
    if where is not None and where is not True:
        mask = mo.broadcast_to(mo.asarray(where), x.shape)
        total = mo.sum(mo.where(mask, x, mo.zeros_like(x)), axis=axis, keepdims=bool(keepdims))
        return _put(out, total / mo.sum(mask, axis=axis, keepdims=bool(keepdims)).astype(total.dtype))
    return _put(out, mo.mean(x, axis=axis, keepdims=bool(keepdims)))


def _spread(name: str, x: Any, axis: Any, dtype: Any, out: Any, correction: Any, keepdims: Any, dim: Any,
            ddof: Any, unbiased: Any) -> mo.Tensor:
    if ddof is not None:
        correction = ddof
    if unbiased is not None:
        correction = int(unbiased)
    if dim is not None and correction is None:
        raise fail(ArgumentError, name, "with dim= PyTorch divides by n - 1, and with axis= NumPy by n",
                   f"write axis={dim} for NumPy's meaning, axis={dim}, correction=1 for PyTorch's")
    if isinstance(dtype, bool) or isinstance(axis, bool):  # PyTorch's (x, unbiased) and (x, dim, unbiased, keepdim)
        unbiased, place = (axis, "") if isinstance(axis, bool) else (dtype, f"axis={axis}, ")
        raise unsaid(name, f"mo.{name}(x, {place}correction=0)", f"mo.{name}(x, {place}correction={int(unbiased)})")
    check_fractions(name, dtype)
    x = mo.asarray(x) if dtype is None else mo.astype(mo.asarray(x), dtype)
    return _put(out, getattr(mo, name)(x, axis=dim if axis is None else axis,
                                       correction=0 if correction is None else correction, keepdims=bool(keepdims)))


@wide
def std_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, correction: Any = None, keepdims: Any = False, *,
         dim: Any = None, ddof: Any = None, unbiased: Any = None) -> mo.Tensor:
    return _spread("std", x, axis, dtype, out, correction, keepdims, dim, ddof, unbiased)


@wide
def var_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, correction: Any = None, keepdims: Any = False, *,
         dim: Any = None, ddof: Any = None, unbiased: Any = None) -> mo.Tensor:
    return _spread("var", x, axis, dtype, out, correction, keepdims, dim, ddof, unbiased)


def _truth(name: str, x: Any, axis: Any, out: Any, keepdims: Any, where: Any) -> mo.Tensor:
    if isinstance(out, bool):
        out, keepdims = None, out
    x = mo.asarray(x)
    if where is not None and where is not True:
        x = mo.where(mo.asarray(where), x != 0 if x.dtype is not mo.bool else x, name == "all")
    return _put(out, getattr(mo, name)(x, axis=axis, keepdims=bool(keepdims)))


@wide
def any_(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None) -> mo.Tensor:
    return _truth("any", x, axis, out, keepdims, where)


@wide
def all_(x: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = None) -> mo.Tensor:
    return _truth("all", x, axis, out, keepdims, where)


@wide
def sort_(x: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None, descending: bool = False,
          dim: Any = None) -> Any:
    """Sorted elements; with PyTorch's `dim=` the pair (values, indices)."""
    if dim is None:
        return mo.sort(x, axis=axis, descending=descending)
    if mo.asarray(x).ndim == 0:
        return Pair(mo.asarray(x), mo.asarray(0))
    indices = mo.argsort(x, axis=dim, descending=descending)
    return Pair(mo.take_along_axis(mo.asarray(x), indices, axis=dim), indices)


@wide
def argsort_(x: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None,
             descending: bool = False) -> mo.Tensor:
    if isinstance(kind, bool):  # PyTorch's order: x, dim, descending
        descending = kind
    return mo.argsort(x, axis=axis, descending=descending)


@wide
def median_(x: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False, *,
            dim: Any = None, keepdim: bool = False) -> Any:
    """The median; with PyTorch's `dim=` the pair of the lower middle element and its index."""
    if dim is None:
        return _put(out, mo.median(x, axis=axis, keepdims=bool(keepdims)))
    x = mo.asarray(x)
    if x.ndim == 0:
        return Pair(x, mo.asarray(0))
    order = mo.argsort(x, axis=dim)
    index = mo.take(order, mo.asarray([(x.shape[dim] - 1) // 2]), axis=dim)
    values = mo.take_along_axis(x, index, axis=dim)
    return Pair(values, index) if keepdim or keepdims else Pair(mo.squeeze(values, dim), mo.squeeze(index, dim))


@wide
def nanmedian_(x: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False, *,
               dim: Any = None, keepdim: bool = False) -> Any:
    """The median without NaN; with PyTorch's `dim=` the pair of the lower middle element and its index."""
    if dim is None:
        return _put(out, mo.nanmedian(x, axis=axis, keepdims=bool(keepdims)))
    x = mo.asarray(x)
    if x.ndim == 0:
        return Pair(x, mo.asarray(0))
    numbers = mo.sum(mo.logical_not(mo.isnan(x)), axis=dim, keepdims=True)
    order = mo.argsort(x, axis=dim)  # NaN stands last
    index = mo.take_along_axis(order, mo.maximum((numbers - 1) // 2, 0), axis=dim)
    values = mo.take_along_axis(x, index, axis=dim)
    return Pair(values, index) if keepdim or keepdims else Pair(mo.squeeze(values, dim), mo.squeeze(index, dim))


def _running(name: str, x: Any, dim: int) -> Pair:
    return Pair(*getattr(mo, name)(x, axis=dim, return_indices=True))


@wide
def cummax_(x: Any, dim: int) -> Pair:
    return _running("cummax", x, dim)


@wide
def cummin_(x: Any, dim: int) -> Pair:
    return _running("cummin", x, dim)


@wide
def split_(x: Any, sections: Any = None, axis: int = 0, *, dim: int | None = None, split_size_or_sections: Any = None,
           split_size: Any = None) -> tuple[mo.Tensor, ...]:
    """As many parts as NumPy's `sections` says; with PyTorch's `dim=` parts of a size, or of each size."""
    size = next((one for one in (split_size_or_sections, split_size) if one is not None), None)
    if dim is None and size is None:
        return mo.split(x, sections, axis=axis)
    return split_sizes(x, sections if size is None else size, axis if dim is None else dim)


def split_sizes(x: Any, size: Any, dim: int = 0) -> tuple[mo.Tensor, ...]:
    """Parts of a size, the last one what is left; or parts of the sizes in a list: PyTorch's `split`."""
    x = mo.asarray(x)
    total = x.shape[dim]
    if isinstance(size, int):
        if size < 1:
            raise fail(ArgumentError, "split", f"parts of {size} elements cannot be made")
        ends = list(range(size, total, size))
    else:
        sizes = [int(one) for one in size]
        if sum(sizes) != total:
            raise fail(ArgumentError, "split", f"sizes {sizes} do not add up to {total}, the size of axis {dim}")
        ends = np.cumsum(sizes)[:-1].tolist()
    return mo.split(x, ends, axis=dim)


@wide
def divide_(x1: Any, x2: Any, *, rounding_mode: str | None = None) -> mo.Tensor:
    """x1 / x2, rounded towards zero ("trunc") or down ("floor") as PyTorch's `rounding_mode` says."""
    if rounding_mode is None:
        return mo.divide(x1, x2)
    if rounding_mode == "floor":
        return mo.floor_divide(x1, x2)
    if rounding_mode != "trunc":
        raise fail(ArgumentError, "divide", f"rounding_mode {rounding_mode!r} is neither None, 'trunc' nor 'floor'")
    x1, x2 = mo.broadcast_arrays(mo.asarray(x1), mo.asarray(x2))
    if x1.dtype.is_integer and x2.dtype.is_integer:
        down = mo.floor_divide(x1, x2)
        inexact = mo.not_equal(mo.multiply(down, x2), x1)
        return mo.where(mo.logical_and(inexact, mo.less(down, 0)), down + 1, down)
    return mo.trunc(mo.divide(x1, x2))


@wide
def softplus_(x: Any, beta: float = 1.0, threshold: float = 20.0) -> mo.Tensor:
    """log(1 + exp(beta * x)) / beta, x itself where beta * x is above the threshold."""
    x = mo.asarray(x)
    scaled = x * beta
    return mo.where(scaled > threshold, x, mo.softplus(scaled) / beta)


@wide
def linspace_(start: Any, stop: Any = None, num: int = 50, endpoint: bool = True, retstep: bool = False,
              dtype: Any = None, axis: int = 0, *, end: Any = None, steps: Any = None, device: Any = None) -> Any:
    stop = end if stop is None else stop
    num = num if steps is None else steps
    if isinstance(start, mo.Tensor | np.ndarray | list) or isinstance(stop, mo.Tensor | np.ndarray | list):
        start, stop = mo.broadcast_arrays(mo.asarray(start), mo.asarray(stop))
        share = mo.linspace(0.0, 1.0, num, endpoint=endpoint) if num != 1 else mo.zeros(1)
        share = mo.reshape(share, (-1, *[1] * start.ndim))
        made = mo.moveaxis(start * (1 - share) + stop * share, 0, axis)
        made = made if dtype is None else mo.astype(made, dtype)
    else:
        made = mo.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device)
    gaps = num - 1 if endpoint else num
    return (made, (stop - start) / gaps if gaps > 0 else mo.nan) if retstep else made


@wide
def squeeze_(x: Any, axis: Any = None, *, dim: Any = None) -> mo.Tensor:
    """Without axes of size 1: all of them, or those that are named; PyTorch's `dim=` leaves others in place."""
    x = mo.asarray(x)
    if dim is not None:
        axes = normalise_axes(tuple(dim) if isinstance(dim, list) else dim, x.ndim, "squeeze") if x.ndim else ()
        axis = tuple(i for i in axes if x.shape[i] == 1)
    elif axis is None:
        axis = tuple(i for i, size in enumerate(x.shape) if size == 1)
    return mo.squeeze(x, axis)


@wide
def gradient_(y: Any, *gaps: Any, axis: Any = None, edge_order: int = 1, spacing: Any = None, dim: Any = None) -> Any:
    """Slopes along one axis, or a list of those along several, with NumPy's spacings and `edge_order`; PyTorch's are
    `spacing=` and `dim=`."""
    y = mo.asarray(y)
    y = y if y.dtype.is_inexact else y.astype(mo.float32)
    axis = dim if axis is None else axis
    if spacing is not None:
        gaps = tuple(spacing) if isinstance(spacing, tuple | list) else (spacing,)
    if edge_order not in (1, 2):
        raise fail(ArgumentError, "gradient", f"edge_order {edge_order!r} is neither 1 nor 2")
    axes = tuple(range(y.ndim)) if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    gaps = gaps or (1.0,)
    gaps = gaps * len(axes) if len(gaps) == 1 else gaps
    if len(gaps) != len(axes):
        raise fail(ArgumentError, "gradient", f"{len(gaps)} spacings are given for {len(axes)} axes")
    slopes = [_slope(y, gap, one, edge_order) for gap, one in zip(gaps, axes, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(y: mo.Tensor, gap: Any, axis: int, edge_order: int) -> mo.Tensor:
    inner = mo.gradient(y, gap, axis=axis)
    if edge_order == 1:
        return inner
    line = mo.moveaxis(y, axis, -1)
    if line.shape[-1] < 3:
        raise fail(ArgumentError, "gradient", "edge_order=2 needs three points")
    if np.ndim(gap):
        steps = mo.diff(mo.asarray(gap))
        a, b, c, d = steps[0], steps[1], steps[-2], steps[-1]
    else:
        a = b = c = d = gap
    first = (-(2 * a + b) / (a * (a + b)) * line[..., 0] + (a + b) / (a * b) * line[..., 1]
             - a / (b * (a + b)) * line[..., 2])
    last = (d / (c * (c + d)) * line[..., -3] - (c + d) / (c * d) * line[..., -2]
            + (2 * d + c) / (d * (c + d)) * line[..., -1])
    middle = mo.moveaxis(inner, axis, -1)
    return mo.moveaxis(mo.concat([first[..., None], middle[..., 1:-1], last[..., None]], axis=-1), -1, axis)


@wide
def permute_dims_(x: Any, *axes: Any, dims: Any = None) -> mo.Tensor:
    axes = dims if dims is not None else axes
    return mo.permute_dims(x, tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], tuple | list) else tuple(axes))


@wide
def expand_dims_(a: Any, axis: Any) -> mo.Tensor:
    return mo.expand_dims(a, axis)


@wide
def flip_(x: Any, axis: Any = None, *more: int, dims: Any = None) -> mo.Tensor:
    axis = dims if dims is not None else axis
    return mo.flip(x, axis=(axis, *more) if more else tuple(axis) if isinstance(axis, list) else axis)


def scatter_along(input: Any, dim: int, index: Any, src: Any, reduce: str | None = None,
                  include_self: bool = True) -> mo.Tensor:
    """PyTorch's scatter, whose index and source may be shorter than the input."""
    input, index = mo.asarray(input), mo.asarray(index)
    if input.ndim == 0 and dim in (0, -1):
        line = src[None] if isinstance(src, mo.Tensor) and src.ndim == 0 else src
        return scatter_along(input[None], 0, mo.reshape(index, (-1,)), line, reduce, include_self)[0]
    if 0 in index.shape:
        return input
    dim = dim % input.ndim
    if isinstance(src, mo.Tensor | np.ndarray):
        src = mo.asarray(src)[tuple(slice(0, size) for size in index.shape)]
    else:
        src = mo.full(index.shape, src, dtype=input.dtype)
    sizes = tuple(input.shape[axis] if axis == dim else size for axis, size in enumerate(index.shape))
    part = input[tuple(slice(0, size) for size in sizes)]
    if reduce in (None, "set"):
        made = mo.scatter(part, index, src, axis=dim)
    elif reduce == "add" and part.dtype is mo.bool:
        made = mo.scatter_reduce(part, index, src, reduce="amax", axis=dim)
    elif reduce == "add":
        made = mo.scatter_add(part, index, src, axis=dim)
    elif reduce == "multiply":
        made = mo.scatter_reduce(part, index, src, reduce="prod", axis=dim)
    else:
        made = mo.scatter_reduce(part, index, src, reduce=reduce, axis=dim, include_self=include_self)
    if sizes == tuple(input.shape):
        return made
    whole = mo.asarray(input, copy=True)
    whole[tuple(slice(0, size) for size in sizes)] = made
    return whole


@wide
def scatter_(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None) -> mo.Tensor:
    """PyTorch's scatter: `src` put at `index` along `dim`; see mo.scatter for (x, indices, values, axis=)."""
    return scatter_along(input, dim, index, src if value is None else value, reduce)


@wide
def scatter_add_(input: Any, dim: int, index: Any, src: Any) -> mo.Tensor:
    return scatter_along(input, dim, index, src, "add")


@wide
def scatter_reduce_(input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> mo.Tensor:
    return scatter_along(input, dim, index, src, reduce, include_self)


@wide
def cov_(x: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
         aweights: Any = None, *, correction: Any = None, dtype: Any = None) -> mo.Tensor:
    given = ddof if ddof is not None else correction
    return mo.cov(x, y, rowvar=rowvar, correction=given if given is not None else 0 if bias else 1, fweights=fweights,
                  aweights=aweights)


@wide
def average_(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    mean = mo.average(a, axis=axis, weights=weights, keepdims=keepdims)
    if not returned:
        return mean
    a = mo.asarray(a)
    if weights is None:
        total = mo.full_like(mean, a.size // max(mean.size, 1))
    else:
        weights = mo.asarray(weights)
        total = mo.broadcast_to(mo.sum(weights, axis=axis if weights.ndim == a.ndim else None), mean.shape)
    return mean, total


@wide
def isin_(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
          kind: Any = None) -> mo.Tensor:
    return mo.isin(element, test_elements, invert=invert)


@wide
def intersect1d_(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    both = mo.intersect1d(ar1, ar2)
    if not return_indices:
        return both
    places = []
    for line in (mo.ravel(mo.asarray(ar1)), mo.ravel(mo.asarray(ar2))):
        order = mo.argsort(line)
        places.append(mo.take(order, mo.searchsorted(mo.take(line, order), both)))
    return both, *places


@wide
def setdiff1d_(ar1: Any, ar2: Any, assume_unique: bool = False) -> mo.Tensor:
    return mo.setdiff1d(ar1, ar2)


@wide
def searchsorted_(a: Any, v: Any, side: str = "left", sorter: Any = None, *, right: bool = False,
                  out_int32: bool = False) -> mo.Tensor:
    places = mo.searchsorted(a, v, side="right" if right else side, sorter=sorter)
    return places.astype(mo.int32) if out_int32 else places


@wide
def unique_(x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
            axis: Any = None, *, sorted: bool = True, equal_nan: bool = True, dim: Any = None) -> Any:
    """Distinct elements in rising order, or distinct slices along an axis."""
    axis = dim if axis is None else axis
    wanted: dict[str, Any] = {"return_index": return_index, "return_inverse": return_inverse,
                              "return_counts": return_counts}
    if axis is None:
        return mo.unique(x, **wanted)
    x = mo.asarray(x)
    parts = np.unique(x.numpy(), axis=axis, **wanted)  # rows of a known number: computed now
    return tuple(mo.asarray(part) for part in parts) if isinstance(parts, tuple) else mo.asarray(parts)


@wide
def logsumexp_(x: Any, axis: Any = None, keepdims: bool = False, *, b: Any = None) -> mo.Tensor:
    x = mo.asarray(x)
    if b is not None:
        b = mo.asarray(b)
        most = mo.stop_gradient(mo.max(x, axis=axis, keepdims=True))
        total = mo.log(mo.sum(b * mo.exp(x - most), axis=axis, keepdims=True)) + most
        return total if keepdims else mo.reshape(total, mo.sum(x, axis=axis).shape)
    return mo.logsumexp(x, axis=axis, keepdims=keepdims)


@wide
def one_hot_(tensor: Any, num_classes: int = -1) -> mo.Tensor:
    tensor = mo.asarray(tensor)
    return mo.one_hot(tensor, int(mo.max(tensor).item()) + 1 if num_classes == -1 else num_classes, dtype=mo.int64)


@wide
def tile_(x: Any, *repetitions: Any, dims: Any = None, reps: Any = None) -> mo.Tensor:
    given = next((one for one in (dims, reps) if one is not None), repetitions)
    return mo.tile(x, given[0] if isinstance(given, tuple) and len(given) == 1 else given)


@wide
def broadcast_to_(x: Any, size: Any = None, *, shape: Any = None) -> mo.Tensor:
    return mo.broadcast_to(x, size if shape is None else shape)


def _quantile(name: str, x: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, interpolation: Any,
              dim: Any) -> mo.Tensor:
    if isinstance(out, bool):
        out, keepdims = None, out
    method = interpolation or method
    axis = dim if axis is None else axis
    return _put(out, getattr(mo, name)(x, mo.asarray(q) if isinstance(q, list) else q, axis=axis,
                                       keepdims=bool(keepdims),
                                       method=method))


def _make_quantile(name: str) -> Callable[..., Any]:
    def function(x: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False,
                 method: str = "linear", keepdims: Any = False, *, interpolation: Any = None, dim: Any = None,
                 keepdim: bool = False) -> mo.Tensor:
        return _quantile(name, x, q, axis, out, method, keepdims or keepdim, interpolation, dim)

    function.__name__ = name
    return wide(function)


for _name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    _make_quantile(_name)


@wide
def asarray_(obj: Any, dtype: Any = None, *, device: Any = None, copy: Any = None, requires_grad: bool = False,
             ndmin: int = 0) -> mo.Tensor:
    made = mo.asarray(obj, dtype=dtype, device=device, copy=copy)
    while made.ndim < ndmin:
        made = made[None]
    return made.requires_grad_() if requires_grad else made


@wide
def meshgrid_(*arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> list[mo.Tensor]:
    lines = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else arrays
    grids = mo.meshgrid(*lines, indexing=indexing)
    if not sparse:
        return grids
    order = [1, 0, *range(2, len(lines))] if indexing == "xy" and len(lines) > 1 else list(range(len(lines)))
    shapes = [tuple(-1 if axis == place else 1 for axis in range(len(lines))) for place in order]
    return [mo.reshape(mo.asarray(line), shape) for line, shape in zip(lines, shapes, strict=True)]


@wide
def pad_(x: Any, pad_width: Any = None, mode: str = "constant", *, constant_values: Any = None, value: Any = None,
         pad: Any = None, **settings: Any) -> mo.Tensor:
    if pad is not None or (value is not None and constant_values is None and isinstance(pad_width, tuple)):
        raise fail(ArgumentError, "pad", "NumPy and PyTorch count axes from different ends",
                   "write mo.pad(x, widths, mode) for NumPy's meaning, mo.nn.functional.pad(x, pad) for PyTorch's")
    if mode in ("constant", "edge", "reflect", "wrap", "symmetric") and not settings:
        number = {} if constant_values is None and value is None else {
            "value": constant_values if constant_values is not None else value}
        return mo.pad(x, pad_width, mode=mode, **number)
    raise fail(ArgumentError, "pad", f"mode {mode!r} with {', '.join(settings) or 'no settings'} is not taken")


@wide
def histogram_(x: Any, bins: Any = 10, range: Any = None, density: Any = False, weights: Any = None, *,
               weight: Any = None) -> Any:
    return mo.histogram(x, bins, range=range, density=bool(density), weights=weight if weights is None else weights)


@wide
def cumulative_sum_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    return _put(out, _cumulative("cumulative_sum", x, axis, dtype))


@wide
def cumulative_prod_(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    return _put(out, _cumulative("cumulative_prod", x, axis, dtype))


def _cumulative(name: str, x: Any, axis: Any, dtype: Any) -> mo.Tensor:
    x = mo.asarray(x)
    if axis is None and x.ndim != 1:
        x = mo.ravel(x)
    return getattr(mo, name)(x, axis=axis, dtype=dtype)


def _columns_first(x: mo.Tensor) -> mo.Tensor:
    return mo.permute_dims(x, tuple(reversed(range(x.ndim))))


def _check_order(name: str, order: Any) -> bool:
    """Whether elements are read with the first axis fastest; "A" and "K" ask how an array lies, which is by rows."""
    if order not in ("C", "F", "A", "K", None):
        raise fail(ArgumentError, name, f"order {order!r} is unknown", "use 'C' or 'F'")
    return order == "F"


@wide
def reshape_(x: Any, *shape: Any, order: Any = "C", newshape: Any = None, copy: Any = None) -> mo.Tensor:
    """The elements in another shape; with NumPy's `order="F"` both are read with the first axis fastest."""
    x = mo.asarray(x)
    sizes = newshape if newshape is not None else shape[0] if len(shape) in (1, 2) and not isinstance(
        shape[0], int) else shape
    if len(shape) == 2 and isinstance(shape[1], str):
        sizes, order = shape
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not _check_order("reshape", order):
        return mo.reshape(x, sizes, copy=copy)
    return _columns_first(mo.reshape(_columns_first(x), tuple(reversed(sizes))))


@wide
def ravel_(x: Any, order: Any = "C") -> mo.Tensor:
    return mo.ravel(_columns_first(mo.asarray(x)) if _check_order("ravel", order) else x)


@wide
def unravel_index_(indices: Any, shape: Any, order: Any = "C") -> tuple[mo.Tensor, ...]:
    if not _check_order("unravel_index", order):
        return mo.unravel_index(indices, shape)
    return tuple(reversed(mo.unravel_index(indices, tuple(reversed(shape)))))


@wide
def nonzero_(x: Any, *, as_tuple: bool = True) -> Any:
    """The places of elements that are not zero, an index for each axis; with PyTorch's `as_tuple=False` as rows."""
    return mo.nonzero(mo.atleast_1d(mo.asarray(x))) if as_tuple else mo.argwhere(x)


@wide
def unique_consecutive_(x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    """Elements, or slices along `dim`, that differ from the one before."""
    if dim is None:
        return mo.unique_consecutive(x, return_inverse=return_inverse, return_counts=return_counts)
    x = mo.asarray(x)
    lines = np.moveaxis(x.numpy(), dim, 0)  # how many there are is data
    flat = lines.reshape(len(lines), -1) if lines.size else lines.reshape(len(lines), 0)
    new = np.concatenate([np.ones(min(len(flat), 1), bool), np.any(flat[1:] != flat[:-1], axis=1)])
    starts = np.flatnonzero(new)
    parts = [mo.take(x, mo.asarray(starts), axis=dim)]
    if return_inverse:
        parts.append(mo.asarray((np.cumsum(new) - 1).astype(np.int64)))
    if return_counts:
        parts.append(mo.asarray(np.diff(np.append(starts, len(flat))).astype(np.int64)))
    return parts[0] if len(parts) == 1 else tuple(parts)


@wide
def cdist_(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> mo.Tensor:
    return mo.cdist(x1, x2, p=p)


@wide
def stft_(input: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None,
          center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: Any = None,
          return_complex: Any = None, align_to_window: Any = None) -> mo.Tensor:
    """PyTorch's: of complex signals all frequencies; `return_complex=False` gives pairs of real numbers."""
    input = mo.asarray(input)
    if align_to_window:
        raise fail(ArgumentError, "stft", "align_to_window=True is not taken", "leave it out")
    settings: dict[str, Any] = {"center": center, "pad_mode": pad_mode, "normalized": normalized}
    if input.dtype.is_complex or (window is not None and mo.asarray(window).dtype.is_complex):
        if onesided:
            raise fail(ArgumentError, "stft", "a complex signal has no half of its frequencies",
                       "leave onesided out")
        if window is not None and mo.asarray(window).dtype.is_complex:
            raise fail(ArgumentError, "stft", "a complex window is not taken", "give a real one")
        parts = [mo.stft(part, n_fft, hop_length, win_length, window, onesided=False, **settings)
                 for part in (mo.real(input), mo.imag(input))]
        made = parts[0] + 1j * parts[1]
    else:
        made = mo.stft(input, n_fft, hop_length, win_length, window, onesided=onesided is not False, **settings)
    return mo.stack([mo.real(made), mo.imag(made)], axis=-1) if return_complex is False else made


@wide
def istft_(input: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None,
           center: bool = True, normalized: bool = False, onesided: Any = None, length: Any = None,
           return_complex: bool = False) -> mo.Tensor:
    if return_complex:
        raise fail(ArgumentError, "istft", "signals are real here", "leave return_complex out")
    return mo.istft(input, n_fft, hop_length, win_length, window, center=center, normalized=normalized,
                    onesided=onesided, length=length)


def _pool_of_sums(rank: int) -> Callable[..., Any]:
    def pool(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> mo.Tensor:
        """PyTorch's order of arguments; `divisor_override` is what sums of windows are divided by."""
        function = getattr(mo, f"avg_pool{rank}d")
        x = mo.asarray(x)
        if divisor_override is None:
            return function(x, kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
                            count_include_pad=count_include_pad)
        if ceil_mode:
            raise fail(ArgumentError, function.__name__, "divisor_override with ceil_mode=True is not taken",
                       "pad the images yourself")
        sizes = (kernel_size,) * rank if isinstance(kernel_size, int) else tuple(kernel_size) * (
            rank if len(kernel_size) == 1 else 1)
        mean = function(x, kernel_size, stride=stride, padding=padding, count_include_pad=True)
        return mean * (math.prod(sizes) / divisor_override)

    pool.__name__ = f"avg_pool{rank}d"
    return wide(pool)


for _rank in (1, 2, 3):
    _pool_of_sums(_rank)


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def pool(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        """The largest of each window; with PyTorch's `return_indices` their places too."""
        name = f"adaptive_max_pool{rank}d"
        if return_indices:
            return getattr(mo.nn.functional, f"{name}_with_indices")(x, output_size)
        return getattr(mo, name)(x, output_size)

    pool.__name__ = f"adaptive_max_pool{rank}d"
    return wide(pool)


for _rank in (1, 2):
    _adaptive_max_pool(_rank)


# -- linear algebra ------------------------------------------------------------------------------------------------
def _hermitian(x: Any, uplo: str) -> mo.Tensor:
    """The matrix whose one triangle is that of x, so that the other is not looked at."""
    x = mo.asarray(x)
    if uplo not in ("L", "U", "l", "u"):
        raise fail(ArgumentError, "eigh", f"UPLO {uplo!r} is neither 'L' nor 'U'")
    lower = uplo in ("L", "l")
    half = mo.tril(x, k=-1) if lower else mo.triu(x, k=1)
    middle = (mo.tril(x) if lower else mo.triu(x)) - half
    middle = mo.real(middle).astype(x.dtype) if x.dtype.is_complex else middle
    return half + middle + mo.conj(mo.matrix_transpose(half))


@wide
def eigh_(a: Any, UPLO: str = "L") -> Any:
    return mo.linalg.eigh(_hermitian(a, UPLO))


@wide
def eigvalsh_(a: Any, UPLO: str = "L") -> mo.Tensor:
    return mo.linalg.eigvalsh(_hermitian(a, UPLO))


@wide
def matrix_rank_(A: Any, tol: Any = None, hermitian: bool = False, *, atol: Any = None,
                 rtol: Any = None) -> mo.Tensor:
    """How many singular values exceed both limits; `tol` is absolute, as in NumPy and PyTorch."""
    A = mo.asarray(A)
    values = mo.abs(mo.linalg.eigvalsh(_hermitian(A, "L"))) if hermitian else mo.linalg.svdvals(A)
    if values.shape[-1] == 0:
        return mo.count_nonzero(values, axis=-1)
    if tol is not None:
        atol, rtol = tol, 0.0
    if rtol is None:
        least = max(A.shape[-2:]) * mo.finfo(values.dtype).eps
        rtol = least if atol is None else mo.where(mo.asarray(atol) > 0, 0.0, least)
    limit = mo.maximum(mo.max(values, axis=-1) * rtol, 0.0 if atol is None else atol)
    return mo.count_nonzero(values > mo.expand_dims(limit, -1), axis=-1)


@wide
def matrix_norm_(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, keepdims: bool = False,
                 dtype: Any = None) -> mo.Tensor:
    A = mo.asarray(A) if dtype is None else mo.asarray(A).astype(dtype)
    axes = normalise_axes(tuple(dim), A.ndim, "matrix_norm")
    norms = mo.linalg.matrix_norm(mo.moveaxis(A, tuple(dim), (-2, -1)), ord=ord)
    return mo.expand_dims(norms, axes) if keepdim or keepdims else norms


@wide
def solve_triangular_(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> mo.Tensor:
    if left:
        return mo.linalg.solve_triangular(A, B, upper=upper, unitriangular=unitriangular)
    A, B = mo.asarray(A), mo.asarray(B)
    made = mo.linalg.solve_triangular(mo.matrix_transpose(A), mo.matrix_transpose(B), upper=not upper,
                                      unitriangular=unitriangular)
    return mo.matrix_transpose(made)


@wide
def pinv_(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None, atol: Any = None) -> mo.Tensor:
    if atol is not None:
        raise fail(ArgumentError, "pinv", "atol= is not taken", "give rtol=, relative to the largest singular value")
    return mo.linalg.pinv(_hermitian(a, "L") if hermitian else a, rtol=rcond if rtol is None else rtol)


@wide
def gelu_(input: Any, *, approximate: str = "none") -> mo.Tensor:
    return mo.gelu(input, approximate)
