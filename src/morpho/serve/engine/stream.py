"""The events of a request, from the engine's thread to whoever reads them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from morpho.base.errors import ArgumentError, fail
from morpho.serve.engine.request import Event, Request

log = logging.getLogger("morpho.serve")


def _nobody(event: Event) -> None:
    """Reads nothing any more."""


class RequestStream:
    """Read by iterating, which waits, or by a function that is called with each event; see `request.Stream`."""

    def __init__(self, request: Request, wake: Callable[[], None]) -> None:
        self.request = request
        self.cancelled = False
        self._wake = wake
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._call: Callable[[Event], None] | None = None
        self._ended = False

    def __iter__(self) -> Iterator[Event]:
        while True:
            with self._changed:
                if self._call is not None:
                    raise fail(ArgumentError, "serve", "the events of this stream go to a function already")
                self._changed.wait_for(lambda: self._events or self._ended)
                if not self._events:
                    return
                event = self._events.popleft()
            yield event

    def on_event(self, call: Callable[[Event], None]) -> None:
        with self._changed:
            while self._events:
                call(self._events.popleft())
            self._call = call

    def cancel(self) -> None:
        self.cancelled = True
        self._wake()

    # -- the engine's side ------------------------------------------------------------------------------------------
    def put(self, event: Event, last: bool) -> None:
        """One more event; after the last none follows."""
        with self._changed:
            self._ended = self._ended or last
            if self._call is not None:
                try:
                    self._call(event)
                except Exception:  # whoever reads is broken: nobody else may suffer
                    log.exception("a reader of request %s failed; the request is cancelled", self.request.id)
                    self.cancelled, self._call = True, _nobody
                return
            self._events.append(event)
            self._changed.notify_all()
