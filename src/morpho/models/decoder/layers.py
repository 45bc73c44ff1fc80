"""The parts of a decoder's layer: norms, attention, the feed-forward part, experts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
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


LEAST_EPSILON = 1.2e-38  # float32: a row of zeros, as padding has it, stays one where a configuration says 0


def norm_of(shape: Shape, width: int, dtype: Any) -> Module:
    """The family's norm over so many numbers."""
    eps = max(shape.eps, LEAST_EPSILON)
    if shape.norm == "rms1":
        return ShiftedRMSNorm(width, eps, dtype)
    if shape.norm == "rms":
        return RMSNorm(width, eps, dtype=dtype)
    return LayerNorm(width, eps, elementwise_affine=shape.norm == "layer", dtype=dtype)


class Attention(Module):
    """Queries, keys and values, normed, turned and capped as the family has it, and a product of what is seen."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        width, depth, heads, kv_heads = shape.width, shape.depth, shape.heads, shape.kv_heads
        self.num_heads, self.num_kv_heads, self.head_dim = heads, kv_heads, depth
        self.rope, self.window, self.scale = rope, shape.windows[layer], shape.scale
        if shape.scale_by_layer:
            self.scale = (1 / math.sqrt(depth) if shape.scale is None else shape.scale) / (layer + 1)
        self.joined, self.clip, self.cap, self.qk_norm = shape.joined, shape.clip, shape.score_cap, shape.qk_norm
        if shape.joined:
            self.qkv_proj = Linear(width, (heads + 2 * kv_heads) * depth, shape.qkv_bias, dtype)
        else:
            self.q_proj = Linear(width, heads * depth, shape.qkv_bias, dtype)
            self.k_proj, self.v_proj = (Linear(width, kv_heads * depth, shape.qkv_bias, dtype) for _ in range(2))
        self.o_proj = Linear(heads * depth, width, shape.out_bias, dtype)
        if shape.qk_norm:
            together = shape.qk_norm == "all"
            self.q_norm = norm_of(shape, heads * depth if together else depth, dtype)
            self.k_norm = norm_of(shape, kv_heads * depth if together else depth, dtype)

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any,
                reach: int | None) -> mo.Tensor:
        q, k, v = self._projected(x)  # (batch, heads, length, depth)
        if self.rope is not None:
            turns = self.rope.tables(x.shape[-2], offset if positions is None else positions, reach)
            q, k = self.rope.turn(q, *turns), self.rope.turn(k, *turns)
        if self.cap is None:
            seen = attend(q, k, v, causal=True, mask=mask, cache=cache, offset=offset, scale=self.scale,
                          window=self.window)
        else:
            seen = capped_attention(q, k, v, self.cap, self.scale, self.window, mask, cache, offset)
        return self.o_proj(join_heads(seen))  # type: ignore[no-any-return]

    def parts(self) -> Parts:
        columns: dict[str, tuple[int, ...]] = {"q_proj": (), "k_proj": (), "v_proj": ()}
        if self.joined:
            widths = tuple(count * self.head_dim for count in (self.num_heads, self.num_kv_heads, self.num_kv_heads))
            columns = {"qkv_proj": widths if self.joined == "parts" else ()}
        return Parts(columns, "o_proj", ("num_heads", "num_kv_heads"),
                     ("q_norm", "k_norm") if self.qk_norm == "all" else ())

    def _projected(self, x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor, mo.Tensor]:
        heads, kv_heads, depth = self.num_heads, self.num_kv_heads, self.head_dim
        if self.joined == "heads":  # those of a head side by side
            parts = mo.reshape(self.qkv_proj(x), (*x.shape[:-1], heads, 3 * depth))
            q, k, v = (mo.permute_dims(parts[..., i * depth:(i + 1) * depth], (0, 2, 1, 3)) for i in range(3))
            return q, k, v
        if self.joined:
            whole, ends = self.qkv_proj(x), (heads * depth, (heads + kv_heads) * depth)
            q, k, v = whole[..., :ends[0]], whole[..., ends[0]:ends[1]], whole[..., ends[1]:]
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.clip is not None:
            q, k, v = (mo.clip(part, -self.clip, self.clip) for part in (q, k, v))
        if self.qk_norm == "all":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
        if self.qk_norm == "head":
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v


def capped_attention(q: mo.Tensor, k: mo.Tensor, v: mo.Tensor, cap: float, scale: float | None, window: int | None,
                     mask: Any, cache: Any, offset: Any) -> mo.Tensor:
    """Causal attention whose scores become cap * tanh(score / cap) before the mask, as a composition: scores are whole
    matrices here."""
    if isinstance(cache, PagedCache):
        raise fail(ArgumentError, "attention", "capped scores are not computed over pages",
                   "use mo.models.generate, whose cache is not in pages")
    if isinstance(cache, RowCaches):
        return cache.attended(partial(capped_attention, cap=cap, scale=scale, window=window), q, k, v, offset, mask)
    if cache is not None:
        k, v = (part.astype(q.dtype) for part in cache.write(k, v, offset))
    batch, heads, queries, depth = q.shape
    groups, keys = k.shape[1], k.shape[2]
    shared = mo.reshape(q, (batch, groups, heads // groups, queries, depth))
    scores = mo.matmul(shared, mo.matrix_transpose(mo.expand_dims(k, axis=2)))
    scores = mo.reshape(scores, (batch, heads, queries, keys)) * (int(depth) ** -0.5 if scale is None else scale)
    scores = cap * mo.tanh(scores / cap)
    places = mo.reshape(mo.arange(queries), (1, 1, queries, 1)) + (
        offset if isinstance(offset, int) or not offset.ndim else mo.reshape(offset, (-1, 1, 1, 1)))
    apart = places - mo.reshape(mo.arange(keys), (1, 1, 1, keys))
    allowed = apart >= 0 if window is None else (apart >= 0) & (apart < window)
    allowed = allowed if mask is None else allowed & mask
    scores = mo.where(allowed, scores, mo.full((), -mo.inf, dtype=scores.dtype))
    shares = mo.where(mo.any(allowed, axis=-1, keepdims=True), mo.softmax(scores, axis=-1), 0)
    shares = mo.reshape(shares, (batch, groups, heads // groups, queries, keys))
    return mo.reshape(mo.matmul(shares, mo.expand_dims(v, axis=2)), (batch, heads, queries, depth))


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


class Experts(Module):
    """A mixture of feed-forward parts: each token goes through the `used` likeliest, weighted by their likelihoods.

    A single token reads the matrices of its own experts only. For more, every expert sees every token and those that
    were not chosen count 0: the same sums in the same order, so that prefill and decoding agree to the bit."""

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self.count, self.used = shape.experts, shape.experts_used
        self._function = activation(shape.activation)
        width, hidden = shape.width, shape.hidden
        self.gate = Linear(width, self.count, False, dtype)
        self.gate_proj, self.up_proj = (Parameter(init.normal((self.count, hidden, width), shape.std, dtype=dtype))
                                        for _ in range(2))
        self.down_proj = Parameter(init.normal((self.count, width, hidden), shape.std, dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        shares = mo.softmax(self.gate(x).astype(mo.float32), axis=-1)
        values, chosen = mo.topk(shares, self.used)
        values = values / mo.sum(values, axis=-1, keepdims=True)
        rows = x.shape[:-1]
        if all(isinstance(size, int) for size in rows) and math.prod(rows) * self.used < self.count:
            order = mo.argsort(chosen, axis=-1)
            return self._gathered(x, *(mo.take_along_axis(part, order, axis=-1) for part in (chosen, values)))
        total = None
        for number in range(self.count):
            weight = mo.sum(mo.where(chosen == number, values, 0), axis=-1, keepdims=True)
            part = self._part(x, self.gate_proj[number], self.up_proj[number], self.down_proj[number])
            part = part * weight.astype(x.dtype)
            total = part if total is None else total + part
        return total  # type: ignore[return-value]

    def _gathered(self, x: mo.Tensor, chosen: mo.Tensor, values: mo.Tensor) -> mo.Tensor:
        flat = mo.reshape(x, (-1, 1, 1, x.shape[-1]))  # (tokens, 1, 1, width)
        picks = mo.reshape(chosen, (-1, self.used))
        gates, ups, downs = (mo.take(part, picks, axis=0) for part in (self.gate_proj, self.up_proj, self.down_proj))
        found = self._part(flat, gates, ups, downs)  # (tokens, used, 1, width)
        found = found * mo.reshape(values, (-1, self.used, 1, 1)).astype(x.dtype)
        total = found[:, 0]
        for number in range(1, self.used):
            total = total + found[:, number]
        return mo.reshape(total, (*x.shape[:-1], total.shape[-1]))

    def _part(self, x: mo.Tensor, gate: mo.Tensor, up: mo.Tensor, down: mo.Tensor) -> mo.Tensor:
        gate, up, down = (mo.matrix_transpose(part) for part in (gate, up, down))
        return mo.matmul(self._between(self._function(mo.matmul(x, gate)) * mo.matmul(x, up)), down)

    def _between(self, inner: mo.Tensor) -> mo.Tensor:
        """Hand an expert's inner activations to its last product; shares of experts gather them first."""
        return inner


def feed_forward(shape: Shape, dtype: Any) -> Module:
    """The family's feed-forward part."""
    if shape.experts:
        return Experts(shape, dtype)
    if shape.joined_mlp:
        return JoinedFeedForward(shape, dtype)
    return FeedForward(shape.width, shape.hidden, shape.activation, shape.mlp_bias, dtype, gated=shape.gated)


class Layer(Module):
    """Attention and a feed-forward part, each with a residual around it and norms where the family has them."""

    def __init__(self, shape: Shape, layer: int, rope: RotaryPositions | None, dtype: Any) -> None:
        self.self_attn = Attention(shape, layer, rope, dtype)
        self.mlp = feed_forward(shape, dtype)
        self.parallel, self.roles, self.scale = shape.parallel, dict(shape.norms), shape.residual_scale
        for name in shape.norms.values():
            setattr(self, name, norm_of(shape, shape.width, dtype))

    def _normed(self, role: str, x: mo.Tensor) -> mo.Tensor:
        return getattr(self, self.roles[role])(x) if role in self.roles else x

    def forward(self, x: mo.Tensor, cache: Any, offset: Any, mask: Any, positions: Any = None,
                reach: int | None = None) -> mo.Tensor:
        seen = self.self_attn(self._normed("before_attention", x), cache, offset, mask, positions, reach)
        seen = self._scaled(self._normed("after_attention", seen))
        if self.parallel:
            return x + seen + self._scaled(self.mlp(self._normed("before_mlp", x)))
        x = self._normed("sum_attention", x + seen)
        fed = self._scaled(self._normed("after_mlp", self.mlp(self._normed("before_mlp", x))))
        return self._normed("sum_mlp", x + fed)

    def _scaled(self, x: mo.Tensor) -> mo.Tensor:
        return x if self.scale == 1 else x * self.scale
