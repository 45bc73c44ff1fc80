"""The Gemmas, of Gemma 3 the text part: norms around both parts, embeddings scaled, windows, capped scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from morpho.models.decoder.families.rotary import NO_DROPOUT, RotaryConfig, TwoRopes, windows
from morpho.models.decoder.family import decoder_family
from morpho.models.decoder.shape import Shape
from morpho.models.family import Gguf
from morpho.models.files.gguf_forms import NORMS_AROUND, PLAIN_NORMS, QK_NORMS, eps, gguf_rules, needed
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.weights import GgufFile, Rule
from morpho.weights.gguf.keys import GEMMA2, GEMMA3
from morpho.weights.keys import Key, Kind, irrelevant, number, one_of, only
from morpho.weights.transforms import shift

NORMS = {"before_attention": "input_layernorm", "after_attention": "post_attention_layernorm",
         "before_mlp": "pre_feedforward_layernorm", "after_mlp": "post_feedforward_layernorm"}


@dataclass
class GemmaConfig(RotaryConfig):
    """Settings of Gemma 2 and 3."""

    vocab_size: int = 256000
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4
    head_dim: int | None = 256
    hidden_activation: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = 4096
    layer_types: list[str] | None = None
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: float | None = None
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "hidden_act": irrelevant("hidden_activation says it"),
        "cache_implementation": irrelevant("the same numbers in other memory"),
        "use_bidirectional_attention": only(False, None), "sliding_window_size": irrelevant("sliding_window says it")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "hidden_activation": one_of(*ACTIVATIONS),
        "query_pre_attn_scalar": number(256, above=0), "rope_local_base_freq": number(10000.0, above=0),
        "final_logit_softcapping": number(30.0, above=0).or_null(),
        "attn_logit_softcapping": number(50.0, above=0).or_null()}

    def gemma_shape(self, kinds: list[str], **others: Any) -> Shape:
        return self.shape_of(
            activation=self.hidden_activation, eps=self.rms_norm_eps, norm="rms1", norms=NORMS,
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, scale=self.query_pre_attn_scalar ** -0.5,
            score_cap=self.attn_logit_softcapping, logit_cap=self.final_logit_softcapping,
            embed_scale=self.hidden_size ** 0.5, windows=windows(kinds, self.sliding_window), **others)


@dataclass
class Gemma2Config(GemmaConfig):
    """The settings of a Gemma 2: every other layer sees a window, scores and logits are capped."""

    final_logit_softcapping: float | None = 30.0
    attn_logit_softcapping: float | None = 50.0
    family: ClassVar[str] = "gemma2"

    def shape(self) -> Shape:
        kinds = self.layer_types or ["full_attention" if number % 2 else "sliding_attention"
                                     for number in range(self.num_hidden_layers)]
        return self.gemma_shape(kinds)


@dataclass
class Gemma3Config(TwoRopes, GemmaConfig):
    """The settings of a Gemma 3's text part: layers with a window have angles of their own, queries and keys are
    normed."""

    vocab_size: int = 262208
    max_position_embeddings: int = 131072
    rope_theta: float = 1e6
    rope_local_base_freq: float = 10000.0
    sliding_window_pattern: int = 6
    family: ClassVar[str] = "gemma3_text"
    renamed: ClassVar[Mapping[str, str]] = {"rope_parameters": "rope_scaling",
                                            "_sliding_window_pattern": "sliding_window_pattern"}
    kinds: ClassVar[Mapping[str, Kind]] = {  # of Gemma 2: Gemma 3 norms queries and keys instead
        **GemmaConfig.kinds, "attn_logit_softcapping": Kind(lambda value: value is None, "null")}

    @property
    def local_theta(self) -> float:
        return self.rope_local_base_freq

    def shape(self) -> Shape:
        kinds = self.layer_types or ["full_attention" if (number + 1) % self.sliding_window_pattern == 0
                                     else "sliding_attention" for number in range(self.num_hidden_layers)]
        return self.gemma_shape(kinds, qk_norm="head", ropes=self.ropes(kinds))


@dataclass
class Gemma1Config(RotaryConfig):
    """The settings of the first Gemma: a Llama with shifted norms and scaled embeddings."""

    vocab_size: int = 256000
    hidden_size: int = 3072
    intermediate_size: int = 24576
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 16
    head_dim: int | None = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    family: ClassVar[str] = "gemma"
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "use_bidirectional_attention": only(False, None),
        "hidden_activation": only("gelu_pytorch_tanh", None)}

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, norm="rms1",
                             qkv_bias=self.attention_bias, out_bias=self.attention_bias,
                             embed_scale=self.hidden_size ** 0.5)


@dataclass
class VaultGemmaConfig(Gemma2Config):
    """The settings of a VaultGemma: a Gemma 2 without norms after its parts."""

    family: ClassVar[str] = "vaultgemma"

    def shape(self) -> Shape:
        return replace(super().shape(), norms={name: NORMS[name] for name in ("before_attention", "before_mlp")})


def _gemma(file: GgufFile) -> dict[str, Any]:
    """Scores are scaled by the width of a head, in the models of 27 billion by that of the layers over the heads."""
    sizes, large = file.config, {"gemma2": 46, "gemma3": 62}[file.config.architecture]
    width = sizes.width / sizes.heads if sizes.layers == large else sizes.head_width
    return {**eps(file), "query_pre_attn_scalar": width, "sliding_window": sizes.window,
            "final_logit_softcapping": file.fields.get("final_logit_softcapping") or None}


def _gemma2(file: GgufFile) -> dict[str, Any]:
    """The first files do not say caps and windows; llama.cpp has them nevertheless. 0 is none."""
    said = {name: file.fields.get(key, constant) or None for name, key, constant in (
        ("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", "final_logit_softcapping", 30.0),
        ("sliding_window", "attention.sliding_window", 4096))}
    full = {} if said["sliding_window"] else {"layer_types": ["full_attention"] * file.config.layers}
    return {**_gemma(file), **said, **full}


def _gemma3(file: GgufFile) -> dict[str, Any]:
    period = file.fields.get("attention.sliding_window_pattern", 6) if file.config.window else 1
    return {**_gemma(file), "sliding_window_pattern": period,
            "rope_theta": needed(file, "rope.freq_base"),
            "rope_local_base_freq": file.fields.get("rope.freq_base_swa", 10000.0)}


def _gemma_rules(names: dict[str, str]) -> Callable[[GgufFile], list[Rule]]:
    """Norms are kept less 1 here, and whole in such files."""
    def rules(file: GgufFile) -> list[Rule]:
        shifted = [Rule(f"blk.{{i}}.{theirs}.weight", f"model.layers.{{i}}.{ours}.weight", shift(-1.0))
                   for theirs, ours in names.items()]
        return [Rule("output_norm.weight", "model.norm.weight", shift(-1.0)), *shifted, *gguf_rules({})]
    return rules


FAMILIES = (
    decoder_family("gemma", "Gemma", Gemma1Config, gguf=Gguf("gemma", eps, _gemma_rules(PLAIN_NORMS))),
    decoder_family("vaultgemma", "VaultGemma", VaultGemmaConfig),
    decoder_family("gemma2", "Gemma2", Gemma2Config, gguf=Gguf("gemma2", _gemma2, _gemma_rules(NORMS_AROUND), GEMMA2)),
    decoder_family("gemma3_text", "Gemma3", Gemma3Config,
                   gguf=Gguf("gemma3", _gemma3, _gemma_rules({**NORMS_AROUND, **QK_NORMS}), GEMMA3)),
)
