"""Gather, scatter, and indexing with tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast, tensor
from morpho.torch.aten.table import Context, Meta, op


def _key(x: Tensor, indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else cast(i, mo.int64) for i in indices)


def _by_mask(x: Meta, indices: Sequence[Meta | None], *_: Any, **__: Any) -> str | None:
    masks = any(i is not None and i.dtype in (mo.bool, mo.uint8) for i in indices)
    return "a mask as index, whose result has a size that the data decide" if masks else None


@op("index.Tensor", "_unsafe_index.Tensor", refuse=_by_mask)
def index(x: Tensor, indices: Sequence[Any]) -> Tensor:
    return x[_key(x, indices)]


def _put_by_mask(x: Meta, indices: Sequence[Meta | None], values: Meta, *_: Any) -> str | None:
    if _by_mask(x, indices) is None:
        return None
    masks = [i for i in indices if i is not None]
    one = len(masks) == 1 and indices[0] is not None and masks[0].dtype is mo.bool and values.ndim == 0
    return None if one else "several values at the places of a mask"


@op("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default", refuse=_put_by_mask)
def index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False, *_: Any) -> Tensor:
    values = cast(values, x.dtype)
    if indices and indices[0] is not None and indices[0].dtype is mo.bool:
        mask = indices[0]
        mask = mo.reshape(mask, tuple(mask.shape) + (1,) * (x.ndim - mask.ndim))
        return mo.where(mask, x + values if accumulate else values, x)
    place = x.at[_key(x, indices)]
    return place.add(values) if accumulate else place.set(values)


@op("index_select.default")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if x.ndim == 0:
        return x
    found = mo.take(x, mo.reshape(cast(index, mo.int64), (-1,)), axis=dim % x.ndim)
    return found


@op("embedding.default")
def embedding(weight: Tensor, ids: Tensor, *_: Any, **__: Any) -> Tensor:
    return mo.embedding(weight, cast(ids, mo.int64))


@op("embedding_dense_backward.default")
def embedding_dense_backward(grad: Tensor, ids: Tensor, rows: int, padding: int, by_count: bool) -> Tensor:
    width = grad.shape[-1]
    flat, grad = mo.reshape(cast(ids, mo.int64), (-1,)), mo.reshape(grad, (-1, width))
    if padding >= 0:
        grad = mo.where(mo.expand_dims(mo.equal(flat, padding), axis=-1), 0.0, grad)
    if by_count:
        ones = mo.ones(flat.shape, dtype=grad.dtype)
        counts = mo.zeros((rows,), dtype=grad.dtype).at[flat].add(ones)
        grad = grad / mo.expand_dims(mo.take(counts, flat, axis=0), axis=-1)
    return mo.zeros((rows, width), dtype=grad.dtype).at[flat].add(grad)


def _window(x: Tensor, index: Tensor, dim: int) -> tuple[slice, ...]:
    """The part of x that an index reaches: all along `dim`, the index's sizes along the others."""
    return tuple(slice(None) if d == dim or size == index.shape[d] else slice(0, index.shape[d])
                 for d, size in enumerate(x.shape))


@op("gather.default")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    index = cast(index, mo.int64)
    if x.ndim == 0 or index.ndim == 0:
        return mo.take(mo.reshape(x, (-1,)), index, axis=0)
    dim = dim % x.ndim
    return mo.take_along_axis(x[_window(x, index, dim)], index, axis=dim)


def _scattered(x: Tensor, dim: int, index: Tensor, source: Tensor, how: Any) -> Tensor:
    index = cast(index, mo.int64)
    if x.ndim == 0 or index.ndim == 0:
        wide = _scattered(mo.reshape(x, (-1,)), 0, mo.reshape(index, (-1,)), mo.reshape(source, (-1,)), how)
        return mo.reshape(wide, x.shape)
    if 0 in index.shape:
        return x
    dim = dim % x.ndim
    source = source[tuple(slice(0, size) for size in index.shape)]
    window = _window(x, index, dim)
    if all(part == slice(None) for part in window):
        return how(x, index, source, axis=dim)
    return x.at[window].set(how(x[window], index, source, axis=dim))


@op("scatter.src")
def scatter_src(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scattered(x, dim, index, cast(source, x.dtype), mo.scatter)


@op("scatter.value")
def scatter_value(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return _scattered(x, dim, index, mo.broadcast_to(tensor(value, x.dtype), index.shape), mo.scatter)


@op("scatter_add.default")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _scattered(x, dim, index, cast(source, x.dtype), mo.scatter_add)


_REDUCTIONS = {"sum": "sum", "prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


@op("scatter_reduce.two")
def scatter_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
                   include_self: bool = True) -> Tensor:
    def how(x: Tensor, index: Tensor, source: Tensor, axis: int) -> Tensor:
        return mo.scatter_reduce(x, index, source, axis=axis, reduce=_REDUCTIONS[reduce], include_self=include_self)

    return _scattered(x, dim, index, cast(source, x.dtype), how)


@op("index_add.default")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    if x.ndim == 0:
        return x + mo.sum(source) * alpha
    source = source if alpha == 1 else source * cast(alpha, x.dtype)
    return x.at[(slice(None),) * (dim % x.ndim) + (cast(index, mo.int64),)].add(cast(source, x.dtype))


@op("masked_scatter.default")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = mo.broadcast_to(x, mo.broadcast_arrays(x, mask)[0].shape).shape
    mask = mo.reshape(mo.broadcast_to(mask, shape), (-1,))
    x = mo.reshape(mo.broadcast_to(x, shape), (-1,))
    if 0 in source.shape or 0 in shape:
        return mo.reshape(x, shape)
    order = mo.cumulative_sum(mo.astype(mask, mo.int64), axis=0) - 1
    taken = mo.take(mo.reshape(source, (-1,)), mo.clip(order, 0, source.size - 1), axis=0)
    return mo.reshape(mo.where(mask, taken, x), shape)


# -- bags of rows ------------------------------------------------------------------------------------------------------
def _odd_bags(weight: Meta, indices: Meta, offsets: Meta, *_: Any, **__: Any) -> str | None:
    return None if weight.is_static and indices.is_static and offsets.is_static and 0 not in (
        *indices.shape, *weight.shape, *offsets.shape) else "bags of an empty or open size"


@op("_embedding_bag.default", "_embedding_bag_forward_only.default", context=True, refuse=_odd_bags)
def embedding_bag(context: Context, weight: Tensor, indices: Tensor, offsets: Tensor, by_count: bool = False,
                  mode: int = 0, sparse: bool = False, per_sample_weights: Any = None, include_last: bool = False,
                  padding: int = -1) -> tuple[Tensor, ...]:
    """The rows of each bag summed (mode 0), averaged (1) or their largest numbers (2); then, as the backward pass reads
    them, the bag of each row, the sizes of the bags and which row had the largest number."""
    ids, starts = cast(indices, mo.int64), cast(offsets, mo.int64)
    bags = int(offsets.shape[0]) - int(include_last)
    count, width = int(indices.shape[0]), int(weight.shape[1])
    bag = mo.minimum(mo.searchsorted(starts, mo.arange(count), side="right") - 1, bags - 1)
    kept = mo.not_equal(ids, padding)
    rows = mo.astype(mo.take(weight, ids, axis=0), weight.dtype.compute)
    sizes = mo.zeros((bags,), dtype=mo.int64).at[bag].add(mo.astype(kept, mo.int64))
    largest = sizes
    if mode == 2:
        out, largest = _largest(rows, kept, bag, ids, bags)
    else:
        if per_sample_weights is not None:
            rows = rows * mo.expand_dims(cast(per_sample_weights, rows.dtype), axis=-1)
        rows = mo.where(mo.expand_dims(kept, axis=-1), rows, 0.0)
        out = mo.zeros((bags, width), dtype=rows.dtype).at[bag].add(rows)
        if mode == 1:
            out = out / mo.expand_dims(mo.astype(mo.maximum(sizes, 1), out.dtype), axis=-1)
    others = (mo.where(kept, bag, -1) if padding >= 0 else bag, sizes, largest)
    return out, *(_sized(value, meta) for value, meta in zip(others, context.results[1:], strict=True))


def _largest(rows: Tensor, kept: Tensor, bag: Tensor, ids: Tensor, bags: int) -> tuple[Tensor, Tensor]:
    """Of each bag and column the largest number, 0 where there is none, and the number of the first row that has it."""
    wide = mo.broadcast_to(mo.expand_dims(bag, axis=-1), rows.shape)
    shown = mo.where(mo.expand_dims(kept, axis=-1), rows, -mo.inf)
    least = mo.full((bags, rows.shape[1]), -mo.inf, dtype=rows.dtype)
    most = mo.scatter_reduce(least, wide, shown, axis=0, reduce="amax", include_self=True)
    count = rows.shape[0]
    order = mo.broadcast_to(mo.expand_dims(mo.arange(count), axis=-1), rows.shape)
    holds = mo.logical_and(mo.equal(shown, mo.take(most, bag, axis=0)), mo.expand_dims(kept, axis=-1))
    first = mo.scatter_reduce(mo.full(most.shape, count, dtype=mo.int64), wide, mo.where(holds, order, count), axis=0,
                              reduce="amin", include_self=True)
    empty = mo.equal(first, count)
    return mo.where(empty, 0.0, most), mo.where(empty, 0, mo.take(ids, mo.minimum(first, count - 1), axis=0))


def _sized(value: Tensor, meta: Meta | None) -> Tensor:
    """Result in the size that PyTorch kept: one that nobody reads has another size, and is zeros."""
    assert meta is not None
    fits = tuple(value.shape) == meta.shape
    return cast(value, meta.dtype) if fits else mo.zeros(tuple(s or 0 for s in meta.shape), dtype=meta.dtype)
