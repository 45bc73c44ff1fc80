"""A cache of keys and values in pages that many sequences share; a table says which page holds which positions."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.backends.registry import HOST
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, fail
from morpho.ops.neural.paged import PAGE
from morpho.tensor.functions.neural.paged import paged_attention, write_pages
from morpho.tensor.state.state import zeros_state


class PagedCache:
    """Keys and values of one attention layer in `pages` pages of 64 positions: pools of (pages, num_kv_heads, 64,
    head_dim) that compiled functions write in place. It stands where a `KeyValueCache` does, with an offset for every
    sequence; `use` says first where the sequences of this call lie. Results have the bits of a `KeyValueCache`.

    >>> cache = mo.nn.PagedCache(pages=4, num_kv_heads=1, head_dim=8)
    >>> cache.use(table=mo.asarray([[2, 3]]), places=mo.asarray([[2 * 64, 2 * 64 + 1]]))
    >>> x = mo.ones((1, 1, 2, 8))
    >>> cache.attend(x, x, x, mo.asarray([0])).shape
    (1, 1, 2, 8)
    """

    def __init__(self, pages: int, num_kv_heads: int, head_dim: int, dtype: Any = mo.float32,
                 value_head_dim: int | None = None, device: str = "cpu") -> None:
        check_sizes("PagedCache", pages=pages, num_kv_heads=num_kv_heads, head_dim=head_dim)
        self.pages = pages
        self.keys = _zeros((pages, num_kv_heads, PAGE, head_dim), dtype, device)
        self.values = _zeros((pages, num_kv_heads, PAGE, value_head_dim or head_dim), dtype, device)
        self._table: Any = None
        self._places: Any = None

    def use(self, table: mo.Tensor, places: mo.Tensor) -> None:
        """`table` (batch, blocks): the page of each 64 positions of each sequence. `places` (batch, n): where the next
        n keys and values go, 64 * page + position in it; negative ones go nowhere."""
        self._table, self._places = table, places

    def attend(self, q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, offset: Any, *, scale: float | None = None,
               window: int | None = None) -> mo.Tensor:
        """Put in k and v, then causal attention of q (batch, heads, n, head_dim), sequence b from `offset[b]` on."""
        if self._table is None:
            raise fail(ArgumentError, "PagedCache", "nobody said where the sequences lie", "call use() first")
        for state, new in ((self.keys, k), (self.values, v)):
            state.value = write_pages(state.value, new.astype(state.value.dtype), self._places)
        return paged_attention(q, self.keys.value, self.values.value, self._table, offset, scale=scale, window=window)

    def copy_page(self, source: mo.Tensor, target: mo.Tensor) -> None:
        """Page `source` (1,) into page `target` (1,)."""
        keys, values = (mo.take(state.value, source, axis=0) for state in (self.keys, self.values))
        self.put_page(keys, values, target)

    def put_page(self, keys: mo.Tensor, values: mo.Tensor, target: mo.Tensor) -> None:
        """Keys and values (1, num_kv_heads, 64, head_dim) that were made elsewhere into page `target` (1,)."""
        places = mo.reshape(target, (1, 1)) * PAGE + mo.reshape(mo.arange(PAGE), (1, PAGE))
        for state, new in ((self.keys, keys), (self.values, values)):
            state.value = write_pages(state.value, new.astype(state.value.dtype), places)


def _zeros(shape: tuple[int, ...], dtype: Any, device: str) -> mo.State:
    """On the host, memory that nobody has touched."""
    return zeros_state(shape, dtype) if device == HOST else mo.State(mo.zeros(shape, dtype=dtype, device=device))
