"""GPT-2, by the names of the published weights: `wte.weight`, `h.0.attn.c_attn.weight`, ...; matrices are (inputs,
outputs) there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.models.base import BlockModel, divided
from morpho.models.config import Config
from morpho.models.cuts import Cuts
from morpho.models.decoder.shape import Shape
from morpho.models.family import Family, Names, Settings, tied_head
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache, Parts, attend, join_heads, split_heads
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.nn.transformer.positions import LearnedPositions
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of


@dataclass
class GPT2Config(Config):
    """The settings of a GPT-2."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    embd_pdrop: float = 0.0
    resid_pdrop: float = 0.0
    eos_token_id: int | list[int] | None = None
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions",
                                            "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
    others: ClassVar[Mapping[str, Key]] = {
        "attn_pdrop": irrelevant("of training: attention has no dropout"), "n_ctx": irrelevant("n_positions says it"),
        "reorder_and_upcast_attn": irrelevant("sums are float32 always"),
        "summary_*": irrelevant("of another head"), "n_special": irrelevant("of an older form"),
        "predict_special_tokens": irrelevant("of an older form")}
    numbers: ClassVar[Mapping[str, str]] = {
        "width": "n_embd", "vocabulary": "vocab_size", "heads": "n_head", "hidden": "n_inner", "layers": "n_layer",
        "context": "n_positions"}
    shared: ClassVar[tuple[str, ...]] = ("n_head", "n_inner", "n_embd")
    kinds: ClassVar[Mapping[str, Kind]] = {"activation_function": one_of(*ACTIVATIONS)}

    def shape(self) -> Shape:
        return Shape(
            family="gpt2", vocabulary=self.vocab_size, width=self.n_embd, layers=self.n_layer, heads=self.n_head,
            kv_heads=self.n_head, depth=divided("gpt2", self.n_embd, self.n_head, ("n_embd", "n_head")),
            hidden=self.n_inner or 4 * self.n_embd, activation=self.activation_function, context=self.n_positions,
            eps=self.layer_norm_epsilon, tied=self.tie_word_embeddings, std=0.02, norm="layer", gated=False,
            norms={"before_attention": "ln_1", "before_mlp": "ln_2"}, qkv_bias=True, out_bias=True, mlp_bias=True,
            joined="parts", scale=None if self.scale_attn_weights else 1.0,
            scale_by_layer=self.scale_attn_by_inverse_layer_idx, windows=(None,) * self.n_layer,
            ropes=(None,) * self.n_layer, learned_positions=self.n_positions)


class TransposedLinear(Module):
    """x @ weight + bias: the weight is (inputs, outputs), as GPT-2 keeps it."""

    def __init__(self, inputs: int, outputs: int, std: float, dtype: Any) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(init.normal((inputs, outputs), std, dtype=dtype))
        self.bias = Parameter(mo.zeros((outputs,), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.matmul(x, self.weight) + self.bias

    def describe(self) -> str:
        return f"{self.inputs}, {self.outputs}"


class Attention(Module):
    def __init__(self, config: GPT2Config, layer: int, dtype: Any) -> None:
        width, self.heads = config.n_embd, config.n_head
        depth = divided("gpt2", width, self.heads, ("n_embd", "n_head"))
        self.scale = 1 / math.sqrt(depth) if config.scale_attn_weights else 1.0
        if config.scale_attn_by_inverse_layer_idx:
            self.scale /= layer + 1
        self.c_attn = TransposedLinear(width, 3 * width, 0.02, dtype)
        self.c_proj = TransposedLinear(width, width, 0.02 / math.sqrt(2 * config.n_layer), dtype)

    def parts(self) -> Parts:
        return Parts({"c_attn": (self.c_attn.outputs // 3,) * 3}, "c_proj", ("heads",))

    def forward(self, x: mo.Tensor, cache: KeyValueCache | None, offset: Any, mask: Any = None) -> mo.Tensor:
        joined = self.c_attn(x)  # (batch, length, 3 * width)
        width = int(joined.shape[-1]) // 3
        q, k, v = (split_heads(joined[..., i * width:(i + 1) * width], self.heads) for i in range(3))
        seen = attend(q, k, v, causal=True, mask=mask, cache=cache, offset=offset, scale=self.scale)
        return self.c_proj(join_heads(seen))  # type: ignore[no-any-return]


class FeedForward(Module):
    def __init__(self, config: GPT2Config, dtype: Any) -> None:
        width, hidden = config.n_embd, config.n_inner or 4 * config.n_embd
        self._function = activation(config.activation_function)
        self.c_fc = TransposedLinear(width, hidden, 0.02, dtype)
        self.c_proj = TransposedLinear(hidden, width, 0.02 / math.sqrt(2 * config.n_layer), dtype)

    def parts(self) -> Parts:
        return Parts({"c_fc": ()}, "c_proj")

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.c_proj(self._function(self.c_fc(x)))  # type: ignore[no-any-return]


class GPT2Block(Module):
    def __init__(self, config: GPT2Config, layer: int, dtype: Any) -> None:
        self.ln_1 = LayerNorm(config.n_embd, config.layer_norm_epsilon, dtype=dtype)
        self.attn = Attention(config, layer, dtype)
        self.ln_2 = LayerNorm(config.n_embd, config.layer_norm_epsilon, dtype=dtype)
        self.mlp = FeedForward(config, dtype)
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, x: mo.Tensor, cache: KeyValueCache | None, offset: Any, mask: Any = None) -> mo.Tensor:
        x = x + self.dropout(self.attn(self.ln_1(x), cache, offset, mask))
        return x + self.dropout(self.mlp(self.ln_2(x)))  # type: ignore[no-any-return]


class GPT2(BlockModel):
    """GPT-2 with its head, tied to the embedding unless `tie_word_embeddings` is off.

    >>> model = mo.models.create("gpt2", vocab_size=100, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    >>> model(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 100)
    """

    model_type = "gpt2"
    config_class = GPT2Config
    cuts = Cuts(("wte", "wpe"), "wte", "h", ("ln_f",))

    def __init__(self, config: GPT2Config, dtype: Any = mo.float32) -> None:
        self._configure(config)
        width = config.n_embd
        self.eos_token_id = config.eos_token_id
        self.wte = Embedding(config.vocab_size, width, dtype=dtype, std=0.02)
        self.wpe = LearnedPositions(config.n_positions, width, dtype, std=0.01)
        self.dropout = Dropout(config.embd_pdrop)
        self.h = ModuleList(GPT2Block(config, layer, dtype) for layer in range(config.n_layer))
        self.ln_f = LayerNorm(width, config.layer_norm_epsilon, dtype=dtype)
        self.lm_head = None if config.tie_word_embeddings else Linear(width, config.vocab_size, False, dtype)

    def begin(self, ids: mo.Tensor, places: Any = 0) -> mo.Tensor:
        return self.dropout(self.wpe(self.wte(ids), places))  # type: ignore[no-any-return]

    def step(self, block: Any, x: mo.Tensor, cache: Any = None, offset: Any = 0, mask: Any = None,
             positions: Any = None) -> mo.Tensor:
        return block(x, cache, offset, mask)  # type: ignore[no-any-return]

    def cache_shape(self, block: Any) -> tuple[int, int]:
        return block.attn.heads, self.config["n_embd"] // self.config["n_head"]

    @property
    def context(self) -> int:
        return int(self.config["n_positions"])


SIZES: dict[str, dict[str, int]] = {
    "gpt2": {},
    "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    return [
        *tied_head(settings),
        Rule("(transformer.)h.{i}.attn.bias", None),  # masks
        Rule("(transformer.)h.{i}.attn.masked_bias", None),
        Rule("lm_head.{rest:*}", "lm_head.{rest}"),
        Rule("(transformer.){rest:*}", "{rest}"),
    ]


FAMILIES = (Family("gpt2", GPT2, SIZES, Names("lm_head.weight", "wte.weight", _names)),)
