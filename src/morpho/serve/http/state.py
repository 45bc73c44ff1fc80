"""State that all endpoints share, and their common work: the body, the model, the errors."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from morpho.base.errors import ArgumentError, MemoryLimit, MorphoError
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields, parsed
from morpho.serve.engine.request import QueueFull
from morpho.serve.hosting.registry import NoRoom, Registry, UnknownModel
from morpho.serve.hosting.served import Served
from morpho.serve.http.logs import LOG, Record
from morpho.serve.http.metrics import Metrics
from morpho.serve.http.options import Options
from morpho.serve.http.security import Receive, Scope, Send, respond_error

PATIENCE_S = 0.5  # for a model that is let go: who reads the last of an answer may ask before its request is over
LOOK_S = 0.02
BIG_BODY = 16 << 10  # bytes: longer ones are read and tokenized beside the loop, which streams meanwhile


class Gone(Exception):
    """The client went away."""


@dataclass
class State:
    """One server."""

    registry: Registry
    options: Options
    metrics: Metrics
    begun: float = field(default_factory=time.monotonic)
    stopping: bool = False
    progress: dict[str, tuple[int, float]] = field(default_factory=dict)  # steps of engines, and since when

    @asynccontextmanager
    async def leased(self, name: str | None) -> AsyncIterator[Served]:
        """A model for the time of the block, loaded first where it is not."""
        if self.stopping:
            raise ApiError(503, "the server is shutting down", retry_after_s=5)
        patient_until, turns = time.monotonic() + PATIENCE_S, 0
        while turns < 8:  # between loading and leasing another request may have made it give way
            with self.registry.lease(name) as served:
                if served is not None:
                    yield _under(served, name, self.registry.adapter_of(name))
                    return
            try:
                turns += 1
                await asyncio.to_thread(self.registry.load, name)
            except NoRoom:
                if time.monotonic() > patient_until:
                    raise
                turns = 0
                await asyncio.sleep(LOOK_S)
        raise ApiError(503, f"the model '{name}' gives way to others all the time", retry_after_s=5)


def _under(served: Served, name: str | None, adapter: str | None) -> Served:
    """The model under the name of one of its adapters."""
    if adapter is None:
        return served
    found = copy.copy(served)
    found.name, found.adapter = adapter, adapter
    return found


def named(scope: Scope, state: State, fields: Fields) -> str | None:
    """The model that a body names. Clients of Ollama's API write a tag after its name."""
    name = fields.text("model", most=256)
    if name is None or name in state.registry.names or not scope["path"].startswith("/api/"):
        return name
    return name.removesuffix(":latest")


async def read_fields(scope: Scope, receive: Receive, options: Options) -> Fields:
    """The body as fields, within the limits of size and time."""
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise ApiError(415, "the body must be JSON: send the header Content-Type: application/json")
    if (coding := headers.get(b"content-encoding", b"identity").strip().lower()) != b"identity":
        raise ApiError(415, f"the body is packed as {coding[:40].decode('latin-1')!r}: send it as it is")
    most = options.limits.body_bytes
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > most:
        raise ApiError(413, f"the body has more than {most} bytes", code="body_too_large")
    raw = bytearray()
    try:
        async with asyncio.timeout(options.limits.body_timeout_s):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                raw += message.get("body", b"")
                more = message.get("more_body", False)
                if len(raw) > most:
                    raise ApiError(413, f"the body has more than {most} bytes", code="body_too_large")
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {options.limits.body_timeout_s:g} s") from None
    found: Fields = await beside(len(raw), parsed, bytes(raw))
    return found


# Large bodies have one thread together: many that hold Python's lock in turn would hold up everybody else.
_BESIDE = ThreadPoolExecutor(1, thread_name_prefix="morpho-bodies")


async def beside(size: int, call: Callable[..., Any], *args: Any) -> Any:
    """Call a function, beside the loop if the body it works on is large."""
    if size <= BIG_BODY:
        return call(*args)
    return await asyncio.get_running_loop().run_in_executor(_BESIDE, call, *args)


def as_api_error(error: Exception) -> ApiError:
    """Turn any error into one of the API."""
    if isinstance(error, ApiError):
        return error
    told = getattr(error, "message", "") or str(error)
    if isinstance(error, QueueFull):
        return ApiError(429, told, code="queue_full", retry_after_s=error.retry_after_s)
    if isinstance(error, UnknownModel):
        return ApiError(404, told, "model", "model_not_found")
    if isinstance(error, NoRoom | MemoryLimit):
        return ApiError(503, told, retry_after_s=10)
    if isinstance(error, ArgumentError):
        return ApiError(400, told)
    if isinstance(error, MorphoError | OSError):
        return ApiError(500, told)
    return ApiError(500, "a fault of the server's own; its log has the request's id")


Handler = Callable[[Scope, Receive, Send, State], Any]


class Endpoint:
    """A handler as an ASGI application, whose errors are answers in OpenAI's form."""

    def __init__(self, handler: Handler, state: State) -> None:
        self._handler, self._state = handler, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record: Record = scope["morpho.record"]
        try:
            await self._handler(scope, receive, send, self._state)
        except Gone:
            record.more["gone"] = True
            record.status = record.status or 499
        except Exception as error:
            told = as_api_error(error)
            if told.status >= 500 and not isinstance(error, ApiError):
                LOG.error("fault", exc_info=True, extra={"id": record.id})
            record.more["error"] = told.code or told.message[:200]
            if record.status:  # the answer has begun: nothing but the end of the connection can tell
                raise
            await respond_error(send, told, scope["path"])


async def respond(send: Send, body: Any, status: int = 200, kind: bytes = b"application/json") -> None:
    """A whole response."""
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    await send({"type": "http.response.start", "status": status, "headers": [
        (b"content-type", kind), (b"content-length", str(len(raw)).encode()), (b"cache-control", b"no-store")]})
    await send({"type": "http.response.body", "body": raw})
