"""Functions on keys and values in pages, for caches that many sequences share (`mo.nn.PagedCache`)."""

from __future__ import annotations

from typing import Any

from morpho.base.dtypes import int64
from morpho.ir.node import build
from morpho.ops.algebra import cast, expand, reshape
from morpho.ops.sources import pick
from morpho.tensor.autodiff.precision import lowered
from morpho.tensor.core import Tensor
from morpho.tensor.functions.neural.attention import _scale, _window
from morpho.tensor.operands import as_node


def paged_attention(q: Any, k: Any, v: Any, /, pages: Any, offset: Any, *, scale: float | None = None,
                    window: int | None = None) -> Tensor:
    """Causal attention of q (batch, heads, queries, d), sequence b from position `offset[b]` on, over keys and values
    in pools of pages (pages, kv_heads, 64, d); `pages` (batch, blocks) says which page holds each 64 positions. The
    bits are those of `mo.attention` over the same keys side by side.

    >>> from morpho.tensor.functions.neural.paged import paged_attention
    >>> pool = mo.ones((3, 1, 64, 4))
    >>> paged_attention(mo.ones((1, 2, 1, 4)), pool, pool, mo.asarray([[2]]), mo.asarray([5])).shape
    (1, 2, 1, 4)
    """
    name = "paged_attention"
    [q] = lowered(name, "attention", q)
    k, v = (cast(as_node(x, name), q.dtype) for x in (k, v))  # nothing for pools of that dtype: pages stay in place
    table, start = cast(as_node(pages, name), int64), cast(as_node(offset, name), int64)
    start = expand(reshape(start, (*start.shape, 1)), (*start.shape, q.shape[1])) if len(start.shape) == 1 else start
    node = build(name, q, k, v, table, start, scale=_scale(scale, q), window=_window(window), offset=0)
    return Tensor.of_node(pick(node, 0))


def write_pages(pool: Any, new: Any, /, places: Any) -> Tensor:
    """The pool (pages, kv_heads, 64, d) with line (b, n) of `new` (batch, kv_heads, n, d) at position `places[b, n]` %
    64 of page `places[b, n]` // 64; lines with a negative place go nowhere.

    >>> from morpho.tensor.functions.neural.paged import write_pages
    >>> write_pages(mo.zeros((2, 1, 64, 1)), mo.ones((1, 1, 2, 1)), mo.asarray([[70, -1]]))[1, 0, 6].item()
    1.0
    """
    name = "write_pages"
    nodes = [as_node(x, name) for x in (pool, new)]
    return Tensor.of_node(build(name, *nodes, cast(as_node(places, name), int64)))
