"""Layers of BART and Whisper, under the names that their published files share. `first` says whether parts see a normed
input (Whisper) or the sum with the residual is normed (BART)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import morpho as mo
from morpho.models.base import divided
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, Parts, attend, join_heads, split_heads
from morpho.nn.transformer.blocks import activation

Cross = Callable[[Any, mo.Tensor], mo.Tensor]


class Attention(Module):
    """Attention over x itself or over a memory; keys may have no bias."""

    def __init__(self, family: str, width: int, heads: int, key_bias: bool, dtype: Any) -> None:
        self.heads, self.depth = heads, divided(family, width, heads, ("d_model", "attention_heads"))
        self.k_proj = Linear(width, width, key_bias, dtype)
        self.v_proj, self.q_proj, self.out_proj = (Linear(width, width, True, dtype) for _ in range(3))

    def parts(self) -> Parts:
        return Parts({"q_proj": (), "k_proj": (), "v_proj": ()}, "out_proj", ("heads",))

    def keys_and_values(self, memory: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        return split_heads(self.k_proj(memory), self.heads), split_heads(self.v_proj(memory), self.heads)

    def forward(self, x: mo.Tensor, memory: mo.Tensor | None = None, *, mask: Any = None, causal: bool = False,
                cache: KeyValueCache | None = None, offset: Any = 0) -> mo.Tensor:
        k, v = self.keys_and_values(x if memory is None else memory)
        q = split_heads(self.q_proj(x), self.heads)
        seen = attend(q, k, v, causal=causal, mask=mask, cache=cache, offset=offset)
        return self.out_proj(join_heads(seen))  # type: ignore[no-any-return]

    def over(self, x: mo.Tensor, look: Callable[[mo.Tensor], mo.Tensor]) -> mo.Tensor:
        """Attention over keys and values that were computed before: `look` takes queries."""
        return self.out_proj(join_heads(look(split_heads(self.q_proj(x), self.heads))))  # type: ignore[no-any-return]


class EncoderLayer(Module):
    def __init__(self, family: str, width: int, heads: int, hidden: int, function: str, first: bool, key_bias: bool,
                 dtype: Any) -> None:
        self._function, self.first = activation(function), first
        self.self_attn = Attention(family, width, heads, key_bias, dtype)
        self.self_attn_layer_norm = LayerNorm(width, dtype=dtype)
        self.fc1, self.fc2 = Linear(width, hidden, True, dtype), Linear(hidden, width, True, dtype)
        self.final_layer_norm = LayerNorm(width, dtype=dtype)

    def parts(self) -> Parts:
        return Parts({"fc1": ()}, "fc2")

    def part(self, x: mo.Tensor, norm: Module, compute: Callable[[mo.Tensor], mo.Tensor]) -> mo.Tensor:
        """A part with the residual around it."""
        return x + compute(norm(x)) if self.first else norm(x + compute(x))

    def fed(self, x: mo.Tensor) -> mo.Tensor:
        return self.part(x, self.final_layer_norm, lambda y: self.fc2(self._function(self.fc1(y))))

    def forward(self, x: mo.Tensor, mask: Any) -> mo.Tensor:
        return self.fed(self.part(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, mask=mask)))


class DecoderLayer(EncoderLayer):
    def __init__(self, family: str, width: int, heads: int, hidden: int, function: str, first: bool, key_bias: bool,
                 dtype: Any) -> None:
        super().__init__(family, width, heads, hidden, function, first, key_bias, dtype)
        self.encoder_attn = Attention(family, width, heads, key_bias, dtype)
        self.encoder_attn_layer_norm = LayerNorm(width, dtype=dtype)

    def forward(self, x: mo.Tensor, cross: Cross, cache: Any, offset: Any) -> mo.Tensor:  # type: ignore[override]
        x = self.part(x, self.self_attn_layer_norm,
                      lambda y: self.self_attn(y, causal=True, cache=cache, offset=offset))
        return self.fed(self.part(x, self.encoder_attn_layer_norm, lambda y: cross(self.encoder_attn, y)))


def cached_cross(caches: Any) -> Callable[[int], Cross]:
    """The look of each of the decoder's layers at what `Caches` keep of the encoder's result."""
    return lambda layer: lambda attention, y: attention.over(y, partial(caches.over, layer))
