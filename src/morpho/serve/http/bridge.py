"""From the engine's thread to the server's loop: the events of one call's requests, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from morpho.serve.engine.request import EngineProtocol, Event, Request, Stream

Arrived = tuple[int, Event]


class Events:
    """The events of several requests. All of them are cancelled when one is refused, or by `cancel`."""

    def __init__(self, engine: EngineProtocol, requests: Sequence[Request]) -> None:
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[Arrived | None]()
        self._streams: list[Stream] = []
        self._engine, self._requests, self._open = engine, requests, 0

    def submit(self) -> None:
        """Hand the requests to the engine; may be called from another thread."""
        try:
            for place, request in enumerate(self._requests):
                stream = self._engine.submit(request)
                self._streams.append(stream)
                self._open += request.params.n
                stream.on_event(lambda event, place=place: self._arrived(place, event))  # type: ignore[misc]
        except BaseException:
            self.cancel()
            raise

    def _arrived(self, place: int, event: Event) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it who would listen
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (place, event))

    async def next(self) -> list[Arrived]:
        """At least one event, and all others that are there; none when the last has been given or it is cancelled."""
        if self._open <= 0:
            return []
        found = [await self._queue.get()]
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        if None in found:
            self._open = 0
            return []
        events = [each for each in found if each is not None]
        self._open -= sum(event.finish is not None for _, event in events)
        return events

    def cancel(self) -> None:
        """End what still runs, within one step of the engine."""
        for stream in self._streams:
            stream.cancel()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, None)
