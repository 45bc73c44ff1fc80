"""com.microsoft: attention with fused projections, masks, caches and rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.onnx.operators.neural.attention import for_each_head, merge_heads, rotated, safe_softmax, split_heads
from morpho.onnx.operators.registry import MICROSOFT, Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, same_size, scalar, tensor

FAMILY = Family("fused attention", MICROSOFT)


def attended(call: Call, q: Any, k: Any, v: Any, mask: Any = None, bias: Any = None, causal: bool = False,
             offset: Any = 0, window: int | None = None) -> Any:
    """Attention over (batch, heads, length, size); `mask` says which keys are there, `bias` is added to scores. With
    `window`, which is causal, a query sees that many keys, the last its own."""
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1])
    heads, same = q.shape[1], k.shape[-1] == v.shape[-1]
    cap = call.get("softcap", 0.0)
    if mask is None and bias is None and q.dtype is mo.float32 and same and not cap:
        return mo.attention(q, k, v, causal=causal, window=window, scale=scale, offset=offset) if causal \
            else mo.attention(q, k, v, scale=scale)
    scores = mo.matmul(q, mo.matrix_transpose(for_each_head(k, heads))) * scalar(scale, q)
    if cap:
        scores = scalar(cap, q) * mo.tanh(scores / scalar(cap, q))
    scores = scores if bias is None else scores + tensor(bias)
    never = scalar(-math.inf, scores)
    scores = scores if mask is None else mo.where(mask, scores, never)
    if causal:
        rows, columns = scores.shape[-2:]
        start = mo.reshape(offset, (-1, 1, 1, 1)) if isinstance(offset, mo.Tensor) else offset
        query = mo.reshape(mo.arange(rows), (rows, 1)) + start
        key = mo.reshape(mo.arange(columns), (1, columns))
        scores = mo.where(key <= query, scores, never)
        scores = scores if window is None else mo.where(key > query - window, scores, never)
    return mo.matmul(cast(safe_softmax(cast(scores, mo.float32)), v.dtype), for_each_head(v, heads))


def key_mask(call: Call, mask: Any, q: Any, total: Any, offset: Any = 0) -> Any:
    """Which keys each query may see: from lengths (batch,), from ends and starts (2 * batch,), or from masks of two to
    four axes, the last of which are (batch, 1, most, most)."""
    if mask is None:
        return None
    if call.get("mask_filter_value", -10000.0) > -10000.0:  # smaller ones leave nothing of a key, as ours do
        raise call.error(f"mask_filter_value is {call.get('mask_filter_value')}, and keys are left out altogether")
    mask, batch = tensor(mask), q.shape[0]
    if len(mask.shape) == 1:
        place = mo.reshape(mo.arange(total), (1, 1, 1, total))
        ends = mo.reshape(cast(mask, mo.int64), (-1, 1, 1, 1))
        if same_size(mask.shape[0], batch):
            return place < ends
        if call.node.op == "Attention" and same_size(mask.shape[0], 2 * batch):
            return mo.logical_and(place < ends[:batch], place >= ends[batch:])
        raise call.error(f"a mask of {mask.shape[0]} numbers for {batch} rows is not taken")
    there = mask != scalar(0, mask)
    if len(mask.shape) == 2:
        return mo.reshape(there, (mask.shape[0], 1, 1, mask.shape[1]))
    return mo.expand_dims(there, axis=1) if len(mask.shape) == 3 else there[:, :, offset:offset + q.shape[2], :total]


@FAMILY.op("Attention")
def attention(call: Call, x: Any, weight: Any, bias: Any = None, mask: Any = None, past: Any = None,
              added: Any = None) -> Any:
    """Self-attention with the projections of query, key and value in one product."""
    x, weight, heads = tensor(x), tensor(weight), call.need("num_heads")
    y = mo.matmul(x, weight)
    y = y if bias is None else y + tensor(bias)
    given = call.get("qkv_hidden_sizes")
    sizes = [*given] if given else [y.shape[-1] // 3] * 3
    q, k, v = y[..., :sizes[0]], y[..., sizes[0]:sizes[0] + sizes[1]], y[..., sizes[0] + sizes[1]:]
    q, k, v = split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)
    offset: Any = 0
    if past is not None:
        past = tensor(past)
        offset = past.shape[3]
        k, v = mo.concat([past[0], k], axis=2), mo.concat([past[1], v], axis=2)
    causal = bool(call.get("unidirectional", 0))
    found = attended(call, q, k, v, key_mask(call, mask, q, k.shape[2], offset), added, causal, offset)
    return merge_heads(found), mo.stack([k, v]) if len(call.node.outputs) > 1 else None


@FAMILY.op("MultiHeadAttention")
def multi_head_attention(call: Call, q: Any, k: Any = None, v: Any = None, bias: Any = None, mask: Any = None,
                         added: Any = None, past_key: Any = None, past_value: Any = None) -> Any:
    heads, q = call.need("num_heads"), tensor(q)
    if k is None or v is None:
        if len(q.shape) != 5 or k is not None or v is not None:
            raise call.error("a query without key and value must be packed as (batch, length, heads, 3, size), and a "
                             "key without value, or a value without key, is not taken")
        if bias is not None:
            q = q + mo.permute_dims(mo.reshape(tensor(bias), (3, *q.shape[2::2])), (1, 0, 2))
        q, k, v = (mo.permute_dims(q[:, :, :, at], (0, 2, 1, 3)) for at in range(3))
    else:
        k, v = tensor(k), tensor(v)
        if bias is not None:
            bias, width, own = tensor(bias), q.shape[-1], len(k.shape) == 3
            wide = v.shape[-1] if own else heads * v.shape[-1]
            if not same_size(bias.shape[0], 2 * width + wide):
                raise call.error(f"a bias of {bias.shape[0]} numbers is none for widths of {width}, {width} and {wide}")
            q = q + bias[:width]
            if own:
                k, v = k + bias[width:width + k.shape[-1]], v + bias[width + k.shape[-1]:]
        q = split_heads(q, heads)
        k, v = (split_heads(value, heads) if len(value.shape) == 3 else value for value in (k, v))
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k, v = mo.concat([tensor(past_key), k], axis=2), mo.concat([tensor(past_value), v], axis=2)
    causal = bool(call.get("unidirectional", 0))
    found = attended(call, q, k, v, key_mask(call, mask, q, k.shape[2], offset), added, causal, offset)
    return merge_heads(found), k, v


@FAMILY.op("GroupQueryAttention")
def group_query_attention(call: Call, q: Any, k: Any, v: Any, past_key: Any, past_value: Any, lengths: Any, total: Any,
                          cosines: Any = None, sines: Any = None, places: Any = None, added: Any = None) -> Any:
    """Causal attention with shared key-value heads and a cache: either one that grows, whose new length is `total`, or
    one of fixed length, which holds `total` or more. Row b has `lengths[b] + 1` keys, its new ones among them."""
    heads, shared = call.need("num_heads"), call.need("kv_num_heads")
    window = call.get("local_window_size", -1)
    if window == 0 or window < -1:
        raise call.error(f"local_window_size is {window}, not a number of keys from 1 on, or -1 for all")
    q = tensor(q)
    if k is None:
        size = q.shape[-1] // (heads + 2 * shared)
        q, k, v = q[..., :heads * size], q[..., heads * size:(heads + shared) * size], q[..., (heads + shared) * size:]
    q, k, v = split_heads(q, heads), split_heads(tensor(k), shared), split_heads(tensor(v), shared)
    batch, length = q.shape[0], q.shape[2]
    total, = call.integers(total, "total_sequence_length")
    grown = length if past_key is None else past_key.shape[2] + length
    held, check = _held(call, total, grown, length)
    first = _number(total) == _number(length)  # nothing is in the cache yet, and short rows are padded behind
    before = cast(mo.reshape(tensor(lengths), (batch, 1)), mo.int64) + 1 - length
    before = mo.where(before < 0, held, before)  # out of range, and an error of the lookup: -1 would be the last
    before = mo.take(mo.arange(held - length + 1), mo.where(first, mo.zeros_like(before), before), axis=0) + check
    if call.get("do_rotary", 0):
        call.attributes["interleaved"] = call.get("rotary_interleaved", 0)
        at = before + mo.reshape(mo.arange(length), (1, length)) if places is None else tensor(places)
        width = 2 * tensor(cosines).shape[-1]
        q, k = (rotated(call, value, cosines, sines, at, width) for value in (q, k))
    if past_key is not None:
        k, v = (_appended(tensor(past), new, before, held) for past, new in ((past_key, k), (past_value, v)))
    if added is not None:
        added = tensor(added)
        added = mo.pad(added, (*[(0, 0)] * 3, (0, held - added.shape[3])))
    seen = attended(call, q, k, v, None, added, True, before, None if window < 0 else window)
    return merge_heads(seen), k, v


def _number(size: Any) -> Any:
    """A size, which may be a symbol, as a tensor."""
    return mo.asarray(size, dtype=mo.int64) if isinstance(size, int) else cast(mo.asarray(size), mo.int64)


def _held(call: Call, total: Any, grown: Any, length: Any) -> tuple[Any, Any]:
    """How many keys there are room for afterwards, and a zero. Where symbols leave open which cache it is, it is one
    that grows, and computing the zero is an error if it is not."""
    try:
        if same_size(total, grown):
            return grown, 0
        if total <= grown - length:
            return grown - length, 0
    except MorphoError:
        return grown, mo.take(mo.zeros(1, dtype=mo.int64), mo.abs(_number(total) - _number(grown)), axis=0)
    raise call.error(f"total_sequence_length is {total}, with {grown - length} keys in the cache and {length} new ones")


def _appended(past: Any, new: Any, before: Any, held: Any) -> Any:
    """Row b of a cache: `before[b]` old keys, the new ones, and zeros; (batch, heads, held, size)."""
    batch, heads, length, size = new.shape
    past = mo.pad(past, ((0, 0), (0, 0), (0, held - past.shape[2]), (0, 0)))
    place = mo.reshape(mo.arange(held), (1, held)) - before  # among the new ones
    row = mo.reshape(mo.arange(batch), (batch, 1)) * length + mo.clip(place, 0, length - 1)
    new = mo.take(mo.reshape(merge_heads(new), (batch * length, heads * size)), mo.reshape(row, (-1,)), axis=0)
    new = split_heads(mo.reshape(new, (batch, held, heads * size)), heads)
    place = mo.reshape(place, (batch, 1, held, 1))
    return mo.where(place < 0, past, mo.where(place < length, new, scalar(0, new)))


@FAMILY.op("RotaryEmbedding")
def rotary(call: Call, x: Any, places: Any, cosines: Any, sines: Any) -> Any:
    x, places = tensor(x), tensor(places)
    batch, length = (x.shape[0], x.shape[1]) if len(x.shape) == 3 else (x.shape[0], x.shape[2])
    if len(places.shape) == 1:  # where the first position stands
        places = mo.reshape(places, (1, 1)) + mo.reshape(mo.arange(length), (1, length))
    places = mo.broadcast_to(places, (batch, length))
    width = call.get("rotary_embedding_dim", 0) or 2 * tensor(cosines).shape[-1]
    if len(x.shape) == 3 and not call.get("num_heads", 0):
        call.attributes["num_heads"] = x.shape[-1] // (2 * tensor(cosines).shape[-1])
    return rotated(call, x, cosines, sines, places, width)
