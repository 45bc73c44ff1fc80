"""Who may ask, and how."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serving import Running, serving

from morpho.base.errors import ArgumentError
from morpho.serve.api.limits import Limits
from morpho.serve.hosting.registry import Spec
from morpho.serve.http import draining, security
from morpho.serve.http.options import Options, is_loopback, read_token

TOKEN = "a-token-of-enough-letters"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "to be"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def guarded(chat_model: Path) -> Iterator[Running]:
    with serving(Spec("tiny", chat_model), host="0.0.0.0", token=TOKEN, cors_origins=("https://good.example",),
                 allow_hosts=("morpho.example",), limits=Limits(
                     body_bytes=1 << 20, header_timeout_s=0.5, body_timeout_s=0.5)) as running:
        yield running


@pytest.mark.parametrize(("path", "status"), [
    ("/v1/models", 401), ("/metrics", 401), ("/live", 401), ("/tokenize", 401), ("/nothing", 401), ("/", 200),
    ("/page.js", 200), ("/health", 200), ("/ready", 200)])
def test_without_the_token(guarded: Running, path: str, status: int) -> None:
    response = httpx.get(guarded.url + path)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"]["code"] == "invalid_api_key" and response.headers["www-authenticate"]


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer", TOKEN, "",
                                    "Bearer \xff"])
def test_wrong_tokens(guarded: Running, header: str) -> None:
    response = httpx.get(guarded.url + "/v1/models", headers=[(b"Authorization", header.encode("latin-1"))])
    assert response.status_code == 401


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", "/api/tags", "/v1/models"])
def test_the_token_in_the_header_of_anthropics_clients(guarded: Running, path: str) -> None:
    """Errors come in the form of the address's API; a wrong key beside a right token counts for nothing."""
    def ask(**headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = {**BODY, "max_tokens": 2 if path.startswith("/v1") else None}
        return httpx.request("POST" if path.endswith(("messages", "chat")) else "GET", guarded.url + path, json=body,
                             headers=named, timeout=60)

    assert ask(x_api_key=TOKEN).status_code == 200 == ask(x_api_key="x", Authorization=f"Bearer {TOKEN}").status_code
    for refused in (ask(), ask(x_api_key=TOKEN + "x"), ask(x_api_key=TOKEN, Authorization="Bearer x")):
        assert refused.status_code == 401
        error = refused.json()["error"]
        assert isinstance(error, str) if path.startswith("/api") else error["type"] == "authentication_error"
    twice = [(b"x-api-key", TOKEN.encode()), (b"x-api-key", b"other")]
    assert httpx.get(guarded.url + "/v1/models", headers=twice).status_code == 400


def test_the_token_is_compared_in_constant_time(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of equal length go through hmac.compare_digest, whatever was sent."""
    lengths = []

    def compare(a: bytes, b: bytes) -> bool:
        lengths.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(security, "hmac", SimpleNamespace(compare_digest=compare))
    for given in ("x", "y" * 5000, TOKEN):
        httpx.get(guarded.url + "/v1/models", headers={"Authorization": f"Bearer {given}"})
    httpx.get(guarded.url + "/v1/models")
    assert lengths == [(32, 32)] * 4


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1", 200), ("localhost:1", 200), ("10.1.2.3:8000", 200), ("morpho.example", 200), ("[::1]:80", 200),
    ("127.0.0.1:80, evil.example", 403), ("localhost:", 200),
    ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403), ("localhost.evil.example:8000", 403)])
def test_host_header(guarded: Running, host: str, status: int) -> None:
    """A name that somebody else points here is refused: DNS rebinding."""
    response = guarded.client.get("/v1/models", headers={"Host": host})
    assert response.status_code == status, response.text


def test_on_loopback_only_its_own_names(held: Running) -> None:
    for host, status in (("localhost", 200), ("127.0.0.1", 200), ("10.1.2.3", 403), ("morpho.example", 403)):
        assert held.client.get("/v1/models", headers={"Host": host}).status_code == status


def test_origin_header(guarded: Running) -> None:
    own = guarded.client.post("/v1/chat/completions", json=BODY, headers={"Origin": guarded.url})
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "https://good.example.evil.example"):
        assert guarded.client.post("/v1/chat/completions", json=BODY, headers={"Origin": origin}).status_code == 403
    good = guarded.client.post("/v1/chat/completions", json=BODY, headers={"Origin": "https://good.example"})
    assert good.headers["access-control-allow-origin"] == "https://good.example"
    asked = httpx.options(guarded.url + "/v1/chat/completions", headers={"Origin": "https://good.example"})
    assert asked.status_code == 204 and "authorization" in asked.headers["access-control-allow-headers"]


def test_headers_for_browsers(held: Running) -> None:
    headers = held.client.get("/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"] and policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff" and "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_off_loopback_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ArgumentError, match="token"):
            Options(host=host)
    assert is_loopback("127.9.9.9") and is_loopback("::1") and not is_loopback("128.0.0.1")
    for token in ("short", "ünïcode-ünïcode-ünïcode", "with a space in the middle"):
        with pytest.raises(ArgumentError, match="token"):
            Options(token=token)


def test_a_token_file_is_the_owners(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(ArgumentError, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_token(tmp_path / "none")


def _raw(guarded: Running, sent: bytes) -> bytes:
    """What comes back, until the server closes."""
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection:
        connection.sendall(sent)
        found = b""
        while piece := connection.recv(1 << 16):
            found += piece
        return found


@pytest.mark.parametrize("sent", [b"", b"GET /v1/mod", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_connection_without_a_request_is_closed(guarded: Running, sent: bytes) -> None:
    assert b"200" not in _raw(guarded, sent)


def test_a_body_that_does_not_come_is_answered(guarded: Running) -> None:
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{")
    assert b" 408 " in _raw(guarded, head.encode())


def test_a_body_in_chunks_is_limited_too(guarded: Running) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * (1 << 20)

    response = guarded.client.post("/v1/chat/completions", content=pieces(),
                                   headers={"Content-Type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(("path", "token", "status"), [
    ("/v1/completions", TOKEN, b" 413 "), ("/v1/completions", "wrong", b" 401 "), ("/nothing", TOKEN, b" 404 ")])
def test_an_answer_before_the_end_of_the_body_is_seen(guarded: Running, path: str, token: str, status: bytes) -> None:
    """By a client that sends all it has before it looks, and whose connection is closed after the answer."""
    head = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {16 << 20}\r\n\r\n")
    assert status in _raw(guarded, head.encode() + b" " * (16 << 20))


def test_a_body_without_an_end_is_cut(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "MOST_BYTES", 1 << 20)
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {1 << 40}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection, \
            pytest.raises(ConnectionError):
        connection.sendall(head.encode())
        for _ in range(1 << 12):  # 256 MB
            connection.sendall(b" " * (1 << 16))


def test_who_expects_to_be_told_to_go_on_is_told_not_to(guarded: Running) -> None:
    """At once: no byte of the body is waited for."""
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Connection: close\r\nExpect: 100-continue\r\n"
            f"Content-Type: application/json\r\nContent-Length: {16 << 20}\r\n\r\n")
    found = _raw(guarded, head.encode())
    assert b" 413 " in found and b" 100 " not in found


def test_headers_without_an_end_are_refused(guarded: Running) -> None:
    """Whether in one header or in many: memory is not filled with what may still come."""
    for sent in (b"GET /health HTTP/1.1\r\nX-Long: " + b"a" * (80 << 10),
                 b"GET /health HTTP/1.1\r\n" + b"X-Many: 1\r\n" * (8 << 10)):
        assert b" 400 " in _raw(guarded, sent)


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type"])
def test_headers_that_come_twice(guarded: Running, name: str) -> None:
    """Whoever stands before the server may take the other one (RFC 9112, 3.2)."""
    value = {"Host": "127.0.0.1", "Authorization": f"Bearer {TOKEN}"}.get(name, "x")
    headers = {"Host": "127.0.0.1", "Connection": "close", name: value}
    lines = [*(f"{key}: {said}" for key, said in headers.items()), f"{name}: evil.example"]
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
        client.sendall("\r\n".join(["GET /v1/models HTTP/1.1", *lines, "", ""]).encode())
        raw = b"".join(iter(lambda: client.recv(65536), b""))
    assert raw.startswith(b"HTTP/1.1 400") and f"the header {name.lower()} comes more than once".encode() in raw


def test_packed_bodies_are_refused(held: Running) -> None:
    response = held.client.post("/v1/completions", content=b"{}", headers={
        "Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert response.status_code == 415 and "gzip" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_http_1_0_gets_no_chunks(held: Running, stream: str) -> None:
    """It does not know them: what has no length ends with the connection."""
    body = f'{{"prompt": "to be", "max_tokens": 3, "stream": {stream}}}'.encode()
    with socket.create_connection(("127.0.0.1", held.port), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        raw = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, told = raw.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower() and b"connection: close" in head.lower()
    if stream == "true":
        assert told.startswith(b"data: {") and told.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(told)["object"] == "text_completion"
