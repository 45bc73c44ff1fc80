"""A request while it is answered, and each of its texts: tokens, pages, what is chosen next and when it ends."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.models.text.generation_keys import Defaults
from morpho.models.text.sampling import forbidden
from morpho.serve.engine.commitment import Chain
from morpho.serve.engine.grammar import Matcher
from morpho.serve.engine.pages import Holding
from morpho.serve.engine.request import Event, Finish, Request, TokenScore, Usage
from morpho.serve.engine.sampler import Sampler, logprobs_of, score_of
from morpho.serve.engine.stream import RequestStream
from morpho.serve.engine.text import TextStream

LONGEST, SHORTEST = 4, 2  # tokens that must have occurred before they are guessed again

class PromptLookup:
    """Guesses of the next tokens, from where the last few of a growing text occurred before.

    Guesses are checked by computing all of them at once, and a token is what is chosen from its logits, whether it was
    guessed or not: the text does not depend on them, only the number of steps it takes.

    >>> from morpho.serve.engine.sequence import PromptLookup
    >>> PromptLookup().guess([1, 2, 3, 4, 5, 1, 2, 3], 2)
    [4, 5]
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # tokens -> the position after their last but one place
        self._known = 0

    def guess(self, tokens: list[int], most: int) -> list[int]:
        """At most so many tokens that followed when the text's last tokens occurred before."""
        for end in range(max(self._known, SHORTEST), len(tokens)):  # all that end before the last token
            for size in range(SHORTEST, LONGEST + 1):
                if end >= size:
                    self._after[tuple(tokens[end - size:end])] = end
        self._known = max(self._known, len(tokens))
        for size in range(LONGEST, SHORTEST - 1, -1):
            place = self._after.get(tuple(tokens[-size:])) if len(tokens) > size else None
            if place is not None:
                return tokens[place:place + most]
        return []


class Group:
    """A request: its stream, and what is counted over its texts."""

    def __init__(self, request: Request, stream: RequestStream, matchers: list[Matcher | None]) -> None:
        self.request, self.stream, self.matchers = request, stream, matchers
        self.left = request.params.n  # texts that have not ended
        self.completion = self.cached = 0
        self.begun = time.monotonic()
        self.deadline = None if request.deadline_s is None else self.begun + request.deadline_s

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt), self.completion, self.cached)


class Text:
    """One text as its reader sees it, wherever its tokens are chosen; it has `most` tokens at most."""

    def __init__(self, group: Group, index: int, tokenizer: Any, most: int) -> None:
        self.group, self.index, self.params, self.most = group, index, group.request.params, most
        request, params = group.request, self.params
        self.text = TextStream(tokenizer, params.stop, request.prompt if request.continues else (),
                               exact=params.grammar is not None, specials=params.show_specials,
                               include=params.include_stop, marks=request.marks)
        self.finished: Finish | None = None

    def take(self, token: int, made: int, complete: bool, logprob: float | None = None,
             top: tuple[tuple[int, float], ...] = ()) -> None:
        """Tell one more token, the number `made`; `complete` where none may follow it."""
        self.group.completion += 1
        text = self.text.push(token, made > self.params.min_tokens)
        finish: Finish | None = None
        if complete or self.text.stopped:
            finish = "stop"
        elif made >= self.most:
            finish = "length"
        self._tell(text, finish, token, logprob, top)

    def end(self, finish: Finish, error: str | None = None) -> None:
        """The text ends without another token."""
        if self.finished is None:
            self._tell("", finish, None, None, (), error)

    def _tell(self, text: str, finish: Finish | None, token: int | None, logprob: float | None,
              top: tuple[tuple[int, float], ...], error: str | None = None) -> None:
        group, usage = self.group, None
        if finish is not None:
            self.finished = finish
            text += self.text.finish()
            group.left -= 1
            usage = group.usage if not group.left else None
        group.stream.put(Event(self.index, text, token, logprob, top, finish, usage, error, stop=self.text.stopped,
                               commitment=self._commitment(finish)), not group.left)

    def _commitment(self, finish: Finish | None) -> dict[str, Any] | None:
        return None


class Sequence(Text):
    """A text of the engine. `tokens` are the prompt's and the answer's, of which the first `computed` have keys and
    values."""

    def __init__(self, group: Group, index: int, tokenizer: Any, stops: frozenset[int], most: int,
                 adapter: int | None = None, said: Defaults = Defaults(),  # noqa: B008 (it never changes)
                 chain: Chain | None = None) -> None:
        super().__init__(group, index, tokenizer, most)
        request = group.request
        self.tokens, self.prompt_length = list(request.prompt), len(request.prompt)
        self.computed = self.found = 0  # `found` of them were there when it began
        self.adapter = adapter
        self.holding = Holding(space=request.adapter)
        self.sampler = Sampler(request.params, request.prompt, index, stops)
        self.scores: list[TokenScore | None] = [None] * len(request.prompt)
        self.matcher = group.matchers[index]
        self.lookup = PromptLookup()
        self.stops = stops  # tokens that end it
        self.draft: list[int] = []  # guesses that the next step checks
        self.forked = index > 0
        self.said = said  # by the model's files: which tokens are forced or never made
        self.chain = chain

    @property
    def waiting_tokens(self) -> int:
        """Tokens without keys and values: one while it is decoded, more of a prompt."""
        return len(self.tokens) - self.computed

    @property
    def made(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def scoring(self) -> bool:
        """Whether the tokens of its prompt are to be scored: logits of all of them are needed, so none may be taken
        from pages that others computed."""
        return self.params.prompt_logprobs is not None and not self.forked

    def score(self, start: int, logits: np.ndarray) -> None:
        """Score the tokens after those from `start` on, whose logits these are."""
        if (rows := self.group.request.rows) is not None:
            for place, row in enumerate(logits, start):
                rows(place, row)
            return
        for place, row in enumerate(logits, start + 1):
            if place < self.prompt_length:
                self.scores[place] = score_of(row, self.tokens[place], self.params.prompt_logprobs or 0)

    def tell_scores(self) -> None:
        """Tell the scores of the prompt, once."""
        if self.scoring:
            self.group.stream.put(Event(self.index, "", prompt=tuple(self.scores)), False)

    def _commitment(self, finish: Finish | None) -> dict[str, Any] | None:
        return self.chain.document(finish) if self.chain is not None and finish in ("stop", "length") else None

    def _logprobs(self, logits: np.ndarray, token: int, most: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        return logprobs_of(logits, token, most, self.params if self.params.processed_logprobs else None)

    def _stop_at(self, token: int, logits: np.ndarray) -> None:
        """End the text at a token that is no part of it. Where prompts are scored, or log-probabilities are those of
        the draws, the event has the token, so that a request has a score for every token that was drawn."""
        text = self.text.push(token) if self.params.include_stop else ""
        params = self.params
        if params.logprobs is None or (params.prompt_logprobs is None and not params.processed_logprobs):
            self._tell(text, "stop", None, None, ())
        else:
            self._tell(text, "stop", token, *self._logprobs(logits, token, params.logprobs))

    def advance(self, logits: np.ndarray) -> int | None:
        """Choose the next token, and tell it; None if the text ends before it."""
        if not self.most:  # only the prompt was asked for
            self.end("length")
            return None
        try:
            told = forbidden(logits, self.said, self.made, self.most)
            allowed, without = (None, None) if self.matcher is None else self.matcher.choice()
            token = self.sampler.choose(told, allowed, without)
            if self.chain is not None:
                self.chain.add(logits, self.sampler.scores(told, allowed), token)
            if token in self.stops:
                self._stop_at(token, logits)
                return None
            self.tokens.append(token)
            self.sampler.took(token)
            complete = self.matcher is not None and self.matcher.took(token)
        except MorphoError as error:
            self.end("error", error.message or str(error))  # without the line, which is the server's own affair
            return None
        logprob: float | None = None
        top: tuple[tuple[int, float], ...] = ()
        if self.params.logprobs is not None:
            logprob, top = self._logprobs(logits, token, self.params.logprobs)
        self.take(token, self.made, complete, logprob, top)
        return token
