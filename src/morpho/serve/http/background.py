"""A server in a thread of this process: for notebooks, tests and examples."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from morpho.base.errors import DeviceError, fail
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.making import registry_of
from morpho.serve.hosting.registry import MakeEngine, Spec
from morpho.serve.http.options import Options
from morpho.serve.http.server import bound, make_server

READY_S = 60.0


class Server:
    """Serves models for as long as the block lasts, on a port that is free unless `options` name one.

    >>> import urllib.request
    >>> from morpho.serve.http.background import Server
    >>> with Server({"small": mo.models.SHIPPED}) as server:
    ...     print(urllib.request.urlopen(server.url + "/ready").status)
    200
    """

    def __init__(self, models: dict[str, str | os.PathLike[str]] | list[Spec], *, make_engine: MakeEngine | None = None,
                 memory_bytes: int | None = None, **options: Any) -> None:
        specs = models if isinstance(models, list) else [Spec(name, Path(place)) for name, place in models.items()]
        chosen = Options(**{"port": 0, "watch_s": 0.0, "shutdown_timeout_s": 5.0, **options})
        self.registry = registry_of(specs, make_engine or EngineOptions(warm=False), memory_bytes)
        self._listener = bound(chosen)
        self.options = replace(chosen, port=self._listener.getsockname()[1])
        self.url = replace(self.options, host="127.0.0.1", token=None).url
        self._ready = threading.Event()

    def __enter__(self) -> Server:
        try:
            self.registry.load(None)
            self.server = make_server(self.registry, self.options, self._ready.set)
        except BaseException:
            self.registry.close(drain=False)
            self._listener.close()
            raise
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]},
                                       name="morpho-serve", daemon=True)
        self.thread.start()
        if not self._ready.wait(READY_S):
            self.__exit__()
            raise fail(DeviceError, "serve", f"the server was not ready after {READY_S:g} s")
        return self

    def __exit__(self, *error: object) -> None:
        self.server.should_exit = True
        self.thread.join()
        self._listener.close()
