"""Transformer blocks: attention and a feed-forward part, each with a residual around it, normed before or after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, fail
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm, RMSNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, MultiHeadAttention, Parts
from morpho.nn.transformer.positions import RotaryPositions

ACTIVATIONS: dict[str, Callable[[mo.Tensor], mo.Tensor]] = {
    "gelu": mo.gelu,
    "gelu_tanh": lambda x: mo.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: mo.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: mo.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * mo.sigmoid(1.702 * x),
    "relu": mo.relu, "relu2": lambda x: mo.square(mo.relu(x)), "silu": mo.silu, "swish": mo.silu, "mish": mo.mish,
    "tanh": mo.tanh, "sigmoid": mo.sigmoid, "selu": mo.selu, "elu": mo.elu, "softplus": mo.softplus,
}
GATES = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
NORMS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}


def activation(name: str) -> Callable[[mo.Tensor], mo.Tensor]:
    """A function by the name it has in configurations.

    >>> mo.nn.transformer.activation("relu")(mo.asarray([-1.0, 2.0])).numpy()
    array([0., 2.], dtype=float32)
    """
    if name not in ACTIVATIONS:
        raise fail(ArgumentError, "activation", f"{name!r} is unknown", "one of " + ", ".join(ACTIVATIONS))
    return ACTIVATIONS[name]


_by_name = activation  # for where an argument has its name


def norm(name: str, normalized_shape: int, eps: float = 1e-5, dtype: Any = mo.float32) -> Module:
    """A norm by name: "layernorm" or "rmsnorm".

    >>> type(mo.nn.transformer.norm("rmsnorm", 8)).__name__
    'RMSNorm'
    """
    if name not in NORMS:
        raise fail(ArgumentError, "norm", f"{name!r} is unknown", "one of " + ", ".join(NORMS))
    made: Module = NORMS[name](normalized_shape, eps=eps, dtype=dtype)
    return made


class FeedForward(Module):
    """Two products with a function between, or three with a gate: down(act(gate(x)) * up(x)) for "swiglu", "geglu" and
    "reglu", or for any function where `gated`. Gated ones have no bias unless asked for.

    >>> mo.nn.FeedForward(8, 16, "swiglu")(mo.ones((2, 8))).shape
    (2, 8)
    """

    def __init__(self, embed_dim: int, dim_feedforward: int, activation: str = "gelu", bias: bool | None = None,
                 dtype: Any = mo.float32, gated: bool = False) -> None:
        check_sizes("FeedForward", embed_dim=embed_dim, dim_feedforward=dim_feedforward)
        gated = gated or activation in GATES
        bias = not gated if bias is None else bias
        self.activation = activation
        self._function = _by_name(GATES.get(activation, activation))
        self.gate_proj = Linear(embed_dim, dim_feedforward, bias, dtype) if gated else None
        self.up_proj = Linear(embed_dim, dim_feedforward, bias, dtype)
        self.down_proj = Linear(dim_feedforward, embed_dim, bias, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        up = self.up_proj(x)  # (..., embed_dim) -> (..., dim_feedforward)
        inner = self._function(up) if self.gate_proj is None else self._function(self.gate_proj(x)) * up
        result: mo.Tensor = self.down_proj(inner)
        return result

    def parts(self) -> Parts:
        return Parts({"up_proj": ()} if self.gate_proj is None else {"gate_proj": (), "up_proj": ()}, "down_proj")

    def describe(self) -> str:
        return repr(self.activation)


class TransformerBlock(Module):
    """Attention over the sequence itself, then a feed-forward part: an encoder's block, a language model's if `causal`.

    `norm_first`: each part sees its normed input (pre-norm); otherwise the sum with the residual is normed (post-norm).

    >>> mo.nn.TransformerBlock(8, num_heads=2, dim_feedforward=16)(mo.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, embed_dim: int, num_heads: int, dim_feedforward: int, *, num_kv_heads: int | None = None,
                 activation: str = "gelu", normalization: str = "layernorm", eps: float = 1e-5,
                 norm_first: bool = True, causal: bool = False, bias: bool = True,
                 rope: RotaryPositions | None = None, dropout: float = 0.0, dtype: Any = mo.float32) -> None:
        check_sizes(type(self).__name__, embed_dim=embed_dim, num_heads=num_heads, dim_feedforward=dim_feedforward)
        self.norm_first = norm_first
        self.attention_norm = norm(normalization, embed_dim, eps, dtype)
        self.attention = MultiHeadAttention(embed_dim, num_heads, num_kv_heads, bias=bias, causal=causal, rope=rope,
                                            dtype=dtype)
        self.feed_forward_norm = norm(normalization, embed_dim, eps, dtype)
        self.feed_forward = FeedForward(embed_dim, dim_feedforward, activation, None if bias else False, dtype)
        self.dropout = Dropout(dropout)

    def forward(self, x: mo.Tensor, *, mask: Any = None, cache: KeyValueCache | None = None,
                offset: Any = 0, positions: Any = None) -> mo.Tensor:
        x = self._part(x, self.attention_norm, lambda y: self.attention(y, mask=mask, cache=cache, offset=offset,
                                                                        positions=positions))
        return self._part(x, self.feed_forward_norm, self.feed_forward)

    def _part(self, x: mo.Tensor, norm: Module, part: Callable[[mo.Tensor], mo.Tensor]) -> mo.Tensor:
        first = self.norm_first
        result: mo.Tensor = x + self.dropout(part(norm(x))) if first else norm(x + self.dropout(part(x)))
        return result

    def describe(self) -> str:
        return "norm_first=True" if self.norm_first else "norm_first=False"


class TransformerDecoderBlock(TransformerBlock):
    """A causal block that also looks at a `memory`, such as an encoder's result.

    >>> block = mo.nn.TransformerDecoderBlock(8, num_heads=2, dim_feedforward=16)
    >>> block(mo.ones((1, 3, 8)), mo.ones((1, 5, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, embed_dim: int, num_heads: int, dim_feedforward: int, *, kdim: int | None = None,
                 **others: Any) -> None:
        super().__init__(embed_dim, num_heads, dim_feedforward, causal=others.pop("causal", True), **others)
        dtype = others.get("dtype", mo.float32)
        self.memory_norm = norm(others.get("normalization", "layernorm"), embed_dim, others.get("eps", 1e-5), dtype)
        self.memory_attention = MultiHeadAttention(embed_dim, num_heads, others.get("num_kv_heads"), kdim=kdim,
                                                   bias=others.get("bias", True), dtype=dtype)

    def forward(self, x: mo.Tensor, memory: mo.Tensor, *, mask: Any = None,  # type: ignore[override]
                memory_mask: Any = None, cache: KeyValueCache | None = None, offset: Any = 0) -> mo.Tensor:
        x = self._part(x, self.attention_norm, lambda y: self.attention(y, mask=mask, cache=cache, offset=offset))
        x = self._part(x, self.memory_norm, lambda y: self.memory_attention(y, memory, mask=memory_mask))
        return self._part(x, self.feed_forward_norm, self.feed_forward)
