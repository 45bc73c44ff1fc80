"""The application: routes, the page, and the layers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from morpho.serve.api.errors import ApiError
from morpho.serve.hosting.registry import Registry
from morpho.serve.http import generation, small
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
         "/v1/responses": generation.responses,
         "/v1/embeddings": small.embeddings, "/tokenize": small.tokenize, "/detokenize": small.detokenize}
GETS = {"/v1/models": small.models, "/v1/models/{name:path}": small.model, "/health": small.health,
        "/ready": small.ready, "/metrics": small.figures, "/live": small.live}


def make_app(registry: Registry, options: Options) -> tuple[App, State]:
    """The ASGI application of a server, and its state."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    state = State(registry, options, Metrics(registry))
    routes = [Route(path, Endpoint(handler, state), methods=["POST"]) for path, handler in POSTS.items()]
    routes += [Route(path, Endpoint(handler, state), methods=["GET"]) for path, handler in GETS.items()]
    routes += [Route(path, Endpoint(_file(*file), state), methods=["GET"]) for path, file in FILES.items()]
    made = Starlette(routes=routes, lifespan=lambda app: _living(state), exception_handlers={
        404: _told(404, "there is nothing at this address"),
        405: _told(405, "this address takes another method")})
    return Logged(Security(_Direct(routes, made), options), state.metrics), state


class _Direct:
    """Requests to an address that is written out go straight to its endpoint; others through Starlette, whose layers
    would see every piece of every stream."""

    def __init__(self, routes: list[Any], others: App) -> None:
        self._routes = {(method, route.path): route for route in routes if "{" not in route.path
                        for method in route.methods if method != "HEAD"}
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._others(scope, receive, send)
            return
        scope["route"] = route
        await route.app(scope, receive, send)


def _file(name: str, kind: bytes) -> Any:
    body = (PAGE / name).read_bytes()

    async def handler(scope: Scope, receive: Receive, send: Send, state: State) -> None:
        await respond(send, body, kind=kind)

    return handler


def _told(status: int, message: str) -> Callable[[Any, Exception], Awaitable[Any]]:
    async def handler(request: Any, error: Exception) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse(ApiError(status, message).body(), status, headers=getattr(error, "headers", None))

    return handler


@asynccontextmanager
async def _living(state: State) -> AsyncIterator[None]:
    """While the server runs, look for models that changed; in the end, close all."""
    watcher = asyncio.create_task(_watch(state)) if state.options.watch_s else None
    try:
        yield
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
