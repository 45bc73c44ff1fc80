"""Access control: the Host and Origin headers, the token, and headers that bind a browser. One ASGI layer around
everything else.

A page on another site can make a browser send requests here, also to 127.0.0.1, and with a name of its own that points
here (DNS rebinding): so the Host header must be a known name, and an Origin header must be this server's own.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from morpho.serve.api.errors import ApiError
from morpho.serve.http.options import Options, is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ONCE = (b"host", b"origin", b"authorization", b"x-api-key", b"content-type")  # headers that a request has once
# What holds nothing of anybody's.
OPEN = frozenset({"/", "/page.js", "/markdown.js", "/page.css", "/icon.svg", "/health", "/ready"})
CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
HEADERS = [(b"content-security-policy", CSP.encode()), (b"x-content-type-options", b"nosniff"),
           (b"referrer-policy", b"no-referrer"), (b"x-frame-options", b"DENY"),
           (b"cross-origin-resource-policy", b"same-origin"), (b"cross-origin-opener-policy", b"same-origin"),
           (b"permissions-policy", b"camera=(), microphone=(), geolocation=()")]


class Security:
    """Lets a request through, or answers with an error."""

    def __init__(self, app: App, options: Options, open_paths: frozenset[str] = OPEN) -> None:
        self._app, self._options, self._hosts, self._open = app, options, options.host_names(), open_paths
        self._any_address = not is_loopback(options.host)
        self._token = None if options.token is None else _digest(options.token)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        twice = {name for name in ONCE if sum(name == given for given, _ in scope["headers"]) > 1}
        origin = headers.get(b"origin", "")
        allowed = origin in self._options.cors_origins

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS, *self._cors(origin if allowed else "")]
            await send(message)

        try:
            if twice:  # which one is meant? Whoever stands before this server may take the other
                raise ApiError(400, f"the header {min(twice).decode()} comes more than once")
            self._check(scope, headers, origin, allowed)
            if self._active >= self._options.most_requests and scope["path"] not in self._open:
                raise ApiError(503, f"{self._active} requests are being answered already", retry_after_s=1)
        except ApiError as error:
            await respond_error(sending, error, scope["path"])
            return
        if scope["method"] == "OPTIONS" and allowed:
            await sending({"type": "http.response.start", "status": 204, "headers": []})
            await sending({"type": "http.response.body", "body": b""})
            return
        self._active += 1
        try:
            await self._app(scope, receive, sending)
        finally:
            self._active -= 1

    def _check(self, scope: Scope, headers: dict[bytes, str], origin: str, allowed: bool) -> None:
        host = headers.get(b"host", "")
        if not self._knows(host):
            raise ApiError(403, f"the Host header {host[:80]!r} is not a name of this server; start it with "
                                "--allow-host NAME to be reached by another", code="host_not_allowed")
        own = f"{scope.get('scheme', 'http')}://{host}".lower()
        if origin and origin.lower() != own and not allowed:
            raise ApiError(403, f"pages of {origin[:80]!r} may not ask this server; start it with --cors-origin ORIGIN "
                                "to allow it", code="origin_not_allowed")
        if scope["method"] == "OPTIONS" or scope["path"] in self._open or self._token is None:
            return
        own_key = headers.get(b"x-api-key")  # what clients of Anthropic's API send
        header = headers.get(b"authorization", "" if own_key is None else f"Bearer {own_key}")
        scheme, _, given = header.partition(" ")
        right = hmac.compare_digest(_digest(given.strip()), self._token)  # always the same work, whatever is given
        if scheme.lower() != "bearer" or not right:
            raise ApiError(401, "the token is missing or wrong: Authorization: Bearer TOKEN", code="invalid_api_key")

    def _knows(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if ":" in host and not host.endswith("]") else (host, "", "")
        if port and not (port.isascii() and port.isdigit()):
            return False
        if name.lower() in self._hosts:
            return True
        if not self._any_address:
            return False
        try:  # an address cannot be pointed elsewhere
            ipaddress.ip_address(name.strip("[]"))
            return True
        except ValueError:
            return False

    def _cors(self, origin: str) -> list[tuple[bytes, bytes]]:
        if not origin:
            return []
        return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin"),
                (b"access-control-allow-methods", b"GET, POST"),
                (b"access-control-allow-headers", b"authorization, x-api-key, anthropic-version, content-type, "
                                                  b"x-request-id"),
                (b"access-control-expose-headers", b"x-request-id, retry-after")]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


async def respond_error(send: Send, error: ApiError, path: str = "") -> None:
    """An error as a whole response, in the form of the API that the address belongs to."""
    import json
    import math

    body = json.dumps(error.told(path)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s))).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
