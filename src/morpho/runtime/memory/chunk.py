"""Chunks: memory of one size class from malloc or mmap, reference-counted by who still uses it."""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from sys import getrefcount

import numpy as np

from morpho.base.errors import Place
from morpho.base.target import ALIGNMENT_BYTES

MAPPED_BYTES = 1 << 20  # from here on a chunk is its own mapping, below it comes from malloc
# From here on huge pages, of this size: 12x faster to touch first, 1.4x afterwards. Small ones lie in memory in the
# order in which they were touched, which can put what is used together into the same sets of a cache (notes/gemm.md).
HUGE_PAGE_BYTES = 2 << 20
ZEROED = -1  # the `asked` of a chunk nobody has had yet and that the system filled with zeros


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


class Chunk:
    """A piece of system memory; it goes back to the system when nothing refers to it any more."""

    __slots__ = ("address", "capacity", "owner", "asked", "epoch", "place")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.epoch = 0
        self.place: Place | None = None  # in the user's program that asked for it, while somebody tracks
        self.owner, self.address, zeroed = _map(capacity) if capacity >= MAPPED_BYTES else _allocate(capacity)
        self.asked = ZEROED if zeroed else 0


def _allocate(capacity: int) -> tuple[object, int, bool]:
    """Aligned memory from malloc, owned by a NumPy array."""
    owner = np.empty(capacity + ALIGNMENT_BYTES - 1, np.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(owner.data))
    return owner, -(-address // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, False


def _map(capacity: int) -> tuple[object, int, bool]:
    """A private anonymous mapping: zeroed, page-aligned, copied on write in a forked child; huge pages as far as whole
    ones fit, for which it begins where one does. What lies before is never touched, and so takes no memory."""
    huge = capacity // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES if hasattr(mmap, "MADV_HUGEPAGE") else 0
    length = capacity + (HUGE_PAGE_BYTES if huge else 0)
    if hasattr(mmap, "MAP_ANONYMOUS"):
        owner = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        owner = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    if huge:
        skipped = -address % HUGE_PAGE_BYTES
        address += skipped
        try:
            owner.madvise(mmap.MADV_HUGEPAGE, skipped, huge)
        except OSError:
            pass  # a kernel without huge pages: the mapping is as good, only slower to touch
    return owner, address, True


def _references_when_alone() -> int:
    """Result of `getrefcount` for a chunk that only the pool's set and one local variable know."""
    chunks, shelf = set[Chunk](), deque[Chunk]()
    shelf.append(Chunk(ALIGNMENT_BYTES))
    chunks.add(shelf[0])
    chunk = shelf.pop()
    return getrefcount(chunk)


ALONE = _references_when_alone()
