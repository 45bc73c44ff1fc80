"""RoBERTa: BERT's encoder with positions that begin after the number of the padding token, and another head. Names are
the published ones: `roberta.encoder.layer.0.attention.self.query.weight`, `lm_head.dense.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import key_mask, tied_logits
from morpho.models.config import Config
from morpho.models.encoders.bert import Body, Embeddings, first_values
from morpho.models.encoders.heads import KINDS, TwoStep, WithHeads, labels_of, parts_of
from morpho.models.family import Family, Names, Settings
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.blocks import ACTIVATIONS
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only, token


@dataclass
class RobertaConfig(Config):
    """The settings of a RoBERTa; `pooler`, `masked_lm` and `head` say which parts it has besides the encoder."""

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    pad_token_id: int = 1
    pooler: bool = False
    masked_lm: bool = True
    head: str = ""
    labels: int | None = None
    others: ClassVar[Mapping[str, Key]] = {
        "position_embedding_type": only("absolute", None), "eos_token_id": irrelevant("no text is made"),
        "attention_probs_dropout_prob": irrelevant("of training: attention has no dropout")}
    kinds: ClassVar[Mapping[str, Kind]] = {"hidden_act": one_of(*ACTIVATIONS), "pad_token_id": token(),
                                           "head": one_of(*KINDS)}


class RobertaEmbeddings(Embeddings):
    """Positions count the tokens that are not padding, from the padding token's number on."""

    def __init__(self, config: RobertaConfig, dtype: Any) -> None:
        super().__init__(config, dtype)  # type: ignore[arg-type]
        self.padding = config.pad_token_id

    def places(self, ids: mo.Tensor) -> mo.Tensor:
        seen = (ids != self.padding).astype(mo.int64)
        places = mo.cumulative_sum(seen, axis=1) * seen + self.padding
        return rows_at(self.position_embeddings.weight, ids.shape[1], places)


class LanguageHead(Module):
    def __init__(self, config: RobertaConfig, dtype: Any) -> None:
        width, tied = config.hidden_size, config.tie_word_embeddings
        self.dense = Linear(width, width, True, dtype)
        self.layer_norm = LayerNorm(width, config.layer_norm_eps, dtype=dtype)
        self.bias = Parameter(mo.zeros((config.vocab_size,), dtype=dtype))
        self.decoder = None if tied else Linear(width, config.vocab_size, False, dtype)


class Roberta(WithHeads):
    """RoBERTa: `model(ids)` gives the encoder's vectors, `model.logits(...)` those of the head for masked tokens.

    >>> model = mo.models.create("roberta-base", vocab_size=100, hidden_size=8, num_hidden_layers=1,
    ...                          num_attention_heads=2, intermediate_size=16, max_position_embeddings=16)
    >>> model.logits(model(mo.asarray([[0, 5, 2]]))).shape
    (1, 3, 100)
    """

    model_type = "roberta"
    config_class = RobertaConfig

    def __init__(self, config: RobertaConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.head_kind, width = config.head, config.hidden_size
        self.roberta = Body(config, dtype, RobertaEmbeddings)  # type: ignore[arg-type]
        self.lm_head = LanguageHead(config, dtype) if config.masked_lm else None
        labels = labels_of("roberta", config.head, config.labels)
        self.classifier = TwoStep(width, labels, dtype) if config.head == "sequence" else \
            Linear(width, labels, True, dtype) if config.head == "token" else None
        self.qa_outputs = Linear(width, 2, True, dtype) if config.head == "span" else None
        first_values(self, config.initializer_range, dtype)

    def forward(self, ids: mo.Tensor, mask: Any = None, types: mo.Tensor | None = None) -> mo.Tensor:
        """ids (batch, length) -> (batch, length, width). `mask` (batch, length) is 1 or True at tokens, 0 at
        padding."""
        ids = mo.asarray(ids)
        seen = None if mask is None else key_mask("roberta", mask, ids)
        return self.roberta.encoder(self.roberta.embeddings(ids, types), seen)  # type: ignore[no-any-return]

    @property
    def most_tokens(self) -> int:
        return int(self.config["max_position_embeddings"]) - int(self.config["pad_token_id"]) - 1

    def pooled(self, x: mo.Tensor) -> mo.Tensor:
        """The vector of the first token through a product and tanh: (batch, width)."""
        if self.roberta.pooler is None:
            raise fail(ArgumentError, "roberta", "this model has no pooler", "make it with pooler=True")
        return mo.tanh(self.roberta.pooler(x[:, 0]))

    def logits(self, x: mo.Tensor) -> mo.Tensor:
        """Of every token at every place: (batch, length, vocabulary)."""
        head = self.lm_head
        if head is None:
            raise fail(ArgumentError, "roberta", "this model has no head for masked tokens",
                       "make it with masked_lm=True")
        x = head.layer_norm(mo.gelu(head.dense(x)))
        words = self.roberta.embeddings.word_embeddings
        return (tied_logits(x, words) if head.decoder is None else head.decoder(x)) + head.bias


SIZES: dict[str, dict[str, Any]] = {
    "roberta-base": {},
    "roberta-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                      "intermediate_size": 4096},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    head = [Rule("lm_head.decoder.weight", None)] if settings["tie_word_embeddings"] else []
    if "lm_head.decoder.bias" in names:  # the same numbers twice, and this one is added
        head += [Rule("lm_head.bias", None), Rule("lm_head.decoder.bias", "lm_head.bias")]
    return [
        Rule("(roberta.)embeddings.position_ids", None), *head,
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in ("lm_head", "classifier", "qa_outputs")),
        Rule("(roberta.){rest:*}", "roberta.{rest}"),
    ]


class XlmRoberta(Roberta):
    """XLM-RoBERTa: RoBERTa with the words of a hundred languages."""

    model_type = "xlm-roberta"


class Camembert(Roberta):
    """CamemBERT: RoBERTa in French."""

    model_type = "camembert"


NAMES = Names("lm_head.decoder.weight", "embeddings.word_embeddings.weight", _names,
              parts=parts_of("roberta", "lm_head."))
FAMILIES = (Family("roberta", Roberta, SIZES, NAMES),
            Family("xlm-roberta", XlmRoberta, {"xlm-roberta-base": {"vocab_size": 250002}}, NAMES),
            Family("camembert", Camembert, {"camembert-base": {"vocab_size": 32005}}, NAMES))
