"""`/api/chat` and `/api/generate`, Ollama's API: its bodies as those of chats and completions, and answers as lines of
JSON. What a client leaves out is as the model's own files say, as everywhere here; Ollama's own defaults are others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from morpho.serve.api.answers import Answer, Choice, Chunk, Job
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import chat_job, completion_job
from morpho.serve.api.limits import Limits
from morpho.serve.api.tools import News
from morpho.serve.engine.request import Event
from morpho.serve.hosting.served import Served

# Options by the names of the fields that say the same here.
OPTIONS = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed",
           "stop": "stop", "repeat_penalty": "repetition_penalty", "presence_penalty": "presence_penalty",
           "frequency_penalty": "frequency_penalty"}
# How a model is loaded and computed there: nothing that changes a text here.
OF_THEIR_ENGINE = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "low_vram", "f16_kv",
                   "use_mmap", "use_mlock", "vocab_only", "logits_all", "embedding_only", "num_keep")
# Samplers that are not here, with the values that switch them off.
SWITCHED_OFF = {"mirostat": (0,), "typical_p": (1, 1.0), "tfs_z": (1, 1.0), "repeat_last_n": (-1,)}
OF_SWITCHED_OFF = ("mirostat_eta", "mirostat_tau", "penalize_newline")
OF_OTHERS = ("keep_alive",)


def ollama_chat_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """`/api/chat`: the chat that its body describes. Without messages the model is loaded, which it is by now."""
    given = fields.list("messages", most=limits.messages)
    body = _body(fields, limits)
    body.update(messages=[_message(each, f"messages[{place}]") for place, each in enumerate(given)],
                tools=fields.take("tools"))
    stream = fields.flag("stream", True)
    fields.finish()
    answer = ChatLines(served, bool(body.get("logprobs")))
    if not given:
        return Job([], answer, stream)
    return _job(chat_job(Fields(body), served, limits, request_id), answer, stream)


def ollama_generate_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """`/api/generate`: a chat of one message by the model's template; with `raw`, or without a template, the text that
    follows the prompt."""
    prompt, system = fields.text("prompt", "") or "", fields.text("system")
    raw = fields.flag("raw") or not served.talks
    fields.only("suffix", "", why="texts are continued, not filled in")
    fields.only("images", [], why="only text is taken")
    fields.only("context", [], why="nothing is kept between calls: use /api/chat")
    fields.only("template", "", why="the model's own template is used; with 'raw' the prompt is taken as it is")
    body = _body(fields, limits)
    stream = fields.flag("stream", True)
    fields.finish()
    answer = TextLines(served, bool(body.get("logprobs")))
    if not prompt:
        return Job([], answer, stream)
    if raw:
        for name in ("chat_template_kwargs", "reasoning_effort"):
            body.pop(name, None)
        told = body.pop("logprobs", None)
        most = body.pop("top_logprobs", 0)
        # To the end of the context, as a chat goes: /v1/completions stops after 16 tokens.
        body.setdefault("max_tokens", served.defaults.max_new_tokens or limits.max_tokens)
        body.update(prompt="\n".join(filter(None, (system, prompt))), logprobs=most if told else None)
        job = completion_job(Fields(body), served, limits, request_id)
    else:
        said = [] if system is None else [{"role": "system", "content": system}]
        job = chat_job(Fields({**body, "messages": [*said, {"role": "user", "content": prompt}]}), served, limits,
                       request_id)
    return _job(job, answer, stream)


def _job(job: Job, answer: Lines, stream: bool) -> Job:
    answer.read_as(job.answer)
    return Job(job.requests, answer, stream)


def _body(fields: Fields, limits: Limits) -> dict[str, Any]:
    """The fields that both have, as those of a chat."""
    fields.irrelevant(*OF_OTHERS)
    found: dict[str, Any] = {}
    options = fields.object("options")
    if options is not None:
        found.update({name: options.take(option) for option, name in OPTIONS.items()})
        most = options.whole("num_predict", None, least=-2, most=limits.max_tokens)
        if most is not None and most >= 0:  # -1 and -2 are as many as there is room for
            found["max_tokens"] = most
        for name, values in SWITCHED_OFF.items():
            options.only(name, *values, why="this way of drawing is not here")
        options.irrelevant(*OF_THEIR_ENGINE, *OF_SWITCHED_OFF)
        options.finish()
    form = fields.take("format")
    if form == "json":
        found["response_format"] = {"type": "json_object"}
    elif isinstance(form, dict):
        found["response_format"] = {"type": "json_schema", "json_schema": {"schema": form}}
    elif form not in (None, ""):
        raise fields.wrong("format", "is neither \"json\" nor a JSON schema")
    think = fields.take("think")
    if isinstance(think, bool):
        found["chat_template_kwargs"] = {"enable_thinking": think}
    elif think is not None:
        found["reasoning_effort"] = think
    if fields.flag("logprobs"):
        found.update(logprobs=True, top_logprobs=fields.whole("top_logprobs", 0, most=20))
    return found


def _message(given: Any, place: str) -> Any:
    """A message; calls have their arguments as objects, and results of tools name the tool."""
    if not isinstance(given, dict):
        return given
    fields = Fields(given, place)
    fields.only("images", [], why="only text is taken")
    tool = fields.text("tool_name")
    thinking = fields.text("thinking")
    found = fields.left()
    calls = fields.list("tool_calls", most=128)
    if calls:
        found["tool_calls"] = [{"id": str(each.get("id", number)), **each} if isinstance(each, dict) else each
                               for number, each in enumerate(calls)]
    if tool is not None:
        found["name"] = tool
    if thinking is not None:
        found["reasoning_content"] = thinking
    return found


class Lines(Answer):
    """Lines of JSON, of which the last one says why the text ended and what it took."""

    content_type = b"application/x-ndjson"

    def __init__(self, served: Served, logprobs: bool) -> None:
        super().__init__(served.name, 1, 1, served.tokenizer, logprobs)
        self._since, self._first = time.monotonic_ns(), 0

    def feed(self, request: int, event: Event) -> Iterator[Chunk]:
        if not self._first and event.token is not None:
            self._first = time.monotonic_ns()
        return super().feed(request, event)

    # -- the stream -------------------------------------------------------------------------------------------------
    def event(self, chunk: Chunk) -> bytes:
        return json.dumps(chunk, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def failed(self, error: ApiError) -> bytes:
        return self.event(error.told("/api/"))

    def closing(self, include_usage: bool) -> bytes:
        """Write the one line that answers a request to load a model."""
        return b"" if self.prompts else self.event(self.whole())

    def _chunks(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        more = {} if told is None else {"logprobs": [told]}
        yield {**self._head(), **self._said(news), "done": False, **more}

    def _last_chunks(self, place: int, choice: Choice) -> Iterator[Chunk]:
        yield {**self._head(), **self._said(News()), **self._end()}

    # -- the object -------------------------------------------------------------------------------------------------
    @property
    def finished(self) -> bool:
        return not self.prompts or super().finished

    def whole(self) -> dict[str, Any]:
        choice = self.choices[0]
        more = {"logprobs": choice.tokens} if self.logprobs else {}
        news = News("".join(choice.text), "".join(choice.reasoning), choice.calls)
        return {**self._head(), **self._said(news), **more, **self._end()}

    def _head(self) -> Chunk:
        return {"model": self.model, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}

    def _end(self) -> Chunk:
        if not self.prompts:
            return {"done": True, "done_reason": "load"}
        told, now = self.usage(), time.monotonic_ns()
        first = self._first or now
        return {"done": True, "done_reason": "length" if self.choices[0].finish == "length" else "stop",
                "total_duration": now - self._since, "load_duration": 0, "prompt_eval_count": told["prompt_tokens"],
                "prompt_eval_duration": first - self._since, "eval_count": told["completion_tokens"],
                "eval_duration": now - first}

    def _said(self, news: News) -> Chunk:
        raise NotImplementedError


class ChatLines(Lines):
    """`/api/chat`.

    >>> from types import SimpleNamespace
    >>> from morpho.serve.api.ollama import ChatLines
    >>> from morpho.serve.engine.request import Event
    >>> answer = ChatLines(SimpleNamespace(name="m", tokenizer=None), False)
    >>> answer.prompts = [(1, 2)]
    >>> [(line["message"]["content"], line["done"]) for line in answer.feed(0, Event(0, "Hi", finish="stop"))]
    [('Hi', False), ('', True)]
    """

    def _said(self, news: News) -> Chunk:
        message: dict[str, Any] = {"role": "assistant", "content": news.text}
        if news.reasoning:
            message["thinking"] = news.reasoning
        if news.calls:
            message["tool_calls"] = [{"id": call.id, "function": {
                "index": number, "name": call.name, "arguments": json.loads(call.arguments)}}
                for number, call in enumerate(news.calls)]
        return {"message": message}


class TextLines(Lines):
    """`/api/generate`."""

    def _said(self, news: News) -> Chunk:
        return {"response": news.text, **({"thinking": news.reasoning} if news.reasoning else {})}
