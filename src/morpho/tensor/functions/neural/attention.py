"""Attention as one exact operation: no matrix of scores in memory, the same bits however it is cut into pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.checks import as_real, as_whole
from morpho.base.dims import Dim
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import broadcast
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, expand, reshape, size_value
from morpho.ops.sources import pick
from morpho.tensor.autodiff.precision import EXAMPLES, lowered
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded


@recorded
def attention(q: Any, k: Any, v: Any, /, *, mask: Any = None, causal: bool = False, window: int | None = None,
              scale: float | None = None, offset: Any = 0) -> Tensor:
    """softmax(scale * q k^T + mask) v, computed in blocks of keys with memory linear in the lengths.

    q is (..., heads, queries, d), k is (..., kv_heads, keys, d), v is (..., kv_heads, keys, dv). Leading axes broadcast
    and heads is a multiple of kv_heads: query heads 0, 1, ... of a group share one key-value head (grouped-query and
    multi-query attention). Without a head axis, (queries, d) and (keys, d), there is one head. The result is
    (..., heads, queries, dv).

    - `mask` broadcasts to (..., heads, queries, keys). A boolean one is True where a query may look, a float one is
      added to the scaled scores; -inf there masks.
    - `causal`: a query sees no key after its own position. Query i stands at position `offset` + i, key j at j. With
      more keys than queries nothing is guessed: the queries are the first ones unless `offset` says otherwise.
    - `window`: a query sees the last `window` keys up to its position and no others; this is causal too.
    - `offset`: an integer, a dynamic size, or an integer tensor that broadcasts to (..., heads), for decoding against a
      cache: `offset=t` with one query sees the keys 0..t, whatever lies behind them.
    - `scale` is 1 / sqrt(d) by default.

    A row that may see nothing is 0. Masked keys and values take no part at all, NaN or not, so whole prompts, chunks of
    them and single steps give the same bits. Gradients go to q, k, v and a float mask; q, k and v's are computed
    in blocks again, a mask's has the size of the scores, and so have second derivatives.

    >>> import morpho as mo
    >>> x = mo.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> mo.attention(x, x, x, causal=True)[0].numpy()
    array([1., 0.], dtype=float32)
    """
    q, k, v = lowered("attention", "attention", q, k, v, floating=True)
    if q.dtype.is_complex:
        raise fail(DTypeError, "attention", f"dtype {q.dtype} is not taken", "convert with astype")
    flat = len(q.shape) == 2 and len(k.shape) == 2 and len(v.shape) == 2
    if flat:
        q, k, v = (reshape(x, (1, *x.shape)) for x in (q, k, v))
    if min(len(x.shape) for x in (q, k, v)) < 3:
        raise fail(ShapeError, "attention", f"q {q.shape}, k {k.shape} and v {v.shape} need three axes each, or two",
                   "q is (..., heads, queries, d), k (..., kv_heads, keys, d), v (..., kv_heads, keys, dv)")
    batch = broadcast("attention", q.shape, k.shape, v.shape, inner=3)
    q, k, v = (expand(x, (*batch, *x.shape[-3:])) for x in (q, k, v))
    window = _window(window)
    if not isinstance(causal, bool | np.bool_):
        raise fail(ArgumentError, "attention", f"causal={causal!r} is neither True nor False")
    causal = bool(causal) or window > 0
    extra = [] if mask is None else [_mask(mask, q, k)]
    moving, fixed = _offset(offset, causal, q)
    extra += [] if moving is None else [moving]
    node = build("attention", q, k, v, *extra, scale=_scale(scale, q), causal=causal, window=window, offset=fixed,
                 masked=mask is not None, moving=moving is not None)
    result = pick(node, 0)
    return Tensor.of_node(reshape(result, result.shape[1:]) if flat else result)


def _window(window: int | None) -> int:
    if window is None:
        return 0
    number = as_whole(window)
    if number is None or number < 1:
        raise fail(ArgumentError, "attention", f"window={window!r} is not a positive number of keys",
                   "leave it out for no window")
    return min(number, 1 << 40)


def _scale(scale: float | None, q: Node) -> float:
    if scale is not None:
        number = as_real(scale)
        if number is None:
            raise fail(ArgumentError, "attention", f"scale={scale!r} is not a finite number")
        return number
    depth = q.shape[-1]
    if not isinstance(depth, int):
        raise fail(ArgumentError, "attention", f"the default scale needs a fixed last axis, not {depth}", "pass scale=")
    return 1.0 / math.sqrt(max(depth, 1))


def _mask(mask: Any, q: Node, k: Node) -> Node:
    """The mask spread over the scores, without moving a byte; numbers wider than the scores' are rounded to theirs."""
    node = as_node(mask, "attention")
    if node.dtype is not bool_ and not node.dtype.is_float:
        raise fail(DTypeError, "attention", f"a mask of {node.dtype} is neither boolean nor float",
                   "compare it with something, or convert with astype")
    if node.dtype.is_float and node.dtype.itemsize > q.dtype.compute.itemsize:
        node = cast(node, q.dtype.compute)
    shape = (*q.shape[:-1], k.shape[-2])
    if len(node.shape) > len(shape) or broadcast("attention", node.shape, shape) != shape:
        raise fail(ShapeError, "attention", f"a mask of shape {node.shape} does not broadcast to the scores' {shape}")
    return expand(node, shape)


def _offset(offset: Any, causal: bool, q: Node) -> tuple[Node | None, int]:
    """An offset to be read when the function runs, or a number."""
    if isinstance(offset, int) and not isinstance(offset, bool):
        return None, max(min(offset, 1 << 40), -(1 << 40)) if causal else 0
    node = size_value(offset, int64) if isinstance(offset, Dim) else as_node(offset, "attention")
    if not node.dtype.is_integer:
        raise fail(DTypeError, "attention", f"an offset of {node.dtype} is not an integer")
    shape = q.shape[:-2]
    if len(node.shape) > len(shape) or broadcast("attention", node.shape, shape) != shape:
        raise fail(ShapeError, "attention", f"an offset of shape {node.shape} does not broadcast to {shape}",
                   "one offset, or one for each batch and head")
    if not causal:
        return None, 0
    if node.op.name == "constant":
        return None, int(node["value"])
    return expand(cast(node, int64), shape), 0


EXAMPLES["attention"] = (attention, [(4, 128, 64)] * 3)  # heads, length, depth
