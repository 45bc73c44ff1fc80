"""How the last stage chooses the tokens of a request: as the engine of one process does, with bias, penalties, grammars
and log-probabilities.

A text may go on in another process, after the one that chose its tokens is gone: everything here is made anew from the
request and the tokens there are, and then stands where it stood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from morpho.cluster.pipeline.request import Request, Stream
from morpho.models.files.loading import outline
from morpho.models.text.sampling import forbidden
from morpho.serve.engine.grammar import Grammars
from morpho.serve.engine.request import Grammar, SamplingParams
from morpho.serve.engine.sampler import Sampler, logprobs_of

PLAIN = ("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "frequency_penalty",
         "presence_penalty", "logprobs", "min_tokens")


def to_plain(params: SamplingParams, index: int) -> dict[str, Any]:
    """Sampling settings of a request's text number `index` for the last stage, as data for JSON.

    >>> from morpho.serve.spread.choosing import of_plain, to_plain
    >>> from morpho.serve.engine.request import Grammar, SamplingParams
    >>> params = SamplingParams(temperature=0.5, seed=1, logit_bias={7: -1.0}, grammar=Grammar("regex", "[0-9]+"))
    >>> of_plain(to_plain(params, 2)) == (params, 2)
    True
    """
    found: dict[str, Any] = {name: getattr(params, name) for name in PLAIN}
    found["allowed_token_ids"] = [*params.allowed_token_ids]
    found["logit_bias"] = [[token, bias] for token, bias in params.logit_bias.items()]
    found["grammar"] = None if params.grammar is None else [params.grammar.kind, params.grammar.source]
    return {**found, "index": index}


def of_plain(said: Mapping[str, Any]) -> tuple[SamplingParams, int]:
    """Read what `to_plain` wrote."""
    grammar = None if said["grammar"] is None else Grammar(*said["grammar"])
    params = SamplingParams(logit_bias={token: bias for token, bias in said["logit_bias"]}, grammar=grammar,
                            allowed_token_ids=tuple(said["allowed_token_ids"]),
                            **{name: said[name] for name in PLAIN})
    return params, said["index"]


class ServedStream(Stream):
    """A text of a server at the last stage."""

    def __init__(self, request: Request, made: Sequence[int], grammars: Grammars) -> None:
        super().__init__(request, made)
        params, index = of_plain(request.more)
        self._params = params
        self._sampler = Sampler(params, request.prompt, index, request.stops)
        self._matcher = None if params.grammar is None else grammars.matcher(params.grammar)
        if params.temperature:
            self._sampler.rng.random(len(self.made))  # one was drawn for each token
        for token in self.made:
            self._took(token)

    def _took(self, token: int) -> None:
        self._sampler.took(token)
        complete = self._matcher is not None and self._matcher.took(token)
        if complete:
            self.ended, self.finish = True, "stop"

    def take(self, logits: np.ndarray) -> int | None:
        told = forbidden(logits, self.request.said, len(self.made), self.request.count)
        token = self._sampler.choose(told, *((None, None) if self._matcher is None else self._matcher.choice()))
        if token in self.request.stops:
            self.ended, self.finish = True, "stop"
            return None
        self.made.append(token)
        self.ended = len(self.made) >= self.request.count
        self._took(token)
        self.told = {}
        if self._params.logprobs is not None:
            logprob, top = logprobs_of(logits, token, self._params.logprobs)
            self.told = {"logprob": logprob, "top": top}
        if self.finish == "stop":
            self.told["complete"] = True
        return token


class ServedStreams:
    """Makes the streams of a worker: its model's vocabulary is read when the first grammar needs it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._grammars: Grammars | None = None

    def __call__(self, request: Request, made: Sequence[int]) -> ServedStream:
        if self._grammars is None:
            model, tokenizer = outline(self._place)
            ends = model.eos_token_id
            self._grammars = Grammars(tokenizer(), int(model.config["vocab_size"]), tuple(
                () if ends is None else (ends,) if isinstance(ends, int) else ends))
        return ServedStream(request, made, self._grammars)
