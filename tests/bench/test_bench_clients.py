"""Clients of servers under load."""

from __future__ import annotations

import http.client
import socket
import threading

from benchmarks.serve import load

EVENT = b'data: {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}\n\n'


def _closing(listener: socket.socket) -> None:
    """A server that says nothing of it and closes each connection after its answer, as llama.cpp's does; until nobody
    listens any more."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            asked = b""
            while b"}}" not in asked and (piece := connection.recv(1 << 16)):
                asked += piece
            if asked:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                   b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT)
                connection.shutdown(socket.SHUT_WR)  # what is still unread must not take the answer back
                while connection.recv(1 << 16):
                    pass


def test_a_connection_that_was_closed_after_an_answer_is_made_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=_closing, args=(listener,), daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        seen = [load.ask(port, "/v1/completions", {"prompt": "x"}, connection) for _ in range(3)]
        connection.close()
        listener.shutdown(socket.SHUT_RDWR)  # who accepts is told
    assert [(each.error, each.tokens) for each in seen] == [(None, 1)] * 3
