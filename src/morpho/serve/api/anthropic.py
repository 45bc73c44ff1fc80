"""`/v1/messages`, Anthropic's API: its body as that of a chat, and the answer as blocks of content.

The last message may be the assistant's: the model goes on with it. `cache_control` changes nothing, since every prefix
is kept anyhow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from morpho.serve.api.answers import Answer, Choice, Chunk, Job
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import chat_job
from morpho.serve.api.limits import Limits
from morpho.serve.api.tools import Call, News
from morpho.serve.hosting.served import Served

# The chat's fields by the names that errors give them; those of chats alone are no fields here.
NAMES = {"messages": "messages", "max_completion_tokens": "max_tokens", "stop": "stop_sequences",
         "response_format": "output_config.format", "tools": "tools", "tool_choice": "tool_choice"}
OF_CHATS = ("stop", "response_format", "max_completion_tokens", "n", "logprobs", "top_logprobs", "prompt_logprobs")
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
THOUGHTS = ("thinking", "redacted_thinking")  # what a model thought is not said again


def message_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """A message: the chat that its body describes. Errors name the fields of this body."""
    for name in OF_CHATS:
        fields.only(name, why="it is a field of /v1/chat/completions")
    fields.irrelevant("cache_control", "inference_geo")
    fields.only("container", why="there are no containers here")
    fields.only("mcp_servers", [], why="there are no servers of tools here")
    fields.only("context_management", why="nothing is left out of a prompt")
    chat = _chat(fields, limits)
    try:
        job = chat_job(Fields(chat), served, limits, request_id)
    except ApiError as error:
        raise _renamed(error) from None
    answer = MessageAnswer(served.name, served.tokenizer, len(job.requests[0].prompt))
    answer.read_as(job.answer)
    return Job(job.requests, answer, job.stream)


def counted(fields: Fields, served: Served, limits: Limits) -> dict[str, Any]:
    """`/v1/messages/count_tokens`: how many tokens the prompt of a message has."""
    if "max_tokens" not in fields.left():
        fields = Fields({**fields.left(), "max_tokens": 1})
    return {"input_tokens": len(message_job(fields, served, limits, "").requests[0].prompt)}


def _chat(fields: Fields, limits: Limits) -> dict[str, Any]:
    """The body of the same chat."""
    most = fields.take("max_tokens")
    if most is None:
        raise fields.wrong("max_tokens", "is missing")
    given = fields.list("messages", most=limits.messages)
    system = fields.take("system")
    messages = [] if system is None else [{"role": "system", "content": _text(system, "system")}]
    for place, each in enumerate(given):
        messages += _messages(each, f"messages[{place}]")
    found: dict[str, Any] = {
        "messages": messages, "max_completion_tokens": most, "stop": fields.take("stop_sequences"),
        "tools": [_tool(each, f"tools[{place}]") for place, each in enumerate(fields.list("tools", most=limits.tools))],
        "tool_choice": _choice(fields), "response_format": _format(fields),
        "continue_final_message": True if given and _is_begun(messages[-1]) else None}
    metadata = fields.object("metadata")
    if metadata is not None:
        metadata.text("user_id")
        metadata.finish()
    found |= _thinking(fields)
    return {**fields.left(), **{name: value for name, value in found.items() if value is not None}}


def _is_begun(message: dict[str, Any]) -> bool:
    """Whether a message is the beginning of an answer."""
    return message["role"] == "assistant" and "tool_calls" not in message


def _thinking(fields: Fields) -> dict[str, Any]:
    """Whether the model is to think, for templates that know it; how much is its own affair."""
    thinking = fields.object("thinking")
    if thinking is None:
        return {}
    kind = thinking.one_of("type", None, ("enabled", "disabled", "adaptive"))
    thinking.irrelevant("budget_tokens", "display")
    thinking.finish()
    names = fields.take("chat_template_kwargs", {})
    if kind == "adaptive" or not isinstance(names, dict):
        return {"chat_template_kwargs": names}
    return {"chat_template_kwargs": {"enable_thinking": kind == "enabled", **names}}


def _text(given: Any, place: str) -> str:
    """A text, or blocks of text."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise ApiError(400, f"'{place}' is neither a text nor a list of blocks", place)
    texts = []
    for block in given:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text" or not isinstance(block.get("text"), str):
            raise ApiError(400, f"'{place}' has a block of type {str(kind)[:40]!r}, and only text is taken", place)
        texts.append(block["text"])
    return "".join(texts)


def _messages(given: Any, place: str) -> list[dict[str, Any]]:
    """One message as those of a chat: results of tools are messages of their own there."""
    if not isinstance(given, dict):
        raise ApiError(400, f"'{place}' is not an object", place)
    fields = Fields(given, place)
    role = fields.one_of("role", None, ("user", "assistant", "system"))
    content = fields.take("content")
    fields.finish()
    if role is None or content is None:
        raise fields.wrong("content" if role else "role", "is missing")
    if not isinstance(content, list):
        return [{"role": role, "content": _text(content, f"{place}.content")}]
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    calls = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result" and role == "user":
            if texts:
                found.append({"role": role, "content": "".join(texts)})
                texts = []
            found.append({"role": "tool", "tool_call_id": block.get("tool_use_id"),
                          "content": _text(block.get("content") or "", f"{place}.content")})
        elif kind == "tool_use" and role == "assistant":
            calls.append({"id": block.get("id"), "type": "function",
                          "function": {"name": block.get("name"), "arguments": block.get("input") or {}}})
        elif kind not in THOUGHTS or role != "assistant":
            texts.append(_text([block], f"{place}.content"))
    if texts or calls or not found:
        found.append({"role": role, "content": "".join(texts), **({"tool_calls": calls} if calls else {})})
    return found


def _tool(given: Any, place: str) -> dict[str, Any]:
    kind = given.get("type", "custom") if isinstance(given, dict) else None
    if kind not in ("custom", None) or not isinstance(given, dict):
        raise ApiError(400, f"'{place}' is of type {str(kind)[:40]!r}, and only tools of the client are there", place)
    fields = Fields(given, place)
    fields.irrelevant("type", "cache_control", "strict", "eager_input_streaming", "defer_loading", "input_examples")
    function = {"name": fields.take("name"), "description": fields.text("description"),
                "parameters": fields.take("input_schema")}
    fields.finish()
    return {"type": "function", "function": function}


def _choice(fields: Fields) -> Any:
    choice = fields.object("tool_choice")
    if choice is None:
        return None
    kind = choice.one_of("type", None, (*CHOICES, "tool"))
    name = choice.text("name")
    choice.flag("disable_parallel_tool_use")
    choice.finish()
    if kind is None:
        raise choice.wrong("type", "is missing")
    return {"type": "function", "function": {"name": name}} if kind == "tool" else CHOICES[kind]


def _format(fields: Fields) -> Any:
    config = fields.object("output_config")
    form = config.object("format") if config is not None else fields.object("output_format")
    if config is not None:
        config.irrelevant("effort")
        config.finish()
    if form is None:
        return None
    form.one_of("type", None, ("json_schema",))
    if (schema := form.take("schema")) is None:
        raise form.wrong("schema", "is missing")
    form.finish()
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def _renamed(error: ApiError) -> ApiError:
    for chat, name in NAMES.items():
        if error.param is not None and error.param.split("[")[0].split(".")[0] == chat:
            return ApiError(error.status, error.message.replace(f"'{chat}", f"'{name}"),
                            error.param.replace(chat, name, 1), error.code, error.retry_after_s)
    return error


class MessageAnswer(Answer):
    """`/v1/messages`; `prompt` is the number of the prompt's tokens.

    >>> from morpho.serve.api.anthropic import MessageAnswer
    >>> from morpho.serve.engine.request import Event
    >>> answer = MessageAnswer("m", None, 3)
    >>> [event["type"] for event in answer.feed(0, Event(0, "Hi"))]
    ['content_block_start', 'content_block_delta']
    >>> [event["type"] for event in answer.feed(0, Event(0, "", finish="stop"))]
    ['content_block_stop', 'message_delta', 'message_stop']
    >>> answer.whole()["content"]
    [{'type': 'text', 'text': 'Hi'}]
    """

    prefix = "msg"

    def __init__(self, model: str, tokenizer: Any, prompt: int) -> None:
        super().__init__(model, 1, 1, tokenizer, False)
        self.id, self._prompt, self._opened = self.id.replace("-", "_"), prompt, False
        self._thinking = False  # whether the block of thinking is open

    # -- the stream -------------------------------------------------------------------------------------------------
    def event(self, chunk: Chunk) -> bytes:
        said = json.dumps(chunk, ensure_ascii=False).encode("utf-8", "replace")
        return f"event: {chunk['type']}\ndata: ".encode() + said + b"\n\n"

    def opening(self) -> Iterator[Chunk]:
        yield {"type": "message_start", "message": self._message([], None, None, {
            "input_tokens": self._prompt, "output_tokens": 0})}

    def failed(self, error: ApiError) -> bytes:
        return self.event(error.told("/v1/messages"))

    def _chunks(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        if news.reasoning:
            if not self._thinking:
                self._thinking = True
                yield {"type": "content_block_start", "index": 0, "content_block": _thought("")}
            yield {"type": "content_block_delta", "index": 0,
                   "delta": {"type": "thinking_delta", "thinking": news.reasoning}}
        if not news.text:
            return
        yield from self._thought_over()
        index = int(bool(choice.reasoning))
        if not self._opened:
            self._opened = True
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": news.text}}

    def _thought_over(self) -> Iterator[Chunk]:
        if self._thinking:
            self._thinking = False
            yield {"type": "content_block_stop", "index": 0}

    def _last_chunks(self, place: int, choice: Choice) -> Iterator[Chunk]:
        yield from self._thought_over()
        thoughts = int(bool(choice.reasoning))
        if self._opened:
            yield {"type": "content_block_stop", "index": thoughts}
        for index, call in enumerate(choice.calls, thoughts + int(self._opened)):
            yield {"type": "content_block_start", "index": index, "content_block": {**_block(call), "input": {}}}
            yield {"type": "content_block_delta", "index": index,
                   "delta": {"type": "input_json_delta", "partial_json": call.arguments}}
            yield {"type": "content_block_stop", "index": index}
        reason, stop = _reason(choice)
        yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": stop}, "usage": self.usage()}
        yield {"type": "message_stop"}

    # -- the object -------------------------------------------------------------------------------------------------
    def usage(self) -> dict[str, Any]:
        told = super().usage()
        cached = told["prompt_tokens_details"]["cached_tokens"]
        return {"input_tokens": told["prompt_tokens"] - cached, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached, "output_tokens": told["completion_tokens"]}

    def whole(self) -> dict[str, Any]:
        choice = self.choices[0]
        text = "".join(choice.text)
        blocks = [_thought("".join(choice.reasoning))] if choice.reasoning else []
        blocks += [{"type": "text", "text": text}] if text else []
        return self._message([*blocks, *map(_block, choice.calls)], *_reason(choice), self.usage())

    def _message(self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: dict[str, Any]
                 ) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
                "stop_reason": reason, "stop_sequence": stop, "usage": usage}


def _reason(choice: Choice) -> tuple[str, str | None]:
    """Why a text ended, and the stop string that ended it."""
    if choice.stop is not None and choice.finish == "stop":
        return "stop_sequence", choice.stop
    return REASONS.get(choice.finish or "", "end_turn"), None


def _thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": ""}


def _block(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id.replace("call_", "toolu_"), "name": call.name,
            "input": json.loads(call.arguments)}
