"""Whisper: an encoder of log-mel spectrograms and a decoder of text, pre-norm. Names are the published ones:
`model.encoder.layers.0.self_attn.q_proj.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.base import LanguageModel, tied_logits
from morpho.models.config import Config
from morpho.models.family import Family, Names, Settings
from morpho.models.seq2seq.layers import DecoderLayer, EncoderLayer, cached_cross
from morpho.models.text.generation_keys import FORCED
from morpho.models.text.listening import transcribed
from morpho.nn.containers import ModuleList
from morpho.nn.layers.convolution import Conv1d
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.nn.transformer.caches import Caches
from morpho.nn.transformer.positions import rows_at
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only

_PROMPT = irrelevant("the tokens that a caller begins with say it")
_AUGMENT = irrelevant("of training")


@dataclass
class WhisperConfig(Config):
    """The settings of a Whisper."""

    vocab_size: int = 51865
    num_mel_bins: int = 80
    encoder_layers: int = 4
    encoder_attention_heads: int = 6
    decoder_layers: int = 4
    decoder_attention_heads: int = 6
    decoder_ffn_dim: int = 1536
    encoder_ffn_dim: int = 1536
    activation_function: str = "gelu"
    d_model: int = 384
    init_std: float = 0.02
    max_source_positions: int = 1500
    max_target_positions: int = 448
    tie_word_embeddings: bool = True
    eos_token_id: int | list[int] | None = 50256
    decoder_start_token_id: int | None = 50257
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads"}
    honoured: ClassVar[Mapping[str, Key]] = {
        **FORCED, "alignment_heads": irrelevant("of the times of words"), "forced_decoder_ids": _PROMPT,
        "lang_to_id": _PROMPT, "task_to_id": _PROMPT, "is_multilingual": _PROMPT, "language": _PROMPT, "task": _PROMPT,
        "no_timestamps_token_id": _PROMPT, "prev_sot_token_id": _PROMPT,
        "max_initial_timestamp_index": irrelevant("times are tokens like others"),
        "return_timestamps": irrelevant("times are tokens like others")}
    others: ClassVar[Mapping[str, Key]] = {
        **honoured, "scale_embedding": only(False), "is_encoder_decoder": only(True),
        "num_hidden_layers": irrelevant("encoder_layers says it"),
        "use_weighted_layer_sum": irrelevant("of another head"), "classifier_proj_size": irrelevant("of another head"),
        "median_filter_width": irrelevant("of the times of words"), "apply_spec_augment": _AUGMENT,
        "mask_*": _AUGMENT, "max_length": irrelevant("max_target_positions says it"),
        **{name: irrelevant("of training") for name in (
            "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")}}
    kinds: ClassVar[Mapping[str, Kind]] = {"activation_function": one_of(*ACTIVATIONS)}


class Encoder(Module):
    """Two convolutions, the second of which halves the length, fixed positions, layers."""

    def __init__(self, config: WhisperConfig, dtype: Any) -> None:
        width = config.d_model
        self.conv1 = Conv1d(config.num_mel_bins, width, 3, padding=1, dtype=dtype)
        self.conv2 = Conv1d(width, width, 3, stride=2, padding=1, dtype=dtype)
        self.embed_positions = Embedding(config.max_source_positions, width, dtype=dtype, std=config.init_std)
        self.layers = ModuleList(EncoderLayer("whisper", width, config.encoder_attention_heads, config.encoder_ffn_dim,
                                              config.activation_function, True, False, dtype)
                                 for _ in range(config.encoder_layers))
        self.layer_norm = LayerNorm(width, dtype=dtype)

    def forward(self, features: mo.Tensor) -> mo.Tensor:
        x = mo.gelu(self.conv2(mo.gelu(self.conv1(features))))
        x = mo.matrix_transpose(x) + self.embed_positions.weight  # (batch, positions, width)
        for layer in self.layers:
            x = layer(x, None)
        return self.layer_norm(x)  # type: ignore[no-any-return]


class Decoder(Module):
    def __init__(self, config: WhisperConfig, dtype: Any) -> None:
        width, std = config.d_model, config.init_std
        self.embed_tokens = Embedding(config.vocab_size, width, dtype=dtype, std=std)
        self.embed_positions = Embedding(config.max_target_positions, width, dtype=dtype, std=std)
        self.layers = ModuleList(DecoderLayer("whisper", width, config.decoder_attention_heads, config.decoder_ffn_dim,
                                              config.activation_function, True, False, dtype)
                                 for _ in range(config.decoder_layers))
        self.layer_norm = LayerNorm(width, dtype=dtype)

    def forward(self, ids: mo.Tensor, caches: Caches | None, offset: Any, cross: Any) -> mo.Tensor:
        x = self.embed_tokens(ids) + rows_at(self.embed_positions.weight, ids.shape[1], offset)
        for number, layer in enumerate(self.layers):
            x = layer(x, cross(number), None if caches is None else caches.own[number], offset)
        return self.layer_norm(x)  # type: ignore[no-any-return]


class Body(Module):
    def __init__(self, config: WhisperConfig, dtype: Any) -> None:
        self.encoder, self.decoder = Encoder(config, dtype), Decoder(config, dtype)


class Whisper(LanguageModel):
    """Whisper with its head. `model(features, decoder_ids)` gives logits for each of the decoder's places;
    `model.transcribe(features, prompt)` the tokens of what is said. Features are what `mo.models.LogMel` makes.

    >>> model = mo.models.create("whisper-tiny", vocab_size=100, d_model=8, encoder_layers=1, decoder_layers=1,
    ...     encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    ...     num_mel_bins=4, max_source_positions=10, max_target_positions=12, eos_token_id=1, decoder_start_token_id=2)
    >>> model(mo.zeros((1, 4, 20)), mo.asarray([[2, 5]])).shape
    (1, 2, 100)
    """

    model_type = "whisper"
    config_class = WhisperConfig

    def __init__(self, config: WhisperConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.model = Body(config, dtype)
        self.proj_out = None if config.tie_word_embeddings else Linear(config.d_model, config.vocab_size, False, dtype)

    def encode(self, features: mo.Tensor) -> mo.Tensor:
        """(batch, mel bins, frames) -> (batch, frames / 2, width)."""
        features, config = mo.asarray(features), self.config
        wanted = (config["num_mel_bins"], 2 * config["max_source_positions"])
        if features.ndim != 3 or tuple(features.shape[1:]) != wanted:
            raise fail(ShapeError, "whisper", f"features of shape {tuple(features.shape)} are not (batch, {wanted[0]}, "
                                              f"{wanted[1]})", "make them with mo.models.LogMel")
        return self.model.encoder(features)  # type: ignore[no-any-return]

    def head(self, x: mo.Tensor) -> mo.Tensor:
        return tied_logits(x, self.model.decoder.embed_tokens) if self.proj_out is None else self.proj_out(x)

    def forward(self, features: mo.Tensor, decoder_ids: mo.Tensor) -> mo.Tensor:  # type: ignore[override]
        memory = self.encode(features)
        x = self.model.decoder(mo.asarray(decoder_ids), None, 0,
                               lambda number: lambda attention, y: attention(y, memory))
        return self.head(x)

    # -- generation ----------------------------------------------------------------------------------------------------
    @property
    def context(self) -> int:
        return int(self.config["max_target_positions"])

    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> Any:
        heads, sources = self.config["decoder_attention_heads"], self.config["max_source_positions"]
        depth = self.config["d_model"] // heads
        own, cross = ([KeyValueCache(batch, heads, size, depth, dtype) for _ in self.model.decoder.layers]
                      for size in (length, sources))
        return Caches(own, cross, None)

    def listen(self, features: mo.Tensor, caches: Caches) -> mo.Tensor:
        """Encode sound, and keep what the decoder will look at."""
        memory = self.encode(features)
        for layer, cache in zip(self.model.decoder.layers, caches.cross, strict=True):
            keys, values = layer.encoder_attn.keys_and_values(memory)
            cache.write(keys, values, 0)
        return mo.asarray(0)

    def hidden(self, ids: mo.Tensor, caches: Any = None, offset: Any = 0, *, mask: Any = None, positions: Any = None,
               states: list[mo.Tensor] | None = None) -> mo.Tensor:
        """The decoder's ids, going on from `offset`, over what `listen` kept."""
        if caches is None:
            raise fail(ArgumentError, "whisper", "the decoder needs the encoder's result",
                       "call model(features, decoder_ids)")
        return self.model.decoder(ids, caches, offset, cached_cross(caches))  # type: ignore[no-any-return]

    def transcribe(self, features: Any, prompt: Sequence[int] = (), max_new_tokens: int | None = None) -> Iterator[int]:
        """The likeliest tokens one by one, up to an end token. `prompt` is what the decoder begins with: the start
        token alone by default; language, task and whether there are times are tokens of it."""
        return transcribed(self, np.asarray(features), prompt, max_new_tokens)


SIZES: dict[str, dict[str, Any]] = {
    "whisper-tiny": {},
    "whisper-base": {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
                     "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    return [Rule("proj_out.weight", None)] if settings["tie_word_embeddings"] else []


FAMILIES = (Family("whisper", Whisper, SIZES, Names(
    "proj_out.weight", "model.decoder.embed_tokens.weight", _names)),)
