"""An answer that comes before its request's body has been read: an error of size, of the token, of the address.

A connection that is closed while bytes of the body are still on their way is reset, and the client, which is busy
sending, never sees the answer. So the answer goes out at once, and what still comes is read and thrown away before the
answer ends (a lingering close): as much and as long as is reasonable, then the connection is cut after all.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from morpho.serve.http.security import App, Receive, Scope, Send

MOST_BYTES = 64 << 20  # that are thrown away
MOST_S = 10.0
TOO_SLOW = 408  # the body did not come in time: nobody waits for more of it


class Drained:
    """An ASGI layer: reads what an endpoint has left of a body before the answer ends."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        left = True  # of the body

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                left = left and message["status"] != TOO_SLOW
            elif left and not message.get("more_body", False):
                await send({**message, "more_body": True})
                whole = await _drained(receive)
                await send({"type": "http.response.body", "body": b""})
                if not whole and "morpho.connection" in scope:
                    scope["morpho.connection"].close()
                return
            await send(message)

        await self._app(scope, receiving, sending)


def _has_body(scope: Scope) -> bool:
    """Whether bytes of a body come whatever the answer says: who expects "100 Continue" has not sent any yet."""
    headers = dict(scope["headers"])
    return (headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers) \
        and b"expect" not in headers


async def _drained(receive: Receive) -> bool:
    """Read a body to its end; False where that is too far."""
    thrown = 0
    try:
        async with asyncio.timeout(MOST_S):
            while thrown <= MOST_BYTES:
                message = await receive()
                thrown += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False
