"""com.microsoft: attention with fused projections, masks, caches and rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.onnx.operators.neural.attention import for_each_head, merge_heads, rotated, safe_softmax, split_heads
from morpho.onnx.operators.registry import MICROSOFT, Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("fused attention", MICROSOFT)


def attended(call: Call, q: Any, k: Any, v: Any, mask: Any = None, bias: Any = None, causal: bool = False,
             offset: Any = 0) -> Any:
    """Attention over (batch, heads, length, size); `mask` says which keys are there, `bias` is added to scores."""
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1])
    heads, same = q.shape[1], k.shape[-1] == v.shape[-1]
    cap = call.get("softcap", 0.0)
    if mask is None and bias is None and q.dtype is mo.float32 and same and not cap:
        return mo.attention(q, k, v, causal=causal, scale=scale, offset=offset) if causal else mo.attention(
            q, k, v, scale=scale)
    scores = mo.matmul(q, mo.matrix_transpose(for_each_head(k, heads))) * scalar(scale, q)
    if cap:
        scores = scalar(cap, q) * mo.tanh(scores / scalar(cap, q))
    scores = scores if bias is None else scores + tensor(bias)
    never = scalar(-math.inf, scores)
    scores = scores if mask is None else mo.where(mask, scores, never)
    if causal:
        rows, columns = scores.shape[-2:]
        query = mo.reshape(mo.arange(rows), (rows, 1)) + offset
        scores = mo.where(mo.reshape(mo.arange(columns), (1, columns)) <= query, scores, never)
    return mo.matmul(cast(safe_softmax(cast(scores, mo.float32)), v.dtype), for_each_head(v, heads))


def key_mask(call: Call, mask: Any, total: Any) -> Any:
    """Which keys each query may see, from lengths (batch,), or masks of two to four axes."""
    if mask is None:
        return None
    if call.get("mask_filter_value", -10000.0) > -10000.0:  # smaller ones leave nothing of a key, as ours do
        raise call.error(f"mask_filter_value is {call.get('mask_filter_value')}, and keys are left out altogether")
    mask = tensor(mask)
    if len(mask.shape) == 1:
        place = mo.reshape(mo.arange(total), (1, 1, 1, total))
        return place < mo.reshape(cast(mask, mo.int64), (-1, 1, 1, 1))
    there = mask != scalar(0, mask)
    if len(mask.shape) == 2:
        return mo.reshape(there, (mask.shape[0], 1, 1, mask.shape[1]))
    return mo.expand_dims(there, axis=1) if len(mask.shape) == 3 else there


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
    found = attended(call, q, k, v, key_mask(call, mask, k.shape[2]), added, causal, offset)
    return merge_heads(found), mo.stack([k, v]) if len(call.node.outputs) > 1 else None


@FAMILY.op("MultiHeadAttention")
def multi_head_attention(call: Call, q: Any, k: Any = None, v: Any = None, bias: Any = None, mask: Any = None,
                         added: Any = None, past_key: Any = None, past_value: Any = None) -> Any:
    heads, q = call.need("num_heads"), tensor(q)
    if k is None or v is None:
        if len(q.shape) != 5:
            raise call.error("a query without key and value must be packed as (batch, length, heads, 3, size)")
        q, k, v = (mo.permute_dims(q[:, :, :, at], (0, 2, 1, 3)) for at in range(3))
    else:
        k, v = tensor(k), tensor(v)
        if bias is not None:
            bias, width, own = tensor(bias), q.shape[-1], len(k.shape) == 3
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
    found = attended(call, q, k, v, key_mask(call, mask, k.shape[2]), added, causal, offset)
    return merge_heads(found), k, v


@FAMILY.op("GroupQueryAttention")
def group_query_attention(call: Call, q: Any, k: Any, v: Any, past_key: Any, past_value: Any, lengths: Any, total: Any,
                          cosines: Any = None, sines: Any = None, places: Any = None, added: Any = None) -> Any:
    """Causal attention with shared key-value heads and a cache that grows; all rows are as long as the longest."""
    heads, shared = call.need("num_heads"), call.need("kv_num_heads")
    if call.get("local_window_size", -1) > 0:
        raise call.error("local_window_size is not taken")
    q = tensor(q)
    if k is None:
        size = q.shape[-1] // (heads + 2 * shared)
        q, k, v = q[..., :heads * size], q[..., heads * size:(heads + shared) * size], q[..., (heads + shared) * size:]
    q, k, v = split_heads(q, heads), split_heads(tensor(k), shared), split_heads(tensor(v), shared)
    offset = 0 if past_key is None else past_key.shape[2]
    if call.get("do_rotary", 0):
        length = q.shape[2]
        at = mo.broadcast_to(mo.reshape(mo.arange(length) + offset, (1, length)), (q.shape[0], length))
        call.attributes["interleaved"] = call.get("rotary_interleaved", 0)
        at = at if places is None else tensor(places)
        width = 2 * tensor(cosines).shape[-1]
        q, k = (rotated(call, value, cosines, sines, at, width) for value in (q, k))
    if past_key is not None:
        k, v = mo.concat([tensor(past_key), k], axis=2), mo.concat([tensor(past_value), v], axis=2)
    return merge_heads(attended(call, q, k, v, None, added, True, offset)), k, v


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
