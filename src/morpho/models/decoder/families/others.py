"""OLMo, OLMo 2, GPT-NeoX, OPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.base.errors import fail
from morpho.models.base import divided
from morpho.models.config import Config
from morpho.models.decoder.families.rotary import HEADS, NO_DROPOUT, RotaryConfig
from morpho.models.decoder.family import LAYER, decoder_family
from morpho.models.decoder.shape import Shape
from morpho.models.family import Gguf
from morpho.models.files.gguf_forms import PLAIN_NORMS, QK_NORMS, eps, gguf_rules, halves, needed, paired
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.weights import FileFault, GgufFile, Rule
from morpho.weights.gguf.keys import ALL_SEEN, NEOX, OLMO
from morpho.weights.keys import Key, Kind, irrelevant, number, one_of
from morpho.weights.transforms import heads_together


@dataclass
class OlmoConfig(RotaryConfig):
    """The settings of an OLMo: norms without weights, queries, keys and values within bounds."""

    vocab_size: int = 50304
    hidden_act: str = "silu"
    attention_bias: bool = False
    clip_qkv: float | None = None
    family: ClassVar[str] = "olmo"
    kinds: ClassVar[Mapping[str, Kind]] = {**RotaryConfig.kinds, "clip_qkv": number(8.0, above=0).or_null()}

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=1e-5, norm="plain", qkv_bias=self.attention_bias,
                             out_bias=self.attention_bias, clip=self.clip_qkv)


@dataclass
class Olmo2Config(RotaryConfig):
    """The settings of an OLMo 2: norms after both parts, and over all queries and keys."""

    vocab_size: int = 50304
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    family: ClassVar[str] = "olmo2"

    def shape(self) -> Shape:
        return self.shape_of(
            activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=self.attention_bias,
            out_bias=self.attention_bias, qk_norm="all",
            norms={"after_attention": "post_attention_layernorm", "after_mlp": "post_feedforward_layernorm"})


@dataclass
class NeoXConfig(RotaryConfig):
    """The settings of a GPT-NeoX: both parts see the same x, a part of each head turns."""

    vocab_size: int = 50432
    hidden_size: int = 6144
    num_hidden_layers: int = 44
    num_attention_heads: int = 64
    intermediate_size: int = 24576
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-5
    use_parallel_residual: bool = True
    attention_bias: bool = True
    rotary_pct: float = 0.25
    family: ClassVar[str] = "gpt_neox"
    partial: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {"rope_parameters": "rope_scaling", "rotary_emb_base": "rope_theta",
                                            "partial_rotary_factor": "rotary_pct"}
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "hidden_dropout": irrelevant("of training")}
    kinds: ClassVar[Mapping[str, Kind]] = {**RotaryConfig.kinds, "rotary_pct": number(0.25, above=0, most=1)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_scaling and self.rope_scaling.get("partial_rotary_factor"):
            self.rotary_pct = self.rope_scaling["partial_rotary_factor"]

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.layer_norm_eps, norm="layer",
                             parallel=self.use_parallel_residual, joined="heads", gated=False, mlp_bias=True,
                             qkv_bias=self.attention_bias, out_bias=self.attention_bias,
                             ropes=(self.rope(self.rotary_pct),) * self.num_hidden_layers)


@dataclass
class OPTConfig(Config):
    """The settings of an OPT: learned positions, norms before the parts, or of the sums (350m)."""

    vocab_size: int = 50272
    hidden_size: int = 768
    num_hidden_layers: int = 12
    ffn_dim: int = 3072
    max_position_embeddings: int = 2048
    do_layer_norm_before: bool = True
    _remove_final_layer_norm: bool = False
    word_embed_proj_dim: int | None = None
    num_attention_heads: int = 12
    activation_function: str = "relu"
    init_std: float = 0.02
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    tie_word_embeddings: bool = True
    eos_token_id: int | list[int] | None = None
    head: str = ""
    labels: int | None = None
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "dropout": irrelevant("of training"), "layerdrop": irrelevant("of training"),
        "activation_dropout": irrelevant("of training")}
    kinds: ClassVar[Mapping[str, Kind]] = {"activation_function": one_of(*ACTIVATIONS), "head": one_of(*HEADS)}
    numbers: ClassVar[Mapping[str, str]] = {
        "width": "hidden_size", "vocabulary": "vocab_size", "heads": "num_attention_heads", "hidden": "ffn_dim",
        "layers": "num_hidden_layers", "context": "max_position_embeddings"}
    shared: ClassVar[tuple[str, ...]] = ("num_attention_heads", "ffn_dim", "hidden_size")

    def shape(self) -> Shape:
        width, count = self.hidden_size, self.num_hidden_layers
        where = ("before_attention", "before_mlp") if self.do_layer_norm_before else ("sum_attention", "sum_mlp")
        return Shape(
            family="opt", vocabulary=self.vocab_size, width=width, layers=count, heads=self.num_attention_heads,
            kv_heads=self.num_attention_heads, hidden=self.ffn_dim, activation=self.activation_function, gated=False,
            depth=divided("opt", width, self.num_attention_heads, ("hidden_size", "num_attention_heads")),
            context=self.max_position_embeddings, eps=1e-5, tied=self.tie_word_embeddings, std=self.init_std,
            norm="layer" if self.layer_norm_elementwise_affine else "plain",
            norms=dict(zip(where, ("self_attn_layer_norm", "final_layer_norm"), strict=True)),
            final_norm=self.do_layer_norm_before and not self._remove_final_layer_norm,
            qkv_bias=self.enable_bias, out_bias=self.enable_bias, mlp_bias=self.enable_bias,
            windows=(None,) * count, ropes=(None,) * count, learned_positions=self.max_position_embeddings,
            position_offset=2, positions_by_mask=True, embed_width=self.word_embed_proj_dim, head=self.head,
            labels=self.labels or 0)


_NEOX = [("gpt_neox.embed_in.weight", "model.embed_tokens.weight"), ("embed_out.{what}", "lm_head.{what}"),
         ("gpt_neox.final_layer_norm.{what}", "model.norm.{what}"),
         *((f"gpt_neox.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours}.{{what}}") for theirs, ours in (
             ("attention.query_key_value", "self_attn.qkv_proj"), ("attention.dense", "self_attn.o_proj"),
             ("mlp.dense_h_to_4h", "mlp.up_proj"), ("mlp.dense_4h_to_h", "mlp.down_proj"))),
         ("gpt_neox.{rest:*}", "model.{rest}")]
_OPT = [("model.decoder.embed_positions.weight", "model.embed_positions.weight"),
        ("model.decoder.final_layer_norm.{what}", "model.norm.{what}"),
        *((f"model.decoder.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours}.{{what}}") for theirs, ours in (
            ("self_attn.out_proj", "self_attn.o_proj"), ("fc1", "mlp.up_proj"), ("fc2", "mlp.down_proj"))),
        ("model.decoder.{rest:*}", "model.{rest}")]


def _neox(file: GgufFile) -> dict[str, Any]:
    sizes = file.config
    return {"layer_norm_eps": needed(file, "attention.layer_norm_epsilon"),
            "use_parallel_residual": needed(file, "use_parallel_residual"),
            "rotary_pct": sizes.rope_dimensions / sizes.head_width,
            "attention_bias": "blk.0.attn_qkv.bias" in file.tensors}


def _olmo(file: GgufFile) -> dict[str, Any]:
    if abs(needed(file, "attention.layer_norm_epsilon") - 1e-5) > 1e-9:
        raise fail(FileFault, "models.load", f"{file.path.name}: olmo.attention.layer_norm_epsilon is "
                                             f"{file.config.norm_eps}, and only 1e-05 is computed")
    return {"clip_qkv": file.fields.get("attention.clamp_kqv") or None}


def _neox_rules(file: GgufFile) -> list[Rule]:
    return [Rule("blk.{i}.attn_qkv.{what}", "model.layers.{i}.self_attn.qkv_proj.{what}",
                 heads_together(file.config.heads)),
            Rule("output_norm.{what}", "model.norm.{what}"), *gguf_rules(PLAIN_NORMS)]


FAMILIES = (
    decoder_family("olmo", "Olmo", OlmoConfig, gguf=Gguf("olmo", _olmo, paired(), OLMO)),
    decoder_family("olmo2", "Olmo2", Olmo2Config, gguf=Gguf("olmo2", eps, halves(QK_NORMS, {
        "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}), ALL_SEEN)),
    decoder_family("gpt_neox", "NeoX", NeoXConfig, pairs=_NEOX, prefix="gpt_neox",
                   head="embed_out.weight", embedding="gpt_neox.embed_in.weight", dropped=[
                       f"gpt_neox.{LAYER}attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")],
                   gguf=Gguf("gptneox", _neox, _neox_rules, NEOX, partial=True)),
    decoder_family("opt", "OPT", OPTConfig, pairs=_OPT, embedding="model.decoder.embed_tokens.weight"),
)
