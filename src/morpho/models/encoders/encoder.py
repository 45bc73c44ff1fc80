"""Parts of the encoders BERT and ViT, under the names that their published files share."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.models.base import divided
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.nn.transformer.attention import attend, join_heads, split_heads


class SelfAttention(Module):
    """Queries, keys and values of x (batch, length, width), and attention over them, without a product after it."""

    def __init__(self, family: str, width: int, heads: int, bias: bool, dtype: Any) -> None:
        divided(family, width, heads, ("hidden_size", "num_attention_heads"))
        self.heads = heads
        self.query, self.key, self.value = (Linear(width, width, bias, dtype) for _ in range(3))

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None = None) -> mo.Tensor:
        q, k, v = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        return join_heads(attend(q, k, v, mask=mask))


class Dense(Module):
    """A product alone, under the name `dense`."""

    def __init__(self, inputs: int, outputs: int, dtype: Any) -> None:
        self.dense = Linear(inputs, outputs, True, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.dense(x)  # type: ignore[no-any-return]
