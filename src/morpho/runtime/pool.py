"""The one allocator: memory is taken from the system rarely and handed out again and again.

>>> block = acquire(1500)
>>> block.address % 64, block.nbytes, block.capacity
(0, 1500, 1536)
>>> view = block.numpy("float32", (5, 75))
>>> del block                       # `view` still holds the memory: it is never recycled under a live view
>>> view.shape
(5, 75)

A `Block` is a handle. When the last reference to it goes (its own, or a NumPy view's), its memory returns to the shelf
of its size class, where the next request of that class finds it. Requests round *up* to a class, four per power of
two. Memory that lay idle for a while goes back to the system, and a byte cap (`settings.pool_bytes`) is never passed.

How threads and the garbage collector get along: taking from and putting on a shelf is one atomic operation of a
`deque`, so a pooled `acquire` and a release take no lock and a finaliser may run anywhere. Only growing, shrinking and
counting lock. A finalised block that something resurrected keeps its memory: a shelf's chunk is handed out only if
nothing else refers to it. A chunk that an interrupt (Ctrl-C in a finaliser) lost is known by the same count, and found.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import operator
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from sys import getrefcount
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from morpho.base import settings
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, DeviceError, MemoryLimit, MorphoError, ValueFault, fail
from morpho.base.units import format_bytes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

ALIGNMENT_BYTES = 64
MAPPED_BYTES = 1 << 20  # from here on a chunk is its own mapping, below it comes from malloc
HUGE_PAGE_BYTES = 4 << 20  # from here on huge pages: measured 12x faster to touch first, 1.4x afterwards
LARGE_BYTES = 256 << 20  # so large a new chunk takes the place of free ones: peaks matter more than mapping them anew
IDLE_S = 5.0
_SWEEP_EVERY = 64  # acquires between two looks at the clock
_REMEMBERED_REQUESTS = 4096


def size_class(nbytes: int) -> int:
    """The bytes a request really gets: the next class up, four per power of two, all multiples of 64.

    >>> [size_class(n) for n in (0, 1, 64, 65, 257, 1024, 1025, 1500)]
    [64, 64, 64, 128, 320, 1024, 1280, 1536]
    """
    last = max(nbytes, 1) - 1
    if last < 4 * ALIGNMENT_BYTES:
        return (last | (ALIGNMENT_BYTES - 1)) + 1
    shift = last.bit_length() - 3
    return ((last >> shift) + 1) << shift


# --------------------------------------------------------------------------------------- memory from the system


class _Chunk:
    """A piece of system memory; it goes back to the system when nothing refers to it any more."""

    __slots__ = ("address", "capacity", "owner", "asked", "epoch")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.epoch = 0
        self.owner, self.address, zeroed = _map(capacity) if capacity >= MAPPED_BYTES else _allocate(capacity)
        self.asked = _ZEROED if zeroed else 0


_ZEROED = -1  # the `asked` of a chunk nobody has had yet and that the system filled with zeros


def _allocate(capacity: int) -> tuple[object, int, bool]:
    """Aligned memory from malloc, owned by a NumPy array."""
    owner = np.empty(capacity + ALIGNMENT_BYTES - 1, np.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(owner.data))
    return owner, -(-address // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, False


def _map(capacity: int) -> tuple[object, int, bool]:
    """A private anonymous mapping: zeroed, page-aligned, copied on write in a forked child."""
    if hasattr(mmap, "MAP_ANONYMOUS"):
        owner = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        owner = mmap.mmap(-1, capacity)
    if capacity >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            owner.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages: the mapping is as good, only slower to touch
    return owner, ctypes.addressof(ctypes.c_char.from_buffer(owner)), True


def _references_when_alone() -> int:
    """What `getrefcount` says of a chunk only the pool's set and one local variable know."""
    chunks, shelf = set[_Chunk](), deque[_Chunk]()
    shelf.append(_Chunk(ALIGNMENT_BYTES))
    chunks.add(shelf[0])
    chunk = shelf.pop()
    return getrefcount(chunk)


_ALONE = _references_when_alone()


# ------------------------------------------------------------------------------------------------------- handles


class Memory:
    """What blocks and pieces of regions have in common: `address`, `nbytes`, and being seen as NumPy."""

    __slots__ = ("address", "nbytes", "__weakref__")

    address: int
    nbytes: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def numpy(
        self,
        dtype: DTypeLike | DType,
        shape: int | tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        readonly: bool = False,
    ) -> NDArray[Any]:
        """This memory as an array, without a copy; the array keeps the memory alive.

        `strides` and `offset` are in bytes, a shape of -1 is all of it. A read-only array cannot be made
        writable again.

        >>> acquire(64, zero=True).numpy("int16", (2, 3))
        array([[0, 0, 0],
               [0, 0, 0]], dtype=int16)
        """
        flat = np.asarray(self)
        if readonly:
            flat.flags.writeable = False
        try:
            if offset < 0:  # NumPy does not look
                raise ValueError("the offset is negative")
            kind = dtype.numpy if isinstance(dtype, DType) else dtype
            return np.ndarray(shape, kind, flat, offset, strides)
        except (TypeError, ValueError) as error:
            raise fail(
                ValueFault, "pool",
                f"{self.nbytes} bytes cannot be seen as {dtype} of shape {shape}, strides {strides}, "
                f"offset {offset}: {str(error).rstrip('.')}",
            ) from None

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise fail(ArgumentError, "pool", "a block of memory can neither be copied nor pickled", "copy an array of it")


class Block(Memory):
    """Memory held until this handle and every array made from it are gone."""

    __slots__ = ("_pool", "_chunk")

    def __init__(self, pool: Pool, chunk: _Chunk, nbytes: int) -> None:
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
        return f"<Block of {format_bytes(self.nbytes)} at {self.address:#x}>"


class Piece(Memory):
    """Part of a region's block; it and every array made from it hold that block."""

    __slots__ = ("_block", "capacity")

    def __init__(self, block: Block, address: int, nbytes: int, capacity: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.capacity = capacity
        self._block = block

    def __repr__(self) -> str:
        return f"<Piece of {format_bytes(self.nbytes)} at {self.address:#x}>"


# ---------------------------------------------------------------------------------------------------------- pool


class Watch:
    """The most bytes that were in use at once, as asked for, and those in use at the beginning."""

    __slots__ = ("base_bytes", "peak_bytes")

    def __init__(self, base_bytes: int) -> None:
        self.base_bytes = self.peak_bytes = base_bytes


class Pool:
    """Blocks by size class, a byte cap, decay and statistics.

    `limit_bytes` caps what the pool holds, free blocks included; 0 means no cap, None means `settings.pool_bytes`,
    read at every request. Free blocks go back to the system once they were idle for `idle_s`, noticed when
    somebody acquires, or releases a large block: there is no thread in the background.
    """

    def __init__(
        self, limit_bytes: int | None = 0, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if limit_bytes is not None and limit_bytes < 0:
            raise fail(ValueFault, "pool", f"limit_bytes {limit_bytes} is negative", "0 means no limit")
        self._limit_bytes = limit_bytes
        self._idle_s = idle_s
        self._clock = clock
        self._lock = RLock()
        self._chunks: set[_Chunk] = set()  # every chunk held, in use or on a shelf
        self._shelves: dict[int, deque[_Chunk]] = {}  # the free ones by capacity, the most recently used last
        self._requests: dict[int, deque[_Chunk]] = {}  # the shelf of a request seen before
        self._limbo: deque[_Chunk] = deque()  # released, but something still refers to the block
        self._epoch = 0  # sweeps so far
        self._next_sweep_s = clock() + idle_s
        self._held_bytes = self._peak_bytes = 0
        self._acquires = self._misses = self._regions = 0
        self._watches: list[Watch] = []
        _pools.add(self)

    @property
    def limit_bytes(self) -> int:
        """The cap in force, 0 for none."""
        return settings.get().pool_bytes if self._limit_bytes is None else self._limit_bytes

    def acquire(self, nbytes: int, zero: bool = False, device: str = "cpu") -> Block:
        """A block of at least `nbytes`, 64-byte aligned; its content is arbitrary unless `zero`.

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
            if getrefcount(chunk) > _ALONE:
                self._limbo.append(chunk)
                chunk = self._grow(nbytes, limit_bytes)
            elif 0 < limit_bytes < self._held_bytes:
                self._shrink_to(limit_bytes, chunk, nbytes)
        if zero and chunk.asked != _ZEROED:
            ctypes.memset(chunk.address, 0, nbytes)
        chunk.asked = nbytes
        if self._watches:
            self._look()
        return Block(self, chunk, nbytes)

    def region(self, nbytes: int = 0) -> Region:
        """A region for a `with` block; `nbytes` is how much it will need, where that is known.

        >>> with Pool().region() as region:
        ...     region.acquire(100).numpy("uint8", 100).shape
        (100,)
        """
        return Region(self, nbytes)

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

    def asked_bytes(self) -> int:
        """The bytes that blocks in use were asked for, without what their size classes add."""
        with self._lock:
            free = {id(chunk) for shelf in list(self._shelves.values()) for chunk in list(shelf)}
            return sum(chunk.asked for chunk in list(self._chunks) if id(chunk) not in free)

    def _look(self) -> None:
        asked_bytes = self.asked_bytes()
        for watch in self._watches:
            watch.peak_bytes = max(watch.peak_bytes, asked_bytes)

    def trim(self) -> int:
        """Give every free block back now; the bytes given back."""
        with self._lock:
            self._recover()
            self._find_lost()
            return self._give_back(self._epoch)

    def stats(self) -> dict[str, int | float]:
        """What the pool holds and how it did, in bytes of size classes.

        `peak_bytes` is the most it ever held, in use or free. `fragmentation_bytes` is what the blocks in use have
        beyond what was asked for, `fragmentation` the same as a share of `live_bytes`.
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

    def _shelf(self, nbytes: int, device: str) -> deque[_Chunk]:
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

    def _grow(self, nbytes: int, limit_bytes: int) -> _Chunk:
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

    def _try_to_grow(self, capacity: int, limit_bytes: int) -> _Chunk | None:
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

    def _take(self, capacity: int) -> _Chunk | None:
        """A chunk of a shelf, or None."""
        try:
            chunk = self._shelves[capacity].pop()
        except IndexError:
            return None
        if getrefcount(chunk) > _ALONE:
            self._limbo.append(chunk)
            return None
        return chunk

    @staticmethod
    def _new_chunk(capacity: int) -> _Chunk | None:
        try:
            return _Chunk(capacity)
        except (MemoryError, OSError, OverflowError, ValueError):
            return None

    def _refusal(self, nbytes: int, limit_bytes: int) -> MorphoError:
        self._misses += 1
        used = f"{format_bytes(self._held_bytes)} ({self._held_bytes} bytes)"
        asked = f"{format_bytes(nbytes)} ({nbytes} bytes, {size_class(nbytes)} as a size class)"
        if limit_bytes:
            limit = f"{format_bytes(limit_bytes)} ({limit_bytes} bytes)"
            return fail(
                MemoryLimit, "pool", f"{asked} asked for while {used} are in use would pass the limit of {limit}",
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

    def _drop_oldest(self, shelf: deque[_Chunk]) -> int:
        try:
            chunk = shelf.popleft()
        except IndexError:
            return 0
        if getrefcount(chunk) > _ALONE:
            self._limbo.append(chunk)
            return 0
        self._chunks.discard(chunk)
        self._held_bytes -= chunk.capacity
        return chunk.capacity

    def _shrink_to(self, limit_bytes: int, chunk: _Chunk, nbytes: int) -> None:
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
            if getrefcount(chunk) > _ALONE:
                self._limbo.append(chunk)
            else:
                self._shelves[chunk.capacity].append(chunk)
                recovered += 1
        return recovered

    def _find_lost(self) -> None:
        """Shelve the chunks nobody knows: not a block, not a shelf, only the set of all. The lock is held."""
        for chunk in list(self._chunks):
            if getrefcount(chunk) == _ALONE + 1:  # the list of this loop is the one reference more
                chunk.epoch = self._epoch
                self._shelves[chunk.capacity].append(chunk)


def _oldest(shelf: deque[_Chunk]) -> int | None:
    """The epoch of the chunk idle longest, or None when the shelf is empty."""
    try:
        return shelf[0].epoch
    except IndexError:
        return None


# ------------------------------------------------------------------------------------------------------- regions


class Region:
    """Many pieces out of few blocks, all released together at the end of the `with` block.

    A piece costs an addition. When a block is full the next one is twice as large. A piece (or a view of one) that
    outlives the region keeps its block. A region belongs to one thread.
    """

    __slots__ = ("_pool", "_first_bytes", "_blocks", "_next", "_end", "_open", "used_bytes")

    def __init__(self, pool: Pool, nbytes: int = 0) -> None:
        self._pool = pool
        self._first_bytes = nbytes or 1 << 16
        self._blocks: list[Block] = []
        self._next = self._end = 0
        self._open = False
        self.used_bytes = 0

    def __enter__(self) -> Region:
        if self._open:
            raise fail(ValueFault, "pool", "the region is already open", "use pool.region() for a second one")
        self._open = True
        with self._pool._lock:
            self._pool._regions += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._blocks.clear()
        self._next = self._end = self.used_bytes = 0
        with self._pool._lock:
            self._pool._regions -= 1

    @property
    def capacity_bytes(self) -> int:
        """The bytes of all its blocks."""
        return sum(block.capacity for block in self._blocks)

    def acquire(self, nbytes: int, zero: bool = False) -> Piece:
        """The next `nbytes` of the region, 64-byte aligned."""
        if not self._open:
            raise fail(ValueFault, "pool", "the region is closed", "acquire inside its with block")
        if nbytes < 0:
            raise fail(ValueFault, "pool", f"{nbytes} bytes were asked for")
        rounded = max(-(-nbytes // ALIGNMENT_BYTES), 1) * ALIGNMENT_BYTES
        if self._next + rounded > self._end:
            self._add_block(rounded)
        piece = Piece(self._blocks[-1], self._next, nbytes, rounded)
        self._next += rounded
        self.used_bytes += rounded
        if zero:
            ctypes.memset(piece.address, 0, nbytes)
        return piece

    def _add_block(self, nbytes: int) -> None:
        wanted = 2 * self._blocks[-1].capacity if self._blocks else self._first_bytes
        block = self._pool.acquire(max(wanted, nbytes))
        self._blocks.append(block)
        self._next, self._end = block.address, block.address + block.capacity


# -------------------------------------------------------------------------------------------- the process's pool

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_held_over_fork: list[Pool] = []


def _before_fork() -> None:
    """No thread may be in the middle of a change while the process is copied."""
    _held_over_fork[:] = list(_pools)
    for each in _held_over_fork:
        each._lock.acquire()


def _after_fork_in_parent() -> None:
    for each in _held_over_fork:
        each._lock.release()
    _held_over_fork.clear()


def _after_fork_in_child() -> None:
    for each in _held_over_fork:
        each._lock = RLock()
    _held_over_fork.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )

_process_pool = Pool(limit_bytes=None)


def pool() -> Pool:
    """The pool every tensor of this process lives in."""
    return _process_pool


acquire = _process_pool.acquire
region = _process_pool.region
stats = _process_pool.stats
trim = _process_pool.trim
watch = _process_pool.watch
