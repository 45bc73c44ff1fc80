"""How a server is reached, and by whom."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

from morpho.base.errors import ArgumentError, fail
from morpho.serve.api.limits import Limits

LEAST_TOKEN = 16  # characters


@dataclass(frozen=True)
class Options:
    """Where a server listens and whom it answers; what is not on loopback needs a token.

    >>> from morpho.serve.http.options import Options
    >>> Options().url
    'http://127.0.0.1:8000'
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    allow_hosts: tuple[str, ...] = ()  # names in the Host header, besides the usual ones
    cors_origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    shutdown_timeout_s: float = 60.0
    most_requests: int = 1024  # at once; twice as many connections
    watch_s: float = 2.0  # between looks at the files of models; 0: none

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise fail(ArgumentError, "serve", f"{self.host} can be reached from other machines, and there is no token",
                       "write one into a file and give --token-file FILE, or stay on 127.0.0.1")
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isascii()
                                       or not self.token.isprintable() or " " in self.token):
            raise fail(ArgumentError, "serve", f"the token is not {LEAST_TOKEN} or more printable characters of ASCII",
                       "make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'")
        if (self.certificate is None) != (self.key is None):
            raise fail(ArgumentError, "serve", "a certificate and a key belong together",
                       "give --tls-certificate FILE and --tls-key FILE")
        for origin in self.cors_origins:
            if origin == "*" or "://" not in origin or origin.endswith("/"):
                raise fail(ArgumentError, "serve", f"{origin!r} is no origin", "write it as https://example.org")

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}"

    def host_names(self) -> frozenset[str]:
        """Names that a Host header may have, without ports."""
        names = {"localhost", "127.0.0.1", "[::1]", *(name.lower() for name in self.allow_hosts)}
        if not is_loopback(self.host):
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return frozenset(names)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> from morpho.serve.http.options import is_loopback
    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: Path) -> str:
    """The token in a file that others may not read."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise fail(ArgumentError, "serve", f"the token file {file} cannot be read: {error}") from None
    if mode & 0o077:
        raise fail(ArgumentError, "serve", f"others may read the token file {file}", f"chmod 600 {file}")
    return text
