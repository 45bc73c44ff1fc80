"""Decoders of which some layers have no attention: LFM2, whose layers convolve the last few tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.models.decoder.families.rotary import RotaryConfig
from morpho.models.decoder.family import LAYER, decoder_family
from morpho.models.decoder.shape import Shape
from morpho.weights.keys import Key, Kind, irrelevant, number, positive

OTHER = irrelevant("of another program")
LAYERS = Kind(lambda value: isinstance(value, list) and all(each in ("full_attention", "conv") for each in value),
              "a list of 'full_attention' and 'conv'").or_null()
NUMBERS = Kind(lambda value: isinstance(value, list) and all(type(each) is int and each >= 0 for each in value),
               "a list of the numbers of layers").or_null()


@dataclass
class Lfm2Config(RotaryConfig):
    """The settings of an LFM2."""

    vocab_size: int = 65536
    hidden_size: int = 2560
    intermediate_size: int = 12288
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 128000
    norm_eps: float = 1e-5
    rope_theta: float = 1000000.0
    tie_word_embeddings: bool = True
    conv_bias: bool = False
    conv_L_cache: int = 3
    block_multiple_of: int = 256
    block_ffn_dim_multiplier: float | None = 1.0
    block_auto_adjust_ff_dim: bool = True
    full_attn_idxs: list[int] | None = None
    layer_types: list[str] | None = None
    family: ClassVar[str] = "lfm2"
    shared: ClassVar[tuple[str, ...]] = ()
    scalings: ClassVar[tuple[str, ...]] = ("default", "linear", "llama3", "yarn")
    renamed: ClassVar[Mapping[str, str]] = {**RotaryConfig.renamed, "tie_embedding": "tie_word_embeddings",
                                            "block_ff_dim": "intermediate_size", "theta": "rope_theta",
                                            "num_heads": "num_attention_heads"}
    others: ClassVar[Mapping[str, Key]] = {
        **RotaryConfig.others, **{name: OTHER for name in (
            "block_dim", "block_mlp_init_scale", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init",
            "conv_dim", "conv_dim_out", "conv_use_xavier_init", "use_pos_enc")},
        "block_norm_eps": irrelevant("norm_eps is used")}
    kinds: ClassVar[Mapping[str, Kind]] = {
        **RotaryConfig.kinds, "layer_types": LAYERS, "full_attn_idxs": NUMBERS, "conv_L_cache": positive(3),
        "block_ffn_dim_multiplier": number(1.0, above=0).or_null(),
        "num_key_value_heads": positive(8)}

    def shape(self) -> Shape:
        count, some = self.num_hidden_layers, self.full_attn_idxs
        attends = [kind == "full_attention" for kind in self.layer_types] if self.layer_types else [
            some is None or layer in some for layer in range(count)]
        hidden = self.intermediate_size
        if self.block_auto_adjust_ff_dim:
            hidden = int(2 * hidden / 3)
            if self.block_ffn_dim_multiplier is not None:
                hidden = int(self.block_ffn_dim_multiplier * hidden)
                hidden = -(-hidden // self.block_multiple_of) * self.block_multiple_of
        rope = self.rope()
        return self.shape_of(activation="silu", eps=self.norm_eps, qk_norm="head", hidden=hidden,
                             norms={"before_attention": "operator_norm", "before_mlp": "ffn_norm"},
                             ropes=tuple(rope if each else None for each in attends),
                             convolutions=tuple(0 if each else self.conv_L_cache for each in attends),
                             convolution_bias=self.conv_bias)


def _pairs() -> list[tuple[str, str]]:
    names = {"self_attn.out_proj": "self_attn.o_proj", "self_attn.q_layernorm": "self_attn.q_norm",
             "self_attn.k_layernorm": "self_attn.k_norm", "conv.in_proj": "self_attn.in_proj",
             "conv.out_proj": "self_attn.out_proj", "conv.conv": "self_attn", "feed_forward.w1": "mlp.gate_proj",
             "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj"}
    return [("model.embedding_norm.{what}", "model.norm.{what}"),
            *((f"model.{LAYER}{theirs}.{{what}}", f"model.{LAYER}{ours}.{{what}}") for theirs, ours in names.items())]


FAMILIES: tuple[Any, ...] = (decoder_family("lfm2", "Lfm2", Lfm2Config, pairs=_pairs()),)
