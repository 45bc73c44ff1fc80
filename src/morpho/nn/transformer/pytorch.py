"""PyTorch's transformer layers, with its parameters under its names and its masks: a boolean one is True where nobody
may look. `mo.nn.MultiHeadAttention` and `mo.nn.TransformerBlock` have caches, shared keys and rotary positions.

>>> layer = mo.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
>>> layer(mo.ones((1, 3, 8))).shape, sorted(layer.state_dict())[:2]
((1, 3, 8), ['linear1.bias', 'linear1.weight'])
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn import functional as F
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


class MultiheadAttention(Module):
    """Attention with PyTorch's arguments, which gives (output, weights).

    >>> attention = mo.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = mo.ones((1, 3, 8))
    >>> [part.shape for part in attention(x, x, x)]
    [(1, 3, 8), (1, 3, 3)]
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, dtype: Any = mo.float32) -> None:
        if add_bias_kv or add_zero_attn:
            raise fail(ArgumentError, "MultiheadAttention", "added keys and values are not taken")
        if embed_dim % num_heads:
            raise fail(ArgumentError, "MultiheadAttention",
                       f"embed_dim {embed_dim} is not a multiple of {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        same = self.kdim == self.vdim == embed_dim
        self.in_proj_weight = Parameter(init.xavier_uniform((3 * embed_dim, embed_dim), dtype=dtype)) if same else None
        self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
            None if same else Parameter(init.xavier_uniform((embed_dim, width), dtype=dtype))
            for width in (embed_dim, self.kdim, self.vdim))
        self.in_proj_bias = Parameter(mo.zeros((3 * embed_dim,), dtype=dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        if self.out_proj.bias is not None:
            self.out_proj.bias.assign(mo.zeros((embed_dim,), dtype=dtype))

    def forward(self, query: mo.Tensor, key: mo.Tensor, value: mo.Tensor, key_padding_mask: Any = None,
                need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[mo.Tensor, mo.Tensor | None]:
        single = query.ndim == 2
        if single:
            query, key, value = (mo.expand_dims(part, axis=1) for part in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else mo.asarray(key_padding_mask)[None]
        elif self.batch_first:
            query, key, value = (mo.swapaxes(part, 0, 1) for part in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, None, None,
            False,
            self.dropout, self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights,
            attn_mask, self.in_proj_weight is None, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            average_attn_weights=average_attn_weights)
        if single:
            return output[:, 0], None if weights is None else weights[0]
        return (mo.swapaxes(output, 0, 1) if self.batch_first else output), weights

    def describe(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}"


def _function(activation: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise fail(ArgumentError, "activation", f"{activation!r} is neither 'relu' nor 'gelu'")
    return getattr(mo, activation)


class _Layer(Module):
    """Base of encoder and decoder layers: self-attention, two products, norms, dropout."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Callable[..., Any] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, dtype: Any = mo.float32) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self._more(d_model, nhead, dropout, bias, batch_first, layer_norm_eps, dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.norm_first, self.activation = norm_first, _function(activation)

    def _more(self, *settings: Any) -> None:
        """Create the parts that only a decoder layer has."""

    def _attend(self, x: mo.Tensor, mask: Any, padding: Any) -> mo.Tensor:
        seen = self.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]
        return self.dropout1(seen)

    def _feed(self, x: mo.Tensor, dropout: Module) -> mo.Tensor:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two products, with PyTorch's arguments."""

    def forward(self, src: mo.Tensor, src_mask: Any = None, src_key_padding_mask: Any = None,
                is_causal: bool = False) -> mo.Tensor:
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask)
            return x + self._feed(self.norm2(x), self.dropout2)
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask))
        return self.norm2(x + self._feed(x, self.dropout2))


class TransformerDecoderLayer(_Layer):
    """As the encoder's, with attention to an encoder's output between."""

    def _more(self, *settings: Any) -> None:
        d_model, nhead, dropout, bias, batch_first, eps, dtype = settings
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.norm3 = LayerNorm(d_model, eps, bias=bias, dtype=dtype)
        self.dropout3 = Dropout(dropout)

    def _look(self, x: mo.Tensor, memory: mo.Tensor, mask: Any, padding: Any) -> mo.Tensor:
        seen = self.multihead_attn(x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]
        return self.dropout2(seen)

    def forward(self, tgt: mo.Tensor, memory: mo.Tensor, tgt_mask: Any = None, memory_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> mo.Tensor:
        x = tgt
        if self.norm_first:
            x = x + self._attend(self.norm1(x), tgt_mask, tgt_key_padding_mask)
            x = x + self._look(self.norm2(x), memory, memory_mask, memory_key_padding_mask)
            return x + self._feed(self.norm3(x), self.dropout3)
        x = self.norm1(x + self._attend(x, tgt_mask, tgt_key_padding_mask))
        x = self.norm2(x + self._look(x, memory, memory_mask, memory_key_padding_mask))
        return self.norm3(x + self._feed(x, self.dropout3))


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None, **ignored: Any) -> None:
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm


class TransformerEncoder(_Stack):
    """Copies of one encoder layer, one after another, and a norm."""

    def forward(self, src: mo.Tensor, mask: Any = None, src_key_padding_mask: Any = None,
                is_causal: bool | None = None) -> mo.Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """Copies of one decoder layer, one after another, and a norm."""

    def forward(self, tgt: mo.Tensor, memory: mo.Tensor, tgt_mask: Any = None, memory_mask: Any = None,
                tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
                tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> mo.Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder with PyTorch's arguments."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[..., Any] = "relu",
                 custom_encoder: Module | None = None, custom_decoder: Module | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 dtype: Any = mo.float32) -> None:
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                    dtype)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers, LayerNorm(d_model, layer_norm_eps, dtype=dtype))
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers, LayerNorm(d_model, layer_norm_eps, dtype=dtype))
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: mo.Tensor, tgt: mo.Tensor, src_mask: Any = None, tgt_mask: Any = None,
                memory_mask: Any = None,
                src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
                src_is_causal: Any = None, tgt_is_causal: Any = None, memory_is_causal: bool = False) -> mo.Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                            memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = mo.float32) -> mo.Tensor:
        return mo.triu(mo.full((sz, sz), -mo.inf, dtype=dtype), k=1)
