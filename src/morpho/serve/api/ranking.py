"""`/v1/rerank` in the form of Jina's and Cohere's clients, and `/v1/score` in vLLM's: how well texts fit a text. A
model with a head of one class reads each pair; of another encoder's vectors it is the cosine of their angle."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import tokens_of
from morpho.serve.api.limits import Limits
from morpho.serve.api.sampling import take_of_others
from morpho.serve.hosting.served import Served

LETTERS = 64  # of a text that is cut, for each token that the model takes: no usual token is longer


@dataclass
class Ranking:
    """Pairs of texts as tokens, and what their scores become: a list in the order of the pairs, or with `ranks` the
    best ones first."""

    served: Served
    name: str  # the field whose text is too long, in errors
    texts: list[tuple[str, str]]
    ranks: bool = False
    documents: list[str] | None = None  # of a ranking, to be given back
    most: int | None = None  # of its results
    tokens: int = 0
    _inputs: list[Any] = field(default_factory=list)
    _rows: dict[str, int] = field(default_factory=dict)  # texts by their row

    def __post_init__(self) -> None:
        served = self.served
        if served.scorer is not None:
            context = served.scorer.context
            try:
                self._inputs = [served.tokenizer.encode_pair(first, second[:context * LETTERS], context)
                                for first, second in self.texts]
            except MorphoError as error:
                raise ApiError(400, error.message or str(error), self.name) from None
            self.tokens = sum(len(ids) for ids, _ in self._inputs)
            return
        if served.embedder is None:
            raise ApiError(400, f"the model '{served.name}' makes text, no scores: serve an encoder too", "model")
        for text in (text for pair in self.texts for text in pair):
            if text not in self._rows:
                self._rows[text] = len(self._inputs)
                self._inputs.append(tokens_of(text, served, self.name, served.context, specials=False))
        self.tokens = sum(map(len, self._inputs))

    def scores(self) -> list[float]:
        """Of the pairs, in their order; takes a while."""
        if self.served.scorer is not None:
            return [float(score) for score in self.served.scorer(self._inputs)]
        vectors = self.served.embed(self._inputs).astype(np.float64)
        return [float(vectors[self._rows[first]] @ vectors[self._rows[second]]) for first, second in self.texts]

    def answer(self, scores: Sequence[float]) -> dict[str, Any]:
        usage = {"prompt_tokens": self.tokens, "total_tokens": self.tokens}
        if self.ranks:
            order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:self.most]
            results = [{"index": place, "relevance_score": scores[place], **(
                {} if self.documents is None else {"document": {"text": self.documents[place]}})} for place in order]
            return {"id": f"rerank-{secrets.token_hex(12)}", "model": self.served.name, "usage": usage,
                    "results": results}
        data = [{"index": place, "object": "score", "score": score} for place, score in enumerate(scores)]
        return {"id": f"score-{secrets.token_hex(12)}", "object": "list", "created": int(time.time()),
                "model": self.served.name, "data": data, "usage": usage}


def rerank_request(fields: Fields, served: Served, limits: Limits) -> Ranking:
    """A query and documents; the best ones come first."""
    query = fields.text("query")
    if not query:
        raise fields.wrong("query", "is missing or empty")
    documents = _texts(fields, "documents", limits)
    most = fields.whole("top_n", None)
    told = fields.flag("return_documents", True)
    take_of_others(fields)
    fields.finish()
    pairs = [(query, text) for text in documents]
    return Ranking(served, "documents", pairs, True, documents if told else None, most or None)


def score_request(fields: Fields, served: Served, limits: Limits) -> Ranking:
    """One text and several, or two lists that are equally long."""
    names = next((pair for pair in (("queries", "documents"), ("data_1", "data_2")) if pair[0] in fields.left()),
                 ("text_1", "text_2"))
    firsts, seconds = (_texts(fields, name, limits) for name in names)
    take_of_others(fields)
    fields.finish()
    if len(firsts) == 1:
        firsts = firsts * len(seconds)
    if len(firsts) != len(seconds):
        raise ApiError(400, f"'{names[0]}' has {len(firsts)} texts and '{names[1]}' {len(seconds)}: one and several, "
                            "or as many", names[1])
    return Ranking(served, names[1], [*zip(firsts, seconds, strict=True)])


def _texts(fields: Fields, name: str, limits: Limits) -> list[str]:
    given = fields.take(name)
    several = [given] if isinstance(given, str | dict) else given
    if not isinstance(several, list) or not 1 <= len(several) <= limits.inputs:
        raise fields.wrong(name, f"is not a text, or a list of 1 to {limits.inputs} texts")
    texts: list[Any] = [each.get("text") if isinstance(each, dict) else each for each in several]
    if not all(isinstance(text, str) and text for text in texts):
        raise fields.wrong(name, "must hold texts that are not empty")
    return texts
