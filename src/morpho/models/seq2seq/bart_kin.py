"""BART's kin: mBART, Pegasus, Marian, M2M-100 (and NLLB), Blenderbot. Each is a BART in another `Form`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from morpho.models.family import Family, Names, Settings
from morpho.models.seq2seq.bart import FAMILIES as BART
from morpho.models.seq2seq.bart import TWICE, Bart, BartConfig, Form
from morpho.weights.keys import Key, Kind, irrelevant, only

_ON = {"normalize_before": only(True), "add_final_layer_norm": only(True),
       "num_beams": irrelevant("of generation"), "tokenizer_class": irrelevant("tokenizer.json says it"),
       "classifier_dropout": irrelevant("of training")}


@dataclass
class MBartConfig(BartConfig):
    """The settings of an mBART."""

    decoder_start_token_id: int | None = None
    family: ClassVar[str] = "mbart"
    form: ClassVar[Form] = Form(first=True, final_norm=True)
    others: ClassVar[Mapping[str, Key]] = {**BartConfig.others, **_ON}


@dataclass
class BlenderbotConfig(BartConfig):
    """The settings of a Blenderbot."""

    vocab_size: int = 8008
    max_position_embeddings: int = 128
    pad_token_id: int = 0
    decoder_start_token_id: int | None = 1
    family: ClassVar[str] = "blenderbot"
    form: ClassVar[Form] = Form(first=True, embed_norm=False, final_norm=True, offset=0)
    others: ClassVar[Mapping[str, Key]] = {
        **BartConfig.others, **_ON, "normalize_embedding": only(False), "extra_pos_embeddings": only(0),
        "layernorm_variant": only("prelayernorm"), "do_blenderbot_90_layernorm": irrelevant("of another program"),
        "encoder_no_repeat_ngram_size": irrelevant("of generation")}


@dataclass
class PegasusConfig(BartConfig):
    """The settings of a Pegasus; `stored_positions` says that the file has its table of sines."""

    pad_token_id: int = 0
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = 0
    stored_positions: bool = False
    family: ClassVar[str] = "pegasus"
    form: ClassVar[Form] = Form(first=True, embed_norm=False, final_norm=True, positions="halves", offset=0)
    others: ClassVar[Mapping[str, Key]] = {
        **BartConfig.others, **_ON, "normalize_embedding": only(False), "static_position_embeddings": only(True),
        "extra_pos_embeddings": irrelevant("there are none")}


@dataclass
class MarianConfig(BartConfig):
    """The settings of a Marian, which the OPUS-MT translators are."""

    vocab_size: int = 58101
    pad_token_id: int = 58100
    eos_token_id: int | list[int] | None = 0
    decoder_start_token_id: int | None = 58100
    decoder_vocab_size: int | None = None
    family: ClassVar[str] = "marian"
    form: ClassVar[Form] = Form(embed_norm=False, positions="halves", offset=0)
    kinds: ClassVar[Mapping[str, Kind]] = BartConfig.kinds
    others: ClassVar[Mapping[str, Key]] = {
        **BartConfig.others, "share_encoder_decoder_embeddings": only(True), "normalize_embedding": only(False),
        "static_position_embeddings": only(True), "num_beams": irrelevant("of generation"),
        "extra_pos_embeddings": irrelevant("there are none"), "_num_labels": irrelevant("of another head")}


@dataclass
class M2M100Config(BartConfig):
    """The settings of an M2M-100 or NLLB."""

    vocab_size: int = 128112
    activation_function: str = "relu"
    scale_embedding: bool = True
    family: ClassVar[str] = "m2m_100"
    form: ClassVar[Form] = Form(first=True, embed_norm=False, final_norm=True, positions="pairs", logits_bias=False)
    others: ClassVar[Mapping[str, Key]] = {**BartConfig.others, **_ON, "normalize_embedding": only(False),
                                           "static_position_embeddings": only(True),
                                           "decoder_layerdrop": irrelevant("of training")}


def _parts(settings: Settings, weights: Any) -> dict[str, Any]:
    return {"stored_positions": "model.encoder.embed_positions.weight" in weights}


def _family(title: str, config: type[BartConfig], parts: Any = lambda settings, weights: {}) -> Family:
    model = type(title, (Bart,), {"model_type": config.family, "config_class": config, "__module__": __name__})
    return Family(config.family, model, {config.family: {}}, Names(
        "lm_head.weight", "model.shared.weight", BART[0].names.rules, twice=TWICE, parts=parts))


FAMILIES = (
    _family("MBart", MBartConfig), _family("Blenderbot", BlenderbotConfig),
    _family("Pegasus", PegasusConfig, _parts), _family("Marian", MarianConfig), _family("M2M100", M2M100Config),
)
