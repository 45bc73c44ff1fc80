"""Decoders of GPT's time: GPT-J, CodeGen, GPT-Neo, GPT-BigCode (StarCoder), BLOOM, MPT, Falcon, XGLM, BioGPT."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.models.decoder.families.kin import ONE_NORM, TRAINING
from morpho.models.decoder.families.rotary import RotaryConfig
from morpho.models.decoder.family import LAYER, decoder_family
from morpho.models.decoder.shape import LLAMA_NORMS, Rope, Shape
from morpho.models.family import Settings
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, only, positive, record
from morpho.weights.transforms import rows_in_pieces

DROPOUTS: Mapping[str, Key] = {
    name: TRAINING for name in ("attn_pdrop", "resid_pdrop", "embd_pdrop", "emb_pdrop", "attention_dropout",
                                "hidden_dropout", "resid_dropout", "embed_dropout", "dropout", "activation_dropout",
                                "layerdrop", "hidden_dropout_prob", "attention_probs_dropout_prob",
                                "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                                "summary_type", "summary_use_proj", "n_ctx")}
GPT = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
       "n_positions": "max_position_embeddings", "n_inner": "intermediate_size", "activation_function": "hidden_act",
       "layer_norm_epsilon": "layer_norm_eps"}


@dataclass
class GptConfig(RotaryConfig):
    """Settings of decoders with LayerNorms and without a gate; inside they have Llama's names."""

    intermediate_size: int | None = None  # type: ignore[assignment]  # four times the width
    hidden_act: str = "gelu_new"
    layer_norm_eps: float = 1e-5
    renamed: ClassVar[Mapping[str, str]] = GPT
    spelled: ClassVar[Mapping[str, str]] = GPT
    others: ClassVar[Mapping[str, Key]] = DROPOUTS
    kinds: ClassVar[Mapping[str, Kind]] = {**RotaryConfig.kinds, "intermediate_size": positive(96).or_null()}
    shared: ClassVar[tuple[str, ...]] = ("num_attention_heads", "hidden_size")

    def gpt(self, **others: Any) -> Shape:
        return self.shape_of(**{
            "activation": self.hidden_act, "eps": self.layer_norm_eps, "norm": "layer", "gated": False,
            "mlp_bias": True, "hidden": self.intermediate_size or 4 * self.hidden_size,
            "ropes": (None,) * self.num_hidden_layers, **others})


@dataclass
class GptJConfig(GptConfig):
    """The settings of a GPT-J: one norm for both parts, which are parallel; neighbours turn."""

    vocab_size: int = 50400
    rotary_dim: int = 64
    family: ClassVar[str] = "gptj"

    def shape(self) -> Shape:
        if self.rotary_dim % 2 or self.rotary_dim > self.depth:
            raise fail(ArgumentError, self.family, f"rotary_dim={self.rotary_dim} is odd, or more than the "
                                                   f"{self.depth} numbers of a head")
        rope = Rope(self.rotary_dim, 10000.0, None, True)
        return self.gpt(norms=ONE_NORM, parallel=True, head_bias=True, ropes=(rope,) * self.num_hidden_layers)


@dataclass
class CodeGenConfig(GptJConfig):
    """The settings of a CodeGen: a GPT-J whose queries, values and keys lie in four pieces of one matrix."""

    family: ClassVar[str] = "codegen"

    def shape(self) -> Shape:
        if self.num_attention_heads % 4:
            raise fail(ArgumentError, self.family, f"n_head={self.num_attention_heads} is not a multiple of 4, and the "
                                                   "matrix of queries, values and keys has four pieces")
        return replace(super().shape(), joined="parts")


_NEO = {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads", "activation_function": "hidden_act",
        "layer_norm_epsilon": "layer_norm_eps"}


@dataclass
class GptNeoConfig(GptConfig):
    """The settings of a GPT-Neo: learned positions, every other layer sees a window, scores are not scaled."""

    vocab_size: int = 50257
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    tie_word_embeddings: bool = True
    window_size: int = 256
    attention_types: list[Any] | None = None
    attention_layers: list[str] | None = None
    family: ClassVar[str] = "gpt_neo"
    renamed: ClassVar[Mapping[str, str]] = _NEO
    spelled: ClassVar[Mapping[str, str]] = _NEO
    kinds: ClassVar[Mapping[str, Kind]] = {
        **GptConfig.kinds, "attention_types": Kind(lambda value: isinstance(value, list), "a list").or_null(),
        "attention_layers": Kind(lambda value: isinstance(value, list) and {*value} <= {"global", "local"},
                                 "a list of 'global' and 'local'").or_null()}
    others: ClassVar[Mapping[str, Key]] = {**DROPOUTS, "classifier_dropout": TRAINING}

    def shape(self) -> Shape:
        count, groups = self.num_hidden_layers, self.attention_types
        if groups is None:
            groups = [[["global", "local"], -(-count // 2)]] if self.attention_layers is None else []
        kinds = [kind for pattern, times in groups for _ in range(times) for kind in pattern]
        kinds = kinds[:count] if self.attention_types is None and kinds else kinds or self.attention_layers or []
        if len(kinds) != count or not {*kinds} <= {"global", "local"}:
            raise fail(ArgumentError, self.family, f"attention_types name {len(kinds)} layers, and num_layers is "
                                                   f"{count}", "give 'global' or 'local' for each layer")
        return self.gpt(learned_positions=self.max_position_embeddings, out_bias=True, scale=1.0,
                        windows=tuple(self.window_size if kind == "local" else None for kind in kinds))


@dataclass
class BigCodeConfig(GptConfig):
    """The settings of a GPT-BigCode: a GPT-2 whose heads share one key."""

    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    max_position_embeddings: int = 1024
    hidden_act: str = "gelu_pytorch_tanh"
    tie_word_embeddings: bool = True
    multi_query: bool = True
    scale_attn_weights: bool = True
    family: ClassVar[str] = "gpt_bigcode"
    shared: ClassVar[tuple[str, ...]] = ()  # heads share one key
    others: ClassVar[Mapping[str, Key]] = {
        **DROPOUTS, "attention_softmax_in_fp32": irrelevant("it always is"), "inference_runner": irrelevant("how"),
        "scale_attention_softmax_in_fp32": irrelevant("it always is"), "max_batch_size": irrelevant("memory"),
        "max_sequence_length": irrelevant("memory"), "pad_key_length": irrelevant("memory"),
        "pre_allocate_kv_cache": irrelevant("memory"), "validate_runner_input": irrelevant("how"),
        "num_key_value_heads": irrelevant("multi_query says it")}

    def shape(self) -> Shape:
        return self.gpt(
            learned_positions=self.max_position_embeddings, qkv_bias=True, out_bias=True,
            kv_heads=1 if self.multi_query else self.num_attention_heads,
            joined="parts" if self.multi_query else "heads", scale=None if self.scale_attn_weights else 1.0)


def slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slopes: powers of one base for as many heads as a power of two has, of another for the rest."""
    near = 2 ** math.floor(math.log2(heads))
    table = [_power(2 ** -(2 ** -(math.log2(near) - 3)), step) for step in range(1, near + 1)]
    rest = min(near, heads - near)
    base = 2 ** -(2 ** -(math.log2(2 * near) - 3))
    return (*table, *(_power(base, step) for step in range(1, 2 * rest + 1, 2)))


def _power(base: float, step: int) -> float:
    return float(np.float32(np.float32(base) ** np.float32(step)))


@dataclass
class BloomConfig(GptConfig):
    """The settings of a BLOOM: scores with slopes, a norm of the embeddings."""

    vocab_size: int = 250880
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    hidden_act: str = "gelu_pytorch_tanh"
    tie_word_embeddings: bool = True
    family: ClassVar[str] = "bloom"
    renamed: ClassVar[Mapping[str, str]] = {**GPT, "num_attention_heads": "num_attention_heads",
                                            "seq_length": "max_position_embeddings"}
    others: ClassVar[Mapping[str, Key]] = {
        **DROPOUTS, "apply_residual_connection_post_layernorm": only(False), "slow_but_exact": irrelevant("how"),
        "pretraining_tp": irrelevant("how"), "offset_alibi": irrelevant("how"), "skip_bias_add": irrelevant("how"),
        "skip_bias_add_qkv": irrelevant("how"), "attention_softmax_in_fp32": irrelevant("it always is"),
        "masked_softmax_fusion": irrelevant("how"), "bias_dropout_fusion": irrelevant("how"),
        "unk_token_id": irrelevant("a prompt holds its own tokens")}

    def shape(self) -> Shape:
        return self.gpt(joined="heads", qkv_bias=True, out_bias=True, embed_norm=True,
                        alibi=slopes(self.num_attention_heads))


_MPT = {"d_model": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
        "max_seq_len": "max_position_embeddings", "layer_norm_epsilon": "layer_norm_eps"}


@dataclass
class MptConfig(GptConfig):
    """The settings of an MPT: no biases, scores with slopes."""

    vocab_size: int = 50368
    hidden_size: int = 2048
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    hidden_act: str = "gelu"
    attn_config: dict[str, Any] | None = None
    tie_word_embeddings: bool = True
    family: ClassVar[str] = "mpt"
    renamed: ClassVar[Mapping[str, str]] = _MPT
    spelled: ClassVar[Mapping[str, str]] = _MPT
    kinds: ClassVar[Mapping[str, Kind]] = {**GptConfig.kinds, "attn_config": record().or_null()}
    others: ClassVar[Mapping[str, Key]] = {
        **DROPOUTS, "no_bias": only(True), "expansion_ratio": only(4), "logit_scale": only(None, 0.0),
        "embedding_fraction": TRAINING,
        "norm_type": only("low_precision_layernorm"), "learned_pos_emb": irrelevant("slopes stand for them"),
        "init_device": irrelevant("how"), "verbose": irrelevant("how"), "init_config": TRAINING,
        "resid_pdrop": TRAINING}

    def shape(self) -> Shape:
        said = self.attn_config or {}
        for name, wanted in (("alibi", True), ("attn_type", "multihead_attention"), ("prefix_lm", False),
                             ("qk_ln", False), ("attn_uses_sequence_id", False), ("alibi_bias_max", 8)):
            if said.get(name, wanted) != wanted:
                raise fail(ArgumentError, self.family, f"attn_config.{name} is {said[name]!r}, and only {wanted!r} is "
                                                       "computed")
        heads = self.num_attention_heads
        full = 2 ** math.ceil(math.log2(heads))
        table = [1 / 2 ** (step * (8 / full)) for step in range(1, full + 1)]
        table = table if full == heads else [*table[1::2], *table[::2]][:heads]
        return self.gpt(norm="layer0", mlp_bias=False, joined="parts", alibi=tuple(table), clip=said.get("clip_qkv"),
                        scale=said.get("softmax_scale"))


@dataclass
class FalconConfig(GptConfig):
    """The settings of a Falcon: parts in parallel, heads that share keys, angles or slopes."""

    vocab_size: int = 65024
    hidden_size: int = 4544
    num_hidden_layers: int = 32
    num_attention_heads: int = 71
    num_kv_heads: int | None = None
    hidden_act: str = "gelu"
    alibi: bool = False
    bias: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: int | None = None
    tie_word_embeddings: bool = True
    family: ClassVar[str] = "falcon"
    shared: ClassVar[tuple[str, ...]] = ()  # heads may share one key
    spelled: ClassVar[Mapping[str, str]] = {"activation": "hidden_act", "layer_norm_epsilon": "layer_norm_eps",
                                            "ffn_hidden_size": "intermediate_size"}
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, **spelled, "n_head": "num_attention_heads",
                                            "n_layer": "num_hidden_layers", "n_head_kv": "num_kv_heads"}

    def shape(self) -> Shape:
        heads, count = self.num_attention_heads, self.num_hidden_layers
        kv_heads = self.num_kv_heads or heads
        if not self.new_decoder_architecture:
            kv_heads = 1 if self.multi_query else heads
        elif not self.parallel_attn:
            raise fail(ArgumentError, self.family, "new_decoder_architecture is true and parallel_attn false, and only "
                                                   "parallel parts are computed")
        norms = {**LLAMA_NORMS} if not self.parallel_attn else {**ONE_NORM}
        if self.new_decoder_architecture and self.num_ln_in_parallel_attn in (None, 2):
            norms = {"before_attention": "ln_attn", "before_mlp": "ln_mlp"}
        return self.gpt(
            norms=norms, parallel=self.parallel_attn, joined="heads", kv_heads=kv_heads, qkv_bias=self.bias,
            out_bias=self.bias, mlp_bias=self.bias, alibi=slopes(heads) if self.alibi else (), alibi_rounded=self.alibi,
            ropes=(None,) * count if self.alibi else (self.rope(),) * count)


_FAIRSEQ = {"d_model": "hidden_size", "num_layers": "num_hidden_layers", "attention_heads": "num_attention_heads",
            "ffn_dim": "intermediate_size", "activation_function": "hidden_act"}
_FAIRSEQ_NORMS = {"before_attention": "self_attn_layer_norm", "before_mlp": "final_layer_norm"}


@dataclass
class XglmConfig(GptConfig):
    """The settings of an XGLM: a table of sines for positions, scaled embeddings."""

    vocab_size: int = 256008
    hidden_size: int = 1024
    intermediate_size: int | None = 4096
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    hidden_act: str = "gelu"
    scale_embedding: bool = True
    pad_token_id: int | None = 1  # the row of the table of positions that is 0
    tie_word_embeddings: bool = True
    family: ClassVar[str] = "xglm"
    renamed: ClassVar[Mapping[str, str]] = _FAIRSEQ
    spelled: ClassVar[Mapping[str, str]] = _FAIRSEQ
    others: ClassVar[Mapping[str, Key]] = {**DROPOUTS, "init_std": TRAINING,
                                           "decoder_start_token_id": irrelevant("a prompt holds its own tokens")}

    def shape(self) -> Shape:
        return self.fairseq(sinusoids=True, blank_position=-1 if self.pad_token_id is None else self.pad_token_id)

    def fairseq(self, **others: Any) -> Shape:
        return self.gpt(qkv_bias=True, out_bias=True, norms=_FAIRSEQ_NORMS, position_offset=2,
                        learned_positions=self.max_position_embeddings,
                        embed_scale=self.hidden_size ** 0.5 if self.scale_embedding else 1.0, **others)


@dataclass
class BioGptConfig(XglmConfig):
    """The settings of a BioGPT: learned positions, scaled embeddings."""

    vocab_size: int = 42384
    max_position_embeddings: int = 1024
    layer_norm_eps: float = 1e-12
    family: ClassVar[str] = "biogpt"
    renamed: ClassVar[Mapping[str, str]] = {}
    spelled: ClassVar[Mapping[str, str]] = {}

    def shape(self) -> Shape:
        return replace(self.fairseq(), eps=1e-5)  # layer_norm_eps is not read by the library


def pairs_of(prefix: str, layer: str, words: str, last: str, positions: str = "", **parts: str
             ) -> list[tuple[str, str]]:
    """Pairs of all names, with the prefix that some files leave out."""
    begin = f"({prefix}.)"
    return [(f"{begin}{words}.weight", "model.embed_tokens.weight"), (f"{begin}{last}.{{what}}", "model.norm.{what}"),
            *([(f"{begin}{positions}.weight", "model.embed_positions.weight")] if positions else []),
            *((f"{begin}{layer}.{{i}}.{theirs}.{{what}}", f"model.{LAYER}{ours.replace('__', '.')}.{{what}}")
              for ours, theirs in parts.items())]


_NORMS = {"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"}
_FC = {"mlp__up_proj": "mlp.c_fc", "mlp__down_proj": "mlp.c_proj"}
_J = {"mlp__up_proj": "mlp.fc_in", "mlp__down_proj": "mlp.fc_out", "self_attn__o_proj": "attn.out_proj",
      "input_layernorm": "ln_1"}
_QKV = {f"self_attn__{part}_proj": f"{part}_proj" for part in "qkv"}
_BIG = {"mlp__up_proj": "mlp.dense_h_to_4h", "mlp__down_proj": "mlp.dense_4h_to_h",
        "self_attn__qkv_proj": "self_attention.query_key_value", "self_attn__o_proj": "self_attention.dense",
        **{name: name for name in ("input_layernorm", "post_attention_layernorm", "ln_attn", "ln_mlp")}}
_FAIR = {"mlp__up_proj": "fc1", "mlp__down_proj": "fc2", "self_attn__o_proj": "self_attn.out_proj"}
_CODEGEN = "transformer.h.{i}.attn.qkv_proj.weight", f"model.{LAYER}self_attn.qkv_proj.weight"


def _codegen(settings: Settings, names: Collection[str]) -> list[Rule]:
    return [Rule(*_CODEGEN, rows_in_pieces(4, (0, 2, 1)))]


FAMILIES = (
    decoder_family("gptj", "GptJ", GptJConfig, embedding="transformer.wte.weight", dropped=[
        "transformer.h.{i}.attn.bias", "transformer.h.{i}.attn.masked_bias"], pairs=pairs_of(
        "transformer", "h", "wte", "ln_f", **_J, **{name: f"attn.{each}" for name, each in _QKV.items()})),
    decoder_family("codegen", "CodeGen", CodeGenConfig, embedding="transformer.wte.weight", more=_codegen, dropped=[
        "transformer.h.{i}.attn.causal_mask"],
        published_more=lambda settings: [Rule(*_CODEGEN[::-1], rows_in_pieces(4, (0, 2, 1), True))],
        pairs=pairs_of("transformer", "h", "wte", "ln_f", **_J)),
    decoder_family("gpt_neo", "GptNeo", GptNeoConfig, embedding="transformer.wte.weight", dropped=[
        "transformer.h.{i}.attn.attention.bias", "transformer.h.{i}.attn.attention.masked_bias"], pairs=pairs_of(
        "transformer", "h", "wte", "ln_f", "wpe", **_NORMS, **_FC, self_attn__o_proj="attn.attention.out_proj",
        **{name: f"attn.attention.{each}" for name, each in _QKV.items()})),
    decoder_family("gpt_bigcode", "BigCode", BigCodeConfig, embedding="transformer.wte.weight", dropped=[
        "transformer.h.{i}.attn.bias"], pairs=pairs_of(
        "transformer", "h", "wte", "ln_f", "wpe", **_NORMS, **_FC, self_attn__qkv_proj="attn.c_attn",
        self_attn__o_proj="attn.c_proj")),
    decoder_family("bloom", "Bloom", BloomConfig, embedding="transformer.word_embeddings.weight", pairs=[
        *pairs_of("transformer", "h", "word_embeddings", "ln_f", **_BIG),
        ("(transformer.)word_embeddings_layernorm.{what}", "model.embed_norm.{what}")]),
    decoder_family("mpt", "Mpt", MptConfig, embedding="transformer.wte.weight", pairs=pairs_of(
        "transformer", "blocks", "wte", "norm_f", self_attn__qkv_proj="attn.Wqkv", self_attn__o_proj="attn.out_proj",
        mlp__up_proj="ffn.up_proj", mlp__down_proj="ffn.down_proj", input_layernorm="norm_1",
        post_attention_layernorm="norm_2")),
    decoder_family("falcon", "Falcon", FalconConfig, embedding="transformer.word_embeddings.weight", pairs=pairs_of(
        "transformer", "h", "word_embeddings", "ln_f", **_BIG)),
    decoder_family("xglm", "Xglm", XglmConfig, dropped=["model.embed_positions.weights"], pairs=[
        *((f"model.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours.replace('__', '.')}.{{what}}")
          for ours, theirs in _FAIR.items()), ("model.layer_norm.{what}", "model.norm.{what}")]),
    decoder_family("biogpt", "BioGpt", BioGptConfig, head="output_projection.weight",
                   embedding="biogpt.embed_tokens.weight", pairs=[
                       *((f"biogpt.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours.replace('__', '.')}.{{what}}")
                         for ours, theirs in _FAIR.items()), ("biogpt.layer_norm.{what}", "model.norm.{what}"),
                       ("output_projection.{what}", "lm_head.{what}"), ("biogpt.{rest:*}", "model.{rest}")]),
)
