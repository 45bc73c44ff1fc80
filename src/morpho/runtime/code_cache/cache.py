"""A cache in memory, bounded in bytes, in which concurrent callers of one key share one computation.

>>> from morpho.runtime.code_cache.cache import BoundedCache
>>> squares: BoundedCache[int, int] = BoundedCache(limit_bytes=1000, name="squares")
>>> squares.get_or_create(7, lambda: 7 * 7, size=28)
49
>>> squares.get(7), squares.get(8)
(49, None)

What goes is decided by S3-FIFO (Yang and others, SOSP 2023): a newcomer waits in a small queue and reaches the main
one only when asked for again, so one long scan cannot empty the cache; the main queue gives each used entry another
round. Nothing is ever searched or sorted: an entry goes round at most once per use, hence O(1) amortised.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from morpho.base.errors import MorphoError, ValueFault, fail
from morpho.base.python.fork_safe import ForkSafe

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Chosen by simulation on Zipf, shifting, sliding and looping traces; tests/runtime/test_cache.py keeps the results.
SMALL_SHARE = 0.05  # of the bytes, for newcomers
GHOST_SHARE = 0.5  # of the bytes, remembered by hash after a newcomer left without being used
LARGE_SHARE = 0.25  # of the bytes; an entry above it must be asked for twice before others leave for it
MOST_USES = 7  # uses remembered per entry


class _Entry(Generic[Value]):
    __slots__ = ("value", "nbytes", "uses")

    def __init__(self, value: Value, nbytes: int) -> None:
        self.value = value
        self.nbytes = nbytes
        self.uses = 0


class _Shelf(Generic[Key, Value]):
    """The entries and the rule by which they leave; not thread-safe, and it never drops a value itself.

    Values that leave are handed back, so that whatever their end sets off happens outside the cache's lock.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.small: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self.main: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self.ghosts: OrderedDict[int, int] = OrderedDict()  # hash of a key -> bytes
        self.small_bytes = self.main_bytes = self.ghost_bytes = 0

    def find(self, key: Key) -> _Entry[Value] | None:
        """The entry of `key`, marked as used."""
        entry = self.main.get(key)
        if entry is None:
            entry = self.small.get(key)
            if entry is None:
                return None
        if entry.uses < MOST_USES:
            entry.uses += 1
        return entry

    def add(self, key: Key, value: Value, nbytes: int) -> tuple[list[_Entry[Value]], int]:
        """Keep `value` if it earns its bytes: (every entry that left, how many of them left for lack of room)."""
        replaced = self.take(key)
        gone = [] if replaced is None else [replaced]
        entry = _Entry(value, nbytes)
        known = replaced is not None or self._forget_ghost(key)
        if nbytes > self.limit_bytes or (not known and self._too_large_for_a_stranger(nbytes)):
            self._remember_ghost(key, nbytes)
            return [*gone, entry], 0
        evicted = self._make_room(nbytes)
        if known:
            self.main[key] = entry
            self.main_bytes += nbytes
        else:
            self.small[key] = entry
            self.small_bytes += nbytes
        return gone + evicted, len(evicted)

    def take(self, key: Key) -> _Entry[Value] | None:
        """Remove `key` and hand back its entry."""
        entry = self.main.pop(key, None)
        if entry is not None:
            self.main_bytes -= entry.nbytes
            return entry
        entry = self.small.pop(key, None)
        if entry is not None:
            self.small_bytes -= entry.nbytes
        return entry

    def _too_large_for_a_stranger(self, nbytes: int) -> bool:
        fits = self.small_bytes + self.main_bytes + nbytes <= self.limit_bytes
        return not fits and nbytes > self.limit_bytes * LARGE_SHARE

    def _make_room(self, nbytes: int) -> list[_Entry[Value]]:
        evicted: list[_Entry[Value]] = []
        small_limit = max(1, int(self.limit_bytes * SMALL_SHARE))
        while self.small_bytes + self.main_bytes + nbytes > self.limit_bytes:
            if self.small_bytes > small_limit or not self.main:
                self._step_small(evicted)
            else:
                self._step_main(evicted)
        return evicted

    def _step_small(self, evicted: list[_Entry[Value]]) -> None:
        key, entry = self.small.popitem(last=False)
        self.small_bytes -= entry.nbytes
        if entry.uses:
            entry.uses = 0
            self.main[key] = entry
            self.main_bytes += entry.nbytes
        else:
            self._remember_ghost(key, entry.nbytes)
            evicted.append(entry)

    def _step_main(self, evicted: list[_Entry[Value]]) -> None:
        key, entry = self.main.popitem(last=False)
        if entry.uses:
            entry.uses -= 1
            self.main[key] = entry
        else:
            self.main_bytes -= entry.nbytes
            evicted.append(entry)

    def _remember_ghost(self, key: Key, nbytes: int) -> None:
        if nbytes > self.limit_bytes:
            return
        code = hash(key)
        self.ghost_bytes += nbytes - self.ghosts.pop(code, 0)
        self.ghosts[code] = nbytes
        while self.ghost_bytes > self.limit_bytes * GHOST_SHARE and len(self.ghosts) > 1:
            self.ghost_bytes -= self.ghosts.popitem(last=False)[1]

    def _forget_ghost(self, key: Key) -> bool:
        nbytes = self.ghosts.pop(hash(key), None)
        if nbytes is None:
            return False
        self.ghost_bytes -= nbytes
        return True


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
        self._shelf: _Shelf[Key, Value] = _Shelf(limit_bytes)
        self._flights: dict[Key, _Flight[Value]] = {}
        self._waiting: dict[int, _Flight[Value]] = {}  # thread -> what it waits for
        self._removals: deque[Key] = deque()
        self._hits = self._misses = self._waits = self._evictions = 0

    def get_or_create(self, key: Key, make: Callable[[], Value], size: int | Callable[[Value], int]) -> Value:
        """The value of `key`; where there is none, `make()` runs once however many threads ask, and all share it.

        `size` is the value's bytes, or a function of the value. What `make` raises reaches every waiting caller and
        is not kept. `make` may use the cache for other keys; one that needs its own key is an error, not a deadlock.

        >>> BoundedCache[str, str](100).get_or_create("a", lambda: "text", size=len)
        'text'
        """
        while True:
            self._apply_removals()
            with self._lock:
                entry = self._shelf.find(key)
                if entry is not None:
                    self._hits += 1
                    return entry.value
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
        self._apply_removals()
        with self._lock:
            entry = self._shelf.find(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
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
        self._removals.append(key)
        if self._lock.acquire(blocking=False):  # else whoever comes next does it before anything else
            try:
                gone = self._take_removals()
            finally:
                self._lock.release()
            del gone  # only now, that the lock is free

    def clear(self) -> None:
        """Forget everything but the counters."""
        with self._lock:
            gone, self._shelf = self._shelf, _Shelf(self._shelf.limit_bytes)
            self._flights.clear()
            self._removals.clear()
        del gone

    def stats(self) -> dict[str, int | float]:
        """Counters and sizes: hits, misses, hit_rate, waits, evictions, bytes, limit_bytes, entries.

        A wait is a call that shared another thread's `make`; when it was served, it is a hit as well.
        """
        self._apply_removals()
        with self._lock:
            shelf = self._shelf
            return {
                "hits": self._hits,
                "misses": self._misses,
                "hit_rate": self._hits / max(1, self._hits + self._misses),
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
                self._hits += bool(flight.outcome)
        if isinstance(flight.error, Exception):
            raise flight.error
        return bool(flight.outcome)

    def _refuse_cycle(self, key: Key, flight: _Flight[Value]) -> None:
        """Raise where waiting for `flight` would be waiting for this thread itself, through any number of others."""
        link: _Flight[Value] | None = flight
        while link is not None and not link.outcome and link.error is None:
            if link.owner == threading.get_ident():
                raise fail(
                    MorphoError, "cache", f"making the entry {key!r} of cache {self.name!r} needs the entry itself"
                )
            link = self._waiting.get(link.owner)

    def _still_wanted(self, key: Key, flight: _Flight[Value]) -> bool:
        """End a flight; False where `put`, `remove` or `clear` came in between."""
        if self._flights.get(key) is not flight:
            return False
        del self._flights[key]
        return True

    def _keep(self, key: Key, value: Value, nbytes: int) -> list[_Entry[Value]]:
        gone, evictions = self._shelf.add(key, value, nbytes)
        self._evictions += evictions
        return gone

    def _apply_removals(self) -> list[_Entry[Value]]:
        if not self._removals:
            return []
        with self._lock:
            return self._take_removals()

    def _take_removals(self) -> list[_Entry[Value]]:
        gone = []
        while self._removals:
            key = self._removals.popleft()
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
