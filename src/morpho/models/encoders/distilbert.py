"""DistilBERT: post-norm blocks without segments. Names are the published ones:
`distilbert.transformer.layer.0.attention.q_lin.weight`, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import divided, key_mask, tied_logits
from morpho.models.config import Config
from morpho.models.encoders.bert import first_values
from morpho.models.encoders.heads import KINDS, WithHeads, labels_of, parts_of
from morpho.models.family import Family, Names, Settings
from morpho.nn.containers import ModuleList
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.norm import LayerNorm
from morpho.nn.module import Module
from morpho.nn.transformer.attention import attend, join_heads, split_heads
from morpho.nn.transformer.blocks import ACTIVATIONS, activation
from morpho.nn.transformer.positions import rows_at
from morpho.tensor.state.variable import Parameter
from morpho.weights import Rule
from morpho.weights.keys import Key, Kind, irrelevant, one_of

EPS = 1e-12


@dataclass
class DistilBertConfig(Config):
    """The settings of a DistilBERT; `masked_lm` and `head` say which parts it has besides the encoder."""

    vocab_size: int = 30522
    max_position_embeddings: int = 512
    n_layers: int = 6
    n_heads: int = 12
    dim: int = 768
    hidden_dim: int = 3072
    activation: str = "gelu"
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    masked_lm: bool = True
    head: str = ""
    labels: int | None = None
    renamed: ClassVar[Mapping[str, str]] = {"hidden_size": "dim", "num_attention_heads": "n_heads",
                                            "num_hidden_layers": "n_layers"}
    others: ClassVar[Mapping[str, Key]] = {
        "sinusoidal_pos_embds": irrelevant("the table of positions is in the file"),
        "attention_dropout": irrelevant("of training: attention has no dropout"), "dropout": irrelevant("of training"),
        "qa_dropout": irrelevant("of training"), "seq_classif_dropout": irrelevant("of training"),
        "tie_weights_": irrelevant("tie_word_embeddings says it"), "eos_token_id": irrelevant("no text is made")}
    kinds: ClassVar[Mapping[str, Kind]] = {"activation": one_of(*ACTIVATIONS), "head": one_of(*KINDS)}


class Embeddings(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self.word_embeddings = Embedding(config.vocab_size, config.dim, dtype=dtype, std=config.initializer_range)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.dim, dtype=dtype,
                                             std=config.initializer_range)
        self.LayerNorm = LayerNorm(config.dim, EPS, dtype=dtype)

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        places = rows_at(self.position_embeddings.weight, ids.shape[1], 0)
        return self.LayerNorm(self.word_embeddings(ids) + places)  # type: ignore[no-any-return]


class Attention(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        divided("distilbert", config.dim, config.n_heads, ("dim", "n_heads"))
        self.heads = config.n_heads
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (Linear(config.dim, config.dim, True, dtype)
                                                            for _ in range(4))

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None) -> mo.Tensor:
        q, k, v = (split_heads(part(x), self.heads) for part in (self.q_lin, self.k_lin, self.v_lin))
        return self.out_lin(join_heads(attend(q, k, v, mask=mask)))  # type: ignore[no-any-return]


class FeedForward(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self._function = activation(config.activation)
        self.lin1 = Linear(config.dim, config.hidden_dim, True, dtype)
        self.lin2 = Linear(config.hidden_dim, config.dim, True, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.lin2(self._function(self.lin1(x)))  # type: ignore[no-any-return]


class Layer(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self.attention, self.ffn = Attention(config, dtype), FeedForward(config, dtype)
        self.sa_layer_norm, self.output_layer_norm = (LayerNorm(config.dim, EPS, dtype=dtype) for _ in range(2))

    def forward(self, x: mo.Tensor, mask: mo.Tensor | None) -> mo.Tensor:
        x = self.sa_layer_norm(x + self.attention(x, mask))
        return self.output_layer_norm(x + self.ffn(x))  # type: ignore[no-any-return]


class Stack(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self.layer = ModuleList(Layer(config, dtype) for _ in range(config.n_layers))


class Body(Module):
    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self.embeddings, self.transformer = Embeddings(config, dtype), Stack(config, dtype)


class Projector(Module):
    """The head's matrix, which is the embedding where they are tied, and its bias."""

    def __init__(self, config: DistilBertConfig, dtype: Any) -> None:
        self.weight = None if config.tie_word_embeddings else Parameter(mo.zeros((config.vocab_size, config.dim),
                                                                                 dtype=dtype))
        self.bias = Parameter(mo.zeros((config.vocab_size,), dtype=dtype))


class DistilBert(WithHeads):
    """DistilBERT: `model(ids)` gives the encoder's vectors, `model.logits(...)` those of the head for masked tokens.

    >>> model = mo.models.create("distilbert-base", vocab_size=100, dim=8, n_layers=1, n_heads=2, hidden_dim=16)
    >>> model.logits(model(mo.asarray([[1, 2, 3]]))).shape
    (1, 3, 100)
    """

    model_type = "distilbert"
    config_class = DistilBertConfig

    def __init__(self, config: DistilBertConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        self.head_kind, width, masked = config.head, config.dim, config.masked_lm
        self._function = activation(config.activation)
        self.distilbert = Body(config, dtype)
        self.vocab_transform = Linear(width, width, True, dtype) if masked else None
        self.vocab_layer_norm = LayerNorm(width, EPS, dtype=dtype) if masked else None
        self.vocab_projector = Projector(config, dtype) if masked else None
        labels = labels_of("distilbert", config.head, config.labels)
        self.pre_classifier = Linear(width, width, True, dtype) if config.head == "sequence" else None
        self.classifier = Linear(width, labels, True, dtype) if config.head in ("sequence", "token") else None
        self.qa_outputs = Linear(width, 2, True, dtype) if config.head == "span" else None
        first_values(self, config.initializer_range, dtype)

    def forward(self, ids: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """ids (batch, length) -> (batch, length, width). `mask` (batch, length) is 1 or True at tokens, 0 at
        padding."""
        ids = mo.asarray(ids)
        seen = None if mask is None else key_mask("distilbert", mask, ids)
        x = self.distilbert.embeddings(ids)
        for layer in self.distilbert.transformer.layer:
            x = layer(x, seen)
        return x  # type: ignore[no-any-return]

    def first(self, x: mo.Tensor) -> mo.Tensor:
        return mo.relu(self.pre_classifier(x[:, 0]))  # type: ignore[misc]

    def logits(self, x: mo.Tensor) -> mo.Tensor:
        """Of every token at every place: (batch, length, vocabulary)."""
        last = self.vocab_projector
        if last is None:
            raise fail(ArgumentError, "distilbert", "this model has no head for masked tokens",
                       "make it with masked_lm=True")
        x = self.vocab_layer_norm(self._function(self.vocab_transform(x)))  # type: ignore[misc]
        tied = last.weight is None
        found = tied_logits(x, self.distilbert.embeddings.word_embeddings) if tied else tied_logits(x, last)
        return found + last.bias


SIZES: dict[str, dict[str, Any]] = {"distilbert-base": {}}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    heads = ("vocab_transform", "vocab_layer_norm", "vocab_projector", "pre_classifier", "classifier", "qa_outputs")
    return [
        *([Rule("vocab_projector.weight", None)] if settings["tie_word_embeddings"] else []),
        *(Rule(f"{name}.{{rest:*}}", f"{name}.{{rest}}") for name in heads),
        Rule("(distilbert.){rest:*}", "distilbert.{rest}"),
    ]


FAMILIES = (Family("distilbert", DistilBert, SIZES, Names(
    "vocab_projector.weight", "embeddings.word_embeddings.weight", _names,
    parts=parts_of("distilbert", "vocab_"))),)
