"""Decoders that differ from a Llama by norms, functions, windows and angles: OLMo 3, EXAONE 4, Ministral, CWM,
Seed-OSS, Arcee, Nemotron, Helium, Ernie 4.5, Hunyuan, StarCoder 2, Jais 2, GLM, GLM-4, Cohere, StableLM, Phi,
Persimmon, NanoChat, HyperCLOVA X."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.families.llama_like import GraniteConfig
from morpho.models.decoder.families.rotary import NO_DROPOUT, PartialConfig, PlainConfig, TwoRopes, windows
from morpho.models.decoder.family import LAYER, Stacked, decoder_family
from morpho.models.decoder.shape import LLAMA_NORMS, Shape
from morpho.models.family import Settings
from morpho.models.rope_keys import check_rope
from morpho.weights.keys import Key, Kind, irrelevant, number, only

TRAINING = irrelevant("of training")
AFTER = {"after_attention": "post_attention_layernorm", "after_mlp": "post_feedforward_layernorm"}
AROUND = {"before_attention": "input_layernorm", "after_attention": "post_self_attn_layernorm",
          "before_mlp": "post_attention_layernorm", "after_mlp": "post_mlp_layernorm"}
ONE_NORM = {"before_attention": "input_layernorm"}
FACTOR = number(1.0, above=0)


def every(count: int, period: int) -> list[str]:
    """Kinds of layers of which each `period`-th sees all, the others a window."""
    return ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(count)]


@dataclass
class Olmo3Config(TwoRopes, PlainConfig):
    """The settings of an OLMo 3: an OLMo 2 of which three layers of four see a window."""

    vocab_size: int = 50304
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    sliding_window: int | None = 4096
    layer_types: list[str] | None = None
    family: ClassVar[str] = "olmo3"

    def shape(self) -> Shape:
        kinds = self.layer_types or every(self.num_hidden_layers, 4)
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="all", norms=AFTER,
                          windows=windows(kinds, self.sliding_window), ropes=self.ropes(kinds))


@dataclass
class Exaone4Config(PlainConfig):
    """The settings of an EXAONE 4: where some layers see a window, the others have no positions."""

    vocab_size: int = 102400
    rms_norm_eps: float = 1e-5
    sliding_window: int | None = 4096
    sliding_window_pattern: int | str | None = 4
    layer_types: list[str] | None = None
    family: ClassVar[str] = "exaone4"
    kinds: ClassVar[Mapping[str, Kind]] = {**PlainConfig.kinds, "sliding_window_pattern": Kind(
        lambda value: value is None or isinstance(value, str) or (type(value) is int and value >= 0),
        "a whole number, or the kinds of layers as letters")}

    def shape(self) -> Shape:
        kinds, period = self.layer_types, self.sliding_window_pattern
        if kinds is None and self.sliding_window and isinstance(period, int) and period:
            kinds = every(self.num_hidden_layers, period)
        kinds = kinds or ["full_attention"] * self.num_hidden_layers
        rope, has_windows = self.rope(), self.sliding_window is not None
        return self.plain(qk_norm="head", norms=AFTER, windows=windows(kinds, self.sliding_window), ropes=tuple(
            rope if not has_windows or kind == "sliding_attention" else None for kind in kinds))


@dataclass
class MinistralConfig(PlainConfig):
    """The settings of a Ministral: a Mistral whose layers see a window or all."""

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    sliding_window: int | None = 4096
    layer_types: list[str] | None = None
    family: ClassVar[str] = "ministral"

    def shape(self) -> Shape:
        usual = "full_attention" if self.sliding_window is None else "sliding_attention"
        return self.plain(windows=windows(self.layer_types or [usual] * self.num_hidden_layers, self.sliding_window))


@dataclass
class Ministral3Config(PlainConfig):
    """The settings of a Ministral 3: queries far into a text grow."""

    vocab_size: int = 131072
    intermediate_size: int = 14336
    num_hidden_layers: int = 34
    num_key_value_heads: int | None = 8
    head_dim: int | None = 128
    max_position_embeddings: int = 262144
    rms_norm_eps: float = 1e-5
    sliding_window: int | None = None
    family: ClassVar[str] = "ministral3"

    @classmethod
    def check_rope(cls, operation: str, file: str, name: str, given: Mapping[str, Any],
                   ignore: Collection[str]) -> None:
        scaling = given["rope_scaling"]
        if not scaling.get("llama_4_scaling_beta") or not scaling.get("original_max_position_embeddings"):
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}{name} lacks llama_4_scaling_beta or "
                                                 "original_max_position_embeddings", "a Ministral 3 has both")
        rest = {key: value for key, value in scaling.items()
                if key not in ("llama_4_scaling_beta", "max_position_embeddings")}
        check_rope(operation, file, name, rest, None, ignore, cls.scalings, cls.partial)

    def shape(self) -> Shape:
        scaling = self.rope_scaling or {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384,
                                        "rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0}
        warmth = (scaling["llama_4_scaling_beta"], 0.0, scaling["original_max_position_embeddings"])
        plain = {key: value for key, value in scaling.items()
                 if key not in ("llama_4_scaling_beta", "max_position_embeddings")}
        rope, count = replace(self, rope_scaling=plain).rope(), self.num_hidden_layers
        return self.plain(windows=(self.sliding_window,) * count, ropes=(rope,) * count, warmth=(warmth,) * count)


@dataclass
class CwmConfig(PlainConfig):
    """The settings of a CWM: a Llama of which one layer of four sees all, the others a window."""

    vocab_size: int = 128256
    rms_norm_eps: float = 1e-5
    mlp_bias: bool = False
    head_dim: int | None = 128
    rope_theta: float = 1e6
    sliding_window: int | None = 8192
    layer_types: list[str] | None = None
    family: ClassVar[str] = "cwm"
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "pretraining_tp": only(1),
                                           "attention_bias": only(False)}

    def shape(self) -> Shape:
        kinds = self.layer_types or ["sliding_attention" if layer % 4 else "full_attention"
                                     for layer in range(self.num_hidden_layers)]
        return self.plain(mlp_bias=self.mlp_bias, windows=windows(kinds, self.sliding_window))


@dataclass
class SeedOssConfig(PlainConfig):
    """The settings of a Seed-OSS: a Llama with biases of queries, keys and values."""

    vocab_size: int = 155136
    head_dim: int | None = 128
    attention_bias: bool = True
    attention_out_bias: bool = False
    mlp_bias: bool = False
    family: ClassVar[str] = "seed_oss"
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "residual_dropout": TRAINING,
                                           "pretraining_tp": only(1)}

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_out_bias, mlp_bias=self.mlp_bias)


@dataclass
class ArceeConfig(PlainConfig):
    """The settings of an Arcee: a Llama without a gate."""

    hidden_act: str = "relu2"
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    mlp_bias: bool = False
    family: ClassVar[str] = "arcee"

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, mlp_bias=self.mlp_bias,
                          gated=False)


@dataclass
class NemotronConfig(PartialConfig):
    """The settings of a Nemotron: LayerNorms whose weights are kept less 1, no gate, half of a head turns."""

    vocab_size: int = 256000
    hidden_act: str = "relu2"
    norm_eps: float = 1e-5
    attention_bias: bool = False
    mlp_bias: bool = False
    family: ClassVar[str] = "nemotron"

    def shape(self) -> Shape:
        return replace(self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, mlp_bias=self.mlp_bias,
                                  gated=False, norm="layer1"), eps=self.norm_eps)


@dataclass
class HeliumConfig(PlainConfig):
    """The settings of a Helium: neighbours turn."""

    vocab_size: int = 48000
    rms_norm_eps: float = 1e-8
    rope_theta: float = 100000.0
    attention_bias: bool = False
    mlp_bias: bool = False
    head_dim: int | None = 128
    family: ClassVar[str] = "helium"
    interleaved: ClassVar[bool] = True

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, mlp_bias=self.mlp_bias)


@dataclass
class Ernie45Config(PlainConfig):
    """The settings of an Ernie 4.5: neighbours turn."""

    vocab_size: int = 103424
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    tie_word_embeddings: bool = True
    use_bias: bool = False
    head_dim: int | None = 128
    family: ClassVar[str] = "ernie4_5"
    interleaved: ClassVar[bool] = True

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.use_bias, out_bias=self.use_bias, mlp_bias=self.use_bias)


@dataclass
class HunyuanConfig(PlainConfig):
    """The settings of a dense Hunyuan: queries and keys are normed after they turn."""

    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    family: ClassVar[str] = "hunyuan_v1_dense"
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "pretraining_tp": only(1),
                                           "eod_token_id": irrelevant("eos_token_id ends a text")}

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="head", qk_late=True)


@dataclass
class Starcoder2Config(PlainConfig):
    """The settings of a StarCoder 2: LayerNorms, biases, no gate."""

    vocab_size: int = 49152
    hidden_act: str = "gelu_pytorch_tanh"
    norm_epsilon: float = 1e-5
    use_bias: bool = True
    sliding_window: int | None = None
    tie_word_embeddings: bool = True
    num_key_value_heads: int | None = 2
    family: ClassVar[str] = "starcoder2"
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "residual_dropout": TRAINING, "embedding_dropout": TRAINING,
        "norm_type": only("layer_norm"), "mlp_type": only("default"), "layer_norm_epsilon": irrelevant("norm_epsilon")}

    def shape(self) -> Shape:
        return replace(self.plain(norm="layer", gated=False, qkv_bias=self.use_bias, out_bias=self.use_bias,
                                  mlp_bias=self.use_bias, windows=(self.sliding_window,) * self.num_hidden_layers),
                       eps=self.norm_epsilon)


@dataclass
class Jais2Config(PlainConfig):
    """The settings of a Jais 2: LayerNorms, biases, no gate."""

    vocab_size: int = 150272
    hidden_act: str = "relu2"
    layer_norm_eps: float = 1e-5
    attention_bias: bool = True
    mlp_bias: bool = True
    head_dim: int | None = 128
    family: ClassVar[str] = "jais2"

    def shape(self) -> Shape:
        return replace(self.plain(norm="layer", gated=False, qkv_bias=self.attention_bias,
                                  out_bias=self.attention_bias, mlp_bias=self.mlp_bias), eps=self.layer_norm_eps)


@dataclass
class GlmConfig(PartialConfig):
    """The settings of a GLM: half of a head turns, by neighbours."""

    vocab_size: int = 151552
    head_dim: int | None = 128
    attention_bias: bool = True
    rms_norm_eps: float = 1.5625e-07
    num_key_value_heads: int | None = 2
    family: ClassVar[str] = "glm"
    interleaved: ClassVar[bool] = True

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, joined_mlp=True)


@dataclass
class Glm4Config(GlmConfig):
    """The settings of a GLM-4 of 2025: norms on both sides of each part."""

    family: ClassVar[str] = "glm4"

    def shape(self) -> Shape:
        return replace(super().shape(), norms=AROUND)


@dataclass
class CohereConfig(PlainConfig):
    """The settings of a Command R: one norm for both parts, which are parallel; neighbours turn."""

    vocab_size: int = 256000
    layer_norm_eps: float = 1e-5
    logit_scale: float = 0.0625
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    rope_theta: float = 500000.0
    use_qk_norm: bool = False
    family: ClassVar[str] = "cohere"
    interleaved: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, Kind]] = {**PlainConfig.kinds, "logit_scale": FACTOR}

    def cohere(self, **others: Any) -> Shape:
        return replace(self.plain(
            norm="layer0", norms=ONE_NORM, parallel=True, qkv_bias=self.attention_bias, out_bias=self.attention_bias,
            logit_divisor=1 / self.logit_scale, **others), eps=self.layer_norm_eps)

    def shape(self) -> Shape:
        return self.cohere(qk_norm="heads" if self.use_qk_norm else "")


@dataclass
class Cohere2Config(CohereConfig):
    """The settings of a Command R 7B: three layers of four see a window, the others have no positions."""

    rope_theta: float = 10000.0
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 4
    layer_types: list[str] | None = None
    family: ClassVar[str] = "cohere2"
    renamed: ClassVar[Mapping[str, str]] = {**CohereConfig.renamed,
                                            "_sliding_window_pattern": "sliding_window_pattern"}
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "use_qk_norm": only(False), "cache_implementation": irrelevant("memory"),
        "order_of_interleaved_layers": irrelevant("layer_types"), "position_embedding_type": irrelevant("layer_types"),
        "rotary_pct": only(1.0), "use_embedding_sharing": irrelevant("tie_word_embeddings"),
        "use_gated_activation": only(True), "use_parallel_block": only(True), "use_parallel_embedding": only(True)}

    def shape(self) -> Shape:
        kinds = self.layer_types or every(self.num_hidden_layers, self.sliding_window_pattern)
        even = replace(self, head_dim=None)  # files say a width of heads, and the library has the even one
        rope = even.rope()
        return even.cohere(windows=windows(kinds, self.sliding_window), ropes=tuple(
            rope if kind == "sliding_attention" else None for kind in kinds))


@dataclass
class StableLmConfig(PartialConfig):
    """The settings of a StableLM: LayerNorms, a quarter of a head turns, parts in sequence or in parallel."""

    vocab_size: int = 50304
    layer_norm_eps: float = 1e-5
    use_qkv_bias: bool = False
    qk_layernorm: bool = False
    use_parallel_residual: bool = False
    family: ClassVar[str] = "stablelm"
    usual_part: ClassVar[float] = 0.25
    renamed: ClassVar[Mapping[str, str]] = {**PartialConfig.renamed, "rope_pct": "partial_rotary_factor"}
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "hidden_dropout": TRAINING}

    def shape(self) -> Shape:
        return replace(self.plain(
            norm="layer", qkv_bias=self.use_qkv_bias, qk_norm="heads" if self.qk_layernorm else "",
            parallel=self.use_parallel_residual, norms=ONE_NORM if self.use_parallel_residual else LLAMA_NORMS),
            eps=self.layer_norm_eps)


@dataclass
class PhiConfig(PartialConfig):
    """The settings of a Phi-1 or Phi-2: one norm for both parts, which are parallel."""

    vocab_size: int = 51200
    hidden_act: str = "gelu_new"
    layer_norm_eps: float = 1e-5
    qk_layernorm: bool = False
    family: ClassVar[str] = "phi"
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "resid_pdrop": TRAINING,
                                           "embd_pdrop": TRAINING}

    def shape(self) -> Shape:
        return replace(self.plain(
            norm="layer", norms=ONE_NORM, parallel=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
            head_bias=True, qk_norm="head" if self.qk_layernorm else ""), eps=self.layer_norm_eps)


@dataclass
class PersimmonConfig(PartialConfig):
    """The settings of a Persimmon: queries, keys and values of a head side by side, queries and keys normed."""

    vocab_size: int = 262144
    hidden_act: str = "relu2"
    layer_norm_eps: float = 1e-5
    qk_layernorm: bool = True
    family: ClassVar[str] = "persimmon"
    others: ClassVar[Mapping[str, Key]] = {"attention_dropout": NO_DROPOUT, "hidden_dropout": TRAINING,
                                           "num_key_value_heads": irrelevant("as many as heads")}

    def shape(self) -> Shape:
        return replace(self.plain(
            norm="layer", joined="heads", gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
            qk_norm="head" if self.qk_layernorm else "", kv_heads=self.num_attention_heads), eps=self.layer_norm_eps)


@dataclass
class NanoChatConfig(PlainConfig):
    """The settings of a NanoChat: norms without weights, also of the embeddings and of turned queries and keys."""

    vocab_size: int = 50304
    hidden_act: str = "relu2"
    attention_bias: bool = False
    final_logit_softcapping: float | None = 15.0
    family: ClassVar[str] = "nanochat"
    kinds: ClassVar[Mapping[str, Kind]] = {**PlainConfig.kinds,
                                           "final_logit_softcapping": number(15.0, above=0).or_null()}

    def shape(self) -> Shape:
        ropes = (replace(self.rope(), backwards=True),) * self.num_hidden_layers
        return self.plain(norm="rms0", embed_norm=True, qk_norm="head", qk_late=True, gated=False, ropes=ropes,
                          qkv_bias=self.attention_bias, out_bias=self.attention_bias,
                          logit_cap=self.final_logit_softcapping)


@dataclass
class HyperClovaConfig(GraniteConfig):
    """The settings of a HyperCLOVA X: a Granite with norms behind its parts, too."""

    use_post_norm: bool = True
    family: ClassVar[str] = "hyperclovax"

    def shape(self) -> Shape:
        norms = {**LLAMA_NORMS, "after_attention": "post_norm1", "after_mlp": "post_norm2"}
        shape = replace(super().shape(), logit_divisor=1 / self.logits_scaling)
        return replace(shape, norms=norms) if self.use_post_norm else shape


def norms_of_heads(settings: Settings) -> Stacked:
    """StableLM's norms of heads, one by one in files."""
    depth = settings["head_dim"] or settings["hidden_size"] // settings["num_attention_heads"]
    heads = settings["num_attention_heads"]
    return [([f"model.{LAYER}self_attn.{part}_layernorm.norms.{head}.weight" for head in range(count)],
             f"model.{LAYER}self_attn.{part}_norm.weight", (depth,))
            for part, count in (("q", heads), ("k", settings["num_key_value_heads"] or heads))]


def names(**parts: str) -> list[tuple[str, str]]:
    """Pairs of names of a layer's modules: `names(mlp__up_proj="mlp.fc1")`."""
    return [(f"model.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours.replace('__', '.')}.{{what}}")
            for ours, theirs in parts.items()]


_FC = {"mlp__up_proj": "mlp.fc1", "mlp__down_proj": "mlp.fc2"}
_LAST = ("model.final_layernorm.{what}", "model.norm.{what}")
_QK = {"self_attn__q_norm": "self_attn.q_layernorm", "self_attn__k_norm": "self_attn.k_layernorm"}
FAMILIES = (
    decoder_family("olmo3", "Olmo3", Olmo3Config), decoder_family("exaone4", "Exaone4", Exaone4Config),
    decoder_family("ministral", "Ministral", MinistralConfig),
    decoder_family("ministral3", "Ministral3", Ministral3Config), decoder_family("cwm", "Cwm", CwmConfig),
    decoder_family("seed_oss", "SeedOss", SeedOssConfig), decoder_family("arcee", "Arcee", ArceeConfig),
    decoder_family("nemotron", "Nemotron", NemotronConfig), decoder_family("helium", "Helium", HeliumConfig),
    decoder_family("ernie4_5", "Ernie45", Ernie45Config),
    decoder_family("hunyuan_v1_dense", "Hunyuan", HunyuanConfig, pairs=names(
        self_attn__q_norm="self_attn.query_layernorm", self_attn__k_norm="self_attn.key_layernorm")),
    decoder_family("starcoder2", "Starcoder2", Starcoder2Config, pairs=names(
        mlp__up_proj="mlp.c_fc", mlp__down_proj="mlp.c_proj")),
    decoder_family("jais2", "Jais2", Jais2Config), decoder_family("glm", "Glm", GlmConfig),
    decoder_family("glm4", "Glm4", Glm4Config), decoder_family("cohere", "Cohere", CohereConfig),
    decoder_family("cohere2", "Cohere2", Cohere2Config),
    decoder_family("stablelm", "StableLm", StableLmConfig, stacked=norms_of_heads),
    decoder_family("phi", "Phi", PhiConfig, pairs=[*names(**_FC, **_QK, self_attn__o_proj="self_attn.dense"), _LAST]),
    decoder_family("persimmon", "Persimmon", PersimmonConfig, pairs=[*names(
        **_QK, self_attn__qkv_proj="self_attn.query_key_value", self_attn__o_proj="self_attn.dense",
        mlp__up_proj="mlp.dense_h_to_4h", mlp__down_proj="mlp.dense_4h_to_h"), _LAST]),
    decoder_family("nanochat", "NanoChat", NanoChatConfig, pairs=names(**_FC)),
    decoder_family("hyperclovax", "HyperClova", HyperClovaConfig),
)
