"""From the engine's thread to the server's loop: the events of one call's requests, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

from morpho.serve.engine.request import EngineProtocol, Event, Request, Stream

Arrived = tuple[int, Event]


class Bell:
    """Wakes a loop for others: what several streams hear in one step of the engine wakes it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._heard, self._rung = loop, deque["Events"](), False

    def ring(self, events: Events) -> None:
        """There is something for these; from any thread."""
        self._heard.append(events)
        if not self._rung:  # after the line before: who rang will find it
            self._rung = True
            with suppress(RuntimeError):  # the loop has ended, and with it who would listen
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._rung = False
        while self._heard:
            self._heard.popleft().wake()


_BELLS: WeakKeyDictionary[asyncio.AbstractEventLoop, Bell] = WeakKeyDictionary()


class Events:
    """The events of several requests. All of them are cancelled when one is refused, or by `cancel`."""

    def __init__(self, engine: EngineProtocol, requests: Sequence[Request]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell = _BELLS.setdefault(self._loop, Bell(self._loop))
        self._found: deque[Arrived | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._streams: list[Stream] = []
        self._engine, self._requests, self._open = engine, requests, 0

    def submit(self) -> None:
        """Hand the requests to the engine; may be called from another thread."""
        try:
            for place, request in enumerate(self._requests):
                stream = self._engine.submit(request)
                self._streams.append(stream)
                self._open += request.params.n
                stream.on_event(lambda event, place=place: self._arrived((place, event)))  # type: ignore[misc]
        except BaseException:
            self.cancel()
            raise

    def _arrived(self, what: Arrived | None) -> None:
        self._found.append(what)
        self._bell.ring(self)

    def wake(self) -> None:
        """On the loop: whoever waits looks."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def next(self) -> list[Arrived]:
        """At least one event, and all others that are there; none when the last has been given or it is cancelled."""
        if self._open <= 0:
            return []
        while not self._found:
            self._waiter = self._loop.create_future()
            await self._waiter
        events = []
        while self._found:
            each = self._found.popleft()
            if each is None:
                self._open = 0
                return []
            events.append(each)
            self._open -= each[1].finish is not None
        return events

    def cancel(self) -> None:
        """End what still runs, within one step of the engine."""
        for stream in self._streams:
            stream.cancel()
        self._arrived(None)
