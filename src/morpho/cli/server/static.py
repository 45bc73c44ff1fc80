"""`morpho serve --static FOLDER`: the files of a page on this machine, with the headers that it wants."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
                               "connect-src 'self'; worker-src 'self'; img-src 'self'; base-uri 'none'; "
                               "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache"}
TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".json": "application/json", ".html": "text/html",
         ".css": "text/css", ".svg": "image/svg+xml", ".safetensors": "application/octet-stream"}


class _Files(SimpleHTTPRequestHandler):
    """Files below one folder; no lists of folders, no hidden files."""

    extensions_map = TYPES | {"": "application/octet-stream"}
    server_version = "morpho"
    sys_version = ""

    def send_head(self) -> Any:
        path = Path(self.translate_path(self.path))
        root = Path(self.directory).resolve()
        if path.is_dir() and path.resolve() == root:
            self.path = "/index.html"
        elif not path.is_file() or not path.resolve().is_relative_to(root) or path.name.startswith("."):
            self.send_error(404)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def server(folder: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server of a folder, not yet running."""
    if not (folder / "index.html").is_file():
        raise fail(ArgumentError, "serve", f"{folder} has no index.html", "write a page with: morpho export MODEL "
                                                                          "--target web -o FOLDER")
    try:
        return ThreadingHTTPServer((host, port), partial(_Files, directory=str(folder)))
    except OSError as error:
        raise fail(ArgumentError, "serve", f"{host}:{port} cannot be listened on: {error.strerror}",
                   "give another --port; 0 takes any that is free") from None


def serve(folder: Path, host: str, port: int) -> None:
    """Serve a folder until Ctrl-C."""
    with server(folder, host, port) as running:
        print(f"{folder} at http://{host}:{running.server_address[1]}", file=sys.stderr, flush=True)
        running.serve_forever()
