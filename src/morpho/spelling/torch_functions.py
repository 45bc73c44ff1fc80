"""PyTorch's functions that are more than another name for one of Morpho's, with PyTorch's argument order."""

from __future__ import annotations

import builtins
import itertools
import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.random import next_key
from morpho.spelling.torch_process import rand, sizes_of
from morpho.spelling.wide import Pair, put_out_of, split_sizes

Extremes = namedtuple("Extremes", "min max")
Complete = namedtuple("Complete", "U S Vh")


def _as(value: Any) -> mo.Tensor:
    return value if isinstance(value, mo.Tensor) else mo.asarray(value)


def _axis(axis: Any, dim: Any) -> Any:
    return axis if dim is None else dim


# -- making --------------------------------------------------------------------------------------------------------
def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> mo.Tensor:
    made = mo.asarray(data, dtype=dtype, device=device, copy=True if isinstance(data, mo.Tensor) else None)
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> mo.Tensor:
    return mo.asarray(data, dtype=dtype, device=device)


def from_numpy(ndarray: np.ndarray) -> mo.Tensor:
    """The elements of an array, as they are now: a tensor is a value, and shares no memory with the array."""
    return mo.asarray(ndarray)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None) -> mo.Tensor:
    return mo.asarray(s, dtype=dtype, device=device)


def range_(start: float = 0, end: float | None = None, step: float = 1, *, dtype: Any = None) -> mo.Tensor:
    start, end = (0, start) if end is None else (start, end)
    count = math.floor((end - start) / step) + 1
    return (mo.arange(count).astype(mo.float64) * step + start).astype(mo.float32 if dtype is None else dtype)


def clone(input: Any, *, memory_format: Any = None) -> mo.Tensor:
    """The same value: tensors are values, so that a copy of the memory is never needed."""
    input = _as(input)
    return mo.where(True, input, input) if input.dtype is mo.bool else input - 0  # + 0 would lose the sign of -0.0


def complex_(real: Any, imag: Any) -> mo.Tensor:
    real, imag = _as(real), _as(imag)
    return real + imag * mo.asarray(1j, dtype=mo.complex128 if real.dtype is mo.float64 else mo.complex64)


def polar(abs: Any, angle: Any) -> mo.Tensor:
    abs, angle = _as(abs), _as(angle)
    return complex_(abs * mo.cos(angle), abs * mo.sin(angle))


def view_as_real(input: Any) -> mo.Tensor:
    return mo.stack([mo.real(input), mo.imag(input)], axis=-1)


def view_as_complex(input: Any) -> mo.Tensor:
    input = _as(input)
    return complex_(input[..., 0], input[..., 1])


# -- joining -----------------------------------------------------------------------------------------------------
def block_diag(*tensors: Any) -> mo.Tensor:
    parts = [mo.atleast_2d(one) for one in tensors]
    width, rows, start = builtins.sum(part.shape[1] for part in parts), [], 0
    for part in parts:
        rows.append(mo.pad(part, ((0, 0), (start, width - start - part.shape[1]))))
        start += part.shape[1]
    return mo.concat(rows, axis=0)


# -- arithmetic ----------------------------------------------------------------------------------------------------
def frac(input: Any) -> mo.Tensor:
    input = _as(input)
    return input - mo.trunc(input)


def sgn(input: Any) -> mo.Tensor:
    return mo.sign(input)


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> mo.Tensor:
    return mo.subtract(other, mo.multiply(input, alpha))


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> mo.Tensor:
    return _as(input) + value * (_as(tensor1) * tensor2)


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> mo.Tensor:
    return _as(input) + value * (_as(tensor1) / tensor2)


def _blend(input: Any, product: mo.Tensor, beta: Any, alpha: Any) -> mo.Tensor:
    if not product.dtype.is_inexact and any(isinstance(factor, float) and not factor.is_integer()
                                            for factor in (beta, alpha)):
        raise fail(ArgumentError, "addmm", f"beta {beta} or alpha {alpha} is a fraction, and the matrices are integers",
                   "convert the matrices with astype")  # PyTorch cuts some off to whole numbers, and refuses others
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else (_as(input) if beta == 1 else beta * _as(input)) + product


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> mo.Tensor:
    return _blend(input, mo.matmul(mat1, mat2), beta, alpha)


def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> mo.Tensor:
    return _blend(input, mo.matmul(mat, vec), beta, alpha)


def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> mo.Tensor:
    return _blend(input, mo.sum(mo.matmul(batch1, batch2), axis=0), beta, alpha)


def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> mo.Tensor:
    return _blend(input, mo.matmul(batch1, batch2), beta, alpha)


def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> mo.Tensor:
    if _as(input).dtype is mo.bool and _as(vec1).dtype is mo.bool:
        beta, alpha = bool(beta), bool(alpha)
    return _blend(input, mo.outer(vec1, vec2), beta, alpha)


def mm(input: Any, mat2: Any) -> mo.Tensor:
    if _as(input).ndim != 2 or _as(mat2).ndim != 2:
        raise fail(ShapeError, "mm", f"shapes {_as(input).shape} and {_as(mat2).shape} are not both matrices",
                   "use mo.matmul")
    return mo.matmul(input, mat2)


def bmm(input: Any, mat2: Any) -> mo.Tensor:
    if _as(input).ndim != 3 or _as(mat2).ndim != 3:
        raise fail(ShapeError, "bmm", f"shapes {_as(input).shape} and {_as(mat2).shape} are not stacks of matrices",
                   "use mo.matmul")
    return mo.matmul(input, mat2)


def mv(input: Any, vec: Any) -> mo.Tensor:
    return mo.matmul(input, vec)


def chain_matmul(*matrices: Any) -> mo.Tensor:
    return mo.linalg.multi_dot(matrices)


def dist(input: Any, other: Any, p: float = 2) -> mo.Tensor:
    return mo.linalg.vector_norm(_as(input) - other, ord=p)


def renorm(input: Any, p: float, dim: int, maxnorm: float) -> mo.Tensor:
    input = _as(input)
    rest = tuple(one for one in range(input.ndim) if one != dim % input.ndim)
    size = mo.linalg.vector_norm(input, ord=p, axis=rest, keepdims=True)
    return input * mo.where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


def clamp(input: Any, min: Any = None, max: Any = None) -> mo.Tensor:
    return mo.clip(input, min, max)


def clamp_min(input: Any, min: Any) -> mo.Tensor:
    return mo.clip(input, min, None)


def clamp_max(input: Any, max: Any) -> mo.Tensor:
    return mo.clip(input, None, max)


def mvlgamma(input: Any, p: int) -> mo.Tensor:
    return mo.special.multigammaln(input, p)


def igamma(input: Any, other: Any) -> mo.Tensor:
    return mo.special.gammainc(input, other)


def igammac(input: Any, other: Any) -> mo.Tensor:
    return mo.special.gammaincc(input, other)


def hardshrink(input: Any, lambd: float = 0.5) -> mo.Tensor:
    input = _as(input)
    return mo.where(mo.abs(input) > lambd, input, 0.0)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    return _placed(input, mo.where(input > threshold, input, value), inplace)


def _placed(input: mo.Tensor, result: mo.Tensor, inplace: bool) -> mo.Tensor:
    return put_out_of(input, result) if inplace else result


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    below = alpha * mo.expm1(mo.minimum(input, 0.0) / alpha)
    return _placed(input, mo.where(input > 0, input, below), inplace)


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
          inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    slope = rand(*input.shape or ((),)) * (upper - lower) + lower if training else (lower + upper) / 2
    return _placed(input, mo.where(input >= 0, input, input * slope), inplace)


def prelu(input: Any, weight: Any) -> mo.Tensor:
    input, weight = _as(input), _as(weight)
    if not input.ndim:
        weight = mo.reshape(weight, ())
    if weight.size > 1 and input.ndim > 1:
        weight = mo.reshape(weight, (-1, *[1] * (input.ndim - 2)))
    return mo.where(input > 0, input, weight * input)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> mo.Tensor:
    """Zeros with probability p, the rest scaled up; from the stream of manual_seed."""
    input = _as(input)
    if not 0 <= p <= 1:
        raise fail(ArgumentError, "dropout", f"p={p} is no probability")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    keep = mo.random.bernoulli(next_key(), 1 - p, input.shape)
    return _placed(input, mo.where(keep, input / (1 - p), 0.0), inplace)


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> mo.Tensor:
    input = _as(input)
    if not training or p == 0:
        return input
    low = -1.7580993408473766
    scale = (1 - p + p * (1 - p) * low * low) ** -0.5
    keep = mo.random.bernoulli(next_key(), 1 - p, input.shape)
    return _placed(input, mo.where(keep, input, low) * scale - scale * p * low, inplace)


# -- reductions ----------------------------------------------------------------------------------------------------
def aminmax(input: Any, *, dim: Any = None, keepdim: bool = False) -> Extremes:
    return Extremes(mo.min(input, axis=dim, keepdims=keepdim), mo.max(input, axis=dim, keepdims=keepdim))


def amax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None, *,
         dim: Any = None, keepdim: bool = False) -> mo.Tensor:
    return _plain_extreme("max", a, axis, out, keepdims or keepdim, initial, where, dim)


def amin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = None, *,
         dim: Any = None, keepdim: bool = False) -> mo.Tensor:
    return _plain_extreme("min", a, axis, out, keepdims or keepdim, initial, where, dim)


def _plain_extreme(name: str, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any,
                   dim: Any) -> mo.Tensor:
    from morpho.spelling.wide import WIDE

    if isinstance(out, bool):
        out, keepdims = None, out
    axis = _axis(axis, dim)
    axis = tuple(axis) if isinstance(axis, list) else axis
    return WIDE[name](a, axis, out, keepdims, initial, where)


def std_mean(input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
             correction: Any = None) -> tuple[mo.Tensor, mo.Tensor]:
    """Called with (input, unbiased), or (input, dim, unbiased, keepdim)."""
    return _spread_and_mean(mo.std, input, dim, unbiased, keepdim, correction)


def var_mean(input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
             correction: Any = None) -> tuple[mo.Tensor, mo.Tensor]:
    """Called with (input, unbiased), or (input, dim, unbiased, keepdim)."""
    return _spread_and_mean(mo.var, input, dim, unbiased, keepdim, correction)


def _spread_and_mean(spread: Any, input: Any, dim: Any, unbiased: bool, keepdim: bool,
                     correction: Any) -> tuple[mo.Tensor, mo.Tensor]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    dim = tuple(dim) if isinstance(dim, list) else dim
    return (spread(input, axis=dim, correction=int(unbiased) if correction is None else correction, keepdims=keepdim),
            mo.mean(input, axis=dim, keepdims=keepdim))


def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    input = _as(input)
    if not input.ndim:
        return Pair(input, mo.asarray(0))
    order = mo.argsort(input, axis=dim)
    index = mo.take(order, mo.asarray([k - 1]), axis=dim)
    values = mo.take_along_axis(input, index, axis=dim)
    return Pair(values, index) if keepdim else Pair(mo.squeeze(values, dim), mo.squeeze(index, dim))


def mode(input: Any, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent element of each line, the smallest of several, and the last place where it stands."""
    input = _as(input)
    if not input.ndim:
        return Pair(input, mo.asarray(0))
    if input.dtype is mo.bool:
        pair = mode(input.astype(mo.uint8), dim, keepdim)
        return Pair(pair.values.astype(mo.bool), pair.indices)
    line = mo.moveaxis(input, dim, -1)
    same = mo.equal(line[..., :, None], line[..., None, :])
    counts = mo.sum(same, axis=-1)
    often = mo.equal(counts, mo.max(counts, axis=-1, keepdims=True))
    least = _as(mo.finfo(line.dtype).max if line.dtype.is_float else mo.iinfo(line.dtype).max)
    value = mo.min(mo.where(often, line, least.astype(line.dtype)), axis=-1, keepdims=True)
    place = mo.max(mo.where(mo.equal(line, value), mo.arange(line.shape[-1]), -1), axis=-1, keepdims=True)
    value, place = mo.moveaxis(value, -1, dim), mo.moveaxis(place, -1, dim)
    return Pair(value, place) if keepdim else Pair(mo.squeeze(value, dim), mo.squeeze(place, dim))


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> mo.Tensor:
    input = _as(input) if dtype is None else _as(input).astype(dtype)
    if p == "nuc":
        return mo.linalg.matrix_norm(input, ord="nuc", keepdims=keepdim)
    return mo.linalg.vector_norm(input, ord=2 if p in (None, "fro") else p, axis=tuple(dim) if isinstance(dim, list)
                                 else dim, keepdims=keepdim)


def nuclear_norm(input: Any, keepdim: bool = False) -> mo.Tensor:
    return mo.linalg.matrix_norm(input, ord="nuc", keepdims=keepdim)


def frobenius_norm(input: Any, dim: Any = None, keepdim: bool = False) -> mo.Tensor:
    return norm(input, "fro", dim, keepdim)


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> mo.Tensor:
    line = mo.ravel(_as(input))
    low, high = float(min), float(max)
    if low == high:
        low, high = float(mo.min(line)), float(mo.max(line))
    if low == high:
        low, high = low - 1, high + 1
    place = mo.floor((line.astype(mo.float64) - low) * (bins / (high - low)))
    place = mo.where(line == high, bins - 1, place)
    fits = mo.logical_and(line >= low, line <= high)
    counts = mo.bincount(mo.where(fits, place, bins).astype(mo.int64), length=bins + 1)[:bins]
    return counts.astype(line.dtype)


def cumulative_logsum(input: Any, dim: int) -> mo.Tensor:
    return mo.logcumsumexp(input, axis=dim)


# -- arranging -----------------------------------------------------------------------------------------------------
def cat(tensors: Any, dim: int = 0, *, axis: Any = None, out: Any = None) -> mo.Tensor:
    parts = [_as(one) for one in tensors]
    if any(part.ndim > 1 for part in parts):  # an empty vector is nothing, whatever the shape of the others
        parts = [part for part in parts if part.shape != (0,)]
    made = mo.concat(parts, axis=dim if axis is None else axis)
    return made if out is None else put_out_of(out, made)


def unbind(input: Any, dim: int = 0) -> tuple[mo.Tensor, ...]:
    return mo.unstack(input, axis=dim)


def unsqueeze(input: Any, dim: int) -> mo.Tensor:
    return mo.expand_dims(input, axis=dim)


def t(input: Any) -> mo.Tensor:
    input = _as(input)
    if input.ndim > 2:
        raise fail(ShapeError, "t", f"shape {tuple(input.shape)} has more than two axes", "use x.mT")
    return input if input.ndim < 2 else mo.permute_dims(input, (1, 0))


def adjoint(input: Any) -> mo.Tensor:
    return mo.conj(mo.matrix_transpose(_as(input)))


def narrow(input: Any, dim: int, start: Any, length: int) -> mo.Tensor:
    input, start = _as(input), int(start)
    if start + length > input.shape[dim]:
        raise fail(ShapeError, "narrow", f"{length} elements from {start} leave axis {dim} of size {input.shape[dim]}")
    start = start + input.shape[dim] if start < 0 else start
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]


def select_axis(input: Any, dim: int, index: int) -> mo.Tensor:
    input = _as(input)
    return input[(slice(None),) * (dim % input.ndim) + (int(index),)]


def expand(input: Any, *sizes: Any) -> mo.Tensor:
    input = _as(input)
    sizes_ = sizes_of(sizes)
    if len(sizes_) < input.ndim:
        raise fail(ShapeError, "expand", f"sizes {sizes_} are fewer than the {input.ndim} axes")
    shape = (*(None,) * (len(sizes_) - input.ndim), *input.shape)
    return mo.broadcast_to(input, tuple(own if size == -1 else size for size, own in zip(sizes_, shape, strict=True)))


def repeat_interleave(input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None) -> mo.Tensor:
    if repeats is None:
        counts = _as(input)
        return mo.repeat(mo.arange(counts.shape[0]), counts)
    return mo.repeat(input, repeats, axis=dim)


def tensor_split(input: Any, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
                 sections: Any = None) -> tuple[mo.Tensor, ...]:
    given = next(one for one in (indices_or_sections, indices, sections) if one is not None)
    return mo.array_split(input, given, axis=dim)


def split_with_sizes(input: Any, split_sizes_: Any, dim: int = 0) -> tuple[mo.Tensor, ...]:
    return split_sizes(input, list(split_sizes_), dim)


def unsafe_split(input: Any, split_size: Any, dim: int = 0) -> tuple[mo.Tensor, ...]:
    return split_sizes(input, split_size, dim)


def cartesian_prod(*tensors: Any) -> mo.Tensor:
    if len(tensors) == 1:
        return _as(tensors[0])
    return mo.stack([mo.ravel(one) for one in mo.meshgrid(*[_as(one) for one in tensors], indexing="ij")], axis=1)


def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> mo.Tensor:
    input = _as(input)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    return mo.take(input, mo.asarray(np.array(rows, np.int64).reshape(len(rows), r)))


def affine_grid_generator(theta: Any, size: Any, align_corners: bool = False) -> mo.Tensor:
    return mo.nn.functional.affine_grid(theta, size, align_corners)


def msort(input: Any) -> mo.Tensor:
    return mo.sort(input, axis=0)


def resolve(input: Any) -> mo.Tensor:
    return _as(input)


# -- looking up and writing ----------------------------------------------------------------------------------------
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> mo.Tensor:
    """`input[..., index[i, j], ...]` along an axis; the index may be shorter than the input along the others."""
    input, index = _as(input), _as(index)
    if index.ndim == 0 or input.ndim == 0:
        return mo.reshape(mo.take(input, mo.ravel(index)), index.shape)
    if 0 in index.shape:
        return mo.zeros(index.shape, dtype=input.dtype)
    dim = dim % input.ndim
    region = tuple(slice(None) if axis == dim else slice(0, size) for axis, size in enumerate(index.shape))
    return mo.take_along_axis(input[region], index, axis=dim)


def index_select(input: Any, dim: int, index: Any) -> mo.Tensor:
    input = _as(input)
    return mo.take(input, _as(index), axis=dim) if input.ndim else input


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> mo.Tensor:
    if dim is None:
        return mo.take(mo.ravel(_as(input)), mo.ravel(_as(indices)))
    return mo.take_along_axis(input, indices, axis=dim)


def masked_select(input: Any, mask: Any) -> mo.Tensor:
    input, mask = mo.broadcast_arrays(_as(input), _as(mask))
    return input[mask]


def masked_fill(input: Any, mask: Any, value: Any) -> mo.Tensor:
    input = _as(input)
    return mo.where(_as(mask), mo.asarray(value, dtype=input.dtype) if not isinstance(value, mo.Tensor)
                    else value.astype(input.dtype), input)


def masked_scatter(input: Any, mask: Any, source: Any) -> mo.Tensor:
    input, mask = mo.broadcast_arrays(_as(input), _as(mask))
    rank = mo.cumulative_sum(mo.ravel(mask).astype(mo.int64)) - 1
    line = mo.take(mo.ravel(_as(source)), mo.maximum(rank, 0))
    return mo.where(mask, mo.reshape(line, input.shape), input)


def _rows(input: Any, dim: int, index: Any) -> tuple[mo.Tensor, tuple[Any, ...]]:
    input = mo.asarray(clone(input), copy=True)
    return input, (slice(None),) * (dim % input.ndim) + (_as(index),)


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> mo.Tensor:
    input, source = _as(input), source if alpha == 1 else _as(source) * alpha
    if not input.ndim:
        return index_add(input[None], 0, mo.ravel(_as(index)), mo.ravel(_as(source)))[0]
    lines = input.at[(slice(None),) * (dim % input.ndim) + (_as(index),)]
    return lines.max(source) if input.dtype is mo.bool else lines.add(source)


def index_copy(input: Any, dim: int, index: Any, source: Any) -> mo.Tensor:
    if not _as(input).ndim:
        return index_copy(_as(input)[None], 0, mo.ravel(_as(index)), mo.ravel(_as(source)))[0]
    made, key = _rows(input, dim, index)
    made[key] = source
    return made


def index_fill(input: Any, dim: int, index: Any, value: Any) -> mo.Tensor:
    if not _as(input).ndim:
        return index_fill(_as(input)[None], 0, mo.ravel(_as(index)), value)[0]
    made, key = _rows(input, dim, index)
    made[key] = value
    return made


def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> mo.Tensor:
    input = _as(input)
    key = tuple(_as(one) for one in indices)
    if accumulate:
        return input.at[key].max(values) if input.dtype is mo.bool else input.at[key].add(values)
    made = clone(input)
    made[key] = values
    return made


def index_reduce(input: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> mo.Tensor:
    input, source = _as(input), _as(source)
    if not input.ndim:
        return index_reduce(input[None], 0, mo.ravel(_as(index)), mo.ravel(source), reduce,
                            include_self=include_self)[0]
    shape = tuple(-1 if axis == dim % input.ndim else 1 for axis in range(input.ndim))
    spread = mo.broadcast_to(mo.reshape(_as(index), shape), source.shape)
    return mo.scatter_reduce(input, spread, source, reduce=reduce, axis=dim, include_self=include_self)


def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> mo.Tensor:
    input = _as(input)
    moved = mo.asarray(mo.moveaxis(input, (dim1, dim2), (-2, -1)), copy=True)
    length = mo.diagonal(input, offset=offset, axis1=dim1, axis2=dim2).shape[-1]
    line = mo.arange(length)
    moved[..., line + max(-offset, 0), line + max(offset, 0)] = src
    return mo.moveaxis(moved, (-2, -1), (dim1, dim2))


def select_scatter(input: Any, src: Any, dim: int, index: int) -> mo.Tensor:
    made = clone(input)
    made[(slice(None),) * (dim % made.ndim) + (index,)] = src
    return made


def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> mo.Tensor:
    made = clone(input)
    made[(slice(None),) * (dim % made.ndim) + (slice(start, end, step),)] = src
    return made


def fill(input: Any, value: Any) -> mo.Tensor:
    input = _as(input)
    return mo.broadcast_to(mo.asarray(value).astype(input.dtype), input.shape)


def nonzero_static(input: Any, *, size: int, fill_value: int = -1) -> mo.Tensor:
    rows = mo.argwhere(input)
    count = min(size, rows.shape[0])
    rest = mo.full((size - count, rows.shape[1]), fill_value, dtype=mo.int64)
    return mo.concat([rows[:count], rest], axis=0)


# -- linear algebra ------------------------------------------------------------------------------------------------
def logdet(input: Any) -> mo.Tensor:
    sign, size = mo.linalg.slogdet(input)
    return size + mo.log(sign) if sign.dtype.is_complex else mo.where(sign < 0, mo.nan, size)


def cholesky_solve(B: Any, L: Any, upper: bool = False) -> mo.Tensor:
    L = _as(L)
    first, second = (adjoint(L), L) if upper else (L, adjoint(L))
    return mo.linalg.solve_triangular(second, mo.linalg.solve_triangular(first, B, upper=False), upper=True)


def cholesky_inverse(L: Any, upper: bool = False) -> mo.Tensor:
    L = _as(L)
    return mo.broadcast_to(cholesky_solve(mo.eye(L.shape[-1], dtype=L.dtype), L, upper), L.shape)


def triangular_solve(b: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Pair:
    A = _as(A)
    side = mo.matrix_transpose(A) if transpose else A
    return Pair(mo.linalg.solve_triangular(side, b, upper=upper != transpose, unitriangular=unitriangular), A)


def svd(input: Any, some: bool = True, compute_uv: bool = True) -> Complete:
    """PyTorch's torch.svd: U, S and V, of which V is not transposed; torch.linalg.svd is mo.linalg.svd."""
    U, S, Vh = mo.linalg.svd(input, full_matrices=not some)
    return Complete(U, S, mo.conj(mo.matrix_transpose(Vh)))


def squeeze_copy(input: Any, dim: Any = None) -> mo.Tensor:
    """Without its axes of size 1; of axes that are named those of another size stay."""
    from morpho.spelling.wide import WIDE

    result: mo.Tensor = WIDE["squeeze"](input, dim=dim)
    return result


def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> mo.Tensor:
    return mo.nn.functional.pad(input, pad, value=value)


def ger(input: Any, vec2: Any) -> mo.Tensor:
    return mo.outer(input, vec2)


def matrix_exp(A: Any) -> mo.Tensor:
    return mo.linalg.expm(A)


def pca_lowrank(A: Any, q: Any = None, center: bool = True, niter: int = 2) -> Any:
    A = _as(A)
    q = min(6, *A.shape[-2:]) if q is None else q
    A = A - mo.mean(A, axis=-2, keepdims=True) if center else A
    U, S, Vh = mo.linalg.svd_lowrank(A, q, iterations=niter)
    return U, S, mo.matrix_transpose(Vh)


def trapz(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1, axis: Any = None) -> mo.Tensor:
    return mo.trapezoid(y, x, dx=dx, axis=dim if axis is None else axis)


def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> mo.Tensor:
    made = mo.conv1d(mo.permute_dims(_as(input), (1, 2, 0)), mo.permute_dims(_as(weight), (2, 1, 0)), bias, padding=pad)
    return mo.permute_dims(made, (2, 0, 1))


# -- transformations ---------------------------------------------------------------------------------------------------
def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = (), kwargs: Any = None,
                    **options: Any) -> Any:
    """A module called with other values of its parameters and buffers, by their names."""
    states: dict[str, Any] = {}
    for part in parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, tuple) else (
            parameter_and_buffer_dicts,):
        states |= dict(part)
    homes = []
    for name, value in states.items():
        path, _, leaf = name.rpartition(".")
        home = module.get_submodule(path) if path else module
        homes.append((home, leaf, vars(home)[leaf]))
        object.__setattr__(home, leaf, _as(value))
    try:
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for home, leaf, value in homes:
            object.__setattr__(home, leaf, value)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, mo.Tensor], dict[str, mo.Tensor]]:
    params = {name: mo.stack([dict(one.named_parameters())[name] for one in models])
              for name, _ in models[0].named_parameters()}
    buffers = {name: mo.stack([dict(one.named_buffers())[name] for one in models])
               for name, _ in models[0].named_buffers()}
    return params, buffers



# -- sparse matrices -----------------------------------------------------------------------------------------------
def sparse_coo_tensor(indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: Any = None, is_coalesced: Any = None) -> Any:
    """A matrix of `mo.sparse` from coordinates, (2, count), and values; equal places add up."""
    places, values = mo.asarray(indices), mo.asarray(values, dtype=dtype)
    if places.ndim != 2 or places.shape[0] != 2:
        raise fail(ShapeError, "sparse_coo_tensor", f"coordinates of shape {tuple(places.shape)} are not (2, count)",
                   "sparse tensors here are matrices")
    shape = tuple(int(one) + 1 for one in places.numpy().max(1)) if size is None else tuple(size)
    return mo.sparse.coo(values, (places[0], places[1]), shape)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      device: Any = None, requires_grad: bool = False, check_invariants: Any = None) -> Any:
    """A matrix of `mo.sparse` by rows."""
    pointers, columns = mo.asarray(crow_indices), mo.asarray(col_indices)
    shape = (pointers.shape[0] - 1, int(columns.numpy().max(initial=-1)) + 1) if size is None else tuple(size)
    return mo.sparse.csr(mo.asarray(values, dtype=dtype), columns, pointers, shape)
