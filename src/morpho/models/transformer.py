"""The pre-norm transformer: a causal language model in which norm, activation, positions and sharing are chosen.

    model = mo.models.prenorm_transformer_base(vocab_size=50_000, activation="swiglu", normalization="rmsnorm")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.models.base import LanguageModel, divided, tied_logits
from morpho.models.config import Config
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.transformer.attention import KeyValueCache
from morpho.nn.transformer.blocks import ACTIVATIONS, GATES, NORMS, TransformerBlock, norm
from morpho.nn.transformer.positions import LearnedPositions, RotaryPositions
from morpho.weights.keys import Kind, number, one_of


@dataclass
class PreNormConfig(Config):
    """The settings of a pre-norm transformer."""

    vocab_size: int = 32000
    max_seq_len: int = 2048
    width: int = 768
    layers: int = 12
    heads: int = 12
    kv_heads: int | None = None
    hidden: int | None = None
    activation: str = "swiglu"
    normalization: str = "rmsnorm"
    eps: float = 1e-5
    use_rope: bool = True
    rope_theta: float = 10000.0
    tie_embeddings: bool = True
    attention_bias: bool = True
    dropout: float = 0.0
    eos_token_id: int | list[int] | None = None
    kinds: ClassVar[Mapping[str, Kind]] = {"activation": one_of(*GATES, *ACTIVATIONS), "normalization": one_of(*NORMS),
                                           "rope_theta": number(10000.0, above=0)}


class PreNormTransformer(LanguageModel):
    """A causal language model of pre-norm blocks.

    >>> model = mo.models.create("prenorm-small", vocab_size=100, width=8, layers=1, heads=2, hidden=16, max_seq_len=16)
    >>> model(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 100)
    """

    model_type = "prenorm"
    config_class = PreNormConfig

    def __init__(self, config: PreNormConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        width, depth = config.width, divided("prenorm", config.width, config.heads)
        self.eos_token_id = config.eos_token_id
        self.embed = Embedding(config.vocab_size, width, dtype=dtype, std=0.02)
        self.positions = None if config.use_rope else LearnedPositions(config.max_seq_len, width, dtype)
        self.dropout = Dropout(config.dropout)
        rope = RotaryPositions(depth, config.max_seq_len, config.rope_theta) if config.use_rope else None
        self.layers = ModuleList(
            TransformerBlock(width, config.heads, config.hidden or 4 * width, num_kv_heads=config.kv_heads,
                             activation=config.activation, normalization=config.normalization, eps=config.eps,
                             causal=True, bias=config.attention_bias, rope=rope, dropout=config.dropout, dtype=dtype)
            for _ in range(config.layers))
        self.norm = norm(config.normalization, width, config.eps, dtype)
        self.lm_head = None if config.tie_embeddings else Linear(width, config.vocab_size, False, dtype)
        self._first_values(config.layers, dtype)

    def _first_values(self, layers: int, dtype: Any) -> None:
        """Matrices as GPT-2 draws them: those that end a residual branch are smaller the more there are."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and "proj" in name:
                ends = "o_proj" in name or "down_proj" in name
                std = 0.02 / (2 * layers) ** 0.5 if ends else 0.02
                parameter.assign(init.normal(parameter.shape, std, dtype=dtype))  # type: ignore[arg-type]
            elif name.endswith("bias"):
                parameter.assign(mo.zeros(parameter.shape, dtype=dtype))

    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0, *, mask: Any = None,
               positions: Any = None, states: list[mo.Tensor] | None = None) -> mo.Tensor:
        x, places = self.embed(ids), offset if positions is None else positions  # x is (batch, length, width)
        x = self.dropout(x if self.positions is None else self.positions(x, places))
        for layer, block in enumerate(self.layers):
            if states is not None:
                states.append(x)
            cache = None if caches is None else caches[layer]
            x = block(x, mask=mask, cache=cache, offset=offset, positions=positions)
        return self.norm(x)  # type: ignore[no-any-return]

    def tied_embedding(self) -> Any:
        return self.embed if self.lm_head is None else None

    def head(self, x: mo.Tensor) -> mo.Tensor:
        if self.lm_head is not None:
            return self.lm_head(x)  # type: ignore[no-any-return]
        return tied_logits(x, self.embed)

    @property
    def context(self) -> int:
        return int(self.config["max_seq_len"])

    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> list[KeyValueCache]:
        attention = self.layers[0].attention if len(self.layers) else None
        return [KeyValueCache(batch, attention.num_kv_heads, length, attention.head_dim, dtype) for _ in self.layers]  # type: ignore[union-attr]


SIZES: dict[str, dict[str, int]] = {
    "prenorm-small": {"width": 512, "layers": 6, "heads": 8, "hidden": 2048},
    "prenorm-base": {"width": 768, "layers": 12, "heads": 12, "hidden": 3072},
    "prenorm-large": {"width": 1024, "layers": 24, "heads": 16, "hidden": 4096},
}


def _sized(name: str, vocab_size: int, max_seq_len: int, others: dict[str, Any]) -> PreNormTransformer:
    settings = {**SIZES[name], "vocab_size": vocab_size, "max_seq_len": max_seq_len, **others}
    return PreNormTransformer.from_config(settings, strict=True)


def prenorm_transformer_small(vocab_size: int = 32000, max_seq_len: int = 2048, **others: Any) -> PreNormTransformer:
    """512 wide, 6 layers of 8 heads; `others` are the settings of `PreNormConfig`, such as activation="gelu".

    >>> mo.models.prenorm_transformer_small(100, 16, width=8, layers=1, heads=2, hidden=16).config["activation"]
    'swiglu'
    """
    return _sized("prenorm-small", vocab_size, max_seq_len, others)


def prenorm_transformer_base(vocab_size: int = 32000, max_seq_len: int = 2048, **others: Any) -> PreNormTransformer:
    """768 wide, 12 layers of 12 heads.

    >>> model = mo.models.prenorm_transformer_base(vocab_size=100, max_seq_len=16, layers=1)
    >>> model.config["layers"]
    1
    """
    return _sized("prenorm-base", vocab_size, max_seq_len, others)


def prenorm_transformer_large(vocab_size: int = 32000, max_seq_len: int = 2048, **others: Any) -> PreNormTransformer:
    """1024 wide, 24 layers of 16 heads.

    >>> model = mo.models.prenorm_transformer_large(vocab_size=100, max_seq_len=16, layers=1)
    >>> model.config["layers"]
    1
    """
    return _sized("prenorm-large", vocab_size, max_seq_len, others)
