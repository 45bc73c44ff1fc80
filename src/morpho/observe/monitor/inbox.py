"""Figures of ranks on other machines: each sends them to whoever started it, who keeps them beside those of its own.

>>> import tempfile
>>> from morpho.observe.monitor.ranks import RankReport, read_ranks
>>> with tempfile.TemporaryDirectory() as folder, Inbox(Path(folder), ["127.0.0.1"]) as inbox:
...     with RankReport(Line(inbox.address, inbox.secret), rank=3, every_s=60.0):
...         [row] = read_ranks(Path(folder))
>>> row["rank"], row["rss_bytes"] > 1 << 20
(3, True)

A message is one connection: 32 bytes of HMAC-SHA256 under the launcher's secret, then JSON. What has no valid code is
dropped before it is parsed. The time is the one at which it came in: clocks of machines differ.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morpho.observe.monitor.ranks import MOST_BYTES, MOST_RANKS, write_row

CODE_BYTES = 32
PATIENCE_S = 2.0  # with a connection that says nothing
MOST_AT_ONCE = 64


def _code(secret: str, payload: bytes) -> bytes:
    return hmac.new(secret.encode(), payload, hashlib.sha256).digest()


class Line:
    """A way to an `Inbox`: `address` is "HOST:PORT,HOST:PORT", of which any that answers is taken.

    >>> Line("10.0.0.1:80,[::1]:81", "x").places
    [('10.0.0.1', 80), ('::1', 81)]
    """

    def __init__(self, address: str, secret: str, patience_s: float = PATIENCE_S) -> None:
        pairs = [word.rpartition(":") for word in address.split(",")]
        self.places = [(host.strip("[]"), int(port)) for host, _, port in pairs]
        self._secret, self._patience_s = secret, patience_s

    def tell(self, row: Mapping[str, Any]) -> None:
        """Send a row of figures, and wait until it is kept; OSError where nobody answers."""
        payload = json.dumps(row).encode()
        for place in list(self.places):
            try:
                with socket.create_connection(place, self._patience_s) as line:
                    line.sendall(_code(self._secret, payload) + payload)
                    line.shutdown(socket.SHUT_WR)
                    if line.recv(1) != b"+":
                        continue
            except OSError:
                continue
            self.places.remove(place)  # the one that answers is asked first from now on
            self.places.insert(0, place)
            return
        raise OSError(f"nobody takes reports at {self.places}")


class Inbox:
    """Takes reports of ranks on these addresses of this machine, and keeps the last of each in a folder."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self.secret = secrets.token_hex(16)
        self._folder, self._hosts = Path(folder), list(hosts)
        self._lock = threading.Lock()
        self._servers = [_Server(host, self) for host in hosts]

    @property
    def address(self) -> str:
        """Where it listens, for `Line`."""
        return ",".join(f"[{host}]:{server.server_address[1]}" if ":" in host else f"{host}:{server.server_address[1]}"
                        for host, server in zip(self._hosts, self._servers, strict=True))

    def __enter__(self) -> Inbox:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, name="morpho-rank-inbox", daemon=True).start()
        return self

    def __exit__(self, *ended: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def take(self, message: bytes) -> bool:
        """Keep a report; False for what is none."""
        code, payload = message[:CODE_BYTES], message[CODE_BYTES:]
        if not hmac.compare_digest(code, _code(self.secret, payload)):
            return False
        try:
            row = json.loads(payload)
            rank = row["rank"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        if type(rank) is not int or not 0 <= rank < MOST_RANKS:
            return False
        with self._lock:
            write_row(self._folder, {**row, "time": time.time()})
        return True


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, inbox: Inbox) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.inbox, self._free = inbox, threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__((host, 0), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever went away in mid-sentence says so by not being seen again."""


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        until = time.monotonic() + PATIENCE_S
        message = b""
        while len(message) <= MOST_BYTES + CODE_BYTES:
            self.request.settimeout(max(0.01, until - time.monotonic()))
            piece = self.request.recv(MOST_BYTES)
            if not piece:
                if self.server.inbox.take(message):
                    self.request.sendall(b"+")
                return
            message += piece


def own_addresses(hosts: Sequence[str]) -> list[str]:
    """The addresses of this machine that these hosts see: of the way to each; where no name is known here (a name of
    ssh's), those of this machine's own name.

    >>> own_addresses(["127.0.0.1"])
    ['127.0.0.1']
    """
    found: dict[str, None] = {}
    for host in hosts:
        try:
            family, kind, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(place)  # nothing is sent: the way is looked up
                found[probe.getsockname()[0]] = None
        except OSError:
            continue
    if not found:
        try:
            found = {str(place[0]): None for *_, place in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)}
        except OSError:
            pass
    return list(found)
