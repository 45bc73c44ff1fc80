"""Clients of a server: threads that send requests and note when each piece of each stream arrives."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """What one request saw: seconds from sending to the first token, between pieces, and to the end."""

    first_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    whole_s: float = 0.0
    tokens: int = 0
    error: str | None = None


def ask(port: int, path: str, body: dict[str, Any], connection: http.client.HTTPConnection | None = None) -> Seen:
    """One streamed request."""
    own = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    seen, last = Seen(), 0.0
    raw = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    begun = time.perf_counter()
    try:
        response = _sent(own, path, raw)
        if response.status != 200:
            seen.error = f"{response.status}: {response.read()[:200].decode('utf-8', 'replace')}"
            return seen
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now, chunk = time.perf_counter(), json.loads(line[6:])
            if chunk.get("usage"):
                seen.tokens = chunk["usage"]["completion_tokens"]
            choice = (chunk.get("choices") or [{}])[0]
            if choice.get("text") or (choice.get("delta") or {}).get("content"):
                if not seen.first_s:
                    seen.first_s = now - begun
                else:
                    seen.gaps_s.append(now - last)
                last = now
        response.close()  # reading lines up to its length does not say so, and the next request would be refused
    except (OSError, http.client.HTTPException, ValueError) as error:
        seen.error = f"{type(error).__name__}: {error}"
    seen.whole_s = time.perf_counter() - begun
    return seen


def _sent(connection: http.client.HTTPConnection, path: str, raw: bytes) -> http.client.HTTPResponse:
    """The beginning of an answer; over a new connection where the server has closed the old one after an answer, as
    every client does."""
    for last in (False, True):
        try:
            connection.request("POST", path, raw, {"Content-Type": "application/json"})
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()
            if last:
                raise
    raise AssertionError("unreachable")


def clients(port: int, path: str, bodies: list[list[dict[str, Any]]]) -> tuple[float, list[Seen]]:
    """(seconds from the first request to the last answer, what was seen): a thread for each list of bodies, which sends
    them one after another over one connection."""
    found: list[list[Seen]] = [[] for _ in bodies]

    def run(place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        found[place] = [ask(port, path, body, connection) for body in bodies[place]]
        connection.close()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(bodies))]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun, [seen for each in found for seen in each]


def percentile(values: list[float], share: float) -> float | None:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None
