"""Attention as a module: heads that share keys and values (GQA, MQA), causality, rotary positions, a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import morpho as mo
from morpho.backends.registry import HOST
from morpho.base import settings
from morpho.base.checks import check_sizes
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.nn.transformer.paged import PagedCache
from morpho.nn.transformer.positions import RotaryPositions
from morpho.tensor.state.state import zeros_state


@dataclass(frozen=True)
class Parts:
    """The way in which several nodes share a layer: a layer's method `parts` gives it.

    `columns` are products of whose results each node computes an equal part, with the widths of the matrices that lie
    side by side in one (none for a single matrix); `last` is the product of all of that. Each node has its part of the
    `counts`, such as numbers of heads, and its columns of the `tables`; `whole` are norms that need the results of all,
    `rows` tensors of which a node has those of its heads.
    """

    columns: Mapping[str, tuple[int, ...]]
    last: str
    counts: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


def split_heads(x: mo.Tensor, heads: int) -> mo.Tensor:
    """(batch, length, heads * depth) -> (batch, heads, length, depth)."""
    depth = int(x.shape[-1]) // heads
    return mo.permute_dims(mo.reshape(x, (*x.shape[:-1], heads, depth)), (0, 2, 1, 3))


def join_heads(x: mo.Tensor) -> mo.Tensor:
    """(batch, heads, length, depth) -> (batch, length, heads * depth)."""
    batch, heads, length, depth = x.shape
    return mo.reshape(mo.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * depth))


def _zeros(shape: tuple[int, ...], dtype: Any) -> mo.State:
    """On the host, memory that nobody has touched."""
    plain = isinstance(dtype, DType) and settings.get().device == HOST
    return zeros_state(shape, dtype) if plain else mo.State(mo.zeros(shape, dtype=dtype))


class KeyValueCache:
    """Keys and values of one attention layer, (batch_size, num_kv_heads, length, head_dim) each, that compiled
    functions update.

    >>> cache = mo.nn.KeyValueCache(1, 2, 8, 4)
    >>> keys, values = cache.write(mo.ones((1, 2, 3, 4)), mo.ones((1, 2, 3, 4)), mo.asarray(0))
    >>> keys.shape
    (1, 2, 8, 4)
    """

    def __init__(self, batch_size: int, num_kv_heads: int, length: int, head_dim: int, dtype: Any = mo.float32,
                 value_head_dim: int | None = None) -> None:
        check_sizes("KeyValueCache", batch_size=batch_size, num_kv_heads=num_kv_heads, length=length, head_dim=head_dim)
        self.length = length
        self.keys = _zeros((batch_size, num_kv_heads, length, head_dim), dtype)
        self.values = _zeros((batch_size, num_kv_heads, length, value_head_dim or head_dim), dtype)

    def write(self, keys: mo.Tensor, values: mo.Tensor, offset: Any) -> tuple[mo.Tensor, mo.Tensor]:
        """Put in new ones (batch_size, num_kv_heads, n, head_dim) from position `offset` on; returns all, written or
        not."""
        for state, new in ((self.keys, keys), (self.values, values)):
            state.value = self._with(state.value, new.astype(state.value.dtype), offset)
        return self.keys.value, self.values.value

    def _with(self, held: mo.Tensor, new: mo.Tensor, offset: Any) -> mo.Tensor:
        count = new.shape[2]
        if isinstance(count, int) and count == 1:  # one pass over the cache, in place
            here = mo.reshape(mo.arange(self.length), (1, 1, self.length, 1)) == _per_sequence(offset)
            return mo.where(here, new, held)
        places = mo.reshape(mo.arange(count), (1, 1, count, 1)) + _per_sequence(offset)
        return mo.scatter(held, mo.broadcast_to(places, new.shape), new, axis=2)


class RowCaches:
    """A cache for each row of a batch, all of one length: rows that come and go, each at a position of its own."""

    def __init__(self, rows: Sequence[KeyValueCache]) -> None:
        self.rows, self.length = tuple(rows), rows[0].length

    def attended(self, seen: Callable[..., mo.Tensor], q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, offset: mo.Tensor,
                 mask: Any = None) -> mo.Tensor:
        """`seen(q, k, v, cache=, offset=, mask=)` of each row by itself, `offset` and `mask` having one for each."""
        return mo.concat([seen(*(part[row:row + 1] for part in (q, k, v)), cache=cache, offset=offset[row],
                               mask=None if mask is None else mask[row:row + 1])
                          for row, cache in enumerate(self.rows)], axis=0)


def _per_sequence(offset: Any) -> Any:
    """An offset that broadcasts to (batch, heads, length, depth)."""
    if isinstance(offset, int) or not offset.ndim:
        return offset
    return mo.reshape(offset, (-1, 1, 1, 1))


def attend(q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, *, causal: bool = False, mask: Any = None,
           cache: Any = None, offset: Any = 0, scale: float | None = None,
           window: int | None = None) -> mo.Tensor:
    """Attention of (batch, heads, n, depth) over k and v, or over a cache that they are put into first."""
    if isinstance(cache, PagedCache):
        return cache.attend(q, k, v, offset, scale=scale, window=window)
    if isinstance(cache, RowCaches):
        return cache.attended(partial(attend, causal=causal, scale=scale, window=window), q, k, v, offset, mask)
    if cache is not None:
        k, v = cache.write(k, v, offset)
        k, v = k.astype(q.dtype), v.astype(q.dtype)
    if not isinstance(offset, int) and offset.ndim:
        offset = mo.reshape(offset, (-1, 1))  # (batch,) -> (batch, heads)
    return mo.attention(q, k, v, causal=causal, mask=mask, offset=offset if causal else 0, scale=scale, window=window)


class MultiHeadAttention(Module):
    """Projections to queries, keys and values, attention over them, and a projection of the joined heads.

    `num_kv_heads` < `num_heads` shares keys and values among groups of heads (GQA; 1 is MQA). `memory` is what is
    looked at, x itself by default; `kdim` is its width. A boolean `mask` is True where a query may look, a float one is
    added to the scores; its shape broadcasts to (batch, heads, queries, keys). With a `cache`, x is the continuation,
    from position `offset` on, of what was seen. `positions` (batch, queries) are where rotary positions stand if not
    from `offset` on. `scale` is that of the scores, 1 / sqrt(head_dim) by default. `dropout` is that of the result.

    >>> attention = mo.nn.MultiHeadAttention(8, 4, num_kv_heads=2, causal=True)
    >>> attention(mo.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, embed_dim: int, num_heads: int, num_kv_heads: int | None = None, head_dim: int | None = None,
                 bias: bool = True, output_bias: bool | None = None, causal: bool = False, window: int | None = None,
                 rope: RotaryPositions | None = None, dropout: float = 0.0, kdim: int | None = None,
                 dtype: Any = mo.float32, scale: float | None = None) -> None:
        name = "MultiHeadAttention"
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        kdim = embed_dim if kdim is None else kdim
        check_sizes(name, embed_dim=embed_dim, num_heads=num_heads, num_kv_heads=num_kv_heads, kdim=kdim,
                    **({} if head_dim is None else {"head_dim": head_dim}))
        if num_heads % num_kv_heads:
            raise fail(ArgumentError, name, f"{num_heads} heads are not a multiple of {num_kv_heads} num_kv_heads")
        if head_dim is None and embed_dim % num_heads:
            raise fail(ArgumentError, name, f"embed_dim {embed_dim} is not a multiple of {num_heads} heads",
                       "say head_dim=, the width of one head")
        self.head_dim = head_dim = embed_dim // num_heads if head_dim is None else head_dim
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.kdim, self.causal, self.window, self.rope, self.scale = kdim, causal, window, rope, scale
        self.q_proj = Linear(embed_dim, num_heads * head_dim, bias, dtype)
        self.k_proj = Linear(kdim, num_kv_heads * head_dim, bias, dtype)
        self.v_proj = Linear(kdim, num_kv_heads * head_dim, bias, dtype)
        self.o_proj = Linear(num_heads * head_dim, embed_dim, bias if output_bias is None else output_bias, dtype)
        self.dropout = Dropout(dropout)

    def forward(self, x: mo.Tensor, memory: mo.Tensor | None = None, *, mask: Any = None,
                cache: KeyValueCache | None = None, offset: Any = 0, positions: Any = None) -> mo.Tensor:
        source = x if memory is None else memory
        for given in (x, source):
            if given.ndim != 3:
                raise fail(ShapeError, "MultiHeadAttention", f"shape {tuple(given.shape)} is not (batch, length, "
                           "embed_dim)", "put an axis of size 1 before it: x[None]" if given.ndim == 2 else "")
        q = split_heads(self.q_proj(x), self.num_heads)  # (batch, heads, queries, depth)
        k, v = (split_heads(part(source), self.num_kv_heads) for part in (self.k_proj, self.v_proj))
        if self.rope is not None:
            turns = self.rope.tables(x.shape[-2], offset if positions is None else positions)
            q, k = self.rope.turn(q, *turns), self.rope.turn(k, *turns)
        seen = attend(q, k, v, causal=self.causal, mask=mask, cache=cache, offset=offset, window=self.window,
                      scale=self.scale)
        result: mo.Tensor = self.dropout(self.o_proj(join_heads(seen)))
        return result

    def parts(self) -> Parts:
        return Parts({"q_proj": (), "k_proj": (), "v_proj": ()}, "o_proj", ("num_heads", "num_kv_heads"))

    def describe(self) -> str:
        shared = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        return f"{self.embed_dim}, num_heads={self.num_heads}{shared}" + (", causal=True" if self.causal else "")
