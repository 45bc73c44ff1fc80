"""The one allocator: memory is taken from the system rarely and handed out again and again.

>>> block = acquire(1500)
>>> block.address % 64, block.nbytes, block.capacity
(0, 1500, 1536)
>>> view = block.numpy("float32", (5, 75))
>>> del block                       # `view` still holds the memory: it is never recycled under a live view
>>> view.shape
(5, 75)

An `Allocation` is a handle. When the last reference to it goes (its own, or a NumPy view's), its memory returns to the
shelf of its size class, where the next request finds it. Requests round *up* to a class, four per power of
two. Memory that lay idle for a while goes back to the system, and a byte cap (`settings.pool_bytes`) is never passed.

How threads and the garbage collector get along: taking from and putting on a shelf is one atomic operation of a
`deque`, so a pooled `acquire` and a release take no lock and a finaliser may run anywhere. Only growing, shrinking and
counting lock. A finalised block that something resurrected keeps its memory: a shelf's chunk is handed out only if
nothing else refers to it. A chunk that an interrupt (Ctrl-C in a finaliser) lost is known by the same count, and found.
"""

from __future__ import annotations

import ctypes
import gc
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from sys import getrefcount
from threading import RLock

from morpho.base import settings
from morpho.base.errors import (
    ArgumentError,
    DeviceError,
    MemoryLimit,
    MorphoError,
    Place,
    ValueFault,
    fail,
    line_of,
)
from morpho.base.python.fork_safe import ForkSafe
from morpho.base.target import ALIGNMENT_BYTES
from morpho.base.units import format_bytes
from morpho.runtime.memory.chunk import ALONE, HUGE_PAGE_BYTES, MAPPED_BYTES, ZEROED, Chunk, size_class
from morpho.runtime.memory.memory import Memory
from morpho.runtime.memory.region import Piece, Region
from morpho.runtime.memory.watch import Tracker, Watch

__all__ = [
    "ALIGNMENT_BYTES", "HUGE_PAGE_BYTES", "IDLE_S", "LARGE_BYTES", "MAPPED_BYTES", "Allocation", "Memory", "Piece",
    "Pool", "Region", "Watch", "acquire", "pool", "region", "size_class", "stats", "trim", "watch",
]

LARGE_BYTES = 256 << 20  # so large a new chunk takes the place of free ones: peaks matter more than mapping them anew
IDLE_S = 5.0  # seconds after which free memory goes back to the system
_SWEEP_EVERY = 64  # acquires between two looks at the clock
_REMEMBERED_REQUESTS = 4096


class Allocation(Memory):
    """Memory held until this handle and every array made from it are gone.

    >>> import morpho as mo
    >>> block = mo.pool.acquire(1500)
    >>> block.nbytes, block.capacity, block.address % 64
    (1500, 1536, 0)
    """

    __slots__ = ("_pool", "_chunk")

    def __init__(self, pool: Pool, chunk: Chunk, nbytes: int) -> None:
        self.address = chunk.address
        self.nbytes = nbytes
        self._pool = pool
        self._chunk = chunk

    @property
    def capacity(self) -> int:
        """The bytes of its size class, at least `nbytes`."""
        return self._chunk.capacity

    def __del__(self, mapped_bytes: int = MAPPED_BYTES) -> None:
        pool, chunk = self._pool, self._chunk
        chunk.epoch = pool._epoch
        pool._shelves[chunk.capacity].append(chunk)
        if chunk.capacity >= mapped_bytes:
            pool._sweep_if_due()

    def __repr__(self) -> str:
        return f"<Allocation of {format_bytes(self.nbytes)} at {self.address:#x}>"


# ---------------------------------------------------------------------------------------------------------- pool


class Pool(ForkSafe):
    """Blocks by size class, a byte cap, decay and statistics.

    `limit_bytes` caps what the pool holds, free blocks included; 0 means no cap, None means `settings.pool_bytes`,
    read at every request. Free blocks go back to the system once they were idle for `idle_s`, noticed when
    somebody acquires, or releases a large block: there is no thread in the background.

    >>> import morpho as mo
    >>> mine = mo.pool.Pool(limit_bytes=1 << 20)
    >>> block = mine.acquire(1000)
    >>> mine.stats()["live_bytes"]
    1024
    """

    _make_lock = staticmethod(RLock)

    def __init__(
        self, limit_bytes: int | None = 0, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if limit_bytes is not None and limit_bytes < 0:
            raise fail(ValueFault, "pool", f"limit_bytes {limit_bytes} is negative", "0 means no limit")
        super().__init__()
        self._limit_bytes = limit_bytes
        self._idle_s = idle_s
        self._clock = clock
        self._chunks: set[Chunk] = set()  # every chunk held, in use or on a shelf
        self._shelves: dict[int, deque[Chunk]] = {}  # the free ones by capacity, the most recently used last
        self._requests: dict[int, deque[Chunk]] = {}  # the shelf of a request seen before
        self._limbo: deque[Chunk] = deque()  # released, but something still refers to the block
        self._epoch = 0  # sweeps so far
        self._next_sweep_s = clock() + idle_s
        self._held_bytes = self._peak_bytes = 0
        self._acquires = self._misses = self._regions = 0
        self._watches: list[Watch] = []

    @property
    def limit_bytes(self) -> int:
        """The cap in force, 0 for none."""
        return settings.get().pool_bytes if self._limit_bytes is None else self._limit_bytes

    def acquire(self, nbytes: int, zero: bool = False, device: str = "cpu", frames: int = 0) -> Allocation:
        """A block of at least `nbytes`, 64-byte aligned; its content is arbitrary unless `zero`. So many `frames` above
        this one are Morpho's for sure: who looks for the user's line begins behind them.

        >>> Pool().acquire(100).capacity
        128
        """
        shelf = self._requests.get(nbytes)
        if shelf is None or device != "cpu":
            shelf = self._shelf(nbytes, device)
        self._acquires = acquires = self._acquires + 1
        if not acquires % _SWEEP_EVERY:
            self._sweep_if_due()
        limit_bytes = self._limit_bytes
        if limit_bytes is None:
            limit_bytes = settings.get().pool_bytes
        try:
            chunk = shelf.pop()
        except IndexError:
            chunk = self._grow(nbytes, limit_bytes)
        else:
            if getrefcount(chunk) > ALONE:
                self._limbo.append(chunk)
                chunk = self._grow(nbytes, limit_bytes)
            elif 0 < limit_bytes < self._held_bytes:
                self._shrink_to(limit_bytes, chunk, nbytes)
        if zero and chunk.asked != ZEROED:
            ctypes.memset(chunk.address, 0, nbytes)
        chunk.asked = nbytes
        if self._watches:
            for watch in self._watches:
                watch.see(self, chunk, frames)
        return Allocation(self, chunk, nbytes)

    def region(self, nbytes: int = 0) -> Region:
        """A region for a `with` block; `nbytes` is how much it will need, where that is known.

        >>> with Pool().region() as region:
        ...     region.acquire(100).numpy("uint8", 100).shape
        (100,)
        """
        return Region(self, nbytes)

    def count_region(self, change: int) -> None:
        """A region was opened or closed."""
        with self._lock:
            self._regions += change

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """See how much memory is in use at most during a `with` block.

        >>> mine = Pool()
        >>> with mine.watch() as seen:
        ...     for _ in range(3):
        ...         block = mine.acquire(1000)
        >>> seen.peak_bytes                 # the second block came before the first was gone
        2000
        """
        watch = Watch(self.asked_bytes())
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    def track(self) -> Tracker:
        """Note from now on which lines of the user's program ask for memory; `untrack` ends it."""
        made = Tracker(self.asked_bytes())
        self._watches.append(made)
        return made

    def untrack(self, tracker: Tracker) -> None:
        """End what `track` began."""
        self._watches.remove(tracker)

    def holders(self) -> dict[str, tuple[int, int]]:
        """The bytes and the number of blocks in use by the line that asked for them; "" where nobody tracked."""
        with self._lock:
            free = {id(chunk) for shelf in list(self._shelves.values()) for chunk in list(shelf)}
            found: dict[Place | None, tuple[int, int]] = {}
            for chunk in list(self._chunks):
                if id(chunk) not in free and chunk.asked > 0:
                    nbytes, blocks = found.get(chunk.place, (0, 0))
                    found[chunk.place] = nbytes + chunk.asked, blocks + 1
        lines: dict[str, tuple[int, int]] = {}
        for place, held in found.items():  # several instructions may stand in a line
            nbytes, blocks = lines.get(line := line_of(place), (0, 0))
            lines[line] = nbytes + held[0], blocks + held[1]
        return lines

    @property
    def held_bytes(self) -> int:
        """Bytes of the system's memory in this pool, in use or free."""
        return self._held_bytes

    def asked_bytes(self) -> int:
        """The bytes that blocks in use were asked for, without what their size classes add."""
        with self._lock:
            free = {id(chunk) for shelf in list(self._shelves.values()) for chunk in list(shelf)}
            return sum(chunk.asked for chunk in list(self._chunks) if id(chunk) not in free)

    def trim(self) -> int:
        """Give every free block back now; the bytes given back.

        >>> import morpho as mo
        >>> mo.pool.trim() >= 0
        True
        """
        with self._lock:
            self._recover()
            self._find_lost()
            return self._give_back(self._epoch)

    def stats(self) -> dict[str, int | float]:
        """Contents and counters of the pool, in bytes of size classes.

        `peak_bytes` is the most it ever held, in use or free. `fragmentation_bytes` is what the blocks in use have
        beyond what was asked for, `fragmentation` the same as a share of `live_bytes`.

        >>> import morpho as mo
        >>> block = mo.pool.acquire(1000)
        >>> mo.pool.stats()["live_bytes"] >= 1000
        True
        """
        with self._lock:
            self._recover()
            self._find_lost()
            free = [chunk for shelf in list(self._shelves.values()) for chunk in list(shelf)]
            free_bytes = sum(chunk.capacity for chunk in free)
            live_bytes = self._held_bytes - free_bytes
            asked_bytes = sum(chunk.asked for chunk in list(self._chunks)) - sum(chunk.asked for chunk in free)
            hits = self._acquires - self._misses
            return {
                "live_bytes": live_bytes,
                "live_blocks": len(self._chunks) - len(free),
                "free_bytes": free_bytes,
                "free_blocks": len(free),
                "peak_bytes": self._peak_bytes,
                "acquires": self._acquires,
                "hits": hits,
                "misses": self._misses,
                "hit_rate": hits / self._acquires if self._acquires else 0.0,
                "fragmentation_bytes": live_bytes - asked_bytes,
                "fragmentation": (live_bytes - asked_bytes) / live_bytes if live_bytes else 0.0,
                "limit_bytes": self.limit_bytes,
                "regions": self._regions,
            }

    # ------------------------------------------------------------------------------------------------- growing

    def _shelf(self, nbytes: int, device: str) -> deque[Chunk]:
        """The shelf of a request not seen before, after looking at the request itself."""
        if device != "cpu":
            raise fail(DeviceError, "pool", f"there is no memory on the device {device!r}", "use cpu")
        try:
            size = operator.index(nbytes)
        except TypeError:
            raise fail(ArgumentError, "pool", f"{nbytes!r} is not a number of bytes") from None
        if size < 0:
            raise fail(ValueFault, "pool", f"{size} bytes were asked for")
        if len(self._requests) >= _REMEMBERED_REQUESTS:
            self._requests.clear()
        shelf = self._shelves.setdefault(size_class(size), deque())
        self._requests[size] = shelf
        return shelf

    def _grow(self, nbytes: int, limit_bytes: int) -> Chunk:
        """A chunk the shelf did not have; free blocks make room, then garbage does, then it is an error."""
        capacity = size_class(nbytes)
        self._sweep_if_due()
        chunk = self._try_to_grow(capacity, limit_bytes)
        if chunk is None:
            gc.collect()
            with self._lock:
                self._find_lost()
                chunk = self._try_to_grow(capacity, limit_bytes)
        if chunk is None:
            raise self._refusal(nbytes, limit_bytes)
        return chunk

    def _try_to_grow(self, capacity: int, limit_bytes: int) -> Chunk | None:
        with self._lock:
            if self._recover() and (chunk := self._take(capacity)) is not None:
                return chunk
            if 0 < limit_bytes < self._held_bytes + capacity:
                self._make_room(self._held_bytes + capacity - limit_bytes)
                if self._held_bytes + capacity > limit_bytes:
                    return None
            if capacity >= LARGE_BYTES:
                self._make_room(capacity)
            chunk = self._new_chunk(capacity)
            if chunk is None and self._give_back(self._epoch):
                chunk = self._new_chunk(capacity)
            if chunk is not None:
                self._chunks.add(chunk)
                self._misses += 1
                self._held_bytes += capacity
                self._peak_bytes = max(self._peak_bytes, self._held_bytes)
            return chunk

    def _take(self, capacity: int) -> Chunk | None:
        """A chunk of a shelf, or None."""
        try:
            chunk = self._shelves[capacity].pop()
        except IndexError:
            return None
        if getrefcount(chunk) > ALONE:
            self._limbo.append(chunk)
            return None
        return chunk

    @staticmethod
    def _new_chunk(capacity: int) -> Chunk | None:
        try:
            return Chunk(capacity)
        except (MemoryError, OSError, OverflowError, ValueError):
            return None

    def _refusal(self, nbytes: int, limit_bytes: int) -> MorphoError:
        self._misses += 1
        used = f"{format_bytes(self._held_bytes)} ({self._held_bytes} bytes)"
        asked = f"{format_bytes(nbytes)} ({nbytes} bytes, {size_class(nbytes)} as a size class)"
        if limit_bytes:
            limit = f"{format_bytes(limit_bytes)} ({limit_bytes} bytes)"
            return fail(
                MemoryLimit, "pool", f"{asked} asked for while {used} are in use would exceed the limit of {limit}",
                "drop tensors that are no longer needed, or raise pool_bytes (MORPHO_POOL_BYTES)",
            )
        return fail(
            MemoryLimit, "pool", f"the system has no {asked} left while {used} are in use; there is no pool limit",
            "drop tensors that are no longer needed, or use smaller batches",
        )

    # ----------------------------------------------------------------------------------------------- shrinking

    def _sweep_if_due(self) -> None:
        """Give back what lay idle through one whole interval between two sweeps."""
        if self._clock() < self._next_sweep_s or not self._lock.acquire(blocking=False):
            return
        try:
            self._next_sweep_s = self._clock() + self._idle_s
            self._epoch += 1
            self._recover()
            self._find_lost()
            self._give_back(self._epoch - 2)
        finally:
            self._lock.release()

    def _give_back(self, epoch: int) -> int:
        """Drop the free chunks released in `epoch` or before; the bytes dropped. The lock is held."""
        given_bytes = 0
        for shelf in list(self._shelves.values()):
            while (oldest := _oldest(shelf)) is not None and oldest <= epoch:
                given_bytes += self._drop_oldest(shelf)
        return given_bytes

    def _make_room(self, nbytes: int) -> None:
        """Drop free chunks, those idle longest first, until `nbytes` are given back or none is left."""
        while nbytes > 0:
            ages = [(age, -capacity) for capacity, shelf in list(self._shelves.items())
                    if (age := _oldest(shelf)) is not None]
            if not ages:
                return
            nbytes -= self._drop_oldest(self._shelves[-min(ages)[1]])

    def _drop_oldest(self, shelf: deque[Chunk]) -> int:
        try:
            chunk = shelf.popleft()
        except IndexError:
            return 0
        if getrefcount(chunk) > ALONE:
            self._limbo.append(chunk)
            return 0
        self._chunks.discard(chunk)
        self._held_bytes -= chunk.capacity
        return chunk.capacity

    def _shrink_to(self, limit_bytes: int, chunk: Chunk, nbytes: int) -> None:
        """The cap was lowered below what is held: give back free memory, or refuse the chunk just taken."""
        with self._lock:
            self._make_room(self._held_bytes - limit_bytes)
            if self._held_bytes <= limit_bytes:
                return
            self._shelves[chunk.capacity].append(chunk)
            self._make_room(self._held_bytes - limit_bytes)
        raise self._refusal(nbytes, limit_bytes)

    def _recover(self) -> int:
        """Chunks in limbo whose block is gone by now return to their shelf; how many did. The lock is held."""
        recovered = 0
        for _ in range(len(self._limbo)):
            try:
                chunk = self._limbo.popleft()
            except IndexError:  # a finaliser that ran just now was here before
                break
            if getrefcount(chunk) > ALONE:
                self._limbo.append(chunk)
            else:
                self._shelves[chunk.capacity].append(chunk)
                recovered += 1
        return recovered

    def _find_lost(self) -> None:
        """Shelve the chunks nobody knows: not a block, not a shelf, only the set of all. The lock is held."""
        for chunk in list(self._chunks):
            if getrefcount(chunk) == ALONE + 1:  # the list of this loop is the one reference more
                chunk.epoch = self._epoch
                self._shelves[chunk.capacity].append(chunk)


def _oldest(shelf: deque[Chunk]) -> int | None:
    """The epoch of the chunk idle longest, or None when the shelf is empty."""
    try:
        return shelf[0].epoch
    except IndexError:
        return None


# -------------------------------------------------------------------------------------------- the process's pool

_process_pool = Pool(limit_bytes=None)


def pool() -> Pool:
    """The pool every tensor of this process lives in.

    >>> import morpho as mo
    >>> isinstance(mo.pool.pool(), mo.pool.Pool)
    True
    """
    return _process_pool


acquire = _process_pool.acquire
region = _process_pool.region
stats = _process_pool.stats
trim = _process_pool.trim
watch = _process_pool.watch
