"""BART: an encoder and a decoder of post-norm blocks with learned positions. Names are the published ones:
`model.encoder.layers.0.self_attn.q_proj.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import tied_logits
from morpho.models.config import Config
from morpho.models.cuts import TwoPartCuts
from morpho.models.decoder.model import sines
from morpho.models.encoders.heads import TwoStep, labels_of
from morpho.models.family import Family, Names, Settings, tied_head
from morpho.models.registry import record
from morpho.models.seq2seq.layers import DecoderLayer, EncoderLayer
from morpho.models.seq2seq.two_part import Cross, TwoPartModel
from morpho.models.text.generation_keys import FORCED
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only, token


@dataclass(frozen=True)
class Form:
    """Differences between BART's kin: whether parts see a normed input, norms of the embeddings and behind each side,
    and positions: "learned", with rows before the first one, or sines ("halves" as Marian's, "pairs" as M2M-100's)."""

    first: bool = False
    embed_norm: bool = True
    final_norm: bool = False
    positions: str = "learned"
    offset: int = 2
    logits_bias: bool = True


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
    family: ClassVar[str] = "bart"
    form: ClassVar[Form] = Form()
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads"}
    shared: ClassVar[tuple[str, ...]] = ("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
                                         "decoder_ffn_dim", "d_model")
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
        form = config.form
        self.offset = config.pad_token_id + 1 if form.positions == "pairs" else form.offset
        rows = config.max_position_embeddings + self.offset
        learned = form.positions == "learned" or getattr(config, "stored_positions", False)
        self.embed_positions = Embedding(rows, width, dtype=dtype, std=config.init_std) if learned else None
        self.sines = None if learned else (sines(rows, width, config.pad_token_id) if form.positions == "pairs" else
                                           _halves(rows, width))
        self.layernorm_embedding = LayerNorm(width, dtype=dtype) if form.embed_norm else None
        kind = DecoderLayer if decoder else EncoderLayer
        self.layers = ModuleList(kind(config.family, width, heads, hidden, config.activation_function, form.first,
                                      True, dtype) for _ in range(count))
        self.layer_norm = LayerNorm(width, dtype=dtype) if form.final_norm else None

    def begin(self, words: mo.Tensor, offset: Any) -> mo.Tensor:
        table = self.sines if self.embed_positions is None else self.embed_positions.weight
        x = words + rows_at(table, words.shape[1], offset + self.offset).astype(words.dtype)  # type: ignore[arg-type]
        return x if self.layernorm_embedding is None else self.layernorm_embedding(x)


def _halves(rows: int, width: int) -> mo.Tensor:
    """Marian's table of positions, (rows, width): sines, then cosines."""
    powers = 10000.0 ** (2 * (np.arange(width) // 2) / width)
    angles = np.arange(rows)[:, None] / powers
    table = np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1)
    return mo.asarray(table.astype(np.float32)).realise()


class Body(Module):
    def __init__(self, config: BartConfig, dtype: Any) -> None:
        self.shared = Embedding(config.vocab_size, config.d_model, dtype=dtype, std=config.init_std)
        self.encoder, self.decoder = Stack(config, False, dtype), Stack(config, True, dtype)


class Bart(TwoPartModel):
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
    cuts = TwoPartCuts(
        ("model.shared", "model.encoder.embed_positions", "model.encoder.layernorm_embedding"), "model.shared",
        "model.decoder.layers", ("model.decoder.layer_norm",), "model.encoder.layers", ("model.encoder.layer_norm",),
        ("model.shared", "model.decoder.embed_positions", "model.decoder.layernorm_embedding"))

    def __init__(self, config: BartConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.eos_token_id = config.eos_token_id
        self.embed_scale = config.d_model ** 0.5 if config.scale_embedding else 1.0
        self.model = Body(config, dtype)
        generates = not config.head
        self.lm_head = Linear(config.d_model, config.vocab_size, False, dtype) \
            if generates and not config.tie_word_embeddings else None
        self.final_logits_bias = Parameter(mo.zeros((1, config.vocab_size), dtype=dtype)) \
            if generates and config.form.logits_bias else None
        labels = labels_of(self.model_type, config.head, config.labels)
        self.classification_head = TwoStep(config.d_model, labels, dtype) if config.head == "sequence" else None
        self.qa_outputs = Linear(config.d_model, 2, True, dtype) if config.head == "span" else None
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2 and name.endswith("proj.weight"):
                parameter.assign(init.normal(parameter.shape, config.init_std, dtype=dtype))  # type: ignore[arg-type]

    def _words(self, ids: mo.Tensor) -> mo.Tensor:
        found = self.model.shared(ids)
        return found if self.embed_scale == 1 else found * self.embed_scale  # type: ignore[no-any-return]

    def enter(self, ids: mo.Tensor, decoder: bool, offset: Any = 0) -> mo.Tensor:
        return (self.model.decoder if decoder else self.model.encoder).begin(self._words(ids), offset)

    def bias(self, decoder: bool, queries: Any, keys: Any, offset: Any = 0) -> None:
        return None

    def encoder_step(self, block: Any, x: mo.Tensor, bias: Any) -> mo.Tensor:
        return block(x, bias)  # type: ignore[no-any-return]

    def decoder_step(self, block: Any, x: mo.Tensor, bias: Any, cross: Cross, cache: Any, offset: Any) -> mo.Tensor:
        return block(x, cross, cache, offset)  # type: ignore[no-any-return]

    def leave(self, x: mo.Tensor, decoder: bool) -> mo.Tensor:
        norm = (self.model.decoder if decoder else self.model.encoder).layer_norm
        return x if norm is None else norm(x)

    def cross_attention(self, block: Any) -> Any:
        return block.encoder_attn

    def cache_shape(self, block: Any) -> tuple[int, int]:
        return block.self_attn.heads, block.self_attn.depth

    def head(self, x: mo.Tensor) -> mo.Tensor:
        if self.config["head"]:
            raise fail(ArgumentError, self.model_type, "this model has no head for the next token",
                       "it classifies, or finds spans")
        found = tied_logits(x, self.model.shared) if self.lm_head is None else self.lm_head(x)
        return found if self.final_logits_bias is None else found + self.final_logits_bias

    # -- heads ---------------------------------------------------------------------------------------------------------
    def _read(self, ids: mo.Tensor, mask: Any) -> mo.Tensor:
        """Run the decoder over the text itself, shifted by one."""
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


SIZES: dict[str, dict[str, Any]] = {
    "bart-base": {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
                  "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
    "bart-large": {},
}


TWICE = {f"model.{part}.embed_tokens.weight": "model.shared.weight" for part in ("encoder", "decoder")}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    shared = "model.shared.weight"
    old = [Rule(name, None) for name in TWICE] if shared in names else [
        Rule("model.decoder.embed_tokens.weight", None), Rule("model.encoder.embed_tokens.weight", shared)]
    head = [Rule("final_logits_bias", None)] if settings["head"] else []
    kind = record(settings["model_type"]).model.config_class
    if kind.form.positions != "learned" and not settings.get("stored_positions"):  # type: ignore[attr-defined]
        head += [Rule(f"model.{side}.embed_positions.weight{end}", None) for side in ("encoder", "decoder")
                 for end in ("", "s")]
    return [*tied_head(settings), *old, *head]


def _parts(settings: Settings, weights: Any) -> dict[str, Any]:
    if "final_logits_bias" in weights:
        return {}
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    last = "classification_head.out_proj.weight"
    return {"head": "sequence", "labels": int(weights.shapes[last][0])} if last in weights else {}


FAMILIES = (Family("bart", Bart, SIZES, Names(
    "lm_head.weight", "model.shared.weight", _names, twice=TWICE, parts=_parts)),)
