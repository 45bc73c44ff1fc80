"""Mistral, Mixtral, Qwen2, Qwen3, Granite, SmolLM3, Phi-3: RMS norms before both parts, a gated feed-forward part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.families.rotary import NO_DROPOUT, RotaryConfig, windows
from morpho.models.decoder.family import LAYER, Stacked, decoder_family
from morpho.models.decoder.shape import Mixture, Shape
from morpho.models.family import Gguf, Settings
from morpho.models.files.gguf_forms import PLAIN_NORMS, QK_NORMS, either_eps, eps, gguf_rules, halves, needed, paired
from morpho.models.rope_keys import USUAL
from morpho.weights import GgufFile, Rule
from morpho.weights.gguf.keys import ALL_SEEN, GRANITE, PHI3
from morpho.weights.keys import Key, Kind, irrelevant, number, only


@dataclass
class MistralConfig(RotaryConfig):
    """The settings of a Mistral: every layer sees a window."""

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    rms_norm_eps: float = 1e-6
    sliding_window: int | None = None
    family: ClassVar[str] = "mistral"

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps,
                             windows=(self.sliding_window,) * self.num_hidden_layers)


@dataclass
class MixtralConfig(MistralConfig):
    """The settings of a Mixtral: a Mistral whose feed-forward parts are mixtures of experts."""

    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e6
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    family: ClassVar[str] = "mixtral"
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "router_aux_loss_coef": irrelevant("of training"),
        "router_jitter_noise": irrelevant("of training"), "output_router_logits": irrelevant("of training")}
    renamed: ClassVar[Mapping[str, str]] = {"rope_parameters": "rope_scaling", "num_experts": "num_local_experts"}

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        super().check_parts(operation, file, given, config, ignore)
        count, used = given.get("num_local_experts") or 8, given.get("num_experts_per_tok") or 2
        if used > count:
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}num_experts_per_tok is {used}, and "
                                                 f"there are {count} experts")

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps,
                             windows=(self.sliding_window,) * self.num_hidden_layers, mixture=Mixture(
                                 self.num_local_experts, self.num_experts_per_tok, self.intermediate_size))


@dataclass
class QwenConfig(RotaryConfig):
    """Settings of Qwen2 and Qwen3: the first `max_window_layers` layers see all, the others a window, if it is on."""

    vocab_size: int = 151936
    intermediate_size: int = 22016
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list[str] | None = None

    def layer_windows(self) -> tuple[int | None, ...]:
        if not self.use_sliding_window:
            return (None,) * self.num_hidden_layers
        kinds = self.layer_types or ["sliding_attention" if number >= self.max_window_layers else "full_attention"
                                     for number in range(self.num_hidden_layers)]
        return windows(kinds, self.sliding_window)

    @classmethod
    def check_parts(cls, operation: str, file: str, given: Mapping[str, Any], config: Mapping[str, Any],
                    ignore: Collection[str]) -> None:
        super().check_parts(operation, file, given, config, ignore)
        if "sliding_attention" in (given.get("layer_types") or ()) and not given.get("use_sliding_window"):
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}layer_types names sliding_attention, "
                                                 "and use_sliding_window is off")


@dataclass
class Qwen2Config(QwenConfig):
    """The settings of a Qwen2: queries, keys and values have biases."""

    num_key_value_heads: int | None = 32
    family: ClassVar[str] = "qwen2"

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=True,
                             windows=self.layer_windows())


@dataclass
class Qwen3Config(QwenConfig):
    """The settings of a Qwen3: each head's queries and keys are normed."""

    num_key_value_heads: int | None = 32
    head_dim: int | None = 128
    attention_bias: bool = False
    family: ClassVar[str] = "qwen3"

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=self.attention_bias,
                             out_bias=self.attention_bias, qk_norm="head", windows=self.layer_windows())


_FACTOR = number(1.0, above=0)


@dataclass
class GraniteConfig(RotaryConfig):
    """The settings of a Granite: a Llama whose embeddings, scores, parts and logits have factors."""

    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    logits_scaling: float = 1.0
    family: ClassVar[str] = "granite"
    scalings: ClassVar[tuple[str, ...]] = USUAL
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "embedding_multiplier": _FACTOR, "residual_multiplier": _FACTOR,
        "attention_multiplier": _FACTOR, "logits_scaling": _FACTOR}

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=self.attention_bias,
                             out_bias=self.attention_bias, mlp_bias=self.mlp_bias, scale=self.attention_multiplier,
                             embed_scale=self.embedding_multiplier, residual_scale=self.residual_multiplier,
                             logit_divisor=self.logits_scaling)


_ONES = Kind(lambda value: isinstance(value, list) and all(type(each) is int and each in (0, 1) for each in value),
             "a list of 0 and 1").or_null()


@dataclass
class SmolLM3Config(RotaryConfig):
    """The settings of a SmolLM3: some layers have no positions (0 in `no_rope_layers`, which says where there are)."""

    vocab_size: int = 128256
    hidden_size: int = 2048
    num_hidden_layers: int = 36
    num_attention_heads: int = 16
    num_key_value_heads: int | None = 4
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    rope_theta: float = 2e6
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    mlp_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = None
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: int = 4
    layer_types: list[str] | None = None
    family: ClassVar[str] = "smollm3"
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "pretraining_tp": irrelevant("of training"),
        "max_window_layers": irrelevant("layer_types says it")}
    kinds: ClassVar[Mapping[str, Kind]] = {**RotaryConfig.kinds, "no_rope_layers": _ONES}

    def shape(self) -> Shape:
        count, step = self.num_hidden_layers, self.no_rope_layer_interval
        turned = self.no_rope_layers or [int((number + 1) % step != 0) for number in range(count)]
        if len(turned) != count:
            raise fail(ArgumentError, self.family, f"no_rope_layers has {len(turned)} entries, and num_hidden_layers "
                                                   f"is {count}")
        sliding = self.use_sliding_window and self.sliding_window is not None
        kinds = self.layer_types or ["sliding_attention" if sliding and not has else "full_attention"
                                     for has in turned]
        rope = self.rope()
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=self.attention_bias,
                             out_bias=self.attention_bias, mlp_bias=self.mlp_bias,
                             windows=windows(kinds, self.sliding_window if sliding else None),
                             ropes=tuple(rope if has else None for has in turned))


@dataclass
class Phi3Config(RotaryConfig):
    """The settings of a Phi-3: joined matrices, a part of a head may turn, angles of type "longrope"."""

    vocab_size: int = 32064
    hidden_size: int = 3072
    intermediate_size: int = 8192
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    original_max_position_embeddings: int | None = None
    rms_norm_eps: float = 1e-5
    partial_rotary_factor: float | None = None
    sliding_window: int | None = None
    family: ClassVar[str] = "phi3"
    partial: ClassVar[bool] = True
    scalings: ClassVar[tuple[str, ...]] = (*RotaryConfig.scalings, "su")
    others: ClassVar[Mapping[str, Key]] = {
        "attention_dropout": NO_DROPOUT, "resid_pdrop": irrelevant("of training"),
        "embd_pdrop": irrelevant("of training"), "auto_map": irrelevant("the family is built here"),
        "attention_bias": Key("only", Kind(lambda value: value is False, "False")),
        "mlp_bias": only(False), "lm_head_bias": only(False),  # Phi-4 mini's files say these four
        "full_attn_mod": only(1), "interpolate_factor": only(1)}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "partial_rotary_factor": number(0.5, above=0, most=1).or_null()}

    @classmethod
    def check_rope(cls, operation: str, file: str, name: str, given: Mapping[str, Any],
                   ignore: Collection[str]) -> None:
        super().check_rope(operation, file, name, given, ignore)
        outer = given.get("original_max_position_embeddings")
        inner = given["rope_scaling"].get("original_max_position_embeddings")
        if outer is not None and inner is not None and outer != inner:  # the library takes the outer one
            raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}original_max_position_embeddings is "
                                                 f"{outer}, and {name}.original_max_position_embeddings {inner}")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_scaling and "su" in (self.rope_scaling.get("rope_type"), self.rope_scaling.get("type")):
            self.rope_scaling = {**self.rope_scaling, "rope_type": "longrope"}
            self.rope_scaling.pop("type", None)
        if self.rope_scaling and self.original_max_position_embeddings and not self.rope_scaling.get(
                "original_max_position_embeddings"):
            self.rope_scaling = {**self.rope_scaling,
                                 "original_max_position_embeddings": self.original_max_position_embeddings}
        if self.rope_scaling and self.rope_scaling.get("partial_rotary_factor"):
            self.partial_rotary_factor = self.rope_scaling["partial_rotary_factor"]

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, joined="parts", joined_mlp=True,
                             windows=(self.sliding_window,) * self.num_hidden_layers,
                             ropes=(self.rope(self.partial_rotary_factor or 1.0),) * self.num_hidden_layers)


def _experts(settings: Settings) -> Stacked:
    """The matrices of a layer's experts, one by one in files and stacked here."""
    count, sizes = settings["num_local_experts"], (settings["intermediate_size"], settings["hidden_size"])
    return [([f"model.{LAYER}block_sparse_moe.experts.{number}.{theirs}.weight" for number in range(count)],
             f"model.{LAYER}mlp.{ours}", shape)
            for theirs, ours, shape in (("w1", "gate_proj", sizes), ("w3", "up_proj", sizes),
                                        ("w2", "down_proj", sizes[::-1]))]


def _gguf_mixtral(file: GgufFile) -> dict[str, Any]:
    return {**either_eps(file), "sliding_window": file.config.window,
            "num_local_experts": file.fields["expert_count"],
            "num_experts_per_tok": needed(file, "expert_used_count")}


def _gguf_experts(file: GgufFile) -> list[Rule]:
    stacked = [Rule(f"blk.{{i}}.ffn_{theirs}_exps.weight", f"model.layers.{{i}}.mlp.{theirs}_proj")
               for theirs in ("gate", "up", "down")]
    return [*stacked, Rule("blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.weight"),
            *gguf_rules(PLAIN_NORMS, file.config.heads, file.config.kv_heads)]


def _gguf_phi3(file: GgufFile) -> dict[str, Any]:
    sizes, found = file.config, file.tensors
    made = {**eps(file), "sliding_window": sizes.window,
            "partial_rotary_factor": sizes.rope_dimensions / sizes.head_width}
    if "rope_factors_long.weight" not in found:
        return made
    tables = {name: found[f"rope_factors_{name}.weight"].numpy().astype(float).tolist()  # type: ignore[union-attr]
              for name in ("long", "short")}
    length = needed(file, "rope.scaling.original_context_length")
    scaling = {"rope_type": "longrope", "long_factor": tables["long"], "short_factor": tables["short"],
               "original_max_position_embeddings": length}
    said = file.fields.get("rope.scaling.attn_factor")
    return {**made, "rope_scaling": scaling if not said else {**scaling, "attention_factor": said}}


def _phi3_rules(file: GgufFile) -> list[Rule]:
    return [*(Rule(f"rope_factors_{name}.weight", None) for name in ("long", "short")),  # read with the settings
            *gguf_rules({**PLAIN_NORMS, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"})]


def _granite(file: GgufFile) -> dict[str, Any]:
    """Factors of 0 are none; scores without one have the usual scale. Logits are divided by `logit_scale`."""
    factors = {name: file.fields.get(key) or 1.0 for name, key in (
        ("embedding_multiplier", "embedding_scale"), ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"))}
    scale = file.config.attention_scale or file.config.head_width ** -0.5
    return {**eps(file), **factors, "attention_multiplier": scale,
            "attention_bias": "blk.0.attn_q.bias" in file.tensors, "mlp_bias": "blk.0.ffn_up.bias" in file.tensors}


FAMILIES = (
    decoder_family("granite", "Granite", GraniteConfig, gguf=Gguf("granite", _granite, paired(), GRANITE)),
    decoder_family("mistral", "Mistral", MistralConfig),
    decoder_family("mixtral", "Mixtral", MixtralConfig, stacked=_experts, pairs=[
        (f"model.{LAYER}block_sparse_moe.gate.weight", f"model.{LAYER}mlp.gate.weight")],
        gguf=Gguf("llama", _gguf_mixtral, _gguf_experts, experts=True)),
    decoder_family("qwen2", "Qwen2", Qwen2Config, gguf=Gguf("qwen2", eps, halves(PLAIN_NORMS), ALL_SEEN)),
    decoder_family("qwen3", "Qwen3", Qwen3Config, gguf=Gguf("qwen3", eps, halves(PLAIN_NORMS, QK_NORMS), ALL_SEEN)),
    decoder_family("smollm3", "SmolLM3", SmolLM3Config, gguf=Gguf("smollm3", eps, paired(), ALL_SEEN)),
    decoder_family("phi3", "Phi3", Phi3Config, gguf=Gguf("phi3", _gguf_phi3, _phi3_rules, PHI3, partial=True)),
)
