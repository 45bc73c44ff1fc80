"""Attention, rotary embeddings, and attention with a state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("attention")


def split_heads(x: Any, heads: int) -> Any:
    """(batch, length, heads * size) -> (batch, heads, length, size)."""
    batch, length, hidden = x.shape
    return mo.permute_dims(mo.reshape(x, (batch, length, heads, hidden // heads)), (0, 2, 1, 3))


def merge_heads(x: Any) -> Any:
    """(batch, heads, length, size) -> (batch, length, heads * size)."""
    batch, heads, length, size = x.shape
    return mo.reshape(mo.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * size))


def for_each_head(x: Any, heads: int) -> Any:
    """Shared key-value heads, each as often as there are query heads that share it."""
    batch, shared, length, size = x.shape
    if shared == heads:
        return x
    x = mo.broadcast_to(mo.expand_dims(x, axis=2), (batch, shared, heads // shared, length, size))
    return mo.reshape(x, (batch, heads, length, size))


@FAMILY.op("Attention")
def attention(call: Call, q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None,
              valid: Any = None) -> Any:
    q, k, v = tensor(q), tensor(k), tensor(v)
    packed = len(q.shape) == 3
    if packed:
        heads, shared = call.need("q_num_heads"), call.need("kv_num_heads")
        q, k, v = split_heads(q, heads), split_heads(k, shared), split_heads(v, shared)
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k, v = mo.concat([tensor(past_key), k], axis=2), mo.concat([tensor(past_value), v], axis=2)
    elif valid is not None:
        offset = mo.reshape(cast(tensor(valid), mo.int64), (-1, 1, 1, 1)) - q.shape[2]
    wanted = len(call.node.outputs) > 3 and bool(call.node.outputs[3])
    if wanted or not _fits(call, q, k, v, mask, valid):
        y, scores = _plain_attention(call, q, k, v, mask, offset, valid)
    else:
        y, scores = _own_attention(call, q, k, v, offset), None
    return merge_heads(y) if packed else y, k, v, scores


def _fits(call: Call, q: Any, k: Any, v: Any, mask: Any, valid: Any) -> bool:
    """Whether Morpho's blockwise kernel computes exactly this: no mask, no cap, one head size."""
    windows = call.get("left_window_size", -1) >= 0 or call.get("right_window_size", -1) >= 0
    return (mask is None and valid is None and not call.get("softcap", 0.0) and not windows
            and q.dtype is mo.float32 and k.shape[-1] == v.shape[-1] and call.get("softmax_precision", 1) == 1)


def _own_attention(call: Call, q: Any, k: Any, v: Any, offset: Any) -> Any:
    scale = call.get("scale", 1 / math.sqrt(q.shape[-1]))
    if call.get("is_causal", 0):
        return mo.attention(q, k, v, causal=True, scale=scale, offset=offset)
    return mo.attention(q, k, v, scale=scale)


def _plain_attention(call: Call, q: Any, k: Any, v: Any, mask: Any, offset: Any, valid: Any) -> tuple[Any, Any]:
    """Scores, softcap, mask, softmax, product; with the scores at the stage that the node asks for."""
    dtype, heads = q.dtype, q.shape[1]
    k, v = for_each_head(k, heads), for_each_head(v, heads)
    root = math.sqrt(call.get("scale", 1 / math.sqrt(q.shape[-1])))
    stages = [mo.matmul(q * scalar(root, q), mo.matrix_transpose(k * scalar(root, k)))]
    cap = call.get("softcap", 0.0)
    stages.append(scalar(cap, q) * mo.tanh(stages[0] / scalar(cap, q)) if cap else stages[0])
    stages.append(_masked(call, stages[1], mask, offset, valid))
    precision = element_type(call.get("softmax_precision", 1)).dtype or mo.float32
    precision = mo.float64 if dtype is mo.float64 else precision
    stages.append(cast(safe_softmax(cast(stages[2], precision)), dtype))
    return mo.matmul(stages[3], v), stages[call.get("qk_matmul_output_mode", 0)]


def safe_softmax(scores: Any) -> Any:
    """Softmax over the last axis; a row without anything to attend to is zeros."""
    dead = mo.max(scores, axis=-1, keepdims=True) == scalar(-math.inf, scores)
    return mo.where(dead, scalar(0, scores), mo.softmax(mo.where(dead, scalar(0, scores), scores), axis=-1))


def _masked(call: Call, scores: Any, mask: Any, offset: Any, valid: Any) -> Any:
    rows, columns = scores.shape[-2:]
    never = scalar(-math.inf, scores)
    if mask is not None:
        mask = tensor(mask)
        short = columns - mask.shape[-1]
        if not (isinstance(short, int) and short == 0):
            fill = False if mask.dtype is mo.bool else -math.inf
            mask = mo.pad(mask, (*[(0, 0)] * (len(mask.shape) - 1), (0, short)), value=fill)
        scores = mo.where(mask, scores, never) if mask.dtype is mo.bool else scores + cast(mask, scores.dtype)
    key = mo.reshape(mo.arange(columns), (1, 1, 1, columns))
    query = mo.reshape(mo.arange(rows), (1, 1, rows, 1)) + offset
    if call.get("is_causal", 0):
        scores = mo.where(key <= query, scores, never)
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    if left >= 0:
        scores = mo.where(key >= query - left, scores, never)
    if right >= 0:
        scores = mo.where(key <= query + right, scores, never)
    if valid is not None:
        scores = mo.where(key < mo.reshape(cast(tensor(valid), mo.int64), (-1, 1, 1, 1)), scores, never)
    return scores


@FAMILY.op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(call: Call, q: Any, k: Any, v: Any) -> Any:
    q, k, v = tensor(q), tensor(k), tensor(v)
    dtype, heads = q.dtype, q.shape[1]
    given = call.get("softmax_precision")
    precision = (mo.float64 if dtype is mo.float64 else mo.float32) if given is None else element_type(given).dtype
    scores = mo.matmul(q, mo.matrix_transpose(for_each_head(k, heads)))
    scores = cast(scores, precision or mo.float32)
    scores = scores * scalar(call.get("scale", 1 / math.sqrt(q.shape[-1])), scores)
    if call.get("score_mod") is not None:
        scores = call.body("score_mod")(scores)[0]
    shares = safe_softmax(scores)
    if call.get("prob_mod") is not None:
        shares = call.body("prob_mod")(shares)[0]
    return mo.matmul(cast(shares, dtype), for_each_head(v, heads))


@FAMILY.op("RotaryEmbedding")
def rotary(call: Call, x: Any, cosines: Any, sines: Any, places: Any = None) -> Any:
    return rotated(call, x, cosines, sines, places, call.get("rotary_embedding_dim", 0))


def rotated(call: Call, x: Any, cosines: Any, sines: Any, places: Any, width: Any) -> Any:
    """Pairs of each head turned by angles of their positions."""
    x, cosines, sines = tensor(x), tensor(cosines), tensor(sines)
    packed = len(x.shape) == 3
    rows = mo.reshape(x, (*x.shape[:2], call.need("num_heads"), -1)) if packed else mo.permute_dims(x, (0, 2, 1, 3))
    width = width or rows.shape[-1]
    turning, rest = rows[..., :width], rows[..., width:]
    if places is not None:
        places = tensor(places)
        batch, length = places.shape
        cosines, sines = (mo.reshape(mo.take(table, mo.reshape(places, (-1,)), axis=0), (batch, length, -1))
                          for table in (cosines, sines))
    cosines, sines = mo.expand_dims(cosines, axis=2), mo.expand_dims(sines, axis=2)
    if call.get("interleaved", 0):
        a, b = turning[..., 0::2], turning[..., 1::2]
    else:
        a, b = turning[..., :width // 2], turning[..., width // 2:]
    real, imaginary = cosines * a - sines * b, sines * a + cosines * b
    if call.get("interleaved", 0):
        turned = mo.reshape(mo.stack([real, imaginary], axis=-1), turning.shape)
    else:
        turned = mo.concat([real, imaginary], axis=-1)
    y = mo.concat([turned, rest], axis=-1) if rest.shape[-1] != 0 else turned
    return mo.reshape(y, x.shape) if packed else mo.permute_dims(y, (0, 2, 1, 3))


@FAMILY.op("LinearAttention")
def linear_attention(call: Call, q: Any, k: Any, v: Any, past: Any = None, decay: Any = None, beta: Any = None) -> Any:
    """A recurrence over positions with a matrix of state for each key-value head: one loop in the graph."""
    rule = call.choice("update_rule", "gated_delta", ("linear", "gated", "delta", "gated_delta"))
    heads, shared = call.need("q_num_heads"), call.need("kv_num_heads")
    dtype = tensor(q).dtype
    q, k, v = (cast(tensor(value), mo.float32) for value in (q, k, v))
    batch, length = q.shape[:2]
    size, width = q.shape[2] // heads, v.shape[2] // shared
    scale = call.get("scale", 0.0) or 1 / math.sqrt(size)
    q = mo.reshape(q, (batch, length, shared, heads // shared, size))
    k, v = mo.reshape(k, (batch, length, shared, size)), mo.reshape(v, (batch, length, shared, width))
    steps = [q, k, v]
    if "gated" in rule:
        steps.append(mo.exp(mo.reshape(cast(tensor(decay), mo.float32), (batch, length, shared, -1, 1))))
    if "delta" in rule:
        rate = cast(tensor(beta), mo.float32)
        steps.append(mo.reshape(mo.broadcast_to(rate, (batch, length, shared)), (batch, length, shared, 1)))
    start = mo.zeros((batch, shared, size, width)) if past is None else cast(tensor(past), mo.float32)

    def step(state: Any, given: Any) -> Any:
        query, key, value, *more = given
        if "gated" in rule:
            state = state * more.pop(0)
        if "delta" in rule:
            value = (value - mo.squeeze(mo.matmul(mo.expand_dims(key, axis=2), state), axis=2)) * more.pop(0)
        state = state + mo.expand_dims(key, axis=3) * mo.expand_dims(value, axis=2)
        return state, mo.matmul(query, state) * np.float32(scale)

    last, found = mo.scan(step, start, tuple(mo.moveaxis(item, 1, 0) for item in steps))
    y = mo.reshape(mo.moveaxis(found, 0, 1), (batch, length, heads * width))
    return cast(y, dtype), cast(last, dtype if past is None else tensor(past).dtype)
