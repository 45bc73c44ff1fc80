"""Events of the engine as OpenAI's objects: whole ones, and chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from morpho.serve.api.errors import ApiError
from morpho.serve.api.tools import Call, News, ToolText
from morpho.serve.engine.request import GRAMMAR_FAILED, Event, Request, TokenScore, Usage
from morpho.serve.engine.sampler import NO_TOKEN

Chunk = dict[str, Any]
MARK = secrets.token_hex(16)  # where the text stands in a chunk; nobody can have said it
_as_json = json.encoder.encode_basestring


def sse(chunk: Chunk) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


@dataclass
class Choice:
    """One text as far as it is there."""

    tools: ToolText | None = None
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)  # log-probabilities of tokens
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    stop: str | None = None  # the stop string that ended it
    commitment: dict[str, Any] | None = None  # for an audit, where it was asked for


@dataclass
class Job:
    """One call of the API: requests for the engine, and the object that their events become."""

    requests: Sequence[Request]
    answer: Answer
    stream: bool
    include_usage: bool = False

    def __post_init__(self) -> None:
        self.answer.tells_usage = self.include_usage
        self.answer.prompts = [request.prompt for request in self.requests]


class Answer(ABC):
    """The events of all requests of a call, in order of arrival. `feed` gives the chunks of a stream."""

    prefix = ""
    prompt_logprobs: int | None = None  # how many of the likeliest tokens are told with each token of a prompt
    content_type = b"text/event-stream; charset=utf-8"
    tells_usage = False  # whether a stream's last chunk says what was used; the others have a null then

    def __init__(self, model: str, requests: int, n: int, tokenizer: Any, logprobs: bool) -> None:
        self.model, self.n, self.tokenizer, self.logprobs = model, n, tokenizer, logprobs
        self.created, self.id = int(time.time()), f"{self.prefix}-{secrets.token_hex(12)}"
        self.choices = [Choice() for _ in range(requests * n)]
        self.usages: list[Usage | None] = [None] * requests
        self.prompts: Sequence[Sequence[int]] = ()
        self._scores: dict[int, tuple[TokenScore | None, ...]] = {}  # by request, of the prompt's tokens

    def read_as(self, other: Answer) -> None:
        """Read texts as another answer to the same request does. A call is told when it is whole."""
        reader = self.choices[0].tools = other.choices[0].tools
        if reader is not None:
            reader.stream = reader.named = False

    def opening(self) -> Iterator[Chunk]:
        """Chunks before the first event."""
        yield from ()

    def feed(self, request: int, event: Event) -> Iterator[Chunk]:
        """The chunks of one event."""
        place = request * self.n + event.index
        choice = self.choices[place]
        if event.usage is not None:
            self.usages[request] = event.usage
        if event.finish in ("error", "cancelled"):
            raise failure(event)
        if event.prompt is not None:
            self._scores[request] = event.prompt
            yield from self._read(request, event.prompt)
            return
        told = self._told(event, choice) if self.logprobs and event.token is not None else None
        if told is not None:
            choice.tokens.append(told)
        news = News(event.text) if choice.tools is None else choice.tools.push(event.text)
        if news or told:
            yield from self._tell(place, news, told, choice)
        if event.finish is not None:
            choice.stop, choice.commitment = event.stop, event.commitment
            rest = News() if choice.tools is None else choice.tools.finish()
            calls = choice.calls or rest.calls
            named = choice.tools is not None and choice.tools.named  # then a call is the usual end, as OpenAI has it
            choice.finish = "tool_calls" if calls and event.finish == "stop" and not named else event.finish
            if rest:
                yield from self._tell(place, rest, None, choice)
            yield from self._last_chunks(place, choice)
        elif choice.tools is not None and choice.tools.plain:
            choice.tools = None

    def _tell(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        if news.text:
            choice.text.append(news.text)
        if news.reasoning:
            choice.reasoning.append(news.reasoning)
        if choice.tools is not None:
            choice.calls = choice.tools.calls
        yield from self._chunks(place, news, told, choice)

    def written(self, request: int, event: Event) -> bytes:
        """The chunks of one event as they are sent."""
        return b"".join(map(self.event, self.feed(request, event)))

    def closing(self, include_usage: bool) -> bytes:
        """Bytes after the last event of a stream."""
        return b""

    def usage(self) -> dict[str, Any]:
        """Of all requests together."""
        known = [each for each in self.usages if each is not None]
        prompt, made = sum(each.prompt for each in known), sum(each.completion for each in known)
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made,
                "prompt_tokens_details": {"cached_tokens": sum(each.cached for each in known)}}

    @property
    def finished(self) -> bool:
        return all(choice.finish is not None for choice in self.choices)

    def _told(self, event: Event, choice: Choice) -> dict[str, Any]:
        assert event.token is not None
        return {**self._token(event.token), "logprob": _number(event.logprob),
                "top_logprobs": [{**self._token(token), "logprob": _number(value)}
                                 for token, value in event.top_logprobs]}

    def _token(self, token: int) -> dict[str, Any]:
        raw = self.tokenizer.token_bytes(token) if token < self.tokenizer.vocab_size else b""
        return {"token": raw.decode("utf-8", "replace"), "bytes": [*raw]}

    def _read(self, request: int, scores: tuple[TokenScore | None, ...]) -> Iterator[Chunk]:
        """Chunks that tell the scores of a prompt."""
        yield from ()

    def _of_prompt(self, request: int) -> list[dict[str, Any] | None]:
        """The scores of a prompt as vLLM writes them: by number of token, the prompt's own among the likeliest."""
        found: list[dict[str, Any] | None] = []
        for token, score in zip(self.prompts[request], self._scores[request], strict=True):
            if score is None:
                found.append(None)
                continue
            entries = [*((rank, *each) for rank, each in enumerate(score.top[:self.prompt_logprobs], 1)),
                       (score.rank, token, score.logprob)]
            found.append({str(number): {"logprob": _number(value), "rank": rank,
                                        "decoded_token": self._token(number)["token"]}
                          for rank, number, value in entries})
        return found

    def event(self, chunk: Chunk) -> bytes:
        """A chunk as it is sent."""
        return sse(chunk)

    def failed(self, error: ApiError) -> bytes:
        """Last event of a stream that cannot go on."""
        return sse(error.body())

    @abstractmethod
    def _chunks(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        """Chunks for a piece of a text."""

    @abstractmethod
    def _last_chunks(self, place: int, choice: Choice) -> Iterator[Chunk]:
        """Last chunks of a text."""

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The answer that is not streamed."""


def _number(value: float | None) -> float | None:
    """JSON has no infinity."""
    return None if value is None else max(value, -9999.0)


def _committed(chunk: Chunk, choice: Choice) -> Chunk:
    """The last chunk of a text, with its commitment."""
    if choice.commitment is not None:
        chunk["choices"][0]["commitment"] = choice.commitment
    return chunk


def failure(event: Event) -> ApiError:
    """Error of the API for an end that nobody asked for."""
    told = event.error or "the request was ended by the server"
    if "not answered in" in told:  # the deadline of the engine's request
        return ApiError(504, told, code="timeout")
    if told.startswith((GRAMMAR_FAILED, NO_TOKEN)):  # the client's own, seen only while the text is drawn
        return ApiError(400, told)
    return ApiError(503 if event.finish == "cancelled" else 500, told)


class ChoicesAnswer(Answer):
    """Answers whose stream is one kind of chunk, with a list of choices: chats and completions."""

    kind = ""

    def __init__(self, model: str, requests: int, n: int, tokenizer: Any, logprobs: bool) -> None:
        super().__init__(model, requests, n, tokenizer, logprobs)
        self._rims: dict[int, tuple[bytes, bytes]] = {}

    def written(self, request: int, event: Event) -> bytes:
        """Write an event that is only a piece of text between the constant parts of a chunk, as most are."""
        place = request * self.n + event.index
        choice = self.choices[place]
        ends = event.finish is not None or event.usage is not None
        if ends or event.prompt is not None or self.logprobs or choice.tools is not None:
            return super().written(request, event)
        if not event.text:
            return b""
        choice.text.append(event.text)
        head, tail = self._rims.get(place) or self._around(place, choice)
        return head + _as_json(event.text).encode("utf-8", "replace") + tail

    def _around(self, place: int, choice: Choice) -> tuple[bytes, bytes]:
        head, _, tail = sse(self._chunk(place, News(MARK), None, choice)).partition(f'"{MARK}"'.encode())
        self._rims[place] = head, tail
        return head, tail

    def closing(self, include_usage: bool) -> bytes:
        told = sse({**self._head(), "choices": [], "usage": self.usage()}) if include_usage else b""
        return told + b"data: [DONE]\n\n"

    def _head(self) -> Chunk:
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model,
                "system_fingerprint": None}

    def _begun(self) -> Chunk:
        """How every chunk of a stream begins."""
        return {**self._head(), "usage": None} if self.tells_usage else self._head()

    def _chunks(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        yield self._chunk(place, news, told, choice)

    def _last_chunks(self, place: int, choice: Choice) -> Iterator[Chunk]:
        yield self._last_chunk(place, choice)

    @abstractmethod
    def _chunk(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Chunk:
        """One piece of a stream."""

    @abstractmethod
    def _last_chunk(self, place: int, choice: Choice) -> Chunk:
        """Last chunk of a stream."""


class ChatAnswer(ChoicesAnswer):
    """`/v1/chat/completions`.

    >>> from morpho.serve.api.answers import ChatAnswer
    >>> from morpho.serve.engine.request import Event
    >>> answer = ChatAnswer("m", 1, 1, None, False)
    >>> [chunk["choices"][0]["delta"] for chunk in answer.feed(0, Event(0, "Hi", finish="stop"))]
    [{'content': 'Hi'}, {}]
    >>> answer.whole()["choices"][0]["message"]["content"]
    'Hi'
    """

    kind, prefix = "chat.completion.chunk", "chatcmpl"

    def opening(self) -> Iterator[Chunk]:
        for place in range(len(self.choices)):
            yield self._delta(place, {"role": "assistant", "content": ""})

    def _delta(self, place: int, delta: dict[str, Any], told: Any = None, finish: str | None = None) -> Chunk:
        return {**self._begun(), "choices": [{"index": place, "delta": delta, "logprobs": told,
                                              "finish_reason": finish}]}

    def _chunk(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Chunk:
        delta: dict[str, Any] = {"content": news.text} if news.text else {}
        if news.reasoning:
            delta["reasoning_content"] = news.reasoning
        if news.calls or news.arguments:
            first = len(choice.calls) - len(news.calls)
            delta["tool_calls"] = [{"index": number, **call.to_dict()} for number, call in enumerate(news.calls, first)]
            delta["tool_calls"] += [{"index": number, "function": {"arguments": text}}
                                    for number, text in news.arguments]
        return self._delta(place, delta, None if told is None else {"content": [told]})

    def _last_chunk(self, place: int, choice: Choice) -> Chunk:
        return _committed(self._delta(place, {}, finish=choice.finish), choice)

    def whole(self) -> dict[str, Any]:
        choices = []
        for place, choice in enumerate(self.choices):
            text = "".join(choice.text)
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if choice.reasoning:
                message["reasoning_content"] = "".join(choice.reasoning)
            if choice.calls:
                message.update(content=text or None, tool_calls=[call.to_dict() for call in choice.calls])
            choices.append({"index": place, "message": message, "finish_reason": choice.finish,
                            "logprobs": {"content": choice.tokens, "refusal": None} if self.logprobs else None,
                            **({} if choice.commitment is None else {"commitment": choice.commitment})})
        more = {} if self.prompt_logprobs is None else {"prompt_logprobs": self._of_prompt(0)}
        return {**self._head(), "object": "chat.completion", "choices": choices, "usage": self.usage(), **more}


class TextAnswer(ChoicesAnswer):
    """`/v1/completions`; `echo` are the texts of the prompts, where they are to be repeated. With log-probabilities
    those of the prompt's tokens come first then, and a stream begins when they are known."""

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: str, prompts: Sequence[Sequence[int]], n: int, tokenizer: Any, logprobs: bool,
                 echo: Sequence[str] = (), most: int = 0, specials: bool = False) -> None:
        super().__init__(model, len(prompts), n, tokenizer, logprobs)
        self._prompts = [prompt for prompt in prompts for _ in range(n)]
        self.most, self.specials = most, specials  # likeliest tokens with each one; whether special tokens are shown
        self.echo = [text for text in echo for _ in range(n)]
        self._offsets: dict[int, tuple[Any, int]] = {}  # by choice: its tokens as text, and the characters there are
        for choice, text in zip(self.choices, self.echo, strict=False):
            choice.text.append(text)

    def opening(self) -> Iterator[Chunk]:
        for place, text in enumerate(() if self.logprobs else self.echo):
            yield self._choice(place, text, None, None)

    def _read(self, request: int, scores: tuple[TokenScore | None, ...]) -> Iterator[Chunk]:
        if not self.logprobs or not self.echo:
            return
        stream, length, told = self.tokenizer.stream(specials=self.specials), 0, []
        for token, score in zip(self.prompts[request], scores, strict=True):
            value, top = (None, None) if score is None else (score.logprob, score.top[:self.most])
            told.append({**self._token(token), "logprob": _number(value), "offset": length, "top_logprobs": None
                         if top is None else [{**self._token(each), "logprob": _number(one)} for each, one in top]})
            length += len(stream.push(token)) if token < self.tokenizer.vocab_size else 0
        for place in range(request * self.n, (request + 1) * self.n):
            self.choices[place].tokens[:0] = told
            yield self._choice(place, self.echo[place], self._logprobs(told), None)

    def _choice(self, place: int, text: str, told: Any, finish: str | None) -> Chunk:
        return {**self._begun(), "choices": [{"index": place, "text": text, "logprobs": told,
                                              "finish_reason": finish}]}

    def _told(self, event: Event, choice: Choice) -> dict[str, Any]:
        """Also where in the text the token begins, however the text is held back and cut into chunks."""
        assert event.token is not None
        stream, length = self._offsets.get(id(choice)) or (
            self.tokenizer.stream(specials=self.specials, after=self._prompt(choice)), sum(map(len, choice.text)))
        shown = stream.push(event.token) if event.token < self.tokenizer.vocab_size else ""
        self._offsets[id(choice)] = stream, length + len(shown)
        return {**super()._told(event, choice), "offset": length}

    def _prompt(self, choice: Choice) -> Sequence[int]:
        return next(prompt for prompt, each in zip(self._prompts, self.choices, strict=True) if each is choice)

    def _token(self, token: int) -> dict[str, Any]:
        """A part of a character is named by its bytes: several of them may be among the likeliest tokens."""
        found = super()._token(token)
        if "\ufffd" in found["token"]:
            found["token"] = "bytes:" + "".join(f"\\x{byte:02x}" for byte in found["bytes"])
        return found

    def _chunk(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Chunk:
        return self._choice(place, news.text, None if told is None else self._logprobs([told]), None)

    def _last_chunk(self, place: int, choice: Choice) -> Chunk:
        return _committed(self._choice(place, "", None, choice.finish), choice)

    @staticmethod
    def _logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"tokens": [token["token"] for token in tokens],
                "token_logprobs": [token["logprob"] for token in tokens],
                "text_offset": [token["offset"] for token in tokens],
                "top_logprobs": [None if token["top_logprobs"] is None else {
                    each["token"]: each["logprob"] for each in token["top_logprobs"]} for token in tokens]}

    def whole(self) -> dict[str, Any]:
        choices = []
        for place, choice in enumerate(self.choices):
            told = self._logprobs(choice.tokens) if self.logprobs else None
            choices.append({"index": place, "text": "".join(choice.text), "logprobs": told,
                            "finish_reason": choice.finish})
            if self.prompt_logprobs is not None:
                choices[-1]["prompt_logprobs"] = self._of_prompt(place // self.n)
            if choice.commitment is not None:
                choices[-1]["commitment"] = choice.commitment
        return {**self._head(), "choices": choices, "usage": self.usage()}
