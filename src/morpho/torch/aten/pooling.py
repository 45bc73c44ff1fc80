"""Pooling and resampling of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.table import Context, op


def _each(value: Any, rank: int) -> tuple[int, ...]:
    value = tuple(value) if isinstance(value, list | tuple) else (value,)
    return value * rank if len(value) == 1 else value


def _batched(x: Tensor, rank: int, function: Callable[[Tensor], Any]) -> Any:
    """A function of (n, channels, ...) applied to a tensor with or without the first axis."""
    if x.ndim == rank + 2:
        return function(x)
    found = function(mo.expand_dims(x, axis=0))
    return tuple(part[0] for part in found) if isinstance(found, tuple) else found[0]


def _max_pool(x: Tensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    pool = mo.max_pool2d if rank == 2 else mo.max_pool3d
    kernel = _each(kernel, rank)
    return _batched(x, rank, lambda x: tuple(pool(
        x, kernel, stride=_each(stride, rank) if stride else kernel, padding=_each(padding, rank),
        dilation=_each(dilation, rank), ceil_mode=ceil, return_indices=True)))


@op("max_pool2d_with_indices.default")
def max_pool2d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False) -> Any:
    return _max_pool(x, 2, kernel, stride, padding, dilation, ceil_mode)


@op("max_pool3d_with_indices.default")
def max_pool3d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False) -> Any:
    return _max_pool(x, 3, kernel, stride, padding, dilation, ceil_mode)


@op("max_pool2d_with_indices_backward.default")
def max_pool2d_backward(grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any,
                        ceil_mode: bool, indices: Tensor) -> Tensor:
    planes, size = math.prod(x.shape[:-2]), x.shape[-1] * x.shape[-2]
    flat = mo.zeros((planes, size), dtype=grad.dtype)
    found = mo.scatter_add(flat, mo.reshape(indices, (planes, -1)), mo.reshape(grad, (planes, -1)), axis=1)
    return mo.reshape(found, x.shape)


def _avg_pool(x: Tensor, rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
              count_include_pad: bool, divisor: int | None) -> Tensor:
    pool = mo.avg_pool2d if rank == 2 else mo.avg_pool3d
    kernel, padding = _each(kernel, rank), _each(padding, rank)
    options: dict[str, Any] = {"stride": _each(stride, rank) if stride else kernel, "ceil_mode": ceil_mode}
    if divisor is None:
        return _batched(x, rank, lambda x: pool(x, kernel, padding=padding, count_include_pad=count_include_pad,
                                                **options))
    # A window's sum: the mean over all its places, padded ones too, times their number.
    def summed(x: Tensor) -> Tensor:
        return pool(x, kernel, padding=padding, count_include_pad=True, **options) * (math.prod(kernel) / divisor)

    return _batched(x, rank, summed)


def _odd_average(x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
                       count_include_pad: bool = True, divisor: Any = None) -> str | None:
    if not x.dtype.is_float:
        return f"a mean of {x.dtype}"
    return "ceil_mode with divisor_override" if ceil_mode and divisor is not None else None


@op("avg_pool2d.default", refuse=_odd_average)
def avg_pool2d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    return _avg_pool(x, 2, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("avg_pool3d.default", refuse=_odd_average)
def avg_pool3d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    return _avg_pool(x, 3, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("avg_pool1d.default", refuse=_odd_average)
def avg_pool1d(x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    kernel = _each(kernel, 1)[0]
    return _batched(x, 1, lambda x: mo.avg_pool1d(
        x, kernel, stride=_each(stride, 1)[0] if stride else kernel, padding=_each(padding, 1)[0],
        ceil_mode=ceil_mode, count_include_pad=count_include_pad))


@op("avg_pool2d_backward.default", refuse=lambda grad, x, *rest: _odd_average(x, *rest))
def avg_pool2d_backward(grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool,
                        count_include_pad: bool, divisor: int | None) -> Tensor:
    def again(x: Tensor) -> Tensor:
        return _avg_pool(x, 2, kernel, stride, padding, ceil_mode, count_include_pad, divisor)

    return mo.vjp(again, x)[1](grad)[0]


def _averages(size: int, out: int) -> np.ndarray:
    """The matrix (out, size) whose row i averages window i of an adaptive pooling."""
    matrix = np.zeros((out, size))
    for i in range(out):
        low, high = i * size // out, -((-(i + 1) * size) // out)
        matrix[i, low:high] = 1.0 / (high - low)
    return matrix


def _precise(x: Tensor) -> type[np.floating[Any]]:
    """Dtype of the weights of a sum."""
    return np.float64 if x.dtype is mo.float64 else np.float32


def _along(x: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """Every line of an axis multiplied by a matrix."""
    moved = mo.moveaxis(x, axis, -1)
    weights = mo.asarray(np.ascontiguousarray(matrix.T.astype(_precise(x))))
    return mo.moveaxis(mo.matmul(moved, weights), -1, axis)


def _adaptive(x: Tensor, sizes: Sequence[int]) -> Tensor:
    x = mo.astype(x, x.dtype.compute)
    first = x.ndim - len(sizes)
    if all(size == 1 for size in sizes):
        return mo.mean(x, axis=tuple(range(first, x.ndim)), keepdims=True)
    for number, size in enumerate(sizes):
        length = int(x.shape[first + number])
        if length != size:
            x = _along(x, first + number, _averages(length, size))
    return x


@op("adaptive_avg_pool1d.default", "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    return _adaptive(x, output_size)


@op("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Tensor:
    grad = mo.astype(grad, grad.dtype.compute)
    for axis in (x.ndim - 2, x.ndim - 1):
        size, out = int(x.shape[axis]), int(grad.shape[axis])
        if size != out:
            grad = _along(grad, axis, _averages(size, out).T)
    return grad


# -- resampling --------------------------------------------------------------------------------------------------------
def _sizes(x: Tensor, output_size: Any, factors: Any) -> list[int]:
    if output_size is not None:
        return [int(size) for size in output_size]
    return [math.floor(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]


@op("upsample_nearest2d.vec")
def upsample_nearest2d(x: Tensor, output_size: Any, factors: Any = None) -> Tensor:
    for axis, size in enumerate(_sizes(x, output_size, factors), 2):
        length = int(x.shape[axis])
        step = 1.0 / factors[axis - 2] if factors else length / size
        places = np.minimum(np.floor(np.arange(size, dtype=np.float32) * np.float32(step)), length - 1)
        x = mo.take(x, mo.asarray(places.astype(np.int64)), axis=axis)
    return x


@op("upsample_nearest2d.default")
def upsample_nearest2d_sizes(x: Tensor, output_size: Any, *factors: Any) -> Tensor:
    return upsample_nearest2d(x, output_size, factors if factors and None not in factors else None)


@op("upsample_bilinear2d.default")
def upsample_bilinear2d_sizes(x: Tensor, output_size: Any, align_corners: bool, *factors: Any) -> Tensor:
    return upsample_bilinear2d(x, output_size, align_corners, factors if factors and None not in factors else None)


@op("upsample_bilinear2d.vec")
def upsample_bilinear2d(x: Tensor, output_size: Any, align_corners: bool, factors: Any = None) -> Tensor:
    x = mo.astype(x, x.dtype.compute)  # half floats are rounded at the end
    for axis, size in enumerate(_sizes(x, output_size, factors), 2):
        length = int(x.shape[axis])
        if align_corners:
            at = np.arange(size) * ((length - 1) / (size - 1) if size > 1 else 0.0)
        else:
            at = np.maximum((np.arange(size) + 0.5) * (1.0 / factors[axis - 2] if factors else length / size) - 0.5, 0)
        low: Any = np.minimum(np.floor(at).astype(np.int64), length - 1)
        high = np.minimum(low + 1, length - 1)
        share = (at - low).astype(_precise(x)).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
        weights = mo.asarray(share)
        first, second = (mo.take(x, mo.asarray(places), axis=axis) for places in (low, high))
        x = first + (second - first) * weights
    return x


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _odd_sampling(x: Any, grid: Any, mode: int, *_: Any) -> str | None:
    if mode == 2:
        return "bicubic sampling"
    return f"places between pixels in {x.dtype}" if x.dtype.itemsize == 2 else None


@op("grid_sampler_2d.default", refuse=_odd_sampling)
def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    return mo.grid_sample(x, grid, mode=_MODES[mode], padding_mode=_PADDINGS[padding], align_corners=align_corners)


@op("col2im.default", context=True)
def col2im(context: Context, x: Tensor, output_size: Any, kernel: Any, dilation: Any, padding: Any,
           stride: Any) -> Tensor:
    def one(x: Tensor) -> Tensor:
        return mo.fold(x, tuple(output_size), tuple(kernel), dilation=tuple(dilation), padding=tuple(padding),
                       stride=tuple(stride))

    return one(x) if x.ndim == 3 else one(mo.expand_dims(x, axis=0))[0]
