"""Addresses that make text, of OpenAI's, Anthropic's and Ollama's APIs: a job's events as one object or as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from morpho.serve.api.answers import Answer, Job
from morpho.serve.api.anthropic import message_job
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import chat_job, completion_job
from morpho.serve.api.limits import Limits
from morpho.serve.api.ollama import ollama_chat_job, ollama_generate_job
from morpho.serve.api.responses import response_job
from morpho.serve.hosting.served import Served
from morpho.serve.http.bridge import Arrived, Events
from morpho.serve.http.logs import Record
from morpho.serve.http.protocol import Connection
from morpho.serve.http.security import Receive, Scope, Send
from morpho.serve.http.state import Gone, State, as_api_error, beside, named, read_fields, respond

MakeJob = Callable[[Fields, Served, Limits, str], Job]
WRITE_TIMEOUT_S = 60.0  # a client that does not read for so long is gone


async def chat(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, chat_job)


async def completions(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, completion_job)


async def responses(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, response_job)


async def messages(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, message_job)


async def ollama_chat(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, ollama_chat_job)


async def ollama_generate(scope: Scope, receive: Receive, send: Send, state: State) -> None:
    await _generate(scope, receive, send, state, ollama_generate_job)


async def _generate(scope: Scope, receive: Receive, send: Send, state: State, make: MakeJob) -> None:
    record: Record = scope["morpho.record"]
    fields = await read_fields(scope, receive, state.options)
    async with state.leased(named(scope, state, fields)) as served:
        record.more["model"] = served.name
        if served.engine is None:
            raise ApiError(400, f"the model '{served.name}' makes vectors, no text: use /v1/embeddings", "model")
        if not served.engine.alive:
            raise ApiError(503, f"the engine of '{served.name}' has ended: {served.engine.last_error}")
        job = await beside(fields.size, make, fields, served, state.options.limits, record.id)
        events = Events(served.engine, job.requests)
        watch: asyncio.Task[None] | None = None
        try:
            # A grammar is compiled when its request is submitted, which takes a while.
            slow = len(job.requests) > 1 or any(request.params.grammar is not None for request in job.requests)
            await (asyncio.to_thread(events.submit) if slow else _now(events.submit))
            watch = asyncio.create_task(_gone(receive, events))
            timing = _Timing(record, state, served.name)
            if job.stream:
                await _stream(job, events, send, scope, timing)
            else:
                await _whole(job, events, send, timing)
        finally:
            events.cancel()
            record.more.update(_said(job.answer))
            if watch is not None:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch


async def _now(call: Callable[[], None]) -> None:
    call()


async def _gone(receive: Receive, events: Events) -> None:
    """Wait until the client goes away, and end its requests then."""
    while (await receive())["type"] != "http.disconnect":
        pass
    events.cancel()


class _Timing:
    """First token and time per token of one call."""

    def __init__(self, record: Record, state: State, model: str) -> None:
        self._record, self._state, self._model = record, state, model
        self._first, self._tokens = 0.0, 0

    def arrived(self, count: int) -> None:
        if not self._tokens and count:
            self._first = time.perf_counter()
            self._record.first_token_s = self._first - self._record.begun
            self._state.metrics.first_token(self._model, self._record.first_token_s)
        self._tokens += count

    def end(self, choices: int) -> None:
        """Of several texts at once, each has the mean of all."""
        if self._tokens > choices:
            took = time.perf_counter() - self._first
            self._state.metrics.per_token(self._model, took * choices / (self._tokens - choices))


async def _whole(job: Job, events: Events, send: Send, timing: _Timing) -> None:
    while arrived := await events.next():
        timing.arrived(sum(event.token is not None for _, event in arrived))
        for place, event in arrived:
            for _ in job.answer.feed(place, event):
                pass
    if not job.answer.finished:
        raise Gone
    timing.end(len(job.answer.choices))
    await respond(send, job.answer.whole())


async def _stream(job: Job, events: Events, send: Send, scope: Scope, timing: _Timing) -> None:
    """Server-sent events: what has arrived goes out in one piece, past the layers, which only look at how an answer
    begins."""
    await send({"type": "http.response.start", "status": 200, "headers": [
        (b"content-type", job.answer.content_type), (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no")]})
    answer, writer = job.answer, _Writer(scope["morpho.send"])
    connection: Connection | None = scope.get("morpho.connection")

    def push(arrived: list[Arrived]) -> bool:
        """Write what can be written without waiting for a slow reader; the task writes the rest."""
        if connection is None or not connection.is_free:
            return False
        timing.arrived(sum([event.token is not None for _, event in arrived]))
        body = b"".join([answer.written(place, event) for place, event in arrived])
        if body:
            connection.push(body)
        return True

    try:
        await writer.write(b"".join(map(answer.event, answer.opening())))
        events.push = push
        while arrived := await events.next():
            timing.arrived(sum(event.token is not None for _, event in arrived))
            await writer.write(b"".join([answer.written(place, event) for place, event in arrived]))
        if not job.answer.finished:
            raise Gone
        timing.end(len(job.answer.choices))
        await writer.write(answer.closing(job.include_usage), more=False)
    except (Gone, TimeoutError):
        raise Gone from None
    except Exception as error:  # the status has been sent: the error is the last event
        await writer.write(answer.failed(as_api_error(error)), more=False)
    finally:
        writer.close()


class _Writer:
    """Writes pieces of a body. A client that does not read for `WRITE_TIMEOUT_S` is gone: one timer looks for that,
    not one for each of thousands of pieces."""

    def __init__(self, send: Send) -> None:
        self._send, self._loop, self._task = send, asyncio.get_running_loop(), asyncio.current_task()
        self._begun: float | None = None
        self._late = False
        self._timer = self._loop.call_later(WRITE_TIMEOUT_S / 2, self._look)

    async def write(self, body: bytes, more: bool = True) -> None:
        if not body and more:
            return
        self._begun = self._loop.time()
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except asyncio.CancelledError:
            if self._late and self._task is not None and self._task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            self._begun = None

    def _look(self) -> None:
        if self._begun is not None and self._loop.time() - self._begun >= WRITE_TIMEOUT_S and self._task is not None:
            self._late = True
            self._task.cancel()
            return
        self._timer = self._loop.call_later(WRITE_TIMEOUT_S / 2, self._look)

    def close(self) -> None:
        self._timer.cancel()


def _said(answer: Answer) -> dict[str, Any]:
    used = Answer.usage(answer)  # in one form, whatever the answer itself says
    return {"prompt_tokens": used["prompt_tokens"], "completion_tokens": used["completion_tokens"],
            "cached_tokens": used["prompt_tokens_details"]["cached_tokens"],
            "finish": ",".join(choice.finish or "-" for choice in answer.choices[:4])}
