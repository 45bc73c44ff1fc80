"""The dashboard's server: in the foreground, or beside a program in a thread of its own."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from morpho.observe.monitor.sampling import Sampler
from morpho.serve.http.options import Options
from morpho.serve.http.server import bound, check_extra, server_of

EVERY_S = 2.0  # between samples of this process's resources


class Dashboard:
    """`with Dashboard():` shows this process while the block runs; `run` serves until a signal comes.

    Every page needs the token, on loopback too: other users of the machine reach that as well. It stands behind the `#`
    of `address`, which browsers send to nobody.
    """

    def __init__(self, folders: Sequence[Path] = (), host: str = "127.0.0.1", port: int = 0,
                 token: str | None = None, ranks: Path | None = None) -> None:
        check_extra()
        self._folders, self._ranks = folders, ranks
        self.token = token or secrets.token_urlsafe(24)
        self.options = Options(host, port, self.token, shutdown_timeout_s=2.0, watch_s=0.0)
        self._listener = bound(self.options)
        self.options = replace(self.options, port=self._listener.getsockname()[1])
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._sampler: Sampler | None = None

    @property
    def address(self) -> str:
        """Address to open in a browser, token included."""
        return f"{self.options.url}/#token={self.token}"

    def run(self, when_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGINT or SIGTERM: runs and pipelines of other processes."""
        self._made(None, when_ready).run(sockets=[self._listener])

    def _made(self, sampler: Sampler | None, when_ready: Callable[[], None]) -> Any:
        from morpho.serve.dashboard.app import make_app
        from morpho.serve.dashboard.sources import Sources

        return server_of(make_app(Sources(self._folders, sampler, self._ranks), self.options), self.options, when_ready)

    def __enter__(self) -> Dashboard:
        ready = threading.Event()
        self._sampler = Sampler(EVERY_S).start()
        self._server = self._made(self._sampler, ready.set)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]},
                                        name="morpho-dashboard", daemon=True)
        self._thread.start()
        ready.wait(30)
        return self

    def __exit__(self, *ended: object) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        if self._sampler is not None:
            self._sampler.stop()
        self._listener.close()
