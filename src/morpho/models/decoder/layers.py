"""The parts of a decoder's layer: norms, attention, the feed-forward part, experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.experts import Experts
from morpho.models.decoder.shape import Shape
from morpho.nn import init
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm, RMSNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import Parts, RowCaches, attend, join_heads, split_heads
from morpho.nn.transformer.blocks import FeedForward, activation
from morpho.nn.transformer.paged import PagedCache
from morpho.nn.transformer.positions import RotaryPositions
from morpho.tensor.state.variable import Parameter


class ShiftedRMSNorm(Module):
    """RMS norm whose weight is kept less 1."""

    def __init__(self, width: int, eps: float, dtype: Any) -> None:
        self.eps = eps
        self.weight = Parameter(mo.zeros((width,), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.rms_norm(x, self.weight + 1, eps=self.eps)


class ShiftedLayerNorm(ShiftedRMSNorm):
    """LayerNorm whose weight is kept less 1."""

    def __init__(self, width: int, eps: float, dtype: Any) -> None:
        super().__init__(width, eps, dtype)
        self.bias = Parameter(mo.zeros((width,), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.layer_norm(x, self.weight + 1, self.bias, eps=self.eps)


class NormOfHeads(Module):
    """LayerNorm of (batch, heads, length, depth) without a bias, with a weight for each head, (heads, depth)."""

    def __init__(self, heads: int, depth: int, eps: float, dtype: Any) -> None:
        self.eps = eps
        self.weight = Parameter(mo.ones((heads, depth), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.layer_norm(x, None, None, eps=self.eps) * mo.expand_dims(self.weight, -2)


LATENT_EPSILON = 1e-6  # of norms within latent attention, whatever a configuration says
LEAST_EPSILON = 1.2e-38  # float32: a row of zeros, as padding has it, stays one where a configuration says 0


def norm_of(shape: Shape, width: int, dtype: Any, kind: str = "") -> Module:
    """The family's norm over so many numbers."""
    eps, kind = max(shape.eps, LEAST_EPSILON), kind or shape.norm
    if kind in ("rms1", "layer1"):
        return (ShiftedRMSNorm if kind == "rms1" else ShiftedLayerNorm)(width, eps, dtype)
    if kind in ("rms", "rms0"):
        return RMSNorm(width, eps, kind == "rms", dtype)
    return LayerNorm(width, eps, kind != "plain", kind == "layer", dtype)


@dataclass(frozen=True)
class Scores:
    """Caps, scales, windows and pieces of scores, as in `Shape`."""

    cap: float | None = None
    scale: float | None = None
    window: int | None = None
    chunk: int | None = None
    rounded: bool = False

    @property
    def plain(self) -> bool:
        return self.cap is None and self.chunk is None


class Attention(Module):
    """Queries, keys and values, normed, turned and capped as the family has it, and a product of what is seen."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        width, depth, heads, kv_heads = shape.width, shape.depth, shape.heads, shape.kv_heads
        self.num_heads, self.num_kv_heads, self.head_dim = heads, kv_heads, depth
        scale = shape.scale
        if shape.scale_by_layer:
            scale = (1 / math.sqrt(depth) if scale is None else scale) / (layer + 1)
        self.rope, self.scores = rope, Scores(shape.score_cap, scale, shape.windows[layer], (
            shape.chunks[layer] if shape.chunks else None), shape.alibi_rounded)
        self.warmth = shape.warmth[layer] if shape.warmth else None
        self.joined, self.clip, self.qk_late = shape.joined, shape.clip, shape.qk_late
        self.qk_norm = "" if shape.qk_turned and shape.ropes[layer] is None else shape.qk_norm
        if shape.joined:
            self.qkv_proj = Linear(width, (heads + 2 * kv_heads) * depth, shape.qkv_bias, dtype)
        else:
            self.q_proj = Linear(width, heads * depth, shape.qkv_bias, dtype)
            self.k_proj, self.v_proj = (Linear(width, kv_heads * depth, shape.qkv_bias, dtype) for _ in range(2))
        self.o_proj = Linear(heads * depth, width, shape.out_bias, dtype)
        self.q_norm: Module
        self.k_norm: Module
        if self.qk_norm == "heads":
            self.q_norm, self.k_norm = (NormOfHeads(count, depth, shape.eps, dtype) for count in (heads, kv_heads))
        elif self.qk_norm:
            together = shape.qk_norm == "all"
            self.q_norm = norm_of(shape, heads * depth if together else depth, dtype, shape.qk_kind)
            self.k_norm = norm_of(shape, kv_heads * depth if together else depth, dtype, shape.qk_kind)
        self.sinks = Parameter(mo.zeros((heads,), dtype=dtype)) if shape.sinks else None
        self.slopes = np.asarray(shape.alibi, np.float32) if shape.alibi else None

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any,
                reach: int | None) -> mo.Tensor:
        q, k, v = self._projected(x)  # (batch, heads, length, depth)
        if self.rope is not None:
            turns = self.rope.tables(x.shape[-2], offset if positions is None else positions, reach)
            q, k = self.rope.turn(q, *turns), self.rope.turn(k, *turns)
        if self.qk_late and self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.warmth is not None:
            q = q * _warmth(self.warmth, q, offset if positions is None else positions)
        scores = self.scores
        if scores.plain and self.sinks is None and self.slopes is None:
            seen = attend(q, k, v, causal=True, mask=mask, cache=cache, offset=offset, scale=scores.scale,
                          window=scores.window)
        else:
            seen = composed_attention(q, k, v, scores, mask, cache, offset, self.sinks, self.slopes)
        return self.o_proj(join_heads(seen))  # type: ignore[no-any-return]

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return self.num_kv_heads, self.head_dim

    def parts(self) -> Parts:
        columns: dict[str, tuple[int, ...]] = {"q_proj": (), "k_proj": (), "v_proj": ()}
        if self.joined:
            widths = tuple(count * self.head_dim for count in (self.num_heads, self.num_kv_heads, self.num_kv_heads))
            columns = {"qkv_proj": widths if self.joined == "parts" else ()}
        rows = (*(("sinks",) if self.sinks is not None else ()), *(("slopes",) if self.slopes is not None else ()),
                *(("q_norm.weight", "k_norm.weight") if self.qk_norm == "heads" else ()))
        return Parts(columns, "o_proj", ("num_heads", "num_kv_heads"),
                     ("q_norm", "k_norm") if self.qk_norm == "all" else (), rows=rows)

    def _projected(self, x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor, mo.Tensor]:
        heads, kv_heads, depth = self.num_heads, self.num_kv_heads, self.head_dim
        if self.joined == "heads":  # those of a key head side by side
            each = heads // kv_heads
            parts = mo.reshape(self.qkv_proj(x), (*x.shape[:-1], kv_heads, each + 2, depth))
            q = mo.reshape(parts[..., :each, :], (*x.shape[:-1], heads, depth))
            k, v = parts[..., each, :], parts[..., each + 1, :]
            q, k, v = (mo.permute_dims(part, (0, 2, 1, 3)) for part in (q, k, v))
        else:
            if self.joined:
                whole, ends = self.qkv_proj(x), (heads * depth, (heads + kv_heads) * depth)
                q, k, v = whole[..., :ends[0]], whole[..., ends[0]:ends[1]], whole[..., ends[1]:]
            else:
                q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            if self.qk_norm == "all":
                q, k = self.q_norm(q), self.k_norm(k)
            if self.clip is not None:
                q, k, v = (mo.clip(part, -self.clip, self.clip) for part in (q, k, v))
            q, k, v = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
        if self.qk_norm in ("head", "heads") and not self.qk_late:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v


def _places(offset: Any, count: Any) -> mo.Tensor:
    """Where queries stand, (1 or batch, 1, count, 1)."""
    first = offset if isinstance(offset, int) or not offset.ndim else mo.reshape(offset, (-1, 1, 1, 1))
    return mo.reshape(mo.arange(count), (1, 1, count, 1)) + first


def _warmth(parts: tuple[float, float, float], q: mo.Tensor, offset: Any) -> mo.Tensor:
    """The factor of queries far into a text."""
    factor, shift, length = parts
    at_once = not isinstance(offset, int) and offset.ndim == 2  # where each token stands, (batch, length)
    places = mo.expand_dims(offset, (1, 3)) if at_once else _places(offset, q.shape[2])
    places = places.astype(mo.float32) + shift
    return (mo.log(mo.floor(places / length) + 1) * factor + 1).astype(q.dtype)


def composed_attention(q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, form: Scores, mask: Any, cache: Any, offset: Any,
                       sinks: Any = None, slopes: Any = None, expand: Any = None) -> mo.Tensor:
    """Causal attention whose scores are capped, have slopes or sinks, or stay within pieces of the text, as a
    composition: scores are whole matrices here. `expand` makes keys and values of what a cache keeps."""
    if isinstance(cache, PagedCache):
        raise fail(ArgumentError, "attention", "these scores are not computed over pages",
                   "use mo.models.generate, whose cache is not in pages")
    if isinstance(cache, RowCaches):
        return cache.attended(partial(_of_row, form, sinks, slopes, expand), q, k, v, offset, mask)
    if cache is not None:
        k, v = (part.astype(q.dtype) for part in cache.write(k, v, offset))
    if expand is not None:
        k, v = expand(k, v)
    batch, heads, queries, depth = q.shape
    groups, keys = k.shape[1], k.shape[2]
    shared = mo.reshape(q, (batch, groups, heads // groups, queries, depth))
    scores = mo.matmul(shared, mo.matrix_transpose(mo.expand_dims(k, axis=2)))
    scale = int(depth) ** -0.5 if form.scale is None else form.scale
    scores = mo.reshape(scores, (batch, heads, queries, keys)) * scale
    if form.cap is not None:
        scores = form.cap * mo.tanh(scores / form.cap)
    places, others = _places(offset, queries), mo.reshape(mo.arange(keys), (1, 1, 1, keys))
    apart = places - others
    if slopes is not None:
        scores = scores + _sloped(slopes, others, mask, scale if form.rounded else 0).astype(scores.dtype)
    allowed = apart >= 0 if form.window is None else (apart >= 0) & (apart < form.window)
    if form.chunk is not None:
        first = _padding(mask)
        allowed = allowed & ((places - first) // form.chunk == (others - first) // form.chunk)
    allowed = allowed if mask is None else allowed & mask
    scores = mo.where(allowed, scores, mo.full((), -mo.inf, dtype=scores.dtype))
    if sinks is None:
        shares = mo.where(mo.any(allowed, axis=-1, keepdims=True), mo.softmax(scores, axis=-1), 0)
    else:
        sink = mo.reshape(sinks, (1, -1, 1, 1)).astype(scores.dtype)
        most = mo.maximum(mo.max(scores, axis=-1, keepdims=True), sink)
        powers = mo.exp(scores - most)
        shares = powers / (mo.sum(powers, axis=-1, keepdims=True) + mo.exp(sink - most))
    shares = mo.reshape(shares, (batch, groups, heads // groups, queries, keys))
    return mo.reshape(mo.matmul(shares, mo.expand_dims(v, axis=2)), (batch, heads, queries, v.shape[-1]))


def _of_row(form: Scores, sinks: Any, slopes: Any, expand: Any, q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, *,
            cache: Any, offset: Any, mask: Any) -> mo.Tensor:
    return composed_attention(q, k, v, form, mask, cache, offset, sinks, slopes, expand)


def _padding(mask: Any) -> Any:
    """Places before the first token of each text, (batch, 1, 1, 1)."""
    if mask is None or tuple(mask.shape[1:3]) != (1, 1):
        return 0
    return mo.sum((mo.cumulative_sum(mask.astype(mo.int64), axis=3) == 0).astype(mo.int64), axis=3, keepdims=True)


def _sloped(slopes: Any, places: mo.Tensor, mask: Any, scale: float) -> mo.Tensor:
    """ALiBi's term of the scores: slopes times positions of keys, which are counted without padding."""
    if mask is not None and tuple(mask.shape[1:3]) == (1, 1):
        seen = mask.astype(mo.int64)
        places = (mo.cumulative_sum(seen, axis=3) - 1) * seen
    table = mo.reshape(mo.asarray(slopes), (1, -1, 1, 1))
    if not scale:
        return table * places.astype(mo.float32)
    return (table.astype(mo.bfloat16) * places.astype(mo.bfloat16)).astype(mo.float32) * scale


class LatentAttention(Module):
    """Attention over keys and values that are products of one short vector for each token (DeepSeek's)."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        latent, heads = shape.latent, shape.heads
        turns = shape.ropes[layer]
        assert latent is not None and turns is not None
        self.latent, self.num_heads, self.rope, self.turned = latent, heads, rope, turns.depth
        self.scores = Scores(None, shape.scale, shape.windows[layer])
        depth = latent.depth + self.turned
        if latent.query_rank is None:
            self.q_proj = Linear(shape.width, heads * depth, False, dtype)
        else:
            self.q_a_proj = Linear(shape.width, latent.query_rank, shape.qkv_bias, dtype)
            self.q_a_layernorm = RMSNorm(latent.query_rank, LATENT_EPSILON, dtype=dtype)
            self.q_b_proj = Linear(latent.query_rank, heads * depth, False, dtype)
        self.kv_a_proj_with_mqa = Linear(shape.width, latent.rank + self.turned, shape.qkv_bias, dtype)
        self.kv_a_layernorm = RMSNorm(latent.rank, LATENT_EPSILON, dtype=dtype)
        self.kv_b_proj = Linear(latent.rank, heads * (latent.depth + latent.value_depth), False, dtype)
        self.o_proj = Linear(heads * latent.value_depth, shape.width, shape.out_bias, dtype)

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return 1, self.latent.rank, self.turned

    def parts(self) -> Parts:
        query = "q_proj" if self.latent.query_rank is None else "q_b_proj"
        return Parts({query: (), "kv_b_proj": ()}, "o_proj", ("num_heads",))

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any,
                reach: int | None) -> mo.Tensor:
        depth, rank = self.latent.depth, self.latent.rank
        whole = self.q_proj(x) if self.latent.query_rank is None else (
            self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))))
        q, both = split_heads(whole, self.num_heads), self.kv_a_proj_with_mqa(x)
        short, key = (mo.expand_dims(part, 1) for part in (self.kv_a_layernorm(both[..., :rank]), both[..., rank:]))
        assert self.rope is not None
        turns = self.rope.tables(x.shape[-2], offset if positions is None else positions, reach)
        q = mo.concat([q[..., :depth], self.rope.turn(q[..., depth:], *turns)], axis=-1)
        seen = composed_attention(q, short, self.rope.turn(key, *turns), self.scores, mask, cache, offset,
                                  expand=self._expanded)
        return self.o_proj(join_heads(seen))  # type: ignore[no-any-return]

    def _expanded(self, short: mo.Tensor, key: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        """Keys and values of all heads, (batch, heads, keys, depth)."""
        depth, whole = self.latent.depth, split_heads(self.kv_b_proj(short[:, 0]), self.num_heads)
        turned = mo.broadcast_to(key, (key.shape[0], self.num_heads, *key.shape[2:]))
        return mo.concat([whole[..., :depth], turned], axis=-1), whole[..., depth:]


class ShortConvolution(Module):
    """A gated convolution over the last few tokens, in the place of attention (LFM2's).

    A cache keeps the convolved lines by position, as it keeps keys: a text goes on from any of its tokens, and lines
    behind it are written over."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        width, bias = shape.width, shape.convolution_bias
        self.size, self.width = shape.convolutions[layer], width
        self.in_proj, self.out_proj = Linear(width, 3 * width, bias, dtype), Linear(width, width, bias, dtype)
        self.weight = Parameter(init.normal((width, 1, self.size), shape.std, dtype=dtype))
        self.bias = Parameter(mo.zeros((width,), dtype=dtype)) if bias else None

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return 1, self.width, 1

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any,
                reach: int | None) -> mo.Tensor:
        if isinstance(cache, PagedCache):
            raise fail(ArgumentError, "convolution", "short convolutions are not computed over pages",
                       "use mo.models.generate, whose cache is not in pages")
        if mask is not None and cache is None:  # padding counts 0, as if the text began behind it
            x = mo.where(mo.reshape(mask, (mask.shape[0], mask.shape[3], 1)), x, 0)
        whole, width = self.in_proj(x), self.width
        before, after, inner = (whole[..., part * width:(part + 1) * width] for part in range(3))
        lines = mo.expand_dims(before * inner, 1)  # (batch, 1, length, width)
        if isinstance(cache, RowCaches):
            mixed = cache.attended(self._of_row, lines, lines, lines, offset)
        else:
            mixed = self._mixed(lines, cache, offset)
        mixed = mixed if self.bias is None else mixed + self.bias
        return self.out_proj(after * mixed[:, 0])  # type: ignore[no-any-return]

    def _of_row(self, q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, *, cache: Any, offset: Any, mask: Any) -> mo.Tensor:
        return self._mixed(q, cache, offset)

    def _mixed(self, lines: mo.Tensor, cache: Any, offset: Any) -> mo.Tensor:
        """Sums of the last few lines of each token, each line times its row of the weight."""
        places = mo.broadcast_to(_places(offset if cache is not None else 0, lines.shape[2]),
                                 (lines.shape[0], 1, lines.shape[2], 1))
        held = lines if cache is None else cache.write(lines, lines[..., :1], offset)[0].astype(lines.dtype)
        total = None
        for tap in range(self.size):
            at = places - (self.size - 1 - tap)
            line = mo.take_along_axis(held, mo.broadcast_to(mo.maximum(at, 0), lines.shape), axis=2)
            part = mo.where(at >= 0, line, 0) * self.weight[:, 0, tap]
            total = part if total is None else total + part
        return total  # type: ignore[return-value]


class JoinedFeedForward(Module):
    """A gated feed-forward part whose gate and other half are one matrix."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.hidden, self._function = shape.hidden, activation(shape.activation)
        self.gate_up_proj = Linear(shape.width, 2 * shape.hidden, shape.mlp_bias, dtype)
        self.down_proj = Linear(shape.hidden, shape.width, shape.mlp_bias, dtype)

    def parts(self) -> Parts:
        return Parts({"gate_up_proj": (self.hidden, self.hidden)}, "down_proj", ("hidden",))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        both = self.gate_up_proj(x)
        return self.down_proj(self._function(both[..., :self.hidden]) * both[..., self.hidden:])  # type: ignore


def feed_forward(shape: Shape, layer: int, dtype: Any) -> Module:
    """The family's feed-forward part of a layer."""
    if shape.mixture is not None and layer not in shape.dense:
        return Experts(shape, shape.mixture, dtype)
    if shape.joined_mlp:
        return JoinedFeedForward(shape, dtype)
    return FeedForward(shape.width, shape.hidden, shape.activation, shape.mlp_bias, dtype, gated=shape.gated)


class Layer(Module):
    """Attention and a feed-forward part, each with a residual around it and norms where the family has them."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        kind: Any = Attention if shape.latent is None else LatentAttention
        kind = ShortConvolution if shape.convolutions and shape.convolutions[layer] else kind
        self.self_attn = kind(shape, layer, rope, dtype)
        self.mlp = feed_forward(shape, layer, dtype)
        self.parallel, self.roles, self.scale = shape.parallel, dict(shape.norms), shape.residual_scale
        for name in shape.norms.values():
            setattr(self, name, norm_of(shape, shape.width, dtype))

    def _normed(self, role: str, x: mo.Tensor) -> mo.Tensor:
        return getattr(self, self.roles[role])(x) if role in self.roles else x

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any = None,
                reach: int | None = None) -> mo.Tensor:
        normed = self._normed("before_attention", x)
        seen = self.self_attn(normed, cache, offset, mask, positions, reach)
        seen = self._scaled(self._normed("after_attention", seen))
        if self.parallel:
            normed = self._normed("before_mlp", x) if "before_mlp" in self.roles else normed
            return x + seen + self._scaled(self.mlp(normed))
        x = self._normed("sum_attention", x + seen)
        fed = self._scaled(self._normed("after_mlp", self.mlp(self._normed("before_mlp", x))))
        return self._normed("sum_mlp", x + fed)

    def _scaled(self, x: mo.Tensor) -> mo.Tensor:
        return x if self.scale == 1 else x * self.scale


def block_parameters(shape: Shape, layer: int) -> int:
    """Numbers in the weights of a layer, which is built without them."""
    with init.undrawn():
        block = Layer(shape, layer, None, mo.float32)
    return sum(math.prod(map(int, weight.shape)) for weight in block.state_dict().values())
