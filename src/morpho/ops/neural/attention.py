"""Attention: softmax(scale * q k^T + mask) v as one operation, and its gradient as another.

Inputs are q (..., heads, queries, depth), k and v (..., kv_heads, keys, depth and width), where every
`heads / kv_heads` query heads in a row share one of k and v; then a mask of the shape of the scores, where `masked`,
and one offset per head as int64, where `moving`. Query i stands at position offset + i; `causal` lets it see the keys
up to there, and `window` (0: none) only so many of them. The second output is the logarithm of each row's sum of
exponentials, +inf where a row sees nothing; the gradient starts from it instead of keeping the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Size, divide
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import JOINT, Attributes, Op, Spec, register
from morpho.ops.algebra import (
    add,
    cast,
    constant,
    constant_like,
    expand,
    mul,
    neg,
    permute,
    reduce,
    reshape,
    sub,
    where,
    zeros_like,
)
from morpho.ops.batching import elementwise
from morpho.ops.sources import pick

NUMERICS = "blocks of 64 keys, one FMA chain per score and per result"


def _check(inputs: Sequence[Spec], attributes: Attributes) -> None:
    q, k, v = inputs[:3]
    if not q.dtype.is_float or k.dtype is not q.dtype or v.dtype is not q.dtype:
        raise fail(DTypeError, "attention", f"dtypes {q.dtype}, {k.dtype} and {v.dtype} are not one float dtype")
    same = len(q.shape) == len(k.shape) == len(v.shape) >= 3 and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
    if not same or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        raise fail(ShapeError, "attention", f"q {q.shape}, k {k.shape} and v {v.shape} do not fit",
                   "q is (..., heads, queries, d), k (..., kv_heads, keys, d), v (..., kv_heads, keys, dv)")
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or kv_heads == 0 or heads % kv_heads:
        raise fail(ShapeError, "attention", f"{heads} heads of q are not a multiple of {kv_heads} of k and v"
                   if kv_heads else "k and v have no heads")


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    _check(inputs, attributes)
    q, k, v = inputs[:3]
    extra = list(inputs[3:])
    if attributes["masked"]:
        mask = extra.pop(0)
        if mask.shape != (*q.shape[:-1], k.shape[-2]) or not (mask.dtype is bool_ or mask.dtype.is_float):
            raise fail(ShapeError, "attention", f"a mask {mask.dtype}{mask.shape} does not fit scores of shape "
                                                f"{(*q.shape[:-1], k.shape[-2])}")
    if attributes["moving"] and (extra[0].shape != q.shape[:-2] or extra[0].dtype is not int64):
        raise fail(ShapeError, "attention", f"an offset {extra[0].dtype}{extra[0].shape} does not fit q {q.shape}")
    return Spec((*q.shape[:-1], v.shape[-1]), q.dtype), Spec(q.shape[:-1], q.dtype.compute)


def _infer_backward(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, ...]:
    """q, k, v, then the cotangent, the logarithms and the sums of cotangent times result of each row; then as above."""
    _infer([*inputs[:3], *inputs[6:]], attributes)
    return inputs[0], inputs[1], inputs[2]


# -- meaning -------------------------------------------------------------------------------------------------------
def _shared(x: Any, heads: int) -> Any:
    """Heads of k or v repeated for the query heads that share them."""
    return np.repeat(x, heads // x.shape[-3], axis=-3)


def _reference_scores(attributes: Attributes, q: Any, k: Any, extra: Sequence[Any]) -> Any:
    """Scores of every query and key, -inf where masked; float64."""
    extra = list(extra)
    scores = np.matmul(q, np.swapaxes(_shared(k, q.shape[-3]), -1, -2)) * attributes["scale"]
    if attributes["masked"]:
        mask = np.asarray(extra.pop(0))
        seen, added = (mask, 0) if mask.dtype == bool else (mask != -np.inf, mask)
        scores = np.where(seen, scores + added, -np.inf)
    if attributes["causal"]:
        offset = np.asarray(extra[0])[..., None, None] if attributes["moving"] else attributes["offset"]
        position = offset + np.arange(q.shape[-2])[:, None]
        key = np.arange(k.shape[-2])
        seen = (key <= position) & ((key > position - attributes["window"]) | (attributes["window"] == 0))
        scores = np.where(seen, scores, -np.inf)
    return scores


def _reference(attributes: Attributes, q: Any, k: Any, v: Any, *extra: Any) -> Any:
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    with np.errstate(all="ignore"):
        scores = _reference_scores(attributes, q, k, extra)
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(top == -np.inf, 0, top))
        sums = np.sum(powers, axis=-1, keepdims=True)
        result = np.matmul(powers / np.where(sums == 0, 1, sums), _shared(v, q.shape[-3]))
        lse = np.where(sums == 0, np.inf, top + np.log(sums))
    return result, lse[..., 0]


def _reference_backward(attributes: Attributes, q: Any, k: Any, v: Any, ct: Any, lse: Any, delta: Any,
                        *extra: Any) -> Any:
    q, k, v, ct, lse, delta = (np.asarray(x, np.float64) for x in (q, k, v, ct, lse, delta))
    heads = q.shape[-3]
    with np.errstate(all="ignore"):
        powers = np.exp(_reference_scores(attributes, q, k, extra) - lse[..., None])
        slopes = powers * (np.matmul(ct, np.swapaxes(_shared(v, heads), -1, -2)) - delta[..., None])
        slopes = slopes * attributes["scale"]
        parts = [np.matmul(np.swapaxes(slopes, -1, -2), q), np.matmul(np.swapaxes(powers, -1, -2), ct)]
        own = [part.reshape(*x.shape[:-2], heads // x.shape[-3], *x.shape[-2:]).sum(axis=-3)
               for part, x in zip(parts, (k, v), strict=True)]
        return np.matmul(slopes, _shared(k, heads)), own[0], own[1]


# -- gradient ------------------------------------------------------------------------------------------------------
def _vjp(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The blocks are computed again from the logarithms; nothing of the size of the scores is kept. The slope of a
    logarithm with respect to the scores is the row of probabilities, so its cotangent is one more part of `delta`."""
    q, k, v, *extra = node.inputs
    wide = node.dtype.compute
    ct, of_logarithm = cotangents
    if ct is None:
        ct = zeros_like(pick(node, 0))
    last = len(ct.shape) - 1
    delta = reduce("sum", mul(cast(ct, wide), cast(pick(node, 0), wide)), (last,))
    delta = reshape(delta, ct.shape[:-1])
    if of_logarithm is not None:
        delta = sub(delta, of_logarithm)
    lse = pick(node, 1)
    found = build("attention_backward", q, k, v, ct, lse, delta, *extra, **node.attributes)
    gradients: list[Node | None] = [pick(found, index) for index in range(3)]
    if node["masked"]:
        gradients.append(_mask_gradient(node, ct, lse, delta) if extra[0].dtype.is_float else None)
    return gradients + [None] * node["moving"]


def _vjp_backward(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """The second derivative in plain products, of the size of the scores. With p = exp(s - lse), w = ct v^T - delta and
    ds = p w the results are dq = scale ds k, dk = scale ds^T q and dv = p^T ct."""
    q, k, v, ct, lse, delta, *extra = node.inputs
    wide = node.dtype.compute
    to_q, to_k, to_v = (zeros_like(x) if one is None else one
                        for one, x in zip(cotangents, (q, k, v), strict=True))
    q, ct, to_q = (cast(x, wide) for x in (q, ct, to_q))
    k, v, to_k, to_v = (_repeated(cast(x, wide), node) for x in (k, v, to_k, to_v))
    shape = (*q.shape[:-1], k.shape[-2])
    scale = constant_like(q, node["scale"])
    scores = build("matmul", mul(q, scale), _turned(k))
    if node["masked"] and extra[0].dtype.is_float:
        scores = add(scores, cast(extra[0], wide))
    powers = build("exp", sub(scores, expand(reshape(lse, (*lse.shape, 1)), shape)))
    seen = _seen(node, shape) if node["causal"] else None
    if node["masked"] and not extra[0].dtype.is_float:
        seen = extra[0] if seen is None else build("logical_and", seen, extra[0])
    if seen is not None:
        powers = where(seen, powers, zeros_like(powers))
    inner = sub(build("matmul", ct, _turned(v)), expand(reshape(delta, (*delta.shape, 1)), shape))
    slopes = mul(powers, inner)
    to_slopes = add(build("matmul", mul(to_q, scale), _turned(k)), build("matmul", mul(q, scale), _turned(to_k)))
    to_inner = mul(powers, to_slopes)
    to_scores = mul(powers, add(mul(to_slopes, inner), build("matmul", ct, _turned(to_v))))
    last = (len(shape) - 1,)
    found: list[Node | None] = [
        mul(scale, add(build("matmul", to_scores, k), build("matmul", slopes, to_k))),
        _gathered(add(build("matmul", _turned(to_scores), mul(q, scale)),
                      build("matmul", _turned(slopes), mul(to_q, scale))), node.inputs[1]),
        _gathered(build("matmul", _turned(to_inner), ct), node.inputs[2]),
        add(build("matmul", to_inner, v), build("matmul", powers, to_v)),
        neg(reshape(reduce("sum", to_scores, last), lse.shape)), neg(reshape(reduce("sum", to_inner, last), lse.shape))]
    if node["masked"]:
        found.append(to_scores if extra[0].dtype.is_float else None)
    found += [None] * node["moving"]
    return [None if part is None else cast(part, x.dtype) for part, x in zip(found, node.inputs, strict=True)]


def _turned(x: Node) -> Node:
    rank = len(x.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))


def _gathered(x: Node, like: Node) -> Node:
    """Sum over the heads that share a head of keys: the transpose of `_repeated`."""
    if x.shape == like.shape:
        return x
    group = divide(x.shape[-3], like.shape[-3])
    assert group is not None
    apart = reshape(x, (*like.shape[:-2], group, *like.shape[-2:]))
    return reshape(reduce("sum", apart, (len(like.shape) - 2,)), like.shape)


def _mask_gradient(node: Node, ct: Node, lse: Node, delta: Node) -> Node:
    """The gradient of a float mask has the size of the scores by nature: plain products."""
    q, k, v, mask = node.inputs[:4]
    wide, shape = node.dtype.compute, mask.shape
    q, k, v, ct = (cast(x, wide) for x in (q, _repeated(k, node), _repeated(v, node), ct))
    turned = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    scores = build("matmul", mul(q, constant_like(q, node["scale"])), permute(k, turned))
    powers = build("exp", sub(add(scores, cast(mask, wide)), expand(reshape(lse, (*lse.shape, 1)), shape)))
    inner = sub(build("matmul", ct, permute(v, turned)), expand(reshape(delta, (*delta.shape, 1)), shape))
    slopes = mul(powers, inner)
    if node["causal"]:
        slopes = where(_seen(node, shape), slopes, constant_like(slopes, 0))
    return cast(slopes, mask.dtype)


def _repeated(x: Node, node: Node) -> Node:
    """Heads of k or v once for every query head."""
    heads: Size = node.inputs[0].shape[-3]
    if x.shape[-3] == heads:
        return x
    group = divide(heads, x.shape[-3])
    assert group is not None
    lead, tail = x.shape[:-2], x.shape[-2:]
    return reshape(expand(reshape(x, (*lead, 1, *tail)), (*lead, group, *tail)), (*x.shape[:-3], heads, *tail))


def _seen(node: Node, shape: tuple[Size, ...]) -> Node:
    """Which keys each query may see by its position."""
    rank = len(shape)
    rows, keys = (build("iota", shape=shape, axis=rank - i, dtype=int64) for i in (2, 1))
    offset = expand(constant(node["offset"], int64), shape)
    if node["moving"]:
        offset = expand(reshape(node.inputs[-1], (*shape[:-2], 1, 1)), shape)
    position = add(rows, offset)
    seen = build("less_equal", keys, position)
    if node["window"]:
        near = build("greater", keys, sub(position, constant_like(position, node["window"])))
        seen = build("logical_and", seen, near)
    return seen


ATTENTION = register(Op("attention", "contract", _infer, _vjp, _reference, 2, NUMERICS,
                        frozenset({JOINT}), arity=(3, 5), autocast="attention", batch=elementwise))
ATTENTION_BACKWARD = register(Op(
    "attention_backward", "contract", _infer_backward, _vjp_backward, _reference_backward, 4, NUMERICS,
    frozenset({JOINT}), arity=(6, 8), batch=elementwise))
