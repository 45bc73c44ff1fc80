"""Llama: RMS norms before both parts, rotary positions, a gated feed-forward part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.models.decoder.families.rotary import RotaryConfig
from morpho.models.decoder.family import decoder_family
from morpho.models.decoder.shape import Shape
from morpho.models.family import Gguf
from morpho.models.files.gguf_forms import either_eps, paired
from morpho.models.rope_keys import USUAL
from morpho.weights import GgufFile
from morpho.weights.keys import Key, irrelevant, only


@dataclass
class LlamaConfig(RotaryConfig):
    """The settings of a Llama."""

    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None  # a token sees so many before it, itself among them
    attention_scale: float | None = None  # of the scores; 1 / sqrt(head_dim) by default
    family: ClassVar[str] = "llama"
    scalings: ClassVar[tuple[str, ...]] = USUAL
    others: ClassVar[Mapping[str, Key]] = {
        "pretraining_tp": only(1), "rope_interleaved": only(False), "partial_rotary_factor": only(1.0, None),
        "attention_dropout": irrelevant("of training: attention has no dropout"),
        "is_llama_config": irrelevant("model_type says it")}

    def shape(self) -> Shape:
        return self.shape_of(activation=self.hidden_act, eps=self.rms_norm_eps, qkv_bias=self.attention_bias,
                             out_bias=self.attention_bias, mlp_bias=self.mlp_bias, scale=self.attention_scale,
                             windows=(self.sliding_window,) * self.num_hidden_layers)


SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "smollm2-135m": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                     "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
                     "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True},
}

def _llama(file: GgufFile) -> dict[str, Any]:
    sizes = file.config
    return {**either_eps(file), "sliding_window": sizes.window,
            "attention_scale": sizes.attention_scale, "attention_bias": "blk.0.attn_q.bias" in file.tensors,
            "mlp_bias": "blk.0.ffn_up.bias" in file.tensors}


FAMILIES = (decoder_family("llama", "Llama", LlamaConfig, sizes=SIZES,
                            gguf=Gguf("llama", _llama, paired())),)
