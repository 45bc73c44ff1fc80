"""The pre-norm transformer: a causal language model in which norm, activation, positions and sharing are chosen.

    model = mo.models.prenorm_transformer_base(vocab_size=50_000, activation="swiglu", normalization="rmsnorm")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.models.base import BlockModel, divided
from morpho.models.config import Config
from morpho.models.cuts import Cuts
from morpho.models.decoder.shape import Rope, Shape
from morpho.models.family import Family
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Embedding, Linear
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
    numbers: ClassVar[Mapping[str, str]] = {
        "width": "width", "vocabulary": "vocab_size", "heads": "heads", "kv_heads": "kv_heads", "hidden": "hidden",
        "layers": "layers", "context": "max_seq_len"}
    shared: ClassVar[tuple[str, ...]] = ("heads", "kv_heads", "hidden", "width")
    kinds: ClassVar[Mapping[str, Kind]] = {"activation": one_of(*GATES, *ACTIVATIONS), "normalization": one_of(*NORMS),
                                           "rope_theta": number(10000.0, above=0)}

    def shape(self) -> Shape:
        depth, bias, gated = divided("prenorm", self.width, self.heads), self.attention_bias, self.activation in GATES
        rope = Rope(depth, self.rope_theta) if self.use_rope else None
        return Shape(
            family="prenorm", vocabulary=self.vocab_size, width=self.width, layers=self.layers, heads=self.heads,
            kv_heads=self.kv_heads or self.heads, depth=depth, hidden=self.hidden or 4 * self.width,
            activation=GATES.get(self.activation, self.activation), context=self.max_seq_len, eps=self.eps,
            tied=self.tie_embeddings, std=0.02, norm="rms" if self.normalization == "rmsnorm" else "layer", gated=gated,
            norms={"before_attention": "attention_norm", "before_mlp": "feed_forward_norm"}, qkv_bias=bias,
            out_bias=bias, mlp_bias=bias and not gated, windows=(None,) * self.layers, ropes=(rope,) * self.layers,
            learned_positions=0 if self.use_rope else self.max_seq_len)


class PreNormTransformer(BlockModel):
    """A causal language model of pre-norm blocks.

    >>> model = mo.models.create("prenorm-small", vocab_size=100, width=8, layers=1, heads=2, hidden=16, max_seq_len=16)
    >>> model(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 100)
    """

    model_type = "prenorm"
    config_class = PreNormConfig
    cuts = Cuts(("embed", "positions"), "embed", "layers", ("norm",))

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

    def begin(self, ids: mo.Tensor, places: Any = 0) -> mo.Tensor:
        x = self.embed(ids)
        return self.dropout(x if self.positions is None else self.positions(x, places))  # type: ignore[no-any-return]

    def step(self, block: Any, x: mo.Tensor, cache: Any = None, offset: Any = 0, mask: Any = None,
             positions: Any = None) -> mo.Tensor:
        return block(x, mask=mask, cache=cache, offset=offset, positions=positions)  # type: ignore[no-any-return]

    def cache_shape(self, block: Any) -> tuple[int, int]:
        return block.attention.num_kv_heads, block.attention.head_dim

    @property
    def context(self) -> int:
        return int(self.config["max_seq_len"])


SIZES: dict[str, dict[str, int]] = {
    "prenorm-small": {"width": 512, "layers": 6, "heads": 8, "hidden": 2048},
    "prenorm-base": {"width": 768, "layers": 12, "heads": 12, "hidden": 3072},
    "prenorm-large": {"width": 1024, "layers": 24, "heads": 16, "hidden": 4096},
}


FAMILIES = (Family("prenorm", PreNormTransformer, SIZES),)


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
