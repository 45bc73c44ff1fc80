"""BERT: an encoder of post-norm blocks, a pooler, a head for masked tokens. Names are the published ones:
`bert.encoder.layer.0.attention.self.query.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import key_mask, tied_logits
from morpho.models.config import Config
from morpho.models.encoders.encoder import Dense, SelfAttention
from morpho.models.encoders.heads import KINDS, WithHeads, labels_of, parts_of
from morpho.models.family import Family, Names, Settings
from morpho.nn import init
from morpho.nn.containers import ModuleList
from morpho.nn.layers.dropout import Dropout
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of, only


@dataclass
class BertConfig(Config):
    """The settings of a BERT; `pooler` and `masked_lm` say which parts it has besides the encoder."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    pooler: bool = True
    masked_lm: bool = True
    head: str = ""  # "sequence", "token" or "span": another head over the vectors, of `labels` classes
    labels: int | None = None
    others: ClassVar[Mapping[str, Key]] = {
        "position_embedding_type": only("absolute", None), "eos_token_id": irrelevant("no text is made"),
        "attention_probs_dropout_prob": irrelevant("of training: attention has no dropout"),
        "directionality": irrelevant("of another program"), "pooler_*": irrelevant("of another program")}
    kinds: ClassVar[Mapping[str, Kind]] = {"hidden_act": one_of(*ACTIVATIONS), "head": one_of(*KINDS)}


class Embeddings(Module):
    """Words, their places and their segments, added and normed."""

    def __init__(self, config: BertConfig, dtype: Any) -> None:
        width, std = config.hidden_size, config.initializer_range
        self.word_embeddings = Embedding(config.vocab_size, width, dtype=dtype, std=std)
        self.position_embeddings = Embedding(config.max_position_embeddings, width, dtype=dtype, std=std)
        self.token_type_embeddings = Embedding(config.type_vocab_size, width, dtype=dtype, std=std)
        self.LayerNorm = LayerNorm(width, config.layer_norm_eps, dtype=dtype)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: mo.Tensor, types: mo.Tensor | None) -> mo.Tensor:
        segments = self.token_type_embeddings.weight[0] if types is None else self.token_type_embeddings(types)
        return self.dropout(self.LayerNorm(self.word_embeddings(ids) + segments + self.places(ids)))  # type: ignore

    def places(self, ids: mo.Tensor) -> mo.Tensor:
        """The vectors of the places where tokens stand."""
        return rows_at(self.position_embeddings.weight, ids.shape[1], 0)


class Output(Module):
    """A product, then the norm of its sum with the residual."""

    def __init__(self, inputs: int, config: BertConfig, dtype: Any) -> None:
        self.dense = Linear(inputs, config.hidden_size, True, dtype)
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=dtype)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: mo.Tensor, residual: mo.Tensor) -> mo.Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)  # type: ignore[no-any-return]


class Attention(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self.self = SelfAttention("bert", config.hidden_size, config.num_attention_heads, True, dtype)
        self.output = Output(config.hidden_size, config, dtype)

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None) -> mo.Tensor:
        return self.output(self.self(x, mask), x)  # type: ignore[no-any-return]


class Layer(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self._function = activation(config.hidden_act)
        self.attention = Attention(config, dtype)
        self.intermediate = Dense(config.hidden_size, config.intermediate_size, dtype)
        self.output = Output(config.intermediate_size, config, dtype)

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None) -> mo.Tensor:
        x = self.attention(x, mask)
        return self.output(self._function(self.intermediate(x)), x)  # type: ignore[no-any-return]


class Encoder(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self.layer = ModuleList(Layer(config, dtype) for _ in range(config.num_hidden_layers))

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None) -> mo.Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Body(Module):
    def __init__(self, config: BertConfig, dtype: Any, embeddings: type[Embeddings] = Embeddings) -> None:
        self.embeddings = embeddings(config, dtype)
        self.encoder = Encoder(config, dtype)
        self.pooler = Dense(config.hidden_size, config.hidden_size, dtype) if config.pooler else None


class Transform(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self._function = activation(config.hidden_act)
        self.dense = Linear(config.hidden_size, config.hidden_size, True, dtype)
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps, dtype=dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.LayerNorm(self._function(self.dense(x)))  # type: ignore[no-any-return]


class Predictions(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self.transform = Transform(config, dtype)
        self.bias = Parameter(mo.zeros((config.vocab_size,), dtype=dtype))
        tied = config.tie_word_embeddings
        self.decoder = None if tied else Linear(config.hidden_size, config.vocab_size, False, dtype)


class Heads(Module):
    def __init__(self, config: BertConfig, dtype: Any) -> None:
        self.predictions = Predictions(config, dtype)


def first_values(model: Module, std: float, dtype: Any) -> None:
    """Matrices drawn, biases 0."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embeddings" not in name:
            parameter.assign(init.normal(parameter.shape, std, dtype=dtype))  # type: ignore[arg-type]
        elif name.endswith("bias"):
            parameter.assign(mo.zeros(parameter.shape, dtype=dtype))


class Bert(WithHeads):
    """BERT: `model(ids)` gives the encoder's vectors, `model.pooled(...)` the pooler's, `model.logits(...)` those of
    the head for masked tokens, whose matrix is the embedding unless `tie_word_embeddings` is off.

    >>> model = mo.models.create("bert-base", vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...                          intermediate_size=16, max_position_embeddings=16)
    >>> x = model(mo.asarray([[1, 2, 3]]))
    >>> x.shape, model.pooled(x).shape, model.logits(x).shape
    ((1, 3, 8), (1, 8), (1, 3, 100))
    """

    model_type = "bert"
    config_class = BertConfig

    def __init__(self, config: BertConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.bert = Body(config, dtype)
        self.cls = Heads(config, dtype) if config.masked_lm else None
        self.head_kind, width = config.head, config.hidden_size
        labels = labels_of("bert", config.head, config.labels)
        self.classifier = Linear(width, labels, True, dtype) if config.head in ("sequence", "token") else None
        self.qa_outputs = Linear(width, 2, True, dtype) if config.head == "span" else None
        first_values(self, config.initializer_range, dtype)

    def forward(self, ids: mo.Tensor, mask: Any = None, types: mo.Tensor | None = None) -> mo.Tensor:
        """ids (batch, length) -> (batch, length, width). `mask` (batch, length) is 1 or True at tokens, 0 at padding;
        `types` (batch, length) are the numbers of the segments."""
        if mask is not None:
            mask = key_mask("bert", mask, ids)
        return self.bert.encoder(self.bert.embeddings(ids, types), mask)  # type: ignore[no-any-return]

    def pooled(self, x: mo.Tensor) -> mo.Tensor:
        """The vector of the first token through a product and tanh: (batch, width)."""
        if self.bert.pooler is None:
            raise fail(ArgumentError, "bert", "this model has no pooler", "make it with pooler=True")
        return mo.tanh(self.bert.pooler(x[:, 0]))

    def first(self, x: mo.Tensor) -> mo.Tensor:
        return self.pooled(x)

    def logits(self, x: mo.Tensor) -> mo.Tensor:
        """Of every token at every place: (batch, length, vocabulary)."""
        if self.cls is None:
            raise fail(ArgumentError, "bert", "this model has no head for masked tokens", "make it with masked_lm=True")
        heads = self.cls.predictions
        x = heads.transform(x)
        words = self.bert.embeddings.word_embeddings
        return (tied_logits(x, words) if heads.decoder is None else heads.decoder(x)) + heads.bias


SIZES: dict[str, dict[str, Any]] = {
    "bert-base": {},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    old = [rule for ours, theirs in (("weight", "gamma"), ("bias", "beta")) for rule in (
        Rule(f"cls.{{rest:*}}.{theirs}", f"cls.{{rest}}.{ours}"),
        Rule(f"(bert.){{rest:*}}.{theirs}", f"bert.{{rest}}.{ours}"))]
    head = [Rule("cls.predictions.decoder.weight", None)] if settings["tie_word_embeddings"] else []
    if "cls.predictions.decoder.bias" in names:  # newer files say it twice, and this one is added
        head += [Rule("cls.predictions.bias", None), Rule("cls.predictions.decoder.bias", "cls.predictions.bias")]
    return [
        Rule("(bert.)embeddings.position_ids", None),
        Rule("cls.seq_relationship.{what}", None),  # of the next sentence
        *head,
        *old,
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in ("cls", "classifier", "qa_outputs")),
        Rule("(bert.){rest:*}", "bert.{rest}"),
    ]


FAMILIES = (Family("bert", Bert, SIZES, Names(
    "cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", _names,
    parts=parts_of("bert", "cls.predictions"))),)
