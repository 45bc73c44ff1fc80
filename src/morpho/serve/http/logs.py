"""One line of JSON for each request and each event of the server, with the request's id; no text of users or models."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from morpho.serve.http.metrics import Metrics
from morpho.serve.http.security import App, Receive, Scope, Send

LOG = logging.getLogger("morpho.serve")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OF_LOGGING = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as a line of JSON.

    >>> from morpho.serve.http.logs import JsonLines
    >>> record = logging.makeLogRecord({"msg": "request", "levelname": "INFO", "status": 200})
    >>> json.loads(JsonLines().format(record))["status"]
    200
    """

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said = {"time": f"{stamp}.{int(record.msecs):03d}Z", "level": record.levelname.lower(),
                "event": record.getMessage()}
        said.update({name: value for name, value in vars(record).items() if name not in _OF_LOGGING})
        if record.exc_info and record.exc_info[1] is not None:
            said["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        return json.dumps(said, ensure_ascii=True, default=str)


@contextmanager
def logging_to(stream: Any = None, severity: int = logging.INFO) -> Iterator[None]:
    """While the block lasts, the log of the server, of what it stands on and of Morpho are lines of JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    loggers = [LOG, logging.getLogger("uvicorn.error"), logging.getLogger("morpho")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger, least in zip(loggers, (severity, max(severity, logging.WARNING), logging.DEBUG), strict=True):
        logger.addHandler(handler)
        logger.setLevel(least)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


@dataclass
class Record:
    """Log record of one request; endpoints fill it in."""

    id: str
    begun: float = field(default_factory=time.perf_counter)
    status: int = 0
    first_token_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


class Logged:
    """An ASGI layer: gives each request an id, counts it, and writes its line when it ends."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), "")
        record = Record(given if _ID.fullmatch(given) else f"req-{secrets.token_hex(8)}")
        scope["morpho.record"], scope["morpho.send"] = record, send

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", record.id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            LOG.error("fault", exc_info=True, extra={"id": record.id, "path": scope["path"]})
            raise
        finally:
            self._end(scope, record)

    def _end(self, scope: Scope, record: Record) -> None:
        took = time.perf_counter() - record.begun
        route = getattr(scope.get("route"), "path", None) or "other"  # never a path that somebody made up
        self._metrics.request(route, record.status, took)
        LOG.info("request", extra={"id": record.id, "method": scope["method"], "path": scope["path"][:200],
                                   "status": record.status, "ms": round(took * 1e3, 2), **(
                                       {} if record.first_token_s is None
                                       else {"first_token_ms": round(record.first_token_s * 1e3, 2)}), **record.more})
