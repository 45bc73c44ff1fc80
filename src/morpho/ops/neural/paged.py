"""Keys and values in pages: attention that finds its keys through a table of pages, and putting new ones into pages.

A pool is (pages, kv_heads, PAGE, depth): a page holds PAGE positions in a row of one sequence, and a table (batch,
blocks) says which page holds the positions PAGE * b, PAGE * b + 1, ... of each sequence. A page is a block of
attention's keys, so `paged_attention` has the bits of `attention` over keys that lie side by side. Page numbers
outside the pool are taken for the nearest inside; those of blocks that no query sees are not looked at. `write_pages`
puts line (b, n) of the new ones at place PAGE * page + position, and nowhere if that is negative or outside: it never
fails, so that a pool may be written over where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import int64
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import add, constant_like, expand, mul, reshape
from morpho.ops.batching import Rows, loop
from morpho.ops.neural.attention import NUMERICS, _reference
from morpho.ops.sources import pick

PAGE = 64  # positions of a page: those of a block of attention's keys


def _infer_attention(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    q, k, v, pages, offset = inputs
    if not q.dtype.is_float or k.dtype is not q.dtype or v.dtype is not q.dtype:
        raise fail(DTypeError, "paged_attention", f"dtypes {q.dtype}, {k.dtype} and {v.dtype} are not one float dtype")
    fits = (len(q.shape) == len(k.shape) == len(v.shape) == 4 and k.shape[:3] == v.shape[:3] and k.shape[2] == PAGE
            and q.shape[3] == k.shape[3] and isinstance(k.shape[1], int) and isinstance(q.shape[1], int)
            and k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0)
    if not fits:
        raise fail(ShapeError, "paged_attention", f"q {q.shape}, k {k.shape} and v {v.shape} do not fit",
                   f"q is (batch, heads, queries, d), k and v (pages, kv_heads, {PAGE}, d and dv)")
    if len(pages.shape) != 2 or pages.shape[0] != q.shape[0] or pages.dtype is not int64:
        raise fail(ShapeError, "paged_attention", f"a table {pages.dtype}{pages.shape} does not fit q {q.shape}",
                   "it is (batch, blocks) of int64")
    if offset.shape != q.shape[:2] or offset.dtype is not int64:
        raise fail(ShapeError, "paged_attention", f"an offset {offset.dtype}{offset.shape} does not fit q {q.shape}",
                   "it is (batch, heads) of int64")
    return Spec((*q.shape[:-1], v.shape[-1]), q.dtype), Spec(q.shape[:-1], q.dtype.compute)


def _reference_attention(attributes: Attributes, q: Any, k: Any, v: Any, pages: Any, offset: Any) -> Any:
    """Attention over the pages put side by side."""
    table = np.clip(np.asarray(pages), 0, k.shape[0] - 1)
    lines = []
    for pool in (k, v):
        found = np.swapaxes(np.asarray(pool)[table], 1, 2)  # (batch, kv_heads, blocks, PAGE, depth)
        lines.append(found.reshape(*found.shape[:2], found.shape[2] * found.shape[3], found.shape[-1]))
    how = {"masked": False, "moving": True, "causal": True, **attributes}
    return _reference(how, q, *lines, offset)


def _infer_write(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    pool, new, places = inputs
    if new.dtype is not pool.dtype:
        raise fail(DTypeError, "write_pages", f"lines of {new.dtype} do not fit pages of {pool.dtype}")
    fits = (len(pool.shape) == len(new.shape) == 4 and pool.shape[2] == PAGE and new.shape[1] == pool.shape[1]
            and new.shape[3] == pool.shape[3])
    if not fits or places.shape != (new.shape[0], new.shape[2]) or places.dtype is not int64:
        raise fail(ShapeError, "write_pages", f"lines {new.shape} and places {places.dtype}{places.shape} do not fit "
                                              f"pages {pool.shape}",
                   f"(batch, kv_heads, n, depth), (batch, n) of int64 and (pages, kv_heads, {PAGE}, depth)")
    return pool


def _reference_write(attributes: Attributes, pool: Any, new: Any, places: Any) -> Any:
    result = np.array(pool)
    for b, row in enumerate(np.asarray(places)):
        for n, place in enumerate(row):
            if 0 <= place < result.shape[0] * PAGE:
                result[place // PAGE, :, place % PAGE] = new[b, :, n]
    return result


def _batch_attention(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> list[Node]:
    """Rows become more sequences; pools of their own lie one after another, and page numbers count on."""
    def folded(x: Node, has: bool) -> Node:
        whole = x if has else expand(reshape(x, (1, *x.shape)), (rows.size, *x.shape))
        return reshape(whole, (whole.shape[0] * whole.shape[1], *whole.shape[2:]))

    own = batched[1] or batched[2]
    pages, had = inputs[3], batched[3]
    if own:
        count = node.inputs[1].shape[0]
        kept = build("minimum", build("maximum", pages, constant_like(pages, 0)), constant_like(pages, count - 1))
        whole = kept if had else expand(reshape(kept, (1, *kept.shape)), (rows.size, *kept.shape))
        number = build("iota", shape=whole.shape, axis=0, dtype=int64)
        pages, had = add(whole, mul(number, constant_like(number, count))), True
    pools = [folded(x, has) if own else x for x, has in zip(inputs[1:3], batched[1:3], strict=True)]
    given = [folded(inputs[0], batched[0]), *pools,
             folded(pages, had), folded(inputs[4], batched[4])]
    made = build("paged_attention", *given, **node.attributes)
    return [reshape(pick(made, index), (rows.size, *spec.shape)) for index, spec in enumerate(node.outputs)]


_WHY = "pages are what inference keeps; train with `attention`"
PAGED_ATTENTION = register(Op("paged_attention", "contract", _infer_attention, NoGradient(_WHY, missing=True),
                              _reference_attention, 2, NUMERICS, arity=(5, 5), batch=_batch_attention))
WRITE_PAGES = register(Op("write_pages", "move", _infer_write, NoGradient(_WHY, missing=True), _reference_write, 0,
                          arity=(3, 3), batch=loop))
