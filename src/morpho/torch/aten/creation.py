"""New tensors, random numbers, transforms, and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import morpho as mo
from morpho.base.dtypes import DType
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast, tensor
from morpho.torch.aten.table import Context, op


def _filled(shape: Sequence[Any], value: Any, dtype: DType) -> Tensor:
    if isinstance(value, Tensor | mo.Dim):
        return mo.broadcast_to(tensor(value, dtype), tuple(shape))
    return mo.full(tuple(shape), cast(value, dtype), dtype=dtype)


@op("full.default", context=True)
def full(context: Context, size: Sequence[Any], value: Any, **_: Any) -> Tensor:
    return _filled(size, value, context.dtype)


@op("full_like.default", context=True)
def full_like(context: Context, x: Tensor, value: Any, **_: Any) -> Tensor:
    return _filled(x.shape, value, context.dtype)


@op("zeros.default", "empty.memory_format", "empty_strided.default", "empty_permuted.default", context=True)
def zeros(context: Context, size: Sequence[Any], *_: Any, **__: Any) -> Tensor:
    return _filled(size, 0, context.dtype)  # what PyTorch leaves undefined is zero


@op("zeros_like.default", "empty_like.default", context=True)
def zeros_like(context: Context, x: Tensor, **_: Any) -> Tensor:
    return _filled(x.shape, 0, context.dtype)


@op("ones.default", context=True)
def ones(context: Context, size: Sequence[Any], **_: Any) -> Tensor:
    return _filled(size, 1, context.dtype)


@op("ones_like.default", context=True)
def ones_like(context: Context, x: Tensor, **_: Any) -> Tensor:
    return _filled(x.shape, 1, context.dtype)


@op("scalar_tensor.default", context=True)
def scalar_tensor(context: Context, value: Any, **_: Any) -> Tensor:
    return tensor(value, context.dtype)


@op("arange.start_step", context=True)
def arange(context: Context, start: Any, end: Any, step: Any = 1, **_: Any) -> Tensor:
    dtype = context.dtype
    if start == 0 and step == 1 and isinstance(end, int | mo.Dim):
        return mo.arange(end, dtype=dtype)
    if isinstance(end, mo.Dim) or isinstance(start, mo.Dim):
        return mo.arange(end - start, dtype=dtype) + start if step == 1 else mo.arange(start, end, step, dtype=dtype)
    count = max(math.ceil((end - start) / step), 0)
    wide = mo.int64 if dtype.is_integer else mo.float64
    line = mo.arange(count, dtype=mo.int64)
    return cast(cast(line, wide) * cast(step, wide) + cast(start, wide), dtype)


@op("prims.iota.default", context=True)
def iota(context: Context, length: Any, *, start: int = 0, step: int = 1, **_: Any) -> Tensor:
    line = mo.arange(length, dtype=mo.int64)
    return cast(line if (start, step) == (0, 1) else line * step + start, context.dtype)


@op("eye.default", "eye.m", context=True)
def eye(context: Context, n: int, m: int | None = None, **_: Any) -> Tensor:
    return mo.eye(n, m if m is not None else n, dtype=context.dtype)


# -- random numbers: Morpho's counter-based stream, with a key drawn from PyTorch's generator at every call ------------
def _drawn(context: Context, draw: Callable[..., Tensor], shape: Sequence[Any]) -> Tensor:
    dtype = context.dtype if context.dtype is mo.float64 else mo.float32
    return cast(draw(context.key, tuple(shape), dtype=dtype), context.dtype)


@op("rand.default", random=True)
def rand(context: Context, size: Sequence[Any], **_: Any) -> Tensor:
    return _drawn(context, mo.random.uniform, size)


@op("randn.default", random=True)
def randn(context: Context, size: Sequence[Any], **_: Any) -> Tensor:
    return _drawn(context, mo.random.normal, size)


@op("rand_like.default", random=True)
def rand_like(context: Context, x: Tensor, **_: Any) -> Tensor:
    return _drawn(context, mo.random.uniform, x.shape)


@op("randn_like.default", random=True)
def randn_like(context: Context, x: Tensor, **_: Any) -> Tensor:
    return _drawn(context, mo.random.normal, x.shape)


@op("randperm.default", random=True)
def randperm(context: Context, n: int, **_: Any) -> Tensor:
    return mo.random.permutation(context.key, mo.arange(n, dtype=mo.int64))


@op("native_dropout.default", random=True)
def native_dropout(context: Context, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x, mo.ones(x.shape, dtype=mo.bool)
    if p == 1:
        return mo.zeros_like(x), mo.zeros(x.shape, dtype=mo.bool)
    kept = mo.less(mo.random.uniform(context.key, tuple(x.shape), dtype=mo.float32), 1.0 - p)
    return mo.where(kept, x * (1.0 / (1.0 - p)), 0.0), kept


@op("bernoulli.p", random=True)
def bernoulli_p(context: Context, x: Tensor, p: float = 0.5, **_: Any) -> Tensor:
    return cast(mo.less(mo.random.uniform(context.key, tuple(x.shape), dtype=mo.float32), p), x.dtype)


# -- Fourier transforms ------------------------------------------------------------------------------------------------
def _scaling(shape: Sequence[Any], dims: Sequence[int], mode: int) -> float:
    count = math.prod(shape[d] for d in dims)
    return {0: 1.0, 1: 1.0 / math.sqrt(count), 2: 1.0 / count}[mode]


@op("_fft_r2c.default")
def fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    scale = _scaling(x.shape, dim, normalization)
    if onesided:
        found = mo.fft.rfft(x, axis=dim[-1])
        for axis in dim[:-1]:
            found = mo.fft.fft(found, axis=axis)
    else:
        found = cast(x, mo.complex128 if x.dtype is mo.float64 else mo.complex64)
        for axis in dim:
            found = mo.fft.fft(found, axis=axis)
    return found if scale == 1.0 else found * scale


@op("_fft_c2c.default")
def fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    scale = _scaling(x.shape, dim, normalization)
    for axis in dim:
        x = mo.fft.fft(x, axis=axis) if forward else mo.fft.ifft(x, axis=axis)
        scale = scale if forward else scale * x.shape[axis]
    return x if scale == 1.0 else x * scale


@op("_fft_c2r.default")
def fft_c2r(x: Any, dim: Sequence[int], normalization: int, last: int) -> Tensor:
    shape = list(x.shape)
    shape[dim[-1]] = last
    scale = _scaling(shape, dim, normalization)
    for axis in dim[:-1]:
        x, scale = mo.fft.ifft(x, axis=axis), scale * x.shape[axis]
    found, scale = mo.fft.irfft(x, axis=dim[-1], n=last), scale * last
    return found if scale == 1.0 else found * scale


# -- sizes: numbers, or `mo.Dim` while a dynamic function is traced ----------------------------------------------------
@op("sym_size.int")
def sym_size(x: Tensor, dim: int) -> Any:
    return x.shape[dim]


@op("sym_numel.default")
def sym_numel(x: Tensor) -> Any:
    return math.prod(x.shape)
