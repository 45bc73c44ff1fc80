"""The engine's events as OpenAI's response: an object with items, or a stream of events that build it up."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from morpho.serve.api.answers import Answer, Choice, Chunk
from morpho.serve.api.errors import ApiError
from morpho.serve.api.tools import Call, News


class ResponseAnswer(Answer):
    """`/v1/responses`; `told` is what the object repeats of the request.

    >>> from morpho.serve.api.response_answer import ResponseAnswer
    >>> from morpho.serve.engine.request import Event
    >>> answer = ResponseAnswer("m", None, False, {})
    >>> [event["type"] for event in answer.feed(0, Event(0, "Hi"))]
    ['response.output_item.added', 'response.content_part.added', 'response.output_text.delta']
    >>> [event["type"] for event in answer.feed(0, Event(0, "", finish="stop"))][-1]
    'response.completed'
    >>> answer.whole()["output"][0]["content"][0]["text"]
    'Hi'
    """

    prefix = "resp"

    def __init__(self, model: str, tokenizer: Any, logprobs: bool, told: dict[str, Any]) -> None:
        super().__init__(model, 1, 1, tokenizer, logprobs)
        self.id, self._message_id = self.id.replace("-", "_"), f"msg_{secrets.token_hex(12)}"
        self._thought_id = f"rs_{secrets.token_hex(12)}"
        self._settings, self._number, self._opened, self._thinking = told, 0, False, False

    # -- the stream -------------------------------------------------------------------------------------------------
    def event(self, chunk: Chunk) -> bytes:
        said = json.dumps(chunk, ensure_ascii=False).encode("utf-8", "replace")
        return f"event: {chunk['type']}\ndata: ".encode() + said + b"\n\n"

    def opening(self) -> Iterator[Chunk]:
        for kind in ("created", "in_progress"):
            yield self._said(kind, response=self._response("in_progress", []))

    def failed(self, error: ApiError) -> bytes:
        fault = {"code": error.code or "server_error", "message": error.message}
        return self.event(self._said("failed", response={**self._response("failed", []), "error": fault}))

    def _said(self, kind: str, **more: Any) -> Chunk:
        self._number += 1
        return {"type": f"response.{kind}", "sequence_number": self._number - 1, **more}

    def _text(self, kind: str, **more: Any) -> Chunk:
        return self._said(kind, item_id=self._message_id, output_index=self._thoughts, content_index=0, **more)

    @property
    def _thoughts(self) -> int:
        """The number of items before the message: one where there was thinking."""
        return int(bool(self.choices[0].reasoning))

    def _thought(self, kind: str, **more: Any) -> Chunk:
        return self._said(kind, item_id=self._thought_id, output_index=0, content_index=0, **more)

    def _think(self, text: str) -> Iterator[Chunk]:
        if not self._thinking:
            self._thinking = True
            yield self._said("output_item.added", output_index=0, item=self._reasoning("in_progress", ""))
        yield self._thought("reasoning_text.delta", delta=text)

    def _thought_over(self) -> Iterator[Chunk]:
        if self._thinking:
            self._thinking, text = False, "".join(self.choices[0].reasoning)
            yield self._thought("reasoning_text.done", text=text)
            yield self._said("output_item.done", output_index=0, item=self._reasoning("completed", text))

    def _open(self) -> Iterator[Chunk]:
        if not self._opened:
            self._opened = True
            yield self._said("output_item.added", output_index=self._thoughts, item=self._message("in_progress", []))
            yield self._text("content_part.added", part=_part("", []))

    def _chunks(self, place: int, news: News, told: dict[str, Any] | None, choice: Choice) -> Iterator[Chunk]:
        if news.reasoning:
            yield from self._think(news.reasoning)
        if news.text:
            yield from self._thought_over()
            yield from self._open()
            yield self._text("output_text.delta", delta=news.text, logprobs=[] if told is None else [told])

    def _last_chunks(self, place: int, choice: Choice) -> Iterator[Chunk]:
        yield from self._thought_over()
        if self._says_text:
            yield from self._open()
            text = "".join(choice.text)
            yield self._text("output_text.done", text=text, logprobs=choice.tokens)
            yield self._text("content_part.done", part=_part(text, choice.tokens))
            yield self._said("output_item.done", output_index=self._thoughts, item=self._output()[self._thoughts])
        for number, call in enumerate(choice.calls, self._thoughts + int(self._opened)):
            yield from self._called(number, call)
        yield self._said("incomplete" if choice.finish == "length" else "completed", response=self.whole())

    def _called(self, number: int, call: Call) -> Iterator[Chunk]:
        item = _call_item(call)
        where = {"item_id": item["id"], "output_index": number}
        yield self._said("output_item.added", output_index=number, item={**item, "arguments": "",
                                                                         "status": "in_progress"})
        yield self._said("function_call_arguments.delta", **where, delta=call.arguments)
        yield self._said("function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
        yield self._said("output_item.done", output_index=number, item=item)

    # -- the object -------------------------------------------------------------------------------------------------
    @property
    def _says_text(self) -> bool:
        return self._opened or bool(self.choices[0].text) or not self.choices[0].calls

    def _reasoning(self, status: str, text: str) -> dict[str, Any]:
        return {"id": self._thought_id, "type": "reasoning", "status": status, "summary": [],
                "content": [{"type": "reasoning_text", "text": text}] if text else []}

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"id": self._message_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _output(self) -> list[dict[str, Any]]:
        choice, items = self.choices[0], list[dict[str, Any]]()
        if choice.reasoning:
            items.append(self._reasoning("completed", "".join(choice.reasoning)))
        if self._says_text:
            status = "incomplete" if choice.finish == "length" else "completed"
            items.append(self._message(status, [_part("".join(choice.text), choice.tokens)]))
        return [*items, *map(_call_item, choice.calls)]

    def usage(self) -> dict[str, Any]:
        told = super().usage()
        cached = told["prompt_tokens_details"]["cached_tokens"]
        return {"input_tokens": told["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": told["prompt_tokens"] - cached},
                "output_tokens": told["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": told["total_tokens"]}

    def whole(self) -> dict[str, Any]:
        cut = self.choices[0].finish == "length"
        return {**self._response("incomplete" if cut else "completed", self._output()), "usage": self.usage(),
                "incomplete_details": {"reason": "max_output_tokens"} if cut else None}

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": "response", "created_at": self.created, "status": status, "error": None,
                "incomplete_details": None, "model": self.model, "output": output, "previous_response_id": None,
                "store": False, "truncation": "disabled", "usage": None, **self._settings}


def _part(text: str, told: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": told}


def _call_item(call: Call) -> dict[str, Any]:
    return {"id": call.id.replace("call_", "fc_"), "type": "function_call", "status": "completed", "call_id": call.id,
            "name": call.name, "arguments": call.arguments}
