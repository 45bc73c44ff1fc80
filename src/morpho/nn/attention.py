"""Attention as a module: heads that share keys and values (GQA, MQA), causality, rotary positions, a cache."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.dropout import Dropout
from morpho.nn.linear import Linear
from morpho.nn.module import Module
from morpho.nn.positions import RotaryPositions


def split_heads(x: mo.Tensor, heads: int) -> mo.Tensor:
    """(batch, length, heads * depth) -> (batch, heads, length, depth)."""
    depth = int(x.shape[-1]) // heads
    return mo.permute_dims(mo.reshape(x, (*x.shape[:-1], heads, depth)), (0, 2, 1, 3))


def join_heads(x: mo.Tensor) -> mo.Tensor:
    """(batch, heads, length, depth) -> (batch, length, heads * depth)."""
    batch, heads, length, depth = x.shape
    return mo.reshape(mo.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * depth))


class KeyValueCache:
    """Keys and values of one attention layer, (batch, kv_heads, length, depth) each, that compiled functions update.

    >>> cache = mo.nn.KeyValueCache(1, 2, 8, 4)
    >>> keys, values = cache.write(mo.ones((1, 2, 3, 4)), mo.ones((1, 2, 3, 4)), mo.asarray(0))
    >>> keys.shape
    (1, 2, 8, 4)
    """

    def __init__(self, batch: int, kv_heads: int, length: int, depth: int, dtype: Any = mo.float32,
                 value_depth: int | None = None) -> None:
        check_sizes("KeyValueCache", batch=batch, kv_heads=kv_heads, length=length, depth=depth)
        self.length = length
        self.keys = mo.State(mo.zeros((batch, kv_heads, length, depth), dtype=dtype))
        self.values = mo.State(mo.zeros((batch, kv_heads, length, value_depth or depth), dtype=dtype))

    def write(self, keys: mo.Tensor, values: mo.Tensor, offset: Any) -> tuple[mo.Tensor, mo.Tensor]:
        """Put in new ones (batch, kv_heads, n, depth) from position `offset` on; returns all, written or not."""
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


def _per_sequence(offset: Any) -> Any:
    """An offset that broadcasts to (batch, heads, length, depth)."""
    if isinstance(offset, int) or not offset.ndim:
        return offset
    return mo.reshape(offset, (-1, 1, 1, 1))


def attend(q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, *, causal: bool = False, mask: Any = None,
           cache: KeyValueCache | None = None, offset: Any = 0, scale: float | None = None,
           window: int | None = None) -> mo.Tensor:
    """Attention of (batch, heads, n, depth) over k and v, or over a cache that they are put into first."""
    if cache is not None:
        k, v = cache.write(k, v, offset)
        k, v = k.astype(q.dtype), v.astype(q.dtype)
    if not isinstance(offset, int) and offset.ndim:
        offset = mo.reshape(offset, (-1, 1))  # (batch,) -> (batch, heads)
    return mo.attention(q, k, v, causal=causal, mask=mask, offset=offset if causal else 0, scale=scale, window=window)


class MultiHeadAttention(Module):
    """Projections to queries, keys and values, attention over them, and a projection of the joined heads.

    `kv_heads` < `heads` shares keys and values among groups of heads (GQA; 1 is MQA). `memory` is what is looked at, x
    itself by default. A boolean `mask` is True where a query may look, a float one is added to the scores; its shape
    broadcasts to (batch, heads, queries, keys). With a `cache`, x is the continuation, from position
    `offset` on, of what was seen. `dropout` is that of the result.

    >>> attention = mo.nn.MultiHeadAttention(8, 4, kv_heads=2, causal=True)
    >>> attention(mo.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, width: int, heads: int, kv_heads: int | None = None, depth: int | None = None, bias: bool = True,
                 output_bias: bool | None = None, causal: bool = False, window: int | None = None,
                 rope: RotaryPositions | None = None, dropout: float = 0.0, memory_width: int | None = None,
                 dtype: Any = mo.float32) -> None:
        kv_heads = heads if kv_heads is None else kv_heads
        memory_width = width if memory_width is None else memory_width
        check_sizes("MultiHeadAttention", width=width, heads=heads, kv_heads=kv_heads, memory_width=memory_width,
                    **({} if depth is None else {"depth": depth}))
        if heads % kv_heads:
            raise fail(ArgumentError, "MultiHeadAttention", f"{heads} heads are not a multiple of {kv_heads} kv_heads")
        if depth is None and width % heads:
            raise fail(ArgumentError, "MultiHeadAttention", f"width {width} is not a multiple of {heads} heads",
                       "say depth=, the width of one head")
        self.depth = depth = width // heads if depth is None else depth
        self.width, self.heads, self.kv_heads, self.causal, self.window = width, heads, kv_heads, causal, window
        self.rope = rope
        self.q_proj = Linear(width, heads * depth, bias, dtype)
        self.k_proj = Linear(memory_width, kv_heads * depth, bias, dtype)
        self.v_proj = Linear(memory_width, kv_heads * depth, bias, dtype)
        self.o_proj = Linear(heads * depth, width, bias if output_bias is None else output_bias, dtype)
        self.dropout = Dropout(dropout)

    def forward(self, x: mo.Tensor, memory: mo.Tensor | None = None, *, mask: Any = None,
                cache: KeyValueCache | None = None, offset: Any = 0) -> mo.Tensor:
        source = x if memory is None else memory
        for given in (x, source):
            if given.ndim != 3:
                raise fail(ShapeError, "MultiHeadAttention", f"shape {tuple(given.shape)} is not (batch, length, "
                           "width)", "put an axis of size 1 before it: x[None]" if given.ndim == 2 else "")
        q = split_heads(self.q_proj(x), self.heads)  # (batch, heads, queries, depth)
        k, v = (split_heads(part(source), self.kv_heads) for part in (self.k_proj, self.v_proj))
        if self.rope is not None:
            turns = self.rope.tables(x.shape[-2], offset)
            q, k = self.rope.turn(q, *turns), self.rope.turn(k, *turns)
        seen = attend(q, k, v, causal=self.causal, mask=mask, cache=cache, offset=offset, window=self.window)
        return self.dropout(self.o_proj(join_heads(seen)))

    def describe(self) -> str:
        shared = "" if self.kv_heads == self.heads else f", kv_heads={self.kv_heads}"
        return f"{self.width}, heads={self.heads}{shared}" + (", causal=True" if self.causal else "")
