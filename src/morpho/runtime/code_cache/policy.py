"""Which entries of a bounded cache leave: S3-FIFO (Yang and others, SOSP 2023).

A newcomer waits in a small queue and reaches the main one only when asked for again, so one long scan cannot empty the
cache; the main queue gives each used entry another round. Nothing is ever searched or sorted: an entry goes round at
most once per use, hence O(1) amortised; `steps` counts the moves.

>>> shelf: Shelf[str, int] = Shelf(limit_bytes=2)
>>> for name in ("a", "b", "c"):
...     left = shelf.add(name, ord(name), nbytes=1)
>>> sorted(shelf.entries), shelf.steps
(['b', 'c'], 1)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Chosen by simulation on Zipf, shifting, sliding and looping traces; tests/runtime/test_cache.py keeps the results.
SMALL_SHARE = 0.02  # of the bytes, for newcomers
GHOST_SHARE = 0.2  # of the bytes, remembered by hash after a newcomer left without being used
LARGE_SHARE = 0.25  # of the bytes; an entry above it must be asked for twice before others leave for it
MOST_USES = 7  # uses remembered per entry


class Entry(Generic[Value]):
    __slots__ = ("value", "nbytes", "uses")

    def __init__(self, value: Value, nbytes: int) -> None:
        self.value = value
        self.nbytes = nbytes
        self.uses = 0


class Shelf(Generic[Key, Value]):
    """The entries and the rule by which they leave; not thread-safe, and it never drops a value itself.

    Values that leave are handed back, so that whatever their end sets off happens outside the cache's lock.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.entries: dict[Key, Entry[Value]] = {}  # all of both queues: a hit is one look, without a lock
        self.small: OrderedDict[Key, Entry[Value]] = OrderedDict()
        self.main: OrderedDict[Key, Entry[Value]] = OrderedDict()
        self.ghosts: OrderedDict[int, int] = OrderedDict()  # hash of a key -> bytes
        self.small_bytes = self.main_bytes = self.ghost_bytes = 0
        self.steps = 0  # entries moved or dropped to make room

    def add(self, key: Key, value: Value, nbytes: int, known: bool = False) -> tuple[list[Entry[Value]], int]:
        """Keep `value` if it earns its bytes: (every entry that left, how many of them left for lack of room).

        `known`: somebody asked for it before, as the caller knows; it goes where entries go that were asked for twice.
        """
        replaced = self.take(key)
        gone = [] if replaced is None else [replaced]
        entry = Entry(value, nbytes)
        known = self._forget_ghost(key) or replaced is not None or known
        if nbytes > self.limit_bytes or (not known and self._too_large_for_a_stranger(nbytes)):
            self._remember_ghost(key, nbytes)
            return [*gone, entry], 0
        evicted = self._make_room(nbytes)
        self.entries[key] = entry
        if known:
            self.main[key] = entry
            self.main_bytes += nbytes
        else:
            self.small[key] = entry
            self.small_bytes += nbytes
        return gone + evicted, len(evicted)

    def take(self, key: Key) -> Entry[Value] | None:
        """Remove `key` and hand back its entry."""
        if self.entries.pop(key, None) is None:
            return None
        entry = self.main.pop(key, None)
        if entry is not None:
            self.main_bytes -= entry.nbytes
            return entry
        entry = self.small.pop(key, None)
        if entry is not None:
            self.small_bytes -= entry.nbytes
        return entry

    def room_for(self, key: Key, nbytes: int) -> bool:
        """Whether `add` would keep a value of `nbytes` under `key`."""
        known = key in self.entries or hash(key) in self.ghosts
        return nbytes <= self.limit_bytes and (known or not self._too_large_for_a_stranger(nbytes))

    def clear(self) -> list[Entry[Value]]:
        """Remove everything, ghosts too, and hand back the entries."""
        gone = list(self.entries.values())
        for part in (self.entries, self.small, self.main, self.ghosts):
            part.clear()
        self.small_bytes = self.main_bytes = self.ghost_bytes = 0
        return gone

    def _too_large_for_a_stranger(self, nbytes: int) -> bool:
        fits = self.small_bytes + self.main_bytes + nbytes <= self.limit_bytes
        return not fits and nbytes > self.limit_bytes * LARGE_SHARE

    def _make_room(self, nbytes: int) -> list[Entry[Value]]:
        evicted: list[Entry[Value]] = []
        small_limit = max(1, int(self.limit_bytes * SMALL_SHARE))
        while self.small_bytes + self.main_bytes + nbytes > self.limit_bytes:
            self.steps += 1
            if self.small_bytes > small_limit or not self.main:
                self._step_small(evicted)
            else:
                self._step_main(evicted)
        return evicted

    def _step_small(self, evicted: list[Entry[Value]]) -> None:
        key, entry = self.small.popitem(last=False)
        self.small_bytes -= entry.nbytes
        if entry.uses:
            entry.uses = 0
            self.main[key] = entry
            self.main_bytes += entry.nbytes
        else:
            self._remember_ghost(key, entry.nbytes)
            del self.entries[key]
            evicted.append(entry)

    def _step_main(self, evicted: list[Entry[Value]]) -> None:
        key, entry = self.main.popitem(last=False)
        if entry.uses:
            entry.uses -= 1
            self.main[key] = entry
        else:
            self.main_bytes -= entry.nbytes
            del self.entries[key]
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
