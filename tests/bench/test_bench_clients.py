"""Clients of servers under load."""

from __future__ import annotations

import http.client
import socket
import threading

from benchmarks.serve import load

EVENT = b'data: {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}\n\n'


def _closing(listener: socket.socket, answers: int) -> None:
    """A server that says nothing of it and closes each connection after its answer, as llama.cpp's does."""
    for _ in range(answers):
        connection, _ = listener.accept()
        with connection:
            while (piece := connection.recv(1 << 16)) and b"}" not in piece:
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               b"Content-Length: %d\r\n\r\n" % len(EVENT) + EVENT)


def test_a_connection_that_was_closed_after_an_answer_is_made_anew() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = threading.Thread(target=_closing, args=(listener, 3), daemon=True)
        serving.start()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        seen = [load.ask(port, "/v1/completions", {"prompt": "x"}, connection) for _ in range(3)]
        serving.join()
        connection.close()
    assert [(each.error, each.tokens) for each in seen] == [(None, 1)] * 3
