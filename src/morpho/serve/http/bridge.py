"""From the engine's thread to the server's loop: the events of one call's requests, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

from morpho.serve.engine.request import EngineProtocol, Event, Request, Stream

Arrived = tuple[int, Event]
Push = Callable[[list[Arrived]], bool]  # takes pieces of text, or says that the task has to


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
        self.push: Push | None = None  # while the task waits, see `wake`
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
        """On the loop: whoever waits looks. Pieces of text are pushed on from here where that can be done at once: a
        turn of the task for each would cost as much as all else that is done to a token."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        try:
            if self.push is not None and self._push(self.push) and not self._found:
                return
            self._waiter = None
            waiter.set_result(None)
        except Exception as error:  # the task's own: it tells it as it tells all others
            self._waiter = None
            waiter.set_exception(error)

    def _push(self, push: Push) -> bool:
        """Events up to one that ends something; False if they are to be taken by the task."""
        plain: list[Arrived] = []
        while self._found and (first := self._found[0]) is not None and first[1].finish is None:
            self._found.popleft()  # by the loop's thread alone, others append
            plain.append(first)
        if not plain or push(plain):
            return True
        self._found.extendleft(reversed(plain))
        return False

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
