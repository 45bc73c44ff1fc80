"""Views and movement of elements. What PyTorch aliases, Morpho computes as a value: AOTAutograd has taken the writes
through views out of the graph before it comes here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.tensor.core import Tensor
from morpho.torch.aten.promotion import cast, promoted_pair, tensor
from morpho.torch.aten.table import Context, Meta, op

_END = 1 << 62  # what PyTorch writes for "to the end" is larger


@op("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default",
    "lift_fresh.default", "resolve_conj.default", "resolve_neg.default", "view_of.default")
def same(x: Tensor, **_: Any) -> Tensor:
    return x


@op("view.default", "reshape.default", "_unsafe_view.default", "_reshape_copy.default")
def view(x: Tensor, size: Sequence[Any]) -> Tensor:
    if -1 in [s for s in size if isinstance(s, int)] and 0 in x.shape:
        known = math.prod(s for s in size if s != -1)
        size = [x.size // known if s == -1 else s for s in size]
    return mo.reshape(x, tuple(size))


@op("expand.default")
def expand(x: Tensor, size: Sequence[Any], *, implicit: bool = False) -> Tensor:
    new = len(size) - x.ndim
    return mo.broadcast_to(x, tuple(x.shape[i - new] if isinstance(s, int) and s == -1 else s
                                    for i, s in enumerate(size)))


@op("permute.default")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return mo.permute_dims(x, tuple(d % x.ndim for d in dims)) if x.ndim else x


@op("transpose.int")
def transpose(x: Tensor, a: int, b: int) -> Tensor:
    return mo.swapaxes(x, a % x.ndim, b % x.ndim) if x.ndim else x


@op("t.default")
def matrix_t(x: Tensor) -> Tensor:
    return mo.permute_dims(x, (1, 0)) if x.ndim == 2 else x


@op("squeeze.default")
def squeeze_all(x: Tensor) -> Tensor:
    return mo.reshape(x, tuple(size for size in x.shape if not (isinstance(size, int) and size == 1)))


@op("squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, dim: Any) -> Tensor:
    where = {d % max(x.ndim, 1) for d in (dim if isinstance(dim, list | tuple) else (dim,))}
    gone = tuple(d for d in where if d < x.ndim and isinstance(x.shape[d], int) and x.shape[d] == 1)
    return mo.squeeze(x, axis=gone) if gone else x


@op("unsqueeze.default")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    return mo.expand_dims(x, axis=dim % (x.ndim + 1))


def _at(x: Tensor, dim: int, what: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (what,)


def _window(start: Any, end: Any, step: int) -> slice:
    start = None if start is None or (isinstance(start, int) and start == 0) else start
    end = None if end is None or (isinstance(end, int) and end >= _END) else end
    return slice(start, end, None if step == 1 else step)


@op("slice.Tensor")
def slice_(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    window = _window(start, end, step)
    return x if window == slice(None) else x[_at(x, dim, window)]


@op("select.int")
def select(x: Tensor, dim: int, index: Any) -> Tensor:
    return x[_at(x, dim, index)]


@op("select_scatter.default")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    return x.at[_at(x, dim, index)].set(cast(source, x.dtype))


@op("slice_scatter.default")
def slice_scatter(x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None,
                  step: int = 1) -> Tensor:
    window = _window(start, end, step)
    source = mo.broadcast_to(cast(source, x.dtype), slice_(x, dim, start, end, step).shape)
    return source if window == slice(None) else x.at[_at(x, dim, window)].set(source)


@op("split_with_sizes.default", "unsafe_split_with_sizes.default")
def split_with_sizes(x: Tensor, sizes: Sequence[Any], dim: int = 0) -> tuple[Tensor, ...]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(x[_at(x, dim, slice(start, start + size))])
        start = start + size
    return tuple(pieces)


@op("split.Tensor")
def split(x: Tensor, size: int, dim: int = 0) -> tuple[Tensor, ...]:
    length = x.shape[dim]
    if size == 0:
        return (x,)
    sizes = [size] * (length // size) + ([length % size] if length % size else [])
    return split_with_sizes(x, sizes or [0], dim)


@op("unbind.int")
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(x[_at(x, dim, i)] for i in range(x.shape[dim]))


@op("cat.default")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = promoted_pair(dtype, t.dtype)
    kept = [t for t in tensors if not (t.ndim == 1 and t.shape[0] == 0)]  # PyTorch's old empty tensor joins anything
    if not kept:
        return cast(tensors[0], dtype)
    return mo.concat([cast(t, dtype) for t in kept], axis=dim)


@op("stack.default")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return cat([unsqueeze(t, dim) for t in tensors], dim)


@op("flip.default")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return mo.flip(x, axis=tuple(d % x.ndim for d in dims)) if x.ndim and len(dims) else x


@op("roll.default")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    if x.ndim == 0:
        return x
    if not dims:
        return mo.reshape(mo.roll(mo.reshape(x, (-1,)), shifts[0], axis=0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = mo.roll(x, shift, axis=dim)
    return x


@op("repeat.default")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    shape = (1,) * (len(repeats) - x.ndim) + tuple(x.shape)
    paired = [size for r, s in zip(repeats, shape, strict=True) for size in (1, s)]
    wide = [size for r, s in zip(repeats, shape, strict=True) for size in (r, s)]
    spread = mo.broadcast_to(mo.reshape(x, tuple(paired)), tuple(wide))
    return mo.reshape(spread, tuple(r * s for r, s in zip(repeats, shape, strict=True)))


@op("constant_pad_nd.default")
def constant_pad(x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    widths: list[tuple[Any, Any]] = [(0, 0)] * x.ndim
    for number in range(len(pad) // 2):
        axis = x.ndim - 1 - number
        low, high = pad[2 * number], pad[2 * number + 1]
        if isinstance(low, int) and low < 0:
            x, low = x[_at(x, axis, slice(-low, None))], 0
        if isinstance(high, int) and high < 0:
            x, high = x[_at(x, axis, slice(0, x.shape[axis] + high))], 0
        widths[axis] = (low, high)
    return mo.pad(x, tuple(widths), value=cast(value, x.dtype))


def _edge_pad(x: Tensor, pad: Sequence[int], source: Any) -> Tensor:
    """Indices along each padded axis: `source(positions, size)` says where a position takes its element from."""
    for number in range(len(pad) // 2):
        axis = x.ndim - 1 - number
        size = int(x.shape[axis])
        positions = source(np.arange(-pad[2 * number], size + pad[2 * number + 1]), size)
        x = mo.take(x, mo.asarray(positions), axis=axis)
    return x


@op("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(x: Tensor, pad: Sequence[int]) -> Tensor:
    return _edge_pad(x, pad, lambda at, n: np.where(at < 0, -at, np.where(at >= n, 2 * (n - 1) - at, at)))


@op("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(x: Tensor, pad: Sequence[int]) -> Tensor:
    return _edge_pad(x, pad, lambda at, n: np.clip(at, 0, n - 1))


@op("diagonal.default")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return mo.diagonal(x, offset=offset, axis1=dim1 % x.ndim, axis2=dim2 % x.ndim)


@op("copy.default")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return mo.broadcast_to(cast(source, x.dtype), x.shape)


@op("fill.Scalar", "fill.Tensor")
def fill(x: Tensor, value: Any) -> Tensor:
    return mo.broadcast_to(tensor(value, x.dtype), x.shape)


def _no_strides(x: Meta, *_: Any, **__: Any) -> str | None:
    return None if x.is_static and _memory_order(x) is not None else "memory with gaps or overlaps, or symbolic strides"


def _memory_order(x: Meta) -> list[int] | None:
    """The axes from the slowest to the fastest in memory, where the elements lie there without gaps."""
    order = sorted(range(x.ndim), key=lambda d: (-x.strides[d], -x.shape[d], d))  # type: ignore[operator]
    expected = 1
    for axis in reversed(order):
        if x.shape[axis] != 1 and x.strides[axis] != expected:
            return None
        expected *= x.shape[axis]  # type: ignore[operator]
    return order


@op("as_strided.default", context=True, refuse=_no_strides)
def as_strided(context: Context, x: Tensor, size: Sequence[int], stride: Sequence[int],
               storage_offset: int | None = None) -> Tensor:
    order = _memory_order(context.operands[0])
    memory = mo.reshape(mo.permute_dims(x, tuple(order or ())), (-1,)) if x.ndim > 1 else mo.reshape(x, (-1,))
    places = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(length) * step).reshape((-1,) + (1,) * (len(size) - 1 - axis))
    return mo.reshape(mo.take(memory, mo.asarray(places.reshape(-1)), axis=0), tuple(size))


@op("unfold.default")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.ndim == 0:
        return mo.reshape(x, (1,))[:size]
    count = (int(x.shape[dim]) - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    dim = dim % x.ndim
    taken = mo.take(x, mo.asarray(places.reshape(-1)), axis=dim)
    split_up = mo.reshape(taken, (*x.shape[:dim], count, size, *x.shape[dim + 1:]))
    return mo.moveaxis(split_up, dim + 1, -1)


@op("tril.default")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return mo.tril(x, k=diagonal)


@op("triu.default")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return mo.triu(x, k=diagonal)
