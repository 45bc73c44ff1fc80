"""Llama and what is built like it: RMS norm, gated feed-forward, rotary positions, shared key-value heads. Names are
the published ones: `model.layers.0.self_attn.q_proj.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel, divided, tied_logits
from morpho.models.config import Config
from morpho.models.rope_keys import check_rope
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import RMSNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, MultiHeadAttention
from morpho.nn.transformer.blocks import ACTIVATIONS, FeedForward
from morpho.nn.transformer.positions import RotaryPositions
from morpho.weights.keys import Key, Kind, irrelevant, number, one_of, only


@dataclass
class LlamaConfig(Config):
    """The settings of a Llama."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    eos_token_id: int | list[int] | None = None
    sliding_window: int | None = None  # a token sees so many before it, itself among them
    attention_scale: float | None = None  # of the scores; 1 / sqrt(head_dim) by default
    others: ClassVar[Mapping[str, Key]] = {
        "pretraining_tp": only(1), "rope_interleaved": only(False), "partial_rotary_factor": only(1.0, None),
        "attention_dropout": irrelevant("of training: attention has no dropout"),
        "is_llama_config": irrelevant("model_type says it")}
    kinds: ClassVar[Mapping[str, Kind]] = {"hidden_act": one_of(*ACTIVATIONS), "rope_theta": number(10000.0, above=0)}
    renamed: ClassVar[Mapping[str, str]] = {"rope_parameters": "rope_scaling"}  # newer files keep theta in there

    def __post_init__(self) -> None:
        if self.rope_scaling and "rope_theta" in self.rope_scaling:
            self.rope_theta = self.rope_scaling["rope_theta"]

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        if given.get("rope_scaling"):
            name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
            check_rope(operation, file, name, given["rope_scaling"], given.get("head_dim"), ignore)
            theta = given["rope_scaling"].get("rope_theta")
            if theta is not None and given.get("rope_theta", theta) != theta:
                raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}rope_theta is "
                                                     f"{given['rope_theta']}, and {name}.rope_theta {theta}")


class Layer(Module):
    def __init__(self, config: LlamaConfig, rope: RotaryPositions, dtype: Any) -> None:
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps, dtype=dtype)
        self.self_attn = MultiHeadAttention(width, config.num_attention_heads, config.num_key_value_heads,
                                            rope.head_dim, bias=config.attention_bias, causal=True, rope=rope,
                                            dtype=dtype, window=config.sliding_window, scale=config.attention_scale)
        self.post_attention_layernorm = RMSNorm(width, eps, dtype=dtype)
        self.mlp = FeedForward(width, config.intermediate_size, config.hidden_act, config.mlp_bias, dtype, gated=True)

    def forward(self, x: mo.Tensor, cache: KeyValueCache | None, offset: Any, mask: Any, positions: Any) -> mo.Tensor:
        y = self.input_layernorm(x)
        x = x + self.self_attn(y, mask=mask, cache=cache, offset=offset, positions=positions)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(Module):
    """All but the head."""

    def __init__(self, config: LlamaConfig, dtype: Any) -> None:
        depth = config.head_dim or divided("llama", config.hidden_size, config.num_attention_heads,
                                           ("hidden_size", "num_attention_heads"))
        if depth % 2:
            raise fail(ArgumentError, "llama", f"head_dim={depth} is odd, and pairs of numbers are turned")
        rope = RotaryPositions(depth, config.max_position_embeddings, config.rope_theta, scaling=config.rope_scaling)
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, dtype=dtype, std=config.initializer_range)
        self.layers = ModuleList(Layer(config, rope, dtype) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype=dtype)

    def forward(self, ids: mo.Tensor, caches: list[KeyValueCache] | None, offset: Any, mask: Any, positions: Any,
                states: list[mo.Tensor] | None) -> mo.Tensor:
        x = self.embed_tokens(ids)  # (batch, length, width)
        for layer, block in enumerate(self.layers):
            if states is not None:
                states.append(x)
            x = block(x, None if caches is None else caches[layer], offset, mask, positions)
        return self.norm(x)  # type: ignore[no-any-return]


class Llama(LanguageModel):
    """Llama with its head.

    >>> model = mo.models.create("llama", vocab_size=100, hidden_size=12, intermediate_size=16, num_hidden_layers=1,
    ...                          num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=16)
    >>> model(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 100)
    """

    model_type = "llama"
    config_class = LlamaConfig

    def __init__(self, config: LlamaConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.model = Body(config, dtype)
        width, tied = config.hidden_size, config.tie_word_embeddings
        self.lm_head = None if tied else Linear(width, config.vocab_size, False, dtype)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                parameter.assign(init.normal(parameter.shape, config.initializer_range, dtype=dtype))  # type: ignore[arg-type]

    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0, *, mask: Any = None,
               positions: Any = None, states: list[mo.Tensor] | None = None) -> mo.Tensor:
        return self.model(ids, caches, offset, mask, positions, states)  # type: ignore[no-any-return]

    def tied_embedding(self) -> Any:
        return self.model.embed_tokens if self.lm_head is None else None

    def head(self, x: mo.Tensor) -> mo.Tensor:
        return tied_logits(x, self.model.embed_tokens) if self.lm_head is None else self.lm_head(x)

    @property
    def context(self) -> int:
        return int(self.config["max_position_embeddings"])

    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> list[KeyValueCache]:
        return [KeyValueCache(batch, layer.self_attn.num_kv_heads, length, layer.self_attn.head_dim, dtype)
                for layer in self.model.layers]


SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "smollm2-135m": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                     "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
                     "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True},
}
