"""The dashboard as an ASGI application: four files and six addresses, behind the same guard as the model server."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from morpho.serve.api.errors import ApiError
from morpho.serve.dashboard.sources import Sources
from morpho.serve.http.logs import LOG
from morpho.serve.http.options import Options
from morpho.serve.http.security import App, Receive, Scope, Security, Send, respond_error
from morpho.serve.http.state import respond

PAGE = Path(__file__).parent / "page"
KINDS = {".html": b"text/html; charset=utf-8", ".js": b"text/javascript; charset=utf-8",
         ".css": b"text/css; charset=utf-8", ".svg": b"image/svg+xml"}
FILES = {"/": "page.html", "/page.js": "page.js", "/charts.js": "charts.js", "/page.css": "page.css"}


def make_app(sources: Sources, options: Options) -> App:
    """The application; the files are open to all who may ask, what they show needs the token."""
    return Security(Pages(sources), options, frozenset({*FILES, "/icon.svg"}))


class Pages:
    """Answers to GET, and nothing else."""

    def __init__(self, sources: Sources) -> None:
        self._files = {path: ((PAGE / name).read_bytes(), KINDS[Path(name).suffix]) for path, name in FILES.items()}
        icon = PAGE.parent.parent / "page" / "icon.svg"
        self._files["/icon.svg"] = icon.read_bytes(), KINDS[".svg"]
        self._sources = sources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _living(receive, send)
            return
        try:
            if scope["method"] != "GET":
                raise ApiError(405, "this address takes another method")
            await self._answer(scope, send)
        except ApiError as error:
            await respond_error(send, error)
        except Exception:
            LOG.error("fault", exc_info=True, extra={"path": scope["path"][:200]})
            await respond_error(send, ApiError(500, "a fault of the dashboard's own; its log has it"))

    async def _answer(self, scope: Scope, send: Send) -> None:
        path = scope["path"]
        if path in self._files:
            body, kind = self._files[path]
            await respond(send, body, kind=kind)
            return
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        readers: dict[str, Any] = {
            "/api/live": self._sources.live, "/api/runs": self._sources.runs, "/api/cluster": self._sources.cluster,
            "/api/ranks": self._sources.ranks,
            "/api/ledger": self._sources.ledger, "/api/curves": lambda: self._sources.curves(asked.get("run", []))}
        if path not in readers:
            raise ApiError(404, "there is nothing at this address")
        found = await asyncio.to_thread(readers[path])  # files are read beside the loop
        await respond(send, json.dumps(_finite(found), default=str, allow_nan=False).encode())


def _finite(found: Any) -> Any:
    """The same with null for nan and infinities, which JSON has none of: a run may have lost its way."""
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {name: _finite(value) for name, value in found.items()}
    return [_finite(value) for value in found] if isinstance(found, list | tuple) else found


async def _living(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
