"""Computed objects in two tiers: memory, and a folder that processes share.

>>> store = ObjectCache(memory_bytes=1 << 20)
>>> store.get_or_create("squares", lambda: [n * n for n in range(4)])
[0, 1, 4, 9]
>>> store.get("squares"), store.get("cubes")
([0, 1, 4, 9], None)

Both tiers are bounded in bytes, and S3-FIFO decides who leaves in both (`code_cache/policy.py`): an eviction looks at
no more entries than leave. However many threads and processes want a missing value,
it is made once. A file is written under another name and moved into place, and its checksum is compared when it is
read: a damaged one is a miss, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakSet

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.runtime.code_cache.cache import BoundedCache
from morpho.runtime.code_cache.disk import DiskCache
from morpho.runtime.code_cache.policy import MOST_USES
from morpho.runtime.object_cache.keys import digest, plain_key
from morpho.runtime.object_cache.locks import FileLock
from morpho.runtime.object_cache.values import (
    PLAIN,
    Bits,
    Corrupt,
    Frozen,
    decode_frozen,
    encode,
    freeze,
    size_of,
    thaw,
)

caches: WeakSet[ObjectCache] = WeakSet()  # for whoever shows their figures


class _Held:
    """A frozen value that a caller gets another form of, or that ends."""

    __slots__ = ("frozen", "ends")

    def __init__(self, frozen: Any, ends: float | None) -> None:
        self.frozen, self.ends = frozen, ends


class ObjectCache:
    """Values by key; thread-safe, and safe among processes that share `folder`.

    Keys in memory are hashable; those of a cache with a folder are made of texts, bytes, numbers and tuples, and of
    arrays. `to_frozen` and `to_tensor` are how tensors are kept, for whoever has them. `clock` is for tests.
    """

    def __init__(self, memory_bytes: int, folder: Path | None = None, disk_bytes: int = 4 << 30,
                 ttl_s: float | None = None, name: str = "", to_frozen: Callable[[Any], Any] = freeze,
                 to_tensor: Callable[[Bits], Any] | None = None, clock: Callable[[], float] = time.time) -> None:
        if ttl_s is not None and (isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float) or not ttl_s > 0):
            raise fail(ValueFault, "cache", f"ttl_s must be more than 0, and is {ttl_s!r}")
        self.name, self.ttl_s = name, ttl_s
        self._memory: BoundedCache[Hashable, Any] = BoundedCache(memory_bytes, name)
        self._disk = None if folder is None else DiskCache(Path(folder), disk_bytes, shared=True,
                                                                 advice="name a folder of yours with disk=")
        self._freeze, self._tensor, self._clock = to_frozen, to_tensor, clock
        self._removals, self._look, self._hit = self._memory.removals, self._memory.look, self._memory.hit
        self._expired = self._made = 0
        caches.add(self)

    # -- reading -------------------------------------------------------------------------------------------------------
    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        try:
            entry = None if self._removals else self._look(key)  # written out: a hit is this call and no other
        except TypeError:
            check_key(key)
            raise
        if entry is not None:
            if entry.uses < MOST_USES:
                entry.uses += 1
            self._hit()
            found = entry.value
            if type(found) is not _Held:
                return found
        else:
            found = self._memory.get(key)
        if found is not None:
            if type(found) is not _Held:
                return found
            if found.ends is None or self._lasts(found.ends):
                return thaw(found.frozen, self._tensor)
            self._expire(key)
            return default
        held = self._from_disk(key)
        if held is None:
            return default
        self._memory.put(key, held, _bytes_of(held))
        return self._given(held)

    def get_or_create(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `key`; where there is none, `make()` runs once however many threads and processes ask."""
        check_key(key)
        own: list[Any] = []  # what this call made, which is given even if its time is over by now

        def created() -> Any:
            own.append(self._created(key, make))
            return own[0]

        while True:
            found = self._memory.get_or_create(key, created, _bytes_of)
            if type(found) is not _Held:
                return found
            if own or found.ends is None or self._lasts(found.ends):
                return thaw(found.frozen, self._tensor)
            self._expire(key)

    def _lasts(self, ends: float) -> bool:
        """Whether a value that ends then is still good; one of a clock that went back since is not."""
        now = self._clock()
        return now < ends and (self.ttl_s is None or ends <= now + self.ttl_s)

    def _created(self, key: Hashable, make: Callable[[], Any]) -> Any:
        held = self._from_disk(key)
        if held is not None:
            return held
        with self._alone(key):
            held = self._from_disk(key)  # made by another process while this one waited
            if held is None:
                self._made += 1
                held = self._keep(key, make())
        return held

    def _alone(self, key: Hashable) -> Any:
        """One process at a time makes the value of a key."""
        if self._disk is None or not self._disk.is_usable():
            return nullcontext()
        return FileLock(self._disk.folder / f".{_name(key)}.lock")

    # -- writing -------------------------------------------------------------------------------------------------------
    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of `key`."""
        held = self._keep(key, value)
        self._memory.put(key, held, _bytes_of(held))

    def _keep(self, key: Hashable, value: Any) -> Any:
        """The form that memory holds; on disk too, where there is a folder."""
        frozen = self._freeze(value)
        ends = None if self.ttl_s is None else self._clock() + self.ttl_s
        if self._disk is not None:
            self._disk.put(_name(key), encode(frozen, ends=ends))
        return self._held(frozen, ends)

    def _held(self, frozen: Any, ends: float | None) -> Any:
        """Plain values that never end are held as they are: a hit gives them as they stand."""
        plain = frozen is not None and ends is None and type(frozen) not in (Frozen, Bits)
        return frozen if plain else _Held(frozen, ends)

    def _from_disk(self, key: Hashable) -> Any:
        if self._disk is None:
            return None
        name = _name(key)
        content = self._disk.get(name)
        if content is None:
            return None
        try:
            frozen, header = decode_frozen(content)
            ends = header.get("ends")
            if ends is not None and not isinstance(ends, int | float):
                raise Corrupt(f"it ends at {ends!r}"[:100])
        except Corrupt as reason:
            self._disk.reject(name, str(reason))
            return None
        if ends is not None and not self._lasts(ends):
            self._expired += 1
            self._disk.remove(name)
            return None
        return self._held(frozen, ends)

    def _given(self, held: Any) -> Any:
        return thaw(held.frozen, self._tensor) if type(held) is _Held else held

    def _expire(self, key: Hashable) -> None:
        self._expired += 1
        self._memory.remove(key)
        if self._disk is not None:
            self._disk.remove(_name(key))

    def remove(self, key: Hashable) -> None:
        """Forget `key` in both tiers."""
        check_key(key)
        self._memory.remove(key)
        if self._disk is not None:
            self._disk.remove(_name(key))

    def clear(self) -> None:
        """Forget everything in both tiers but the counters."""
        self._memory.clear()
        if self._disk is not None:
            self._disk.clear()

    def __contains__(self, key: Hashable) -> bool:
        missing = object()
        return self.get(key, missing) is not missing

    def __len__(self) -> int:
        """Entries in memory."""
        return len(self._memory)

    def stats(self) -> dict[str, Any]:
        """Counters and sizes of memory, with `made` and `expired`, and those of the disk under `disk`."""
        disk = {} if self._disk is None else {"disk": self._disk.stats()}
        return {**self._memory.stats(), "made": self._made, "expired": self._expired, **disk}

    def __repr__(self) -> str:
        stats = self.stats()
        where = "" if self._disk is None else f", {self._disk.folder}"
        return f"Cache({self.name!r}, {stats['entries']} entries, {stats['bytes']}/{stats['limit_bytes']} bytes{where})"


def _name(key: Hashable) -> str:
    """Of keys that a dictionary takes for one, one name on disk too."""
    return digest(key if type(key) is str else plain_key(key))


def _bytes_of(held: Any) -> int:
    return size_of(held.frozen if type(held) is _Held else held)


def check_key(key: Any) -> None:
    """An error where `key` cannot be one."""
    try:
        hash(key)
    except TypeError:
        raise fail(ArgumentError, "cache", f"a {type(key).__qualname__} is no key: it can change",
                   "use a text, a number, bytes, or a tuple of those; @mo.cache makes keys of tensors itself") from None


__all__ = ["PLAIN", "Bits", "ObjectCache", "caches", "check_key"]
