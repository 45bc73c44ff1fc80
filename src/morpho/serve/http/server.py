"""A server from the bound port to the last stream: uvicorn, TLS, the way it ends."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import FrameType
from typing import Any

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, fail
from morpho.base.python.ahead import Ahead
from morpho.serve.hosting.registry import Registry
from morpho.serve.http.logs import LOG
from morpho.serve.http.options import Options
from morpho.serve.http.protocol import protocol_of
from morpho.serve.http.security import App
from morpho.weights.errors import MissingExtra


def check_extra() -> None:
    """The libraries of the extra `serve`, or an error that names it."""
    unix = ["uvloop"] if sys.platform != "win32" else []
    for name in ("httptools", "prometheus_client", "starlette", "uvicorn", *unix):
        if find_spec(name) is None:
            raise fail(MissingExtra, "serve", f"the server needs {name}", install("serve"))


def bound(options: Options) -> socket.socket:
    """A socket on the server's address. A port of a server that was killed is free at once."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise fail(ArgumentError, "serve", f"the system gives no socket: {error.strerror}",
                   "raise the limit of open files (ulimit -n), or end what holds them") from None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        made.close()
        raise fail(ArgumentError, "serve", f"{options.host}:{options.port} cannot be listened on: "
                   f"{getattr(error, 'strerror', None) or error}",
                   "choose another --port; 0 takes any that is free") from None
    made.set_inheritable(False)
    return made


def run(registry: Registry, options: Options, listener: socket.socket,
        when_ready: Callable[[], None] = lambda: None) -> None:
    """Load the first model, and serve until SIGINT or SIGTERM; streams that run are finished then, within
    `shutdown_timeout_s`."""
    with collecting_later():
        loading = Ahead(lambda: registry.load(None), "morpho-loading")  # weights are copied and packed without Python
        server = make_server(registry, options, when_ready)
        loading.result()
    server.run(sockets=[listener])


@contextlib.contextmanager
def collecting_later() -> Iterator[None]:
    """No search for cycles while modules and a model are loaded: what they make stays for as long as the server, and
    looking through it again and again took a fifth of the start. Later searches leave it out (`gc.freeze`)."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def make_server(registry: Registry, options: Options, when_ready: Callable[[], None] = lambda: None) -> Any:
    """The server of models."""
    check_extra()
    from morpho.serve.http.app import make_app

    app, state = make_app(registry, options)

    def stopping() -> None:
        state.stopping = True

    return server_of(app, options, when_ready, stopping)


def server_of(app: App, options: Options, when_ready: Callable[[], None] = lambda: None,
              when_stopping: Callable[[], None] = lambda: None) -> Any:
    """uvicorn's server; a signal that has been obeyed is not raised once more."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            LOG.info("stopping", extra={"signal": signal.Signals(sig).name, "forced": self.should_exit})
            when_stopping()
            super().handle_exit(sig, frame)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                when_ready()

    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none", lifespan="on",
        http=protocol_of(options.limits.header_timeout_s), loop="asyncio" if sys.platform == "win32" else "uvloop",
        timeout_keep_alive=30, limit_concurrency=2 * options.most_requests, backlog=1024,
        timeout_graceful_shutdown=max(int(options.shutdown_timeout_s), 1), ssl_certfile=options.certificate,
        ssl_keyfile=options.key)
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise fail(ArgumentError, "serve", f"the certificate or its key cannot be used: {error}",
                   "give files in PEM form that belong together") from None
    return Server(config)
