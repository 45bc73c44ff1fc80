"""Normalisation, forward and backward: the statistics PyTorch's graphs pass on are returned too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import morpho as mo
from morpho.base.dtypes import DType
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast
from morpho.torch.aten.table import Context, op


def _wide(dtype: DType) -> DType:
    """The dtype of statistics: half floats are summed in float32."""
    return dtype.compute


def _statistics(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return mo.mean(x, axis=axes, keepdims=True), mo.var(x, axis=axes, keepdims=True)


@op("native_layer_norm.default", context=True)
def layer_norm(context: Context, x: Tensor, shape: Sequence[int], weight: Any, bias: Any,
               eps: float) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = cast(x, _wide(x.dtype))
    mean, variance = _statistics(wide, axes)
    return mo.layer_norm(x, weight, bias, eps=eps, axis=axes), mean, mo.rsqrt(variance + eps)


@op("native_layer_norm_backward.default")
def layer_norm_backward(grad: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Any,
                        bias: Any, output_mask: Sequence[bool]) -> tuple[Tensor | None, ...]:
    inner = tuple(range(x.ndim - len(shape), x.ndim))
    outer = tuple(range(x.ndim - len(shape)))
    dtype = _wide(x.dtype)
    g, normal = cast(grad, dtype), (cast(x, dtype) - mean) * rstd
    scaled = g if weight is None else g * cast(weight, dtype)
    found: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        along = mo.mean(scaled, axis=inner, keepdims=True)
        across = mo.mean(scaled * normal, axis=inner, keepdims=True)
        found[0] = rstd * (scaled - along - normal * across)
    if output_mask[1] and weight is not None:
        found[1] = mo.sum(g * normal, axis=outer) if outer else g * normal
    if output_mask[2] and bias is not None:
        found[2] = mo.sum(g, axis=outer) if outer else g
    return tuple(found)


@op("native_group_norm.default")
def group_norm(x: Tensor, weight: Any, bias: Any, n: Any, channels: Any, inner: Any, groups: int,
               eps: float) -> tuple[Tensor, Tensor, Tensor]:
    wide = mo.reshape(cast(x, _wide(x.dtype)), (x.shape[0], groups, -1))
    mean, variance = _statistics(wide, (2,))
    rstd = mo.rsqrt(variance + eps)
    out = mo.reshape((wide - mean) * rstd, x.shape)
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    if weight is not None:
        out = out * mo.reshape(cast(weight, out.dtype), per_channel)
    if bias is not None:
        out = out + mo.reshape(cast(bias, out.dtype), per_channel)
    return out, mean[..., 0], rstd[..., 0]


@op("native_group_norm_backward.default")
def group_norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Any, n: int, channels: int,
                        inner: int, groups: int, output_mask: Sequence[bool]) -> tuple[Tensor | None, ...]:
    dtype = _wide(x.dtype)
    split = (n, groups, channels // groups, inner)
    g = mo.reshape(cast(grad, dtype), split)
    steady = (n, groups, 1, 1)
    rstd = mo.reshape(cast(rstd, dtype), steady)
    normal = (mo.reshape(cast(x, dtype), split) - mo.reshape(cast(mean, dtype), steady)) * rstd
    found: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        scaled = g if weight is None else g * mo.reshape(cast(weight, dtype), (1, groups, channels // groups, 1))
        along = mo.mean(scaled, axis=(2, 3), keepdims=True)
        across = mo.mean(scaled * normal, axis=(2, 3), keepdims=True)
        found[0] = mo.reshape(rstd * (scaled - along - normal * across), x.shape)
    if output_mask[1]:
        found[1] = mo.reshape(mo.sum(g * normal, axis=(0, 3)), (channels,))
    if output_mask[2]:
        found[2] = mo.reshape(mo.sum(g, axis=(0, 3)), (channels,))
    return tuple(found)


# -- batch norm --------------------------------------------------------------------------------------------------------
def _batch_norm(x: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor) -> Tensor:
    per_channel = (1, -1) + (1,) * (x.ndim - 2)
    dtype = _wide(x.dtype)
    scale = rstd if weight is None else rstd * cast(weight, dtype)
    shift = -mean * scale if bias is None else cast(bias, dtype) - mean * scale
    return cast(x, dtype) * mo.reshape(scale, per_channel) + mo.reshape(shift, per_channel)


def _batch_statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    axes = (0, *range(2, x.ndim))
    mean, variance = _statistics(cast(x, _wide(x.dtype)), axes)
    return mo.squeeze(mean, axis=axes), mo.squeeze(variance, axis=axes), mo.rsqrt(mo.squeeze(variance, axis=axes) + eps)


@op("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(x: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor,
                         momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    empty = mo.zeros((0,), dtype=_wide(x.dtype))
    mean, variance = cast(running_mean, _wide(x.dtype)), cast(running_var, _wide(x.dtype))
    if x.ndim == 4 and weight is not None and bias is not None and x.dtype is mo.float32:
        return mo.batch_norm(x, mean, variance, weight, bias, eps), empty, empty
    return _batch_norm(x, weight, bias, mean, mo.rsqrt(variance + eps)), empty, empty


@op("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Tensor, weight: Any, bias: Any, training: bool, momentum: float,
                        eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean, _, rstd = _batch_statistics(x, eps)
    return _batch_norm(x, weight, bias, mean, rstd), mean, rstd


@op("_native_batch_norm_legit_functional.default")
def batch_norm_functional(x: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor,
                          training: bool, momentum: float, eps: float) -> tuple[Tensor, ...]:
    if not training:
        return (*batch_norm_inference(x, weight, bias, running_mean, running_var, momentum, eps),
                running_mean, running_var)
    mean, variance, rstd = _batch_statistics(x, eps)
    count = math.prod(x.shape) // x.shape[1]
    unbiased = variance * (count / (count - 1)) if count > 1 else variance
    return (_batch_norm(x, weight, bias, mean, rstd), mean, rstd,
            cast(mean * momentum, running_mean.dtype) + running_mean * (1 - momentum),
            cast(unbiased * momentum, running_var.dtype) + running_var * (1 - momentum))
