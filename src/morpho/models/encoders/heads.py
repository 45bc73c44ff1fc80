"""Heads over an encoder's vectors: classes of a text, of each token, or the span that answers a question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import Model
from morpho.models.family import Settings
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module

KINDS = ("", "sequence", "token", "span")
_LACKING = {"sequence": "classifies texts", "token": "classifies tokens", "span": "finds answers"}


class TwoStep(Module):
    """A product, a function, and the product that gives the classes, under RoBERTa's and BART's names."""

    def __init__(self, width: int, labels: int, dtype: Any) -> None:
        self.dense, self.out_proj = Linear(width, width, True, dtype), Linear(width, labels, True, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.out_proj(mo.tanh(self.dense(x)))  # type: ignore[no-any-return]


class WithHeads(Model):
    """A model whose vectors a head may read; `head_kind` is which one it has, "" for none.

    >>> model = mo.models.create("roberta-base", vocab_size=100, hidden_size=8, num_hidden_layers=1, head="token",
    ...                          num_attention_heads=2, intermediate_size=16, max_position_embeddings=16, labels=3)
    >>> model.token_logits(model(mo.asarray([[0, 5, 2]]))).shape
    (1, 3, 3)
    """

    head_kind: str

    def _check_head(self, kind: str) -> None:
        if self.head_kind != kind:
            raise fail(ArgumentError, self.model_type, f"this model has no head that {_LACKING[kind]}",
                       f"make it with head={kind!r}, or load a file that has one")

    def first(self, x: mo.Tensor) -> mo.Tensor:
        """Input of the head for texts: the vector of the first token, through whatever the family has there."""
        return x[:, 0]

    @property
    def most_tokens(self) -> int:
        """The most tokens of a text."""
        return int(self.config["max_position_embeddings"])

    def classify(self, x: mo.Tensor, mask: Any = None) -> mo.Tensor:
        """The encoder's vectors -> logits of the classes of each text: (batch, labels). `mask` (batch, length) is that
        of the tokens, for families whose head reads all of them."""
        self._check_head("sequence")
        return self.classifier(self.first(x))  # type: ignore[no-any-return]

    def token_logits(self, x: mo.Tensor) -> mo.Tensor:
        """The encoder's vectors -> logits of the classes of each token: (batch, length, labels)."""
        self._check_head("token")
        return self.classifier(x)  # type: ignore[no-any-return]

    def span_logits(self, x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        """The encoder's vectors -> logits of where an answer begins and ends: (batch, length) each."""
        self._check_head("span")
        both = self.qa_outputs(x)
        return both[..., 0], both[..., 1]


def labels_of(family: str, head: str, labels: int | None) -> int:
    """How many classes a head has; it must be said."""
    if head in ("sequence", "token") and labels is None:
        raise fail(ArgumentError, family, f"head={head!r} needs labels=, the number of classes")
    return labels or 2


def parts_of(family: str, masked: str) -> Callable[[Settings, Any], dict[str, Any]]:
    """A function that says which parts and head a file of an encoder has; names of the masked tokens' head begin with
    `masked`."""
    def parts(settings: Settings, weights: Any) -> dict[str, Any]:
        pooler = {} if family == "distilbert" else {"pooler": any("pooler." in name for name in weights)}
        return {**pooler, "masked_lm": any(name.startswith(masked) for name in weights),
                **_head(family, settings, weights)}
    return parts


def _head(family: str, settings: Settings, weights: Any) -> dict[str, Any]:
    """A classifier reads texts where something stands before it, or where `architectures` says so; else tokens."""
    if "qa_outputs.weight" in weights:
        return {"head": "span"}
    last = next((name for name in ("classifier.out_proj.weight", "classifier.weight") if name in weights), None)
    if last is None:
        return {}
    said = " ".join(map(str, settings.get("architectures") or ()))
    texts = "out_proj" in last or "pre_classifier.weight" in weights or "SequenceClassification" in said or (
        family == "bert" and "TokenClassification" not in said and any("pooler." in name for name in weights))
    return {"head": "sequence" if texts else "token", "labels": int(weights.shapes[last][0])}
