"""Reductions, scans, sorting."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast, floating
from morpho.torch.aten.table import Context, op


def axes(x: Any, dim: Any) -> tuple[int, ...]:
    """The axes that PyTorch means: None and an empty list are all; an axis of a tensor without axes is none."""
    if x.ndim == 0:
        return ()
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return tuple(range(x.ndim))
    found = dim if isinstance(dim, list | tuple) else (dim,)
    return tuple(int(axis) % x.ndim for axis in found)


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is mo.bool else mo.not_equal(x, cast(0, x.dtype))


@op("sum.dim_IntList", "sum.default", context=True)
def total(context: Context, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if context.dtype is mo.bool:
        return any_of(x, dim, keepdim)
    return mo.sum(cast(x, context.dtype), axis=axes(x, dim), keepdims=keepdim, dtype=context.dtype)


@op("mean.default", "mean.dim", context=True)
def mean(context: Context, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return mo.mean(cast(x, context.dtype), axis=axes(x, dim), keepdims=keepdim)


@op("prod.default", context=True)
def prod(context: Context, x: Tensor, *, dtype: Any = None) -> Tensor:
    if context.dtype is mo.bool:
        return all_of(x)
    return mo.prod(cast(x, context.dtype), axis=axes(x, None), dtype=context.dtype)


@op("prod.dim_int", context=True)
def prod_dim(context: Context, x: Tensor, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if context.dtype is mo.bool:
        return all_of(x, dim, keepdim)
    return mo.prod(cast(x, context.dtype), axis=axes(x, dim), keepdims=keepdim, dtype=context.dtype)


@op("amax.default")
def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    if x.dtype is mo.bool:
        return mo.any(x, axis=axes(x, dim), keepdims=keepdim)
    return mo.max(x, axis=axes(x, dim), keepdims=keepdim) if x.ndim else x


@op("amin.default")
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    if x.dtype is mo.bool:
        return mo.all(x, axis=axes(x, dim), keepdims=keepdim)
    return mo.min(x, axis=axes(x, dim), keepdims=keepdim) if x.ndim else x


@op("max.default")
def max_all(x: Tensor) -> Tensor:
    return amax(x)


@op("min.default")
def min_all(x: Tensor) -> Tensor:
    return amin(x)


@op("any.default", "any.dim", "any.dims")
def any_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return mo.any(_truth(x), axis=axes(x, dim), keepdims=keepdim)


@op("all.default", "all.dim", "all.dims")
def all_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return mo.all(_truth(x), axis=axes(x, dim), keepdims=keepdim)


def _numbers(x: Tensor) -> Tensor:
    return mo.astype(x, mo.uint8) if x.dtype is mo.bool else x


def _index(function: Any, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if x.ndim == 0:
        return mo.zeros((), dtype=mo.int64)
    x = _numbers(x)
    if dim is None:
        found = function(mo.reshape(x, (-1,)), axis=0)
        return mo.reshape(found, (1,) * x.ndim) if keepdim else found
    return function(x, axis=dim, keepdims=keepdim)


@op("argmax.default")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _index(mo.argmax, x, dim, keepdim)


@op("argmin.default")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _index(mo.argmin, x, dim, keepdim)


@op("max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return amax(x, (dim,), keepdim), argmax(x, dim, keepdim)


@op("min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return amin(x, (dim,), keepdim), argmin(x, dim, keepdim)


def _variance(x: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    if x.dtype.is_complex:  # of the distances from the mean
        return _variance(mo.real(x), dim, correction, keepdim) + _variance(mo.imag(x), dim, correction, keepdim)
    return mo.var(cast(x, floating(x.dtype)), axis=axes(x, dim), correction=float(correction), keepdims=keepdim)


@op("var.correction")
def var(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, 1 if correction is None else correction, keepdim)


@op("var.dim")
def var_dim(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, int(unbiased), keepdim)


@op("var_mean.correction")
def var_mean(x: Tensor, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return (_variance(x, dim, 1 if correction is None else correction, keepdim),
            mo.mean(x, axis=axes(x, dim), keepdims=keepdim))


@op("logsumexp.default")
def logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    x = cast(x, floating(x.dtype))
    return mo.logsumexp(x, axis=axes(x, dim), keepdims=keepdim) if x.ndim else x


# -- along one axis ----------------------------------------------------------------------------------------------------
@op("cumsum.default", context=True)
def cumsum(context: Context, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    x = cast(x, context.dtype)
    return mo.cumulative_sum(x, axis=dim, dtype=context.dtype) if x.ndim else x


@op("cumprod.default", context=True)
def cumprod(context: Context, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    x = cast(x, context.dtype)
    return mo.cumulative_prod(x, axis=dim, dtype=context.dtype) if x.ndim else x


@op("logcumsumexp.default")
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return mo.logcumsumexp(x, axis=dim) if x.ndim else x


def _along(x: Tensor, dim: int, softly: Any, context: Context) -> Tensor:
    x = cast(x, context.dtype)
    return softly(x, axis=dim) if x.ndim else softly(mo.reshape(x, (1,)), axis=0)[0]


@op("_softmax.default", "softmax.int", context=True)
def softmax(context: Context, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return _along(x, dim, mo.softmax, context)


@op("_log_softmax.default", context=True)
def log_softmax(context: Context, x: Tensor, dim: int, *_: Any) -> Tensor:
    return _along(x, dim, mo.log_softmax, context)


def _ordered(x: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    if x.ndim == 0:
        return x, mo.zeros((), dtype=mo.int64)
    order = mo.argsort(_numbers(x), axis=dim, descending=descending, stable=True)
    return mo.take_along_axis(x, order, axis=dim), order


@op("sort.default")
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@op("sort.stable")
def sort_stable(x: Tensor, *, stable: bool | None = True, dim: int = -1,
                descending: bool = False) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@op("topk.default")
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    if x.ndim == 0:
        return x, mo.zeros((), dtype=mo.int64)
    values, indices = _ordered(x, dim, largest)
    window = (slice(None),) * (dim % x.ndim) + (slice(0, k),)
    return values[window], indices[window]


@op("bucketize.Tensor")
def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return mo.searchsorted(boundaries, x, side="right" if right else "left")


@op("linalg_vector_norm.default", context=True)
def vector_norm(context: Context, x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *,
                dtype: Any = None) -> Tensor:
    x = mo.abs(cast(x, context.dtype)) if not x.dtype.is_complex else mo.abs(x)
    where = axes(x, dim)
    if not where:
        return cast(mo.not_equal(x, 0), context.dtype) if ord == 0 else x
    if ord == float("inf"):
        return mo.max(x, axis=where, keepdims=keepdim)
    if ord == -float("inf"):
        return mo.min(x, axis=where, keepdims=keepdim)
    if ord == 0:
        return mo.sum(cast(mo.not_equal(x, 0), context.dtype), axis=where, keepdims=keepdim)
    if ord == 1:
        return mo.sum(x, axis=where, keepdims=keepdim)
    if ord == 2:
        return mo.sqrt(mo.sum(mo.square(x), axis=where, keepdims=keepdim))
    return mo.pow(mo.sum(mo.pow(x, float(ord)), axis=where, keepdims=keepdim), 1.0 / ord)


