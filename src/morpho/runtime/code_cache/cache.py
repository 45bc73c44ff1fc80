"""A cache in memory, bounded in bytes, in which concurrent callers of one key share one computation.

>>> from morpho.runtime.code_cache.cache import BoundedCache
>>> squares: BoundedCache[int, int] = BoundedCache(limit_bytes=1000, name="squares")
>>> squares.get_or_create(7, lambda: 7 * 7, size=28)
49
>>> squares.get(7), squares.get(8)
(49, None)

What goes is decided by S3-FIFO (`policy.py`). A hit takes no lock: it is one look into a dictionary, a mark, and a
count that the interpreter adds in one step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Generic

from morpho.base.errors import MorphoError, ValueFault, fail
from morpho.base.python.fork_safe import ForkSafe
from morpho.runtime.code_cache.policy import MOST_USES, Entry, Key, Shelf, Value


class _Flight(Generic[Value]):
    """One computation in progress, and its outcome for those who wait."""

    __slots__ = ("owner", "done", "outcome", "error")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.outcome: list[Value] = []  # one value, or none where it failed
        self.error: BaseException | None = None


class BoundedCache(ForkSafe, Generic[Key, Value]):
    """At most `limit_bytes` of values by key; thread-safe; see the module's text for an example.

    Hashing and comparing keys happens under the lock and must not use the cache; everything else (`make`, `size`,
    the end of a value) happens outside it. `remove` may be called from anywhere, a finaliser too.
    """

    def __init__(self, limit_bytes: int, name: str = "") -> None:
        if limit_bytes < 0:
            raise fail(ValueFault, "cache", f"limit_bytes cannot be negative, and is {limit_bytes}")
        super().__init__()
        self.name = name
        self._shelf: Shelf[Key, Value] = Shelf(limit_bytes)
        # The way of a hit, for who looks often: `look`, unless there are `removals`; mark the entry, `hit()`.
        self.look = self._shelf.entries.get
        self._flights: dict[Key, _Flight[Value]] = {}
        self._waiting: dict[int, _Flight[Value]] = {}  # thread -> what it waits for
        self.removals: deque[Key] = deque()
        self.hit = count(1).__next__  # one step of the interpreter: no hit of another thread is lost
        self._looks = 0  # how often the number of hits was asked for, which counts as one
        self._misses = self._waits = self._evictions = 0

    def get_or_create(self, key: Key, make: Callable[[], Value], size: int | Callable[[Value], int]) -> Value:
        """The value of `key`; where there is none, `make()` runs once however many threads ask, and all share it.

        `size` is the value's bytes, or a function of the value. What `make` raises reaches every waiting caller and
        is not kept. `make` may use the cache for other keys; one that needs its own key is an error, not a deadlock.

        >>> BoundedCache[str, str](100).get_or_create("a", lambda: "text", size=len)
        'text'
        """
        while True:
            if self.removals:
                self._apply_removals()
            entry = self.look(key)
            if entry is not None:
                if entry.uses < MOST_USES:
                    entry.uses += 1
                self.hit()
                return entry.value
            with self._lock:
                if key in self._shelf.entries:
                    continue  # somebody made it just now: a hit like any other
                flight = self._flights.get(key)
                if flight is None:
                    self._misses += 1
                    mine = self._flights[key] = _Flight()
                    break
                self._refuse_cycle(key, flight)
                self._waits += 1
                self._waiting[threading.get_ident()] = flight
            if self._wait(flight):
                return flight.outcome[0]
        return self._run(key, mine, make, size)

    def get(self, key: Key) -> Value | None:
        """The value of `key`, or None: `BoundedCache(100).get("a")`."""
        if self.removals:
            self._apply_removals()
        entry = self.look(key)
        if entry is None:
            with self._lock:
                self._misses += 1
            return None
        if entry.uses < MOST_USES:
            entry.uses += 1
        self.hit()
        return entry.value

    def put(self, key: Key, value: Value, nbytes: int) -> None:
        """Set the value of `key`: `cache.put("a", "text", 4)`. A `make` still running for it will not replace it."""
        nbytes = _checked_bytes(nbytes)
        self._apply_removals()
        with self._lock:
            self._flights.pop(key, None)
            gone = self._keep(key, value, nbytes)
        del gone  # only now, that the lock is free

    def remove(self, key: Key) -> None:
        """Forget `key`, also the result of a `make` still running for it. Never blocks."""
        self.removals.append(key)
        if self._lock.acquire(blocking=False):  # else whoever comes next does it before anything else
            try:
                gone = self._take_removals()
            finally:
                self._lock.release()
            del gone  # only now, that the lock is free

    def clear(self) -> None:
        """Forget everything but the counters."""
        with self._lock:
            gone = self._shelf.clear()
            self._flights.clear()
            self.removals.clear()
        del gone

    def stats(self) -> dict[str, int | float]:
        """Counters and sizes: hits, misses, hit_rate, waits, evictions, bytes, limit_bytes, entries.

        A wait is a call that shared another thread's `make`; when it was served, it is a hit as well.
        """
        self._apply_removals()
        with self._lock:
            shelf, hits = self._shelf, self.hit() - 1 - self._looks
            self._looks += 1
            return {
                "hits": hits,
                "misses": self._misses,
                "hit_rate": hits / max(1, hits + self._misses),
                "waits": self._waits,
                "evictions": self._evictions,
                "bytes": shelf.small_bytes + shelf.main_bytes,
                "limit_bytes": shelf.limit_bytes,
                "entries": len(shelf.small) + len(shelf.main),
            }

    def __len__(self) -> int:
        return int(self.stats()["entries"])

    def __repr__(self) -> str:
        stats = self.stats()
        return f"BoundedCache({self.name!r}, {stats['entries']} entries, {stats['bytes']}/{stats['limit_bytes']} bytes)"

    def _run(
        self, key: Key, flight: _Flight[Value], make: Callable[[], Value], size: int | Callable[[Value], int]
    ) -> Value:
        try:
            value = make()
            nbytes = _checked_bytes(size(value) if callable(size) else size)
        except BaseException as error:
            with self._lock:
                self._still_wanted(key, flight)
                flight.error = error
            flight.done.set()
            raise
        with self._lock:
            gone = self._keep(key, value, nbytes) if self._still_wanted(key, flight) else []
            flight.outcome.append(value)
        flight.done.set()
        del gone
        return value

    def _wait(self, flight: _Flight[Value]) -> bool:
        """Wait for another thread's `make`; False where it was interrupted, so that the caller tries again."""
        try:
            flight.done.wait()
        finally:
            with self._lock:
                del self._waiting[threading.get_ident()]
                if flight.outcome:
                    self.hit()
        if isinstance(flight.error, Exception):
            raise flight.error
        return bool(flight.outcome)

    def _refuse_cycle(self, key: Key, flight: _Flight[Value]) -> None:
        """Raise where waiting for `flight` would be waiting for this thread itself, through any number of others."""
        link: _Flight[Value] | None = flight
        while link is not None and not link.outcome and link.error is None:
            if link.owner == threading.get_ident():
                raise fail(MorphoError, "cache", f"this thread is in the middle of making an entry of the cache "
                           f"{self.name!r}, and making it needs the entry itself",
                           "a signal handler, finaliser or callback that runs while a program is compiled cannot "
                           "compute the same program: let it set a flag, and compute afterwards")
            link = self._waiting.get(link.owner)

    def _still_wanted(self, key: Key, flight: _Flight[Value]) -> bool:
        """End a flight; False where `put`, `remove` or `clear` came in between."""
        if self._flights.get(key) is not flight:
            return False
        del self._flights[key]
        return True

    def _keep(self, key: Key, value: Value, nbytes: int) -> list[Entry[Value]]:
        gone, evictions = self._shelf.add(key, value, nbytes)
        self._evictions += evictions
        return gone

    def _apply_removals(self) -> list[Entry[Value]]:
        if not self.removals:
            return []
        with self._lock:
            return self._take_removals()

    def _take_removals(self) -> list[Entry[Value]]:
        gone = []
        while self.removals:
            key = self.removals.popleft()
            self._flights.pop(key, None)
            entry = self._shelf.take(key)
            if entry is not None:
                gone.append(entry)
        return gone

    def _after_fork_in_child(self) -> None:
        """New locks; the computations of threads the child does not have are forgotten, its own go on."""
        super()._after_fork_in_child()
        here = threading.get_ident()
        self._waiting.clear()
        self._flights = {key: flight for key, flight in self._flights.items() if flight.owner == here}
        for flight in self._flights.values():
            flight.done = threading.Event()


def _checked_bytes(nbytes: int) -> int:
    """At least one, so that the number of entries is bounded too."""
    if nbytes < 0:
        raise fail(ValueFault, "cache", f"the size of an entry cannot be negative, and is {nbytes}")
    return max(1, nbytes)
