"""BART: an encoder and a decoder of post-norm blocks with learned positions. Names are the published ones:
`model.encoder.layers.0.self_attn.q_proj.weight`, ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel, key_mask, tied_logits
from morpho.models.config import Config
from morpho.models.encoders.heads import TwoStep, labels_of
from morpho.models.seq2seq.layers import DecoderLayer, EncoderLayer, cached_cross
from morpho.models.text.generation_keys import FORCED
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import KeyValueCache
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.nn.transformer.caches import Caches
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only, token

OFFSET = 2  # rows of a table of positions before the first one


@dataclass
class BartConfig(Config):
    """The settings of a BART; `head` and `labels` say which head the weights have besides that of the next token."""

    vocab_size: int = 50265
    max_position_embeddings: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    activation_function: str = "gelu"
    d_model: int = 1024
    init_std: float = 0.02
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    pad_token_id: int = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2
    head: str = ""
    labels: int | None = None
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads"}
    honoured: ClassVar[Mapping[str, Key]] = FORCED
    others: ClassVar[Mapping[str, Key]] = {
        **FORCED, "is_encoder_decoder": only(True), "num_hidden_layers": irrelevant("encoder_layers says it"),
        "add_bias_logits": only(False), "add_final_layer_norm": only(False), "normalize_before": only(False),
        "normalize_embedding": only(True), "static_position_embeddings": only(False),
        "force_bos_token_to_be_generated": only(False), "extra_pos_embeddings": only(2),
        **{name: irrelevant("of training") for name in (
            "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop",
            "classif_dropout")}}
    kinds: ClassVar[Mapping[str, Kind]] = {"activation_function": one_of(*ACTIVATIONS), "pad_token_id": token(),
                                           "head": one_of("", "sequence", "span")}


class Stack(Module):
    """Positions, a norm of the sum with words, and layers."""

    def __init__(self, config: BartConfig, decoder: bool, dtype: Any) -> None:
        width, names = config.d_model, ("layers", "attention_heads", "ffn_dim")
        count, heads, hidden = (getattr(config, f"{'decoder' if decoder else 'encoder'}_{name}") for name in names)
        self.embed_positions = Embedding(config.max_position_embeddings + OFFSET, width, dtype=dtype,
                                         std=config.init_std)
        self.layernorm_embedding = LayerNorm(width, dtype=dtype)
        kind = DecoderLayer if decoder else EncoderLayer
        self.layers = ModuleList(kind("bart", width, heads, hidden, config.activation_function, False, True, dtype)
                                 for _ in range(count))

    def begin(self, words: mo.Tensor, offset: Any) -> mo.Tensor:
        places = rows_at(self.embed_positions.weight, words.shape[1], offset + OFFSET)
        return self.layernorm_embedding(words + places)  # type: ignore[no-any-return]


class Body(Module):
    def __init__(self, config: BartConfig, dtype: Any) -> None:
        self.shared = Embedding(config.vocab_size, config.d_model, dtype=dtype, std=config.init_std)
        self.encoder, self.decoder = Stack(config, False, dtype), Stack(config, True, dtype)


class Bart(LanguageModel):
    """BART with its head. `model(ids, decoder_ids)` gives logits for each of the decoder's places; `mo.models.generate`
    takes the encoder's ids.

    >>> model = mo.models.create("bart-base", vocab_size=100, d_model=8, encoder_layers=1, encoder_ffn_dim=16,
    ...                          encoder_attention_heads=2, decoder_layers=1, decoder_ffn_dim=16,
    ...                          decoder_attention_heads=2, max_position_embeddings=16)
    >>> model(mo.asarray([[0, 6, 7, 2]]), mo.asarray([[2, 8]])).shape
    (1, 2, 100)
    """

    model_type = "bart"
    config_class = BartConfig

    def __init__(self, config: BartConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.embed_scale = config.d_model ** 0.5 if config.scale_embedding else 1.0
        self.model = Body(config, dtype)
        generates = not config.head
        self.lm_head = Linear(config.d_model, config.vocab_size, False, dtype) \
            if generates and not config.tie_word_embeddings else None
        self.final_logits_bias = Parameter(mo.zeros((1, config.vocab_size), dtype=dtype)) if generates else None
        labels = labels_of("bart", config.head, config.labels)
        self.classification_head = TwoStep(config.d_model, labels, dtype) if config.head == "sequence" else None
        self.qa_outputs = Linear(config.d_model, 2, True, dtype) if config.head == "span" else None
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and name.endswith("proj.weight"):
                parameter.assign(init.normal(parameter.shape, config.init_std, dtype=dtype))  # type: ignore[arg-type]

    def _words(self, ids: mo.Tensor) -> mo.Tensor:
        found = self.model.shared(ids)
        return found if self.embed_scale == 1 else found * self.embed_scale  # type: ignore[no-any-return]

    def encode(self, ids: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """(batch, length) -> (batch, length, width); `mask` is 0 or False at padding."""
        x = self.model.encoder.begin(self._words(ids), 0)
        seen = None if mask is None else key_mask("bart", mask, ids)
        for layer in self.model.encoder.layers:
            x = layer(x, seen)
        return x

    def decode(self, ids: mo.Tensor, memory: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """The decoder's ids (batch, n) -> (batch, n, width), looking at the encoder's result."""
        seen = None if mask is None else key_mask("bart", mask, memory[:, :, 0])
        return self._decoded(ids, None, 0, lambda number: lambda attention, y: attention(y, memory, mask=seen))

    def _decoded(self, ids: mo.Tensor, caches: Caches | None, offset: Any, cross: Any) -> mo.Tensor:
        x = self.model.decoder.begin(self._words(ids), offset)
        for number, layer in enumerate(self.model.decoder.layers):
            x = layer(x, cross(number), None if caches is None else caches.own[number], offset)
        return x

    def head(self, x: mo.Tensor) -> mo.Tensor:
        if self.final_logits_bias is None:
            raise fail(ArgumentError, "bart", "this model has no head for the next token", "it classifies, or finds "
                                                                                           "spans")
        found = tied_logits(x, self.model.shared) if self.lm_head is None else self.lm_head(x)
        return found + self.final_logits_bias

    def forward(self, ids: mo.Tensor, decoder_ids: mo.Tensor, mask: Any = None) -> mo.Tensor:  # type: ignore[override]
        return self.head(self.decode(mo.asarray(decoder_ids), self.encode(mo.asarray(ids), mask), mask))

    # -- heads ---------------------------------------------------------------------------------------------------------
    def _read(self, ids: mo.Tensor, mask: Any) -> mo.Tensor:
        """What the decoder makes of the text itself, shifted by one."""
        start = mo.full((ids.shape[0], 1), self.config["decoder_start_token_id"], dtype=ids.dtype)
        return self.decode(mo.concat([start, ids[:, :-1]], axis=1), self.encode(ids, mask), mask)

    def classify(self, ids: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """Logits of the classes of each text, from the last end token of each: (batch, labels)."""
        if self.classification_head is None:
            raise fail(ArgumentError, "bart", "this model has no head that classifies texts")
        ids, end = mo.asarray(ids), self.config["eos_token_id"]
        x = self._read(ids, mask)
        places = mo.where(ids == end, mo.reshape(mo.arange(ids.shape[1]), (1, -1)), -1)
        last = mo.reshape(mo.max(places, axis=1), (-1, 1, 1))
        picked = mo.take_along_axis(x, mo.broadcast_to(last, (ids.shape[0], 1, x.shape[-1])), axis=1)
        return self.classification_head(picked[:, 0])  # type: ignore[no-any-return]

    def span_logits(self, ids: mo.Tensor, mask: Any = None) -> tuple[mo.Tensor, mo.Tensor]:
        """Logits of where an answer begins and ends: (batch, length) each."""
        if self.qa_outputs is None:
            raise fail(ArgumentError, "bart", "this model has no head that finds answers")
        both = self.qa_outputs(self._read(mo.asarray(ids), mask))
        return both[..., 0], both[..., 1]

    # -- generation ----------------------------------------------------------------------------------------------------
    @property
    def context(self) -> int:
        return int(self.config["max_position_embeddings"])

    def make_caches(self, batch: int, length: int, dtype: Any = mo.float32) -> Any:
        heads = self.config["decoder_attention_heads"]
        depth = self.config["d_model"] // heads
        own, cross = ([KeyValueCache(batch, heads, length, depth, dtype) for _ in self.model.decoder.layers]
                      for _ in range(2))
        return Caches(own, cross, batch)

    def remember(self, ids: mo.Tensor, caches: Caches, lengths: mo.Tensor) -> mo.Tensor:
        """Encode ids (batch, n), of which the first of each row are text, and keep what the decoder will look at."""
        memory = self.encode(ids, mo.expand_dims(mo.arange(ids.shape[1]), axis=0) < mo.expand_dims(lengths, axis=1))
        for layer, cache in zip(self.model.decoder.layers, caches.cross, strict=True):
            keys, values = layer.encoder_attn.keys_and_values(memory)
            cache.write(keys, values, 0)
        caches.lengths.value = lengths
        return mo.asarray(0)

    def hidden(self, ids: mo.Tensor, caches: Any = None, offset: Any = 0, *, mask: Any = None, positions: Any = None,
               states: list[mo.Tensor] | None = None) -> mo.Tensor:
        """The decoder's ids, going on from `offset`, over what `remember` kept."""
        if caches is None:
            raise fail(ArgumentError, "bart", "the decoder needs the encoder's result", "call model(ids, decoder_ids)")
        return self._decoded(ids, caches, offset, cached_cross(caches))


SIZES: dict[str, dict[str, Any]] = {
    "bart-base": {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
                  "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
    "bart-large": {},
}
