"""Device memory: blocks kept by size class for the next who asks, and small pieces of pinned memory."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any, Protocol

import numpy as np

from morpho.backends.cuda.driver.free_blocks import FreeBlocks
from morpho.base.errors import MemoryLimit, fail
from morpho.base.units import format_bytes


class Owner(Protocol):
    """The device whose memory it is."""

    driver: Any
    number: int
    properties: Any

    def stream(self, number: int) -> ctypes.c_void_p: ...
    def record(self, stream: int) -> Any: ...
    def synchronize(self) -> None: ...
    def free_bytes(self) -> int: ...
    def free(self, address: int, nbytes: int) -> None: ...


LEAST = 512  # bytes of a block
LARGE, PAGE = 64 << 20, 2 << 20  # from which on blocks are whole pages of the driver's: an eighth more would be much


def size_class(nbytes: int) -> int:
    """The size of the block for so many bytes: an eighth of a power of two more at most, of large ones a page.

    >>> size_class(1), size_class(5000), size_class(1 << 20), size_class((1 << 20) + 1)
    (512, 5120, 1048576, 1179648)
    >>> size_class((1 << 30) + 1) - (1 << 30)
    2097152
    """
    if nbytes <= LEAST:
        return LEAST
    if nbytes > LARGE:
        return -(-nbytes // PAGE) * PAGE
    step = max(LEAST, 1 << ((nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


class MemoryPool:
    """Blocks of one device. What comes back is given out again at once: whatever was queued with it comes before."""

    def __init__(self, device: Owner) -> None:
        self.device, self.lock = device, threading.RLock()
        self.sizes: dict[int, int] = {}  # of all blocks of the driver's, by address
        self.total_bytes = 0
        self.free_blocks = FreeBlocks(lambda address, nbytes: device.free(address, nbytes))
        self.over: dict[int, list[int]] = {}  # free blocks that the stacks have no room for

    def allocate(self, nbytes: int) -> int:
        """A block; where the device has no memory left, kept ones are given back first."""
        with self.lock:
            size = self._kept_size(size_class(nbytes))
            address = self.free_blocks.take(size)
            if not address:
                over = self.over.get(size)
                address = over.pop() if over else self._new(size) or self._after_trim(size)
                self.free_blocks.use(size)
        return address

    def _kept_size(self, size: int) -> int:
        """The size of a kept block that will do: of large ones one that is an eighth larger at most, if there is none
        of the same."""
        if size <= LARGE or self.free_blocks.count(size):
            return size
        return min((known for known in list(self.free_blocks.stacks)
                    if size < known <= size + size // 8 and self.free_blocks.count(known)), default=size)

    def free(self, address: int, nbytes: int) -> None:
        """Keep a block for the next one."""
        with self.lock:
            size = self.sizes.get(address)
            if size is not None and not self.free_blocks.give(size, address):
                self.over.setdefault(size, []).append(address)

    @property
    def used_bytes(self) -> int:
        """Bytes of blocks that tensors and programs hold."""
        return self.free_blocks.used_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that were held at once."""
        return self.free_blocks.peak_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of blocks that nobody holds."""
        return self.total_bytes - self.used_bytes

    def _new(self, size: int) -> int:
        address = ctypes.c_uint64()
        status = self.device.driver.status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        if status == 2:
            return 0
        if status:
            raise self.device.driver.error("cuMemAlloc", status)
        self.sizes[address.value] = size
        self.total_bytes += size
        return address.value

    def _after_trim(self, size: int) -> int:
        self._trim()
        found = self._new(size)
        if found:
            return found
        largest = sorted(self.sizes.values(), reverse=True)[:5]
        raise fail(MemoryLimit, "cuda", f"{format_bytes(size)} are not free on cuda:{self.device.number}: tensors and "
                   f"programs of this process hold {format_bytes(self.used_bytes)} (the largest: "
                   f"{', '.join(map(format_bytes, largest)) or 'none'}) of "
                   f"{format_bytes(self.device.properties.memory_bytes)}, {format_bytes(self.device.free_bytes())} are "
                   "free",
                   "drop tensors that are no longer needed, use a smaller batch, or another device")

    def trim(self) -> int:
        """Give kept blocks back to the driver; how many bytes."""
        with self.lock:
            return self._trim()

    def _trim(self) -> int:
        self.device.synchronize()
        before = self.total_bytes
        for address in self.free_blocks.drained():
            self.over.setdefault(self.sizes[address], []).append(address)
        for blocks in self.over.values():  # those whose call fails stay
            while blocks:
                self.device.driver.call("cuMemFree_v2", ctypes.c_uint64(blocks[-1]))
                self.total_bytes -= self.sizes.pop(blocks.pop())
        self.over.clear()
        return before - self.total_bytes


class PinnedWords:
    """Words of pinned memory, which host and device address alike."""

    def __init__(self, address: int, count: int) -> None:
        self.address = address
        self.array = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))
        self.array[:] = 0


class PinnedPool:
    """Small pieces of one pinned page, each given back when its words are dropped."""

    PIECE, PAGE = 1024, 1 << 20

    def __init__(self, device: Owner) -> None:
        self.device = device
        self.pieces: list[int] = []

    def take(self, count: int) -> PinnedWords:
        """Zeroed words."""
        if 4 * count > self.PIECE:
            address = self._page(4 * count)
        else:
            if not self.pieces:
                page = self._page(self.PAGE)
                self.pieces += range(page, page + self.PAGE, self.PIECE)
            address = self.pieces.pop()
        found = PinnedWords(address, count)
        if 4 * count <= self.PIECE:
            weakref.finalize(found, self.pieces.append, address)
        return found

    def _page(self, nbytes: int) -> int:
        address = ctypes.c_void_p()
        self.device.driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes), 3)  # portable, mapped
        return address.value or 0


class HostRooms:
    """Pinned memory for results that come to the host: a GPU writes it at the speed of its bus, and it needs no first
    touch of its pages. Rooms are kept for the next result of their size class when their array is dropped."""

    LEAST, MOST, TOTAL = 1 << 20, 512 << 20, 2 << 30  # bytes of a room, and of all

    def __init__(self, device: Owner) -> None:
        self.device, self.lock = device, threading.Lock()
        self.kept: dict[int, list[int]] = {}
        self.sizes: dict[int, int] = {}  # of all rooms, by address
        self.total = 0

    def take(self, nbytes: int) -> np.ndarray | None:
        """Bytes to be written; None where this is no size for them, or too much is pinned already."""
        if not self.LEAST <= nbytes <= self.MOST:
            return None
        size = size_class(nbytes)
        with self.lock:
            rooms = self.kept.get(size)
            address = rooms.pop() if rooms else self._new(size)
        if not address:
            return None
        held = (ctypes.c_uint8 * nbytes).from_address(address)
        weakref.finalize(held, self._back, size, address)
        found: np.ndarray = np.frombuffer(memoryview(held).cast("B"), np.uint8)
        return found

    def _new(self, size: int) -> int:
        if self.total + size > self.TOTAL:
            return 0
        address = ctypes.c_void_p()
        if self.device.driver.status("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 1):  # portable
            return 0
        self.sizes[address.value or 0] = size
        self.total += size
        return address.value or 0

    def _back(self, size: int, address: int) -> None:
        self.kept.setdefault(size, []).append(address)

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether bytes of the host lie in one of the rooms."""
        return any(start <= address and address + nbytes <= start + size for start, size in list(self.sizes.items()))
