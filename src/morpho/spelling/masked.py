"""`torch.masked`: reductions and normalisations of the elements that a mask is true for.

>>> mo.masked.sum(mo.asarray([1.0, 2.0, 4.0]), mask=mo.asarray([True, False, True])).item()
5.0
>>> mo.masked.mean(mo.asarray([1.0, 2.0, 4.0]), mask=mo.asarray([True, False, True])).item()
2.5
"""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail


def _all(x: mo.Tensor, mask: Any) -> mo.Tensor:
    return mo.ones(x.shape, dtype=mo.bool) if mask is None else mo.broadcast_to(mo.asarray(mask), x.shape)


def _filled(x: Any, mask: Any, dtype: Any, fill: Any) -> mo.Tensor:
    """The tensor with a value that changes no result where the mask is false; integers are summed in int64."""
    x = mo.asarray(x) if dtype is None else mo.asarray(x).astype(dtype)
    return x if mask is None else mo.where(_all(x, mask), x, mo.asarray(fill, dtype=x.dtype))


def _lowest(x: Any, largest: bool) -> Any:
    dtype = mo.asarray(x).dtype
    if dtype.is_float:
        return mo.inf if largest else -mo.inf
    if dtype is mo.bool:
        return largest
    return int(mo.iinfo(dtype).max if largest else mo.iinfo(dtype).min)


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def sum(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.sum(_filled(input, mask, dtype, 0), axis=_axes(dim), keepdims=keepdim)


def prod(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.prod(_filled(input, mask, dtype, 1), axis=_axes(dim), keepdims=keepdim)


def amax(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.max(_filled(input, mask, dtype, _lowest(input, False)), axis=_axes(dim), keepdims=keepdim)


def amin(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.min(_filled(input, mask, dtype, _lowest(input, True)), axis=_axes(dim), keepdims=keepdim)


def argmax(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    x = _filled(input, mask, dtype, _lowest(input, False))
    return mo.argmax(x, axis=dim, keepdims=keepdim).astype(x.dtype)  # PyTorch's places are of the tensor's dtype


def argmin(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    x = _filled(input, mask, dtype, _lowest(input, True))
    return mo.argmin(x, axis=dim, keepdims=keepdim).astype(x.dtype)  # PyTorch's places are of the tensor's dtype


def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.cumulative_sum(_filled(input, mask, dtype, 0), axis=dim)


def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.cumulative_prod(_filled(input, mask, dtype, 1), axis=dim)


def _count(x: mo.Tensor, mask: Any, dim: Any, keepdim: bool) -> mo.Tensor:
    kind = x.dtype if x.dtype.is_inexact else mo.float32
    return mo.sum(_all(x, mask).astype(mo.int64), axis=_axes(dim), keepdims=keepdim).astype(kind)


def mean(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    x = mo.asarray(input) if dtype is None else mo.asarray(input).astype(dtype)
    total = sum(x if x.dtype.is_inexact else x.astype(mo.float32), dim, keepdim=keepdim, mask=mask)
    return total / _count(x, mask, dim, keepdim)


def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    """The lower one of two in the middle, as PyTorch's."""
    x = _filled(input, mask, dtype, mo.nan)
    return mo.nanmedian(x, dim=dim, keepdim=keepdim).values


def var(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
        keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    x = mo.asarray(input) if dtype is None else mo.asarray(input).astype(dtype)
    x = x if x.dtype.is_inexact else x.astype(mo.float32)
    less = correction if correction is not None else 0.0 if unbiased is False else 1.0
    squares = mo.abs(x - mean(x, dim, keepdim=True, mask=mask)) ** 2
    total = sum(squares, dim, keepdim=keepdim, mask=mask)
    return (total / mo.maximum(_count(squares, mask, dim, keepdim) - less, 0.0)).astype(x.dtype)


def std(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
        keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def norm(input: Any, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Any = None) -> mo.Tensor:
    order = 2.0 if ord is None else float(ord)
    x = _filled(input, mask, dtype, mo.inf if order == -mo.inf else 0)
    if mask is not None and order < 0 and order != -mo.inf:
        raise fail(ArgumentError, "masked.norm", f"ord={order} is below zero", "use 0, a positive number, or -inf")
    axes = tuple(range(x.ndim)) if dim is None else _axes(dim)
    return mo.linalg.vector_norm(x, axis=axes, keepdims=keepdim, ord=order)


def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.softmax(_filled(input, mask, dtype, -mo.inf), axis=dim)


def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.log_softmax(_filled(input, mask, dtype, -mo.inf), axis=dim)


def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    return mo.softmax(-_filled(input, mask, dtype, mo.inf), axis=dim)


def logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> mo.Tensor:
    x = _filled(input, mask, dtype, -mo.inf)
    if not x.ndim:
        return x
    total = mo.logsumexp(x if x.dtype.is_inexact else x.astype(mo.float32), axis=_axes(dim), keepdims=keepdim)
    return total.astype(x.dtype)


def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None,
              other_mask: Any = None) -> mo.Tensor:
    return mo.logaddexp(_filled(input, input_mask, dtype, -mo.inf), _filled(other, other_mask, dtype, -mo.inf))
