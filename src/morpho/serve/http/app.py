"""The application: routes, the page, and the layers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from morpho.base.python.lazy import cached_property
from morpho.serve.api.errors import ApiError
from morpho.serve.hosting.registry import Registry
from morpho.serve.http import generation, ollama, small
from morpho.serve.http.draining import Drained
from morpho.serve.http.logs import LOG, Logged
from morpho.serve.http.metrics import Metrics
from morpho.serve.http.options import Options
from morpho.serve.http.security import App, Receive, Scope, Security, Send, respond_error
from morpho.serve.http.state import Endpoint, State, respond

PAGE = Path(__file__).parent.parent / "page"
FILES = {"/": ("page.html", b"text/html; charset=utf-8"), "/page.js": ("page.js", b"text/javascript; charset=utf-8"),
         "/markdown.js": ("markdown.js", b"text/javascript; charset=utf-8"),
         "/icon.svg": ("icon.svg", b"image/svg+xml"), "/page.css": ("page.css", b"text/css; charset=utf-8")}
POSTS = {"/v1/chat/completions": generation.chat, "/v1/completions": generation.completions,
         "/v1/responses": generation.responses, "/v1/messages": generation.messages,
         "/v1/messages/count_tokens": small.count_tokens, "/api/chat": generation.ollama_chat,
         "/api/generate": generation.ollama_generate, "/api/embed": ollama.embed, "/api/show": ollama.show,
         "/v1/rerank": small.rerank, "/v2/rerank": small.rerank, "/rerank": small.rerank, "/v1/score": small.score,
         "/score": small.score, "/v1/embeddings": small.embeddings, "/tokenize": small.tokenize,
         "/detokenize": small.detokenize, "/v1/weights": small.weights}
GETS = {"/v1/models": small.models, "/v1/models/{name:path}": small.model, "/health": small.health,
        "/api/tags": ollama.tags, "/api/ps": ollama.running, "/api/version": ollama.version_of_server,
        "/ready": small.ready, "/metrics": small.figures, "/live": small.live}


def make_app(registry: Registry, options: Options) -> tuple[App, State]:
    """The ASGI application of a server, and its state."""
    state = State(registry, options, Metrics(registry))
    return Logged(Drained(Security(_Direct(state), options)), state.metrics), state


class Address(NamedTuple):
    """Handler of one address."""

    path: str
    app: App


class _Direct:
    """Requests to an address that is written out go straight to its endpoint; others through Starlette, whose layers
    would see every piece of every stream, and which nobody waits for when the server starts."""

    def __init__(self, state: State) -> None:
        self._state = state
        tables = (("POST", POSTS), ("GET", GETS), ("GET", {path: _file(*file) for path, file in FILES.items()}))
        self._all = {(method, path): Address(path, Endpoint(handler, state)) for method, table in tables
                     for path, handler in table.items()}
        self._written = {where: address for where, address in self._all.items() if "{" not in address.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(self._state, self._prepare, receive, send)
            return
        address = self._written.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if address is None:
            await self._others(scope, receive, send)
            return
        scope["route"] = address
        await address.app(scope, receive, send)

    @cached_property
    def _others(self) -> App:
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [Route(path, address.app, methods=[method]) for (method, path), address in self._all.items()]
        return Starlette(routes=routes, exception_handlers={
            404: _told(404, "there is nothing at this address"),
            405: _told(405, "this address takes another method")})

    def _prepare(self) -> None:
        """Import what nobody waits for when the server starts."""
        self._state.metrics.prepare()
        _ = self._others


def _file(name: str, kind: bytes) -> Any:
    body = (PAGE / name).read_bytes()

    async def handler(scope: Scope, receive: Receive, send: Send, state: State) -> None:
        await respond(send, body, kind=kind)

    return handler


def _told(status: int, message: str) -> Callable[[Any, Exception], Awaitable[Any]]:
    async def handler(request: Any, error: Exception) -> Any:
        from starlette.responses import JSONResponse

        body = ApiError(status, message).told(request.url.path)
        return JSONResponse(body, status, headers=getattr(error, "headers", None))

    return handler


async def _lifespan(state: State, prepare: Callable[[], None], receive: Receive, send: Send) -> None:
    """Starting and ending, as ASGI has it."""
    await receive()
    async with _living(state, prepare):
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def _living(state: State, prepare: Callable[[], None]) -> AsyncIterator[None]:
    """While the server runs, look for models that changed; in the end, close all."""
    watcher = asyncio.create_task(_watch(state)) if state.options.watch_s else None
    preparing = asyncio.create_task(asyncio.to_thread(prepare))
    try:
        yield
        await preparing
    finally:
        state.stopping = True
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
        await asyncio.to_thread(state.registry.close, True, state.options.shutdown_timeout_s)


async def _watch(state: State) -> None:
    while True:
        await asyncio.sleep(state.options.watch_s)
        try:
            await asyncio.to_thread(state.registry.look_for_changes)
        except Exception:
            LOG.error("watch", exc_info=True)


__all__ = ["make_app", "respond_error"]
