"""The seam between the engine and who uses it: what is asked for, and what comes back.

An engine takes a `Request` and gives a `Stream` of `Event`s:

    stream = engine.submit(Request(prompt=(1, 2, 3), params=SamplingParams(temperature=0.0, max_tokens=16), id="a"))
    for event in stream:
        print(event.text, end="")

`submit` may be called from any thread. A stream is read by iterating (which waits), or by `on_event`, whose function
is called from the engine's thread and must return at once; one of the two. `cancel` ends it within one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, MorphoError, fail

Finish = Literal["stop", "length", "cancelled", "error"]
GrammarKind = Literal["json_schema", "json_object", "regex", "lark"]
GRAMMARS: tuple[GrammarKind, ...] = ("json_schema", "json_object", "regex", "lark")
GRAMMAR_FAILED = "the grammar failed"  # how the error of a text begins whose form cannot be followed
MOST_LOGPROBS = 20
MOST_CHOICES = 64


@dataclass(frozen=True)
class Grammar:
    """Form of a text: `source` is a JSON schema as text, a regular expression, or a grammar in Lark's
    notation; `json_object` takes any JSON object and has no source.

    >>> from morpho.serve.engine.request import Grammar
    >>> Grammar("regex", "[0-9]+").kind
    'regex'
    """

    kind: GrammarKind
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in GRAMMARS:
            raise fail(ArgumentError, "serve", f"there is no kind of grammar {self.kind!r}",
                       "one of " + ", ".join(GRAMMARS))


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen, and when a text ends. Temperature 0 takes the likeliest token; `top_k` 0 is all of them.
    `seed` None draws another text each time. `stop` strings are never part of the text, `stop_token_ids` end it as the
    model's own end tokens do, which `ignore_eos` does not look at. `logprobs` is how many of the likeliest tokens are
    told with each one (0: only the one that was chosen; None: none), `prompt_logprobs` the same of the prompt's tokens.
    `n` texts share one prompt. Before `min_tokens` nothing ends a text; `allowed_token_ids` (empty: all) are the only
    tokens that are drawn. `include_stop` leaves the stop string or token at the end, `show_specials` shows the texts of
    special tokens. `processed_logprobs` gives the log-probabilities of the distribution that tokens are drawn from,
    after `temperature` and `top_k`, instead of the model's own; other cuts and penalties are refused with it.
    `commitment` asks for a commitment with the last event of each text (`morpho audit` replays it).

    >>> from morpho.serve.engine.request import SamplingParams
    >>> SamplingParams(temperature=0.0, max_tokens=8).n
    1
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None  # None: until the context is full
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logprobs: int | None = None
    n: int = 1
    grammar: Grammar | None = None
    ignore_eos: bool = False
    prompt_logprobs: int | None = None
    min_tokens: int = 0
    allowed_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    show_specials: bool = False
    processed_logprobs: bool = False
    commitment: bool = False

    def __post_init__(self) -> None:
        ranges = (("temperature", 0, math.inf), ("min_p", 0, 1), ("frequency_penalty", -2, 2),
                  ("presence_penalty", -2, 2))
        for name, least, most in ranges:
            _check_number(name, getattr(self, name), least, most)
        _check_number("top_p", self.top_p, 0, 1, above=True)
        _check_number("repetition_penalty", self.repetition_penalty, 0, math.inf, above=True)
        _check_whole("top_k", self.top_k, 0)
        _check_whole("n", self.n, 1, MOST_CHOICES)
        if self.max_tokens is not None:
            _check_whole("max_tokens", self.max_tokens, 0)
        if self.seed is not None:
            _check_whole("seed", self.seed, 0)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 0, MOST_LOGPROBS)
        _check_whole("min_tokens", self.min_tokens, 0, self.max_tokens)
        if not all(isinstance(text, str) and text for text in self.stop):
            raise fail(ArgumentError, "serve", f"stop={self.stop!r} must hold texts that are not empty")
        for token, bias in self.logit_bias.items():
            _check_whole("a token of logit_bias", token, 0)
            _check_number("logit_bias", bias, -math.inf, math.inf)
        for name in ("stop_token_ids", "allowed_token_ids"):
            for token in getattr(self, name):
                _check_whole(f"a token of {name}", token, 0)
        if self.processed_logprobs:
            _check_processed(self)


def _check_processed(params: SamplingParams) -> None:
    """Refuse what changes the distribution besides temperature and top_k."""
    others = {"temperature": params.temperature == 0, "top_p": params.top_p != 1, "min_p": params.min_p > 0,
              "logit_bias": bool(params.logit_bias), "repetition_penalty": params.repetition_penalty != 1,
              "frequency_penalty": params.frequency_penalty != 0, "presence_penalty": params.presence_penalty != 0,
              "grammar": params.grammar is not None, "min_tokens": params.min_tokens > 0,
              "allowed_token_ids": bool(params.allowed_token_ids)}
    wrong = next((name for name, given in others.items() if given), None)
    if wrong is not None:
        raise fail(ArgumentError, "serve", f"processed_logprobs goes with a temperature above 0 and top_k alone, and "
                                           f"{wrong} is {getattr(params, wrong)!r}", f"leave out {wrong}")


@dataclass(frozen=True)
class Request:
    """A prompt as token numbers, and what to do with it. `adapter` is the name of a LoRA adapter that the engine
    knows; `deadline_s` is how long it may take, waiting included. `continues` says that the text goes on from the
    prompt's; an answer to a chat begins anew, without the blank that some tokenizers write before a first word. `marks`
    are special tokens whose text belongs to the answer. `rows`, where it is set, is called with the position of a
    token of the prompt and the logits of the tokens after it, instead of scoring them.

    >>> from morpho.serve.engine.request import Request, SamplingParams
    >>> Request(prompt=(1, 2), params=SamplingParams(), id="a").adapter is None
    True
    """

    prompt: tuple[int, ...]
    params: SamplingParams
    id: str
    adapter: str | None = None
    deadline_s: float | None = None
    continues: bool = True
    marks: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    rows: Callable[[int, Any], None] | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise fail(ArgumentError, "serve", "the prompt is empty", "begin with one token at least")
        for token in self.prompt:
            _check_whole("a token of the prompt", token, 0)
        if self.deadline_s is not None:
            _check_number("deadline_s", self.deadline_s, 0, math.inf, above=True)


@dataclass(frozen=True)
class Usage:
    """Tokens of a request: `cached` of the prompt's tokens were not computed, `completion` counts those of all n."""

    prompt: int
    completion: int
    cached: int = 0


class TokenScore(NamedTuple):
    """How likely a token of a prompt is after those before it: its log-probability, its place among all tokens (1 is
    the likeliest), and the likeliest tokens with theirs."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Event:
    """News of text number `index` of n: some `text`, which may be empty (a character or a stop string may have
    begun), the `token` it came with, and its log-probability before temperature and cuts. `finish` says that this text
    ends here; the last event of the request holds its `usage`. `prompt` are the scores of the prompt's tokens, in one
    event of text 0 before any token, where the request asks for them; the first token has none. `stop` is the stop
    string that ended the text, `commitment` what an audit of it needs, where the request asks for that."""

    index: int
    text: str
    token: int | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None
    error: str | None = None
    prompt: tuple[TokenScore | None, ...] | None = None
    stop: str | None = None
    commitment: dict[str, Any] | None = None


@dataclass(frozen=True)
class EngineStats:
    """How an engine stands: plain numbers, of now (`running` to `pages_total`) and since it began."""

    running: int  # sequences that make tokens or read their prompt
    waiting: int  # requests in the queue
    batch_size: int  # rows of the last step
    pages_used: int  # pages that a sequence holds
    pages_cached: int  # pages that no sequence holds, kept for prompts that begin alike
    pages_total: int
    page_tokens: int  # positions of a page
    steps: int
    prompt_tokens: int  # computed for prompts
    generated_tokens: int
    prefix_hits: int  # tokens of prompts that were found in pages
    evictions: int  # cached pages given to others
    preemptions: int  # sequences that gave their pages away and are computed again
    drafted: int  # tokens guessed by prompt lookup
    accepted: int  # and of these, those that were right
    finished: int
    cancelled: int
    rejected: int  # QueueFull
    errors: int
    recompiles: int  # functions compiled after the first of their kind; 0 is what is promised

    def to_dict(self) -> dict[str, int]:
        return dict(vars(self))


class QueueFull(MorphoError, RuntimeError):
    """More requests wait than the engine takes; `retry_after_s` says when to come again."""

    retry_after_s: float = 1.0


class Stream(Protocol):
    """The events of one request."""

    request: Request

    def __iter__(self) -> Iterator[Event]: ...

    def on_event(self, call: Callable[[Event], None]) -> None:
        """Call this with each event, those that are there already first; from the engine's thread."""

    def cancel(self) -> None:
        """End it within one step; every text that has not ended gets an event with finish "cancelled"."""


class EngineProtocol(Protocol):
    """Interface of an engine for a server."""

    @property
    def alive(self) -> bool: ...

    @property
    def last_error(self) -> str | None: ...

    def submit(self, request: Request) -> Stream: ...

    def stats(self) -> EngineStats: ...

    def unready(self) -> str | None:
        """Why a request would have to wait though the engine lives; None if it would not."""

    def stages(self) -> list[dict[str, Any]]:
        """Stages and their layers, if the model is spread over processes."""

    def shutdown(self, drain: bool = True, timeout_s: float | None = None) -> None: ...


def check_request(request: Request, vocabulary: int, max_length: int, tokenizer: Any) -> None:
    """Raise for a request that no engine can serve with a model of so many tokens."""
    params = request.params
    for tokens in (request.prompt, params.logit_bias, params.stop_token_ids, params.allowed_token_ids):
        if (wrong := next((token for token in tokens if token >= vocabulary), None)) is not None:
            raise fail(ArgumentError, "serve", f"token {wrong} is not in a vocabulary of {vocabulary}")
    if len(request.prompt) >= max_length:
        raise fail(ArgumentError, "serve", f"the prompt has {len(request.prompt)} tokens, and prompt and answer "
                                           f"together have {max_length} at most", "cut it")
    if params.stop and tokenizer is None:
        raise fail(ArgumentError, "serve", "stop strings need the tokenizer of the model")


def _check_number(name: str, given: Any, least: float, most: float, above: bool = False) -> None:
    number = isinstance(given, int | float) and not isinstance(given, bool) and not math.isnan(given)
    if not number or given < least or given > most or (above and given == least) or given == math.inf:
        span = f"{'(' if above else '['}{least}, {most}{']' if most < math.inf else ')'}"
        raise fail(ArgumentError, "serve", f"{name}={given!r} does not lie in {span}")


def _check_whole(name: str, given: Any, least: int, most: int | None = None) -> None:
    number = as_whole(given)
    if number is None or number < least or (most is not None and number > most):
        to = "" if most is None else f" and at most {most}"
        raise fail(ArgumentError, "serve", f"{name}={given!r} is not a whole number of at least {least}{to}")
