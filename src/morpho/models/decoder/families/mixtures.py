"""Decoders with experts: Qwen2 and Qwen3 MoE, OLMoE, FlexOlmo, Granite MoE, PhiMoE, GLM-4 MoE, Solar Open, EXAONE MoE,
Ernie 4.5 MoE, Hunyuan MoE, MiniMax M2, dots.llm1, gpt-oss, Llama 4; and DeepSeek's latent attention with and without
them: DeepSeek V2 and V3, GLM-4 MoE Lite, Youtu, MiniCPM 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.families.kin import AFTER, TRAINING, every, names
from morpho.models.decoder.families.rotary import NO_DROPOUT, PartialConfig, PlainConfig, RotaryConfig, windows
from morpho.models.decoder.family import LAYER, Stacked, decoder_family
from morpho.models.decoder.shape import Latent, Mixture, Shape
from morpho.models.family import Family, Settings
from morpho.weights import Rule, concat, reshape, split
from morpho.weights.keys import Key, Kind, irrelevant, is_whole, number, only, positive, whole
from morpho.weights.transforms import interleaved, of_mxfp4, permute, spread

ROUTING: Mapping[str, Key] = {
    "attention_dropout": NO_DROPOUT, "router_aux_loss_coef": TRAINING, "output_router_logits": TRAINING,
    "router_jitter_noise": TRAINING, "input_jitter_noise": TRAINING, "router_z_loss_coef": TRAINING,
    "aux_loss_alpha": TRAINING, "seq_aux": TRAINING, "pretraining_tp": only(1)}
LAYERS = Kind(lambda value: isinstance(value, list) and all(is_whole(each, 0) for each in value),
              "a list of numbers of layers").or_null()
SPARSE = Kind(lambda value: isinstance(value, list) and {*value} <= {"dense", "sparse"},
              "a list of 'dense' and 'sparse'").or_null()


@dataclass
class MixtureConfig(PlainConfig):
    """Settings of decoders with experts."""

    num_experts_per_tok: int = 2
    others: ClassVar[Mapping[str, Key]] = ROUTING
    count: ClassVar[str] = "num_experts"  # the setting that holds the number of experts, and its other names
    shared: ClassVar[tuple[str, ...]] = (*RotaryConfig.shared, "moe_intermediate_size")
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "mlp_only_layers": LAYERS, "moe_layers": LAYERS, "first_k_dense_replace": whole(1),
        "n_shared_experts": whole(1), "num_shared_experts": whole(1), "routed_scaling_factor": number(1.0, above=0),
        "mlp_layer_types": SPARSE, "q_lora_rank": positive(12).or_null(), "shared_intermediate_size": whole(10),
        "embedding_multiplier": number(1.0, above=0), "residual_multiplier": number(1.0, above=0),
        "attention_multiplier": number(1.0, above=0), "logits_scaling": number(1.0, above=0)}

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        super().check_parts(operation, file, given, config, ignore)
        used, count = (given.get(name) or cls.default(name) for name in (
            "num_experts_per_tok", cls.count))
        if used > count:
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}num_experts_per_tok is {used}, and "
                                                 f"there are {count} experts")

    def mixture(self, hidden: int, **others: Any) -> Mixture:
        return Mixture(getattr(self, self.count), self.num_experts_per_tok, hidden, **others)

    def dense(self, kinds: list[str] | None, first: int = 0) -> tuple[int, ...]:
        """Layers without experts: the first ones, or those that a list names."""
        if kinds is not None and len(kinds) != self.num_hidden_layers:
            raise fail(ArgumentError, self.family, f"mlp_layer_types has {len(kinds)} entries, and num_hidden_layers "
                                                   f"is {self.num_hidden_layers}")
        return tuple(layer for layer, kind in enumerate(kinds) if kind == "dense") if kinds else tuple(range(first))


@dataclass
class QwenMoeConfig(MixtureConfig):
    """Settings of Qwen2 and Qwen3 MoE."""

    vocab_size: int = 151936
    max_position_embeddings: int = 32768
    moe_intermediate_size: int = 1408
    decoder_sparse_step: int = 1
    norm_topk_prob: bool = False
    mlp_only_layers: list[int] | None = None
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    kinds: ClassVar[Mapping[str, Kind]] = {**MixtureConfig.kinds, "sliding_window": whole(4096).or_null()}

    def without_experts(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.num_hidden_layers)
                     if layer in (self.mlp_only_layers or ()) or (layer + 1) % self.decoder_sparse_step)


@dataclass
class Qwen2MoeConfig(QwenMoeConfig):
    """The settings of a Qwen2 MoE: an expert of all tokens, with a gate of its own."""

    num_experts: int = 60
    num_experts_per_tok: int = 4
    shared_expert_intermediate_size: int = 5632
    qkv_bias: bool = True
    max_window_layers: int = 28
    layer_types: list[str] | None = None
    family: ClassVar[str] = "qwen2_moe"
    shared: ClassVar[tuple[str, ...]] = (*MixtureConfig.shared, "shared_expert_intermediate_size")

    def shape(self) -> Shape:
        kinds = self.layer_types or ["sliding_attention" if layer % 2 == 0 and layer < self.max_window_layers
                                     else "full_attention" for layer in range(self.num_hidden_layers)]
        return self.plain(
            qkv_bias=self.qkv_bias, dense=self.without_experts(),
            windows=windows(kinds, self.sliding_window if self.use_sliding_window else None), mixture=self.mixture(
                self.moe_intermediate_size, normed=self.norm_topk_prob, shared=self.shared_expert_intermediate_size,
                shared_gate=True))


@dataclass
class Qwen3MoeConfig(QwenMoeConfig):
    """The settings of a Qwen3 MoE: each head's queries and keys are normed."""

    num_experts: int = 128
    num_experts_per_tok: int = 8
    attention_bias: bool = False
    family: ClassVar[str] = "qwen3_moe"
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "num_local_experts": "num_experts"}
    others: ClassVar[Mapping[str, Key]] = {**ROUTING, "max_window_layers": irrelevant("every layer has the window")}

    def shape(self) -> Shape:
        window = self.sliding_window if self.use_sliding_window else None
        return self.plain(
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="head", dense=self.without_experts(),
            windows=(window,) * self.num_hidden_layers,
            mixture=self.mixture(self.moe_intermediate_size, normed=self.norm_topk_prob))


@dataclass
class OlmoeConfig(MixtureConfig):
    """The settings of an OLMoE: norms over all queries and keys."""

    vocab_size: int = 50304
    rms_norm_eps: float = 1e-5
    num_experts: int = 64
    num_experts_per_tok: int = 8
    norm_topk_prob: bool = False
    attention_bias: bool = False
    clip_qkv: float | None = None
    family: ClassVar[str] = "olmoe"
    kinds: ClassVar[Mapping[str, Kind]] = {**MixtureConfig.kinds, "clip_qkv": number(8.0, above=0).or_null()}

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="all",
                          clip=self.clip_qkv, mixture=self.mixture(self.intermediate_size, normed=self.norm_topk_prob))


@dataclass
class FlexOlmoConfig(MixtureConfig):
    """The settings of a FlexOlmo: an OLMo 2 with experts."""

    vocab_size: int = 100352
    rope_theta: float = 500000.0
    num_experts: int = 7
    num_experts_per_tok: int = 5
    norm_topk_prob: bool = False
    attention_bias: bool = False
    family: ClassVar[str] = "flex_olmo"

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="all", norms=AFTER,
                          mixture=self.mixture(self.intermediate_size, normed=self.norm_topk_prob))


@dataclass
class GraniteMoeConfig(MixtureConfig):
    """The settings of a Granite MoE: a Granite with experts, and perhaps one of all tokens."""

    num_local_experts: int = 8
    attention_bias: bool = False
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    logits_scaling: float = 1.0
    family: ClassVar[str] = "granitemoe"
    count: ClassVar[str] = "num_local_experts"

    def shape(self) -> Shape:
        return self.plain(
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, scale=self.attention_multiplier,
            embed_scale=self.embedding_multiplier, residual_scale=self.residual_multiplier,
            logit_divisor=self.logits_scaling, mixture=self.mixture(
                self.intermediate_size, router="after", shared=getattr(self, "shared_intermediate_size", 0)))


@dataclass
class GraniteMoeSharedConfig(GraniteMoeConfig):
    """The settings of a Granite MoE with an expert of all tokens."""

    shared_intermediate_size: int = 0
    family: ClassVar[str] = "granitemoeshared"
    shared: ClassVar[tuple[str, ...]] = (*MixtureConfig.shared, "shared_intermediate_size")


@dataclass
class PhimoeConfig(MixtureConfig):
    """The settings of a PhiMoE: LayerNorms, two experts by the sparse mixer."""

    vocab_size: int = 32064
    num_key_value_heads: int | None = 8
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    num_local_experts: int = 16
    attention_bias: bool = False
    lm_head_bias: bool = False
    sliding_window: int | None = None
    router_jitter_noise: float = 0.01
    family: ClassVar[str] = "phimoe"
    count: ClassVar[str] = "num_local_experts"
    scalings: ClassVar[tuple[str, ...]] = ("default", "linear", "llama3", "factors", "yarn", "dynamic")
    kinds: ClassVar[Mapping[str, Kind]] = {**MixtureConfig.kinds, "num_experts_per_tok": Kind(
        lambda value: value == 2, "2")}

    def shape(self) -> Shape:
        return self.plain(
            norm="layer", qkv_bias=self.attention_bias, out_bias=self.attention_bias, head_bias=self.lm_head_bias,
            windows=(self.sliding_window,) * self.num_hidden_layers,
            mixture=self.mixture(self.intermediate_size, router="mixer", jitter=self.router_jitter_noise))


@dataclass
class SigmoidConfig(PartialConfig, MixtureConfig):
    """Settings of mixtures as DeepSeek V3 has them: sigmoids, a correction, groups, an expert of all tokens."""

    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 1408
    n_routed_experts: int = 128
    n_shared_experts: int = 1
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0
    count: ClassVar[str] = "n_routed_experts"
    usual_part: ClassVar[float] = 1.0
    kinds: ClassVar[Mapping[str, Kind]] = {**MixtureConfig.kinds, **PartialConfig.kinds}
    others: ClassVar[Mapping[str, Key]] = {
        **ROUTING, "num_nextn_predict_layers": irrelevant("a further head that guesses ahead"),
        "scoring_func": only("sigmoid"), "topk_method": only("noaux_tc"), "ep_size": irrelevant("of other programs"),
        "moe_layer_freq": only(1)}
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "num_local_experts": "n_routed_experts",
                                            "num_experts": "n_routed_experts"}

    def sigmoids(self, shared: int | None = None) -> Mixture:
        shared = self.n_shared_experts if shared is None else shared
        count = getattr(self, self.count)
        if count % self.n_group or self.topk_group > self.n_group or (self.n_group > 1 and count < 2 * self.n_group):
            raise fail(ArgumentError, self.family, f"{count} experts, n_group={self.n_group} and topk_group="
                                                   f"{self.topk_group} do not make groups of two or more")
        return self.mixture(self.moe_intermediate_size, router="sigmoid", normed=self.norm_topk_prob, least=1e-20,
                            scale=self.routed_scaling_factor, correction=True, groups=self.n_group,
                            groups_used=self.topk_group, shared=self.moe_intermediate_size * shared)


@dataclass
class Glm4MoeConfig(SigmoidConfig):
    """The settings of a GLM-4.5: half of a head turns, the first layers have no experts."""

    vocab_size: int = 151552
    num_key_value_heads: int | None = 8
    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    use_qk_norm: bool = False
    first_k_dense_replace: int = 1
    family: ClassVar[str] = "glm4_moe"
    usual_part: ClassVar[float] = 0.5

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, qk_norm="head" if self.use_qk_norm else "",
                          dense=self.dense(None, self.first_k_dense_replace), mixture=self.sigmoids())


@dataclass
class Dots1Config(SigmoidConfig):
    """The settings of a dots.llm1: normed queries and keys, the first layers have no experts."""

    vocab_size: int = 152064
    attention_bias: bool = False
    first_k_dense_replace: int = 0
    sliding_window: int | None = None
    layer_types: list[str] | None = None
    family: ClassVar[str] = "dots1"
    others: ClassVar[Mapping[str, Key]] = {**SigmoidConfig.others,
                                           "max_window_layers": irrelevant("layer_types says it")}

    def shape(self) -> Shape:
        kinds = self.layer_types or ["full_attention"] * self.num_hidden_layers
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="head",
                          windows=windows(kinds, self.sliding_window), mixture=self.sigmoids(),
                          dense=self.dense(None, self.first_k_dense_replace))


@dataclass
class SolarOpenConfig(SigmoidConfig):
    """The settings of a Solar Open: experts in every layer."""

    vocab_size: int = 196608
    head_dim: int | None = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    attention_bias: bool = False
    family: ClassVar[str] = "solar_open"

    def shape(self) -> Shape:
        return self.plain(qkv_bias=self.attention_bias, mixture=self.sigmoids())


@dataclass
class ExaoneMoeConfig(SigmoidConfig):
    """The settings of an EXAONE MoE: layers that see all have no positions where others see a window."""

    vocab_size: int = 102400
    rms_norm_eps: float = 1e-5
    first_k_dense_replace: int = 1
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 4
    layer_types: list[str] | None = None
    mlp_layer_types: list[str] | None = None
    family: ClassVar[str] = "exaone_moe"
    kinds: ClassVar[Mapping[str, Kind]] = {**SigmoidConfig.kinds, "sliding_window_pattern": whole(4)}
    renamed: ClassVar[Mapping[str, str]] = {**SigmoidConfig.renamed, "num_shared_experts": "n_shared_experts"}
    spelled: ClassVar[Mapping[str, str]] = {"num_shared_experts": "n_shared_experts", "num_experts": "n_routed_experts"}

    def shape(self) -> Shape:
        count, sees = self.num_hidden_layers, self.sliding_window is not None
        kinds = self.layer_types or (every(count, self.sliding_window_pattern) if sees else ["full_attention"] * count)
        rope = self.rope()
        return self.plain(
            qk_norm="head", windows=windows(kinds, self.sliding_window), mixture=self.sigmoids(),
            dense=self.dense(self.mlp_layer_types, self.first_k_dense_replace), ropes=tuple(
                rope if not sees or kind == "sliding_attention" else None for kind in kinds))


@dataclass
class MiniMaxM2Config(SigmoidConfig):
    """The settings of a MiniMax M2: norms over all queries and keys, experts in every layer."""

    vocab_size: int = 200064
    head_dim: int | None = 128
    rope_theta: float = 5e6
    num_local_experts: int = 256
    rotary_dim: int | None = None
    family: ClassVar[str] = "minimax_m2"
    count: ClassVar[str] = "num_local_experts"
    renamed: ClassVar[Mapping[str, str]] = RotaryConfig.renamed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary_dim is not None and self.partial_rotary_factor is None:
            self.partial_rotary_factor = self.rotary_dim / self.depth

    def shape(self) -> Shape:
        return self.plain(qk_norm="all", mixture=self.mixture(self.intermediate_size, router="sigmoid",
                                                              correction=True))


@dataclass
class Ernie45MoeConfig(MixtureConfig):
    """The settings of an Ernie 4.5 with experts: neighbours turn, shares of the chosen ones are corrected."""

    vocab_size: int = 103424
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    tie_word_embeddings: bool = True
    use_bias: bool = False
    moe_intermediate_size: int = 1536
    moe_k: int = 6
    moe_num_experts: int = 64
    moe_num_shared_experts: int = 2
    moe_layer_start_index: int = 1
    moe_layer_end_index: int = -1
    moe_layer_interval: int = 1
    moe_norm_min: float = 1e-12
    num_experts_per_tok: int = 0
    family: ClassVar[str] = "ernie4_5_moe"
    count: ClassVar[str] = "moe_num_experts"
    interleaved: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "num_experts": "moe_num_experts"}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **MixtureConfig.kinds, "moe_layer_end_index": Kind(lambda value: is_whole(value, -1), "a layer, or -1"),
        "moe_layer_start_index": whole(1), "moe_num_shared_experts": whole(2), "num_experts_per_tok": whole(2)}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.moe_k = self.num_experts_per_tok = self.num_experts_per_tok or self.moe_k

    def shape(self) -> Shape:
        count, last = self.num_hidden_layers, self.moe_layer_end_index
        last = count - 1 if last == -1 else last
        dense = tuple(layer for layer in range(count) if (layer + 1) % self.moe_layer_interval
                      or not self.moe_layer_start_index <= layer <= last)
        bias = self.use_bias
        mixture = replace(self.mixture(
            self.moe_intermediate_size, least=self.moe_norm_min, correction=True,
            shared=self.moe_intermediate_size * self.moe_num_shared_experts), used=self.moe_k)
        if bias and self.tie_word_embeddings:
            raise fail(ArgumentError, self.family, "use_bias and tie_word_embeddings are both true, and a tied head "
                                                   "has no bias here", "untie the head")
        return self.plain(qkv_bias=bias, out_bias=bias, mlp_bias=bias, head_bias=bias, dense=dense, mixture=mixture)


@dataclass
class HunyuanMoeConfig(MixtureConfig):
    """The settings of a Hunyuan MoE: queries and keys are normed after they turn, an expert of all tokens."""

    rms_norm_eps: float = 1e-5
    attention_bias: bool = False
    num_experts: int = 1
    moe_topk: int = 1
    num_experts_per_tok: int = 0
    family: ClassVar[str] = "hunyuan_v1_moe"
    others: ClassVar[Mapping[str, Key]] = {**ROUTING, "eod_token_id": irrelevant("eos_token_id ends a text")}
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "num_local_experts": "num_experts"}
    kinds: ClassVar[Mapping[str, Kind]] = {**MixtureConfig.kinds, "num_experts_per_tok": whole(2)}

    def shape(self) -> Shape:
        mixture = replace(self.mixture(self.intermediate_size, shared=self.intermediate_size), used=self.moe_topk)
        return self.plain(qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="head", qk_late=True,
                          mixture=mixture)


@dataclass
class GptOssConfig(MixtureConfig):
    """The settings of a gpt-oss: sinks, every other layer sees a window, clipped gates."""

    vocab_size: int = 201088
    head_dim: int | None = 64
    num_key_value_heads: int | None = 8
    rms_norm_eps: float = 1e-5
    rope_theta: float = 150000.0
    attention_bias: bool = True
    num_local_experts: int = 128
    num_experts_per_tok: int = 4
    sliding_window: int | None = 128
    layer_types: list[str] | None = None
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    family: ClassVar[str] = "gpt_oss"
    count: ClassVar[str] = "num_local_experts"
    others: ClassVar[Mapping[str, Key]] = {
        **ROUTING, "experts_per_token": irrelevant("num_experts_per_tok says it"),
        "initial_context_length": irrelevant("rope_scaling says it")}

    def shape(self) -> Shape:
        kinds = self.layer_types or ["full_attention" if layer % 2 else "sliding_attention"
                                     for layer in range(self.num_hidden_layers)]
        return self.plain(
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, sinks=True,
            windows=windows(kinds, self.sliding_window), mixture=self.mixture(
                self.intermediate_size, router="after", router_bias=True, limit=self.swiglu_limit,
                alpha=self.swiglu_alpha))


@dataclass
class Llama4Config(MixtureConfig):
    """The settings of a Llama 4's text part: layers with positions see pieces of a text, the others all of it."""

    vocab_size: int = 202048
    hidden_size: int = 5120
    head_dim: int | None = 128
    intermediate_size: int = 8192
    intermediate_size_mlp: int = 16384
    num_key_value_heads: int | None = 8
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    num_local_experts: int = 16
    num_experts_per_tok: int = 1
    attention_bias: bool = False
    use_qk_norm: bool = True
    attention_chunk_size: int | None = 8192
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: int = 4
    interleave_moe_layer_step: int = 1
    moe_layers: list[int] | None = None
    attn_temperature_tuning: bool = True
    floor_scale: int = 8192
    attn_scale: float = 0.1
    layer_types: list[str] | None = None
    family: ClassVar[str] = "llama4_text"
    count: ClassVar[str] = "num_local_experts"
    interleaved: ClassVar[bool] = True
    shared: ClassVar[tuple[str, ...]] = (*RotaryConfig.shared, "intermediate_size_mlp")
    kinds: ClassVar[Mapping[str, Kind]] = {
        **MixtureConfig.kinds, "no_rope_layers": LAYERS, "attn_temperature_tuning": Kind(
            lambda value: value in (True, False, 4), "true or false"), "layer_types": Kind(
            lambda value: isinstance(value, list) and {*value} <= {"chunked_attention", "full_attention"},
            "a list of 'chunked_attention' and 'full_attention'").or_null()}

    def shape(self) -> Shape:
        count, rope, piece = self.num_hidden_layers, self.rope(), self.attention_chunk_size
        turned = self.no_rope_layers or [(layer + 1) % self.no_rope_layer_interval for layer in range(count)]
        kinds = self.layer_types or ["chunked_attention" if each else "full_attention" for each in turned]
        step = self.interleave_moe_layer_step
        mixed = range(step - 1, count, step) if self.moe_layers is None else self.moe_layers
        if len(turned) != count or len(kinds) != count:
            raise fail(ArgumentError, self.family, f"no_rope_layers has {len(turned)} entries and layer_types "
                                                   f"{len(kinds)}, and num_hidden_layers is {count}")
        warm = (self.attn_scale, 1.0, float(self.floor_scale)) if self.attn_temperature_tuning else None
        return self.plain(
            hidden=self.intermediate_size_mlp, ropes=tuple(rope if each else None for each in turned),
            qkv_bias=self.attention_bias, out_bias=self.attention_bias, qk_norm="head" if self.use_qk_norm else "",
            qk_late=True, qk_kind="rms0", qk_turned=True, dense=tuple({*range(count)} - {*mixed}),
            chunks=tuple(piece if kind == "chunked_attention" else None for kind in kinds),
            warmth=tuple(None if each else warm for each in turned), mixture=self.mixture(
                self.intermediate_size, router="input", shared=self.intermediate_size))


# -- latent attention --------------------------------------------------------------------------------------------------
@dataclass
class LatentConfig(PlainConfig):
    """Settings of latent attention."""

    attention_bias: bool = False
    kv_lora_rank: int = 512
    q_lora_rank: int | None = 1536
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    rope_interleave: bool = True
    latent_others: ClassVar[Mapping[str, Key]] = {
        "qk_head_dim": irrelevant("the sum of its parts"), "attention_dropout": NO_DROPOUT, "pretraining_tp": only(1)}
    latent_kinds: ClassVar[Mapping[str, Kind]] = {"q_lora_rank": positive(1536).or_null()}
    shared: ClassVar[tuple[str, ...]] = ("num_attention_heads", "intermediate_size", "hidden_size")

    @property
    def depth(self) -> int:
        return self.qk_rope_head_dim

    def latent(self, **others: Any) -> Shape:
        width = self.qk_nope_head_dim + self.qk_rope_head_dim
        scaling, scale = self.rope_scaling or {}, width ** -0.5
        kind, every_dim = scaling.get("rope_type", scaling.get("type", "default")), scaling.get("mscale_all_dim")
        if kind != "default" and every_dim and scaling["factor"] > 1:
            scale *= (0.1 * every_dim * math.log(scaling["factor"]) + 1.0) ** 2
        rope = replace(self.rope(), interleaved=self.rope_interleave)
        return self.plain(
            latent=Latent(self.kv_lora_rank, self.q_lora_rank, self.qk_nope_head_dim, self.v_head_dim), depth=width,
            kv_heads=self.num_attention_heads, scale=scale, qkv_bias=self.attention_bias,
            out_bias=self.attention_bias, ropes=(rope,) * self.num_hidden_layers, **others)


@dataclass
class DeepseekV3Config(LatentConfig, SigmoidConfig):
    """The settings of a DeepSeek V3 or R1."""

    vocab_size: int = 129280
    hidden_size: int = 7168
    intermediate_size: int = 18432
    moe_intermediate_size: int = 2048
    num_hidden_layers: int = 61
    num_attention_heads: int = 128
    n_routed_experts: int = 256
    n_group: int = 8
    topk_group: int = 4
    routed_scaling_factor: float = 2.5
    first_k_dense_replace: int = 3
    family: ClassVar[str] = "deepseek_v3"
    kinds: ClassVar[Mapping[str, Kind]] = {**SigmoidConfig.kinds, **LatentConfig.latent_kinds}
    others: ClassVar[Mapping[str, Key]] = {**SigmoidConfig.others, **LatentConfig.latent_others}
    shared: ClassVar[tuple[str, ...]] = (*LatentConfig.shared, "moe_intermediate_size")

    def shape(self) -> Shape:
        return self.latent(dense=self.dense(None, self.first_k_dense_replace), mixture=self.sigmoids())


@dataclass
class Glm4MoeLiteConfig(LatentConfig, SigmoidConfig):
    """The settings of a GLM-4.7 Flash: a smaller DeepSeek V3."""

    vocab_size: int = 154880
    moe_intermediate_size: int = 1536
    n_routed_experts: int = 64
    num_experts_per_tok: int = 4
    routed_scaling_factor: float = 1.8
    rms_norm_eps: float = 1e-5
    first_k_dense_replace: int = 1
    mlp_layer_types: list[str] | None = None
    family: ClassVar[str] = "glm4_moe_lite"
    kinds: ClassVar[Mapping[str, Kind]] = {**SigmoidConfig.kinds, **LatentConfig.latent_kinds}
    others: ClassVar[Mapping[str, Key]] = {**SigmoidConfig.others, **LatentConfig.latent_others}
    shared: ClassVar[tuple[str, ...]] = (*LatentConfig.shared, "moe_intermediate_size")

    def shape(self) -> Shape:
        return self.latent(dense=self.dense(self.mlp_layer_types, self.first_k_dense_replace), mixture=self.sigmoids())


@dataclass
class DeepseekV2Config(LatentConfig, MixtureConfig):
    """The settings of a DeepSeek V2: shares by softmax, of which groups may take part by their best expert."""

    vocab_size: int = 102400
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 1407
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    n_group: int | None = None
    topk_group: int | None = None
    topk_method: str = "greedy"
    routed_scaling_factor: float = 1.0
    first_k_dense_replace: int = 0
    mlp_bias: bool = False
    family: ClassVar[str] = "deepseek_v2"
    count: ClassVar[str] = "n_routed_experts"
    kinds: ClassVar[Mapping[str, Kind]] = {
        **MixtureConfig.kinds, **LatentConfig.latent_kinds, "topk_method": Kind(
            lambda value: value in ("greedy", "group_limited_greedy"), "greedy or group_limited_greedy")}
    others: ClassVar[Mapping[str, Key]] = {
        **ROUTING, **LatentConfig.latent_others, "norm_topk_prob": only(False), "scoring_func": only("softmax"),
        "ep_size": irrelevant("of other programs"), "moe_layer_freq": only(1)}
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "num_local_experts": "n_routed_experts",
                                            "num_experts": "n_routed_experts"}
    shared: ClassVar[tuple[str, ...]] = (*LatentConfig.shared, "moe_intermediate_size")

    def shape(self) -> Shape:
        grouped = self.topk_method == "group_limited_greedy"
        return self.latent(mlp_bias=self.mlp_bias, dense=self.dense(None, self.first_k_dense_replace),
                           mixture=self.mixture(
            self.moe_intermediate_size, normed=False, scale=self.routed_scaling_factor, group_score="max",
            groups=(self.n_group or 1) if grouped else 1, groups_used=(self.topk_group or 1) if grouped else 1,
            shared=self.moe_intermediate_size * self.n_shared_experts))


@dataclass
class YoutuConfig(LatentConfig):
    """The settings of a Youtu: latent attention, no experts."""

    vocab_size: int = 128256
    tie_word_embeddings: bool = True
    family: ClassVar[str] = "youtu"
    kinds: ClassVar[Mapping[str, Kind]] = {**PlainConfig.kinds, **LatentConfig.latent_kinds}
    others: ClassVar[Mapping[str, Key]] = {**LatentConfig.latent_others, "mlp_bias": only(False),
                                           "embedding_initializer_range": TRAINING}

    def shape(self) -> Shape:
        return self.latent()


@dataclass
class MiniCpm3Config(LatentConfig):
    """The settings of a MiniCPM 3: latent attention, scaled embeddings, parts and logits."""

    vocab_size: int = 73448
    hidden_size: int = 2560
    tie_word_embeddings: bool = True
    rms_norm_eps: float = 1e-5
    mlp_bias: bool = False
    q_lora_rank: int | None = 768
    scale_emb: float = 12
    scale_depth: float = 1.4
    dim_model_base: int = 256
    rope_interleave: bool = False
    family: ClassVar[str] = "minicpm3"
    kinds: ClassVar[Mapping[str, Kind]] = {**PlainConfig.kinds, **LatentConfig.latent_kinds}
    others: ClassVar[Mapping[str, Key]] = LatentConfig.latent_others

    def shape(self) -> Shape:
        return self.latent(embed_scale=self.scale_emb, logit_divisor=self.hidden_size / self.dim_model_base,
                           residual_scale=self.scale_depth / math.sqrt(self.num_hidden_layers), mlp_bias=self.mlp_bias)


# -- names of weights --------------------------------------------------------------------------------------------------
CORRECTION = (f"model.{LAYER}mlp.gate.e_score_correction_bias", f"model.{LAYER}mlp.gate.correction")
PARTS = ("gate_proj", "up_proj", "down_proj")


def shared_names(theirs: str) -> list[tuple[str, str]]:
    """Pairs of names of the expert of all tokens."""
    return names(**{f"mlp__shared__{part}": f"{theirs}.{part}" for part in PARTS})


def stacked(count: str, hidden: str, place: str = "mlp.experts", parts: tuple[str, ...] = PARTS
            ) -> Callable[[Settings], Stacked]:
    """The matrices of a layer's experts, one by one in files and stacked here."""
    def rules(settings: Settings) -> Stacked:
        sizes = (settings[hidden], settings["hidden_size"])
        return [([f"model.{LAYER}{place}.{number}.{theirs}.weight" for number in range(settings[count])],
                 f"model.{LAYER}mlp.{ours}", sizes[::-1] if ours == "down_proj" else sizes)
                for ours, theirs in zip(PARTS, parts, strict=True)]
    return rules


def mixed(name: str, title: str, config: type[MixtureConfig], hidden: str = "intermediate_size",
          place: str = "mlp.experts", parts: tuple[str, ...] = PARTS, pairs: list[tuple[str, str]] | None = None,
          ) -> Family:
    """The record of a decoder whose experts lie one by one in files."""
    return decoder_family(name, title, config, pairs=pairs or [], stacked=stacked(config.count, hidden, place, parts))


def _granite(settings: Settings, found: Collection[str]) -> list[Rule]:
    return [Rule(f"model.{LAYER}block_sparse_moe.input_linear.weight", [
        f"model.{LAYER}mlp.gate_proj", f"model.{LAYER}mlp.up_proj"], split(1)),
        Rule(f"model.{LAYER}block_sparse_moe.output_linear.weight", f"model.{LAYER}mlp.down_proj"),
        Rule(f"model.{LAYER}shared_mlp.input_linear.weight", [
            f"model.{LAYER}mlp.shared.gate_proj.weight", f"model.{LAYER}mlp.shared.up_proj.weight"], split(0))]


def _granite_back(settings: Settings) -> list[Rule]:
    return [Rule([f"model.{LAYER}mlp.gate_proj", f"model.{LAYER}mlp.up_proj"],
                 f"model.{LAYER}block_sparse_moe.input_linear.weight", concat(1)),
            Rule(f"model.{LAYER}mlp.down_proj", f"model.{LAYER}block_sparse_moe.output_linear.weight"),
            Rule([f"model.{LAYER}mlp.shared.gate_proj.weight", f"model.{LAYER}mlp.shared.up_proj.weight"],
                 f"model.{LAYER}shared_mlp.input_linear.weight", concat(0))]


_GRANITE = names(mlp__gate="block_sparse_moe.router.layer", mlp__shared__down_proj="shared_mlp.output_linear")


def _gpt_oss(settings: Settings, found: Collection[str]) -> list[Rule]:
    """Gates and the other halves lie side by side; matrices are transposed, or rows of MXFP4 blocks with scales."""
    old, new = f"model.{LAYER}mlp.experts.", f"model.{LAYER}mlp."
    both = [f"{new}gate_proj", f"{new}up_proj"]
    return [Rule(f"{old}gate_up_proj", both, permute(0, 2, 1), spread(1)),
            Rule(f"{old}down_proj", f"{new}down_proj", permute(0, 2, 1)),
            Rule([f"{old}gate_up_proj_blocks", f"{old}gate_up_proj_scales"], both, of_mxfp4, spread(1)),
            Rule([f"{old}down_proj_blocks", f"{old}down_proj_scales"], f"{new}down_proj", of_mxfp4),
            Rule(f"{old}gate_up_proj_bias", [f"{new}gate_bias", f"{new}up_bias"], spread(1)),
            Rule(f"{old}down_proj_bias", f"{new}down_bias")]


def _gpt_oss_back(settings: Settings) -> list[Rule]:
    old, new = f"model.{LAYER}mlp.experts.", f"model.{LAYER}mlp."
    return [Rule([f"{new}gate_proj", f"{new}up_proj"], f"{old}gate_up_proj", interleaved(1), permute(0, 2, 1)),
            Rule(f"{new}down_proj", f"{old}down_proj", permute(0, 2, 1)),
            Rule([f"{new}gate_bias", f"{new}up_bias"], f"{old}gate_up_proj_bias", interleaved(1)),
            Rule(f"{new}down_bias", f"{old}down_proj_bias")]


_LLAMA4 = names(mlp__gate="feed_forward.router", **{
    f"mlp__shared__{part}": f"feed_forward.shared_expert.{part}" for part in PARTS}, **{
    f"mlp__{part}": f"feed_forward.{part}" for part in PARTS})


def _llama4(settings: Settings, found: Collection[str]) -> list[Rule]:
    old, new = f"model.{LAYER}feed_forward.experts.", f"model.{LAYER}mlp."
    return [Rule(f"{old}gate_up_proj", [f"{new}gate_proj", f"{new}up_proj"], permute(0, 2, 1), split(1)),
            Rule(f"{old}down_proj", f"{new}down_proj", permute(0, 2, 1))]


def _llama4_back(settings: Settings) -> list[Rule]:
    old, new = f"model.{LAYER}feed_forward.experts.", f"model.{LAYER}mlp."
    return [Rule([f"{new}gate_proj", f"{new}up_proj"], f"{old}gate_up_proj", concat(1), permute(0, 2, 1)),
            Rule(f"{new}down_proj", f"{old}down_proj", permute(0, 2, 1))]


def _ernie(settings: Settings, found: Collection[str]) -> list[Rule]:
    return [Rule(f"model.{LAYER}mlp.moe_statics.e_score_correction_bias", f"model.{LAYER}mlp.gate.correction",
                 reshape(-1))]


_W = ("w1", "w3", "w2")
_BLOCK = names(mlp__gate="block_sparse_moe.gate")
_MOE = "moe_intermediate_size"
FAMILIES = (
    mixed("qwen2_moe", "Qwen2Moe", Qwen2MoeConfig, _MOE, pairs=[
        *shared_names("mlp.shared_expert"), *names(mlp__shared_gate="mlp.shared_expert_gate")]),
    mixed("qwen3_moe", "Qwen3Moe", Qwen3MoeConfig, _MOE), mixed("olmoe", "Olmoe", OlmoeConfig),
    mixed("flex_olmo", "FlexOlmo", FlexOlmoConfig),
    decoder_family("granitemoe", "GraniteMoe", GraniteMoeConfig, pairs=_GRANITE, more=_granite,
                   published_more=_granite_back),
    decoder_family("granitemoeshared", "GraniteMoeShared", GraniteMoeSharedConfig, pairs=_GRANITE, more=_granite,
                   published_more=_granite_back),
    mixed("phimoe", "Phimoe", PhimoeConfig, place="block_sparse_moe.experts", parts=_W, pairs=_BLOCK),
    mixed("glm4_moe", "Glm4Moe", Glm4MoeConfig, _MOE, pairs=[CORRECTION, *shared_names("mlp.shared_experts")]),
    mixed("dots1", "Dots1", Dots1Config, _MOE, pairs=[CORRECTION, *shared_names("mlp.shared_experts")]),
    mixed("solar_open", "SolarOpen", SolarOpenConfig, _MOE, pairs=[CORRECTION, *shared_names("mlp.shared_experts")]),
    mixed("exaone_moe", "ExaoneMoe", ExaoneMoeConfig, _MOE, pairs=[
        (f"model.{LAYER}mlp.e_score_correction_bias", f"model.{LAYER}mlp.gate.correction"),
        *shared_names("mlp.shared_experts")]),
    mixed("minimax_m2", "MiniMaxM2", MiniMaxM2Config, place="block_sparse_moe.experts", parts=_W, pairs=[
        (f"model.{LAYER}block_sparse_moe.e_score_correction_bias", f"model.{LAYER}mlp.gate.correction"), *_BLOCK]),
    decoder_family("ernie4_5_moe", "Ernie45Moe", Ernie45MoeConfig, pairs=shared_names("mlp.shared_experts"),
                   stacked=stacked("moe_num_experts", _MOE), more=_ernie, published_more=lambda settings: [
                       Rule(f"model.{LAYER}mlp.gate.correction",
                            f"model.{LAYER}mlp.moe_statics.e_score_correction_bias", reshape(1, -1))]),
    mixed("hunyuan_v1_moe", "HunyuanMoe", HunyuanMoeConfig, pairs=[
        *shared_names("mlp.shared_mlp"), *names(
            mlp__gate="mlp.gate.wg", self_attn__q_norm="self_attn.query_layernorm",
            self_attn__k_norm="self_attn.key_layernorm")]),
    decoder_family("gpt_oss", "GptOss", GptOssConfig, pairs=names(mlp__gate="mlp.router"), more=_gpt_oss,
                   published_more=_gpt_oss_back),
    decoder_family("llama4_text", "Llama4", Llama4Config, pairs=_LLAMA4, more=_llama4, published_more=_llama4_back),
    mixed("deepseek_v2", "DeepseekV2", DeepseekV2Config, _MOE, pairs=shared_names("mlp.shared_experts")),
    mixed("deepseek_v3", "DeepseekV3", DeepseekV3Config, _MOE, pairs=[
        CORRECTION, *shared_names("mlp.shared_experts")]),
    mixed("glm4_moe_lite", "Glm4MoeLite", Glm4MoeLiteConfig, _MOE, pairs=[
        CORRECTION, *shared_names("mlp.shared_experts")]),
    decoder_family("youtu", "Youtu", YoutuConfig), decoder_family("minicpm3", "MiniCpm3", MiniCpm3Config),
)
