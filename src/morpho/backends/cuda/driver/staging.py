"""Copies between pageable memory and a device, through a ring of pinned memory that is made once.

A GPU reads and writes pinned memory at the speed of its bus; pageable memory goes through chunks of it. Several threads
move bytes between the two (`memmove`, without Python's lock) while the bus moves the chunks before them.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from morpho.backends.cuda.driver.memory import Owner
from morpho.base.machine import allowed_cores

DIRECT_BYTES = 8 << 20  # up to which the driver's own staging is faster (4 MB on an H200's host: 302 us against 464)
CHUNK_BYTES, CHUNKS = 2 << 20, 16
MOST_THREADS = 6


class StagingRing:
    """The ring. Chunks are used in turn; each waits for the copy that used it last."""

    def __init__(self, device: Owner) -> None:
        self.device, self.lock = device, threading.Lock()
        self.addresses: list[int] = []
        self.events: list[Any] = [None] * CHUNKS
        self.next = 0
        self.threads: ThreadPoolExecutor | None = None

    def _ready(self) -> ThreadPoolExecutor:
        """Make the memory and the threads, once."""
        if self.threads is None:
            address = ctypes.c_void_p()
            self.device.driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(CHUNK_BYTES * CHUNKS), 0)
            self.addresses = [(address.value or 0) + CHUNK_BYTES * number for number in range(CHUNKS)]
            self.threads = ThreadPoolExecutor(max(1, min(MOST_THREADS, allowed_cores() - 1)), "morpho-staging")
        return self.threads

    def _chunk(self) -> int:
        """The number of a chunk that no copy uses any more."""
        number = self.next
        self.next = (number + 1) % CHUNKS
        event, self.events[number] = self.events[number], None
        if event is not None:
            event.wait()
        return number

    def copy_in(self, address: int, source: memoryview, stream: int) -> None:
        """Queue a copy to the device; `source` may be changed when this returns."""
        origin, total = np.frombuffer(source, np.uint8).ctypes.data, len(source)
        if total <= DIRECT_BYTES:
            self._to_device(address, origin, total, stream)
            return
        with self.lock:
            threads, sizes = self._ready(), _sizes(total)
            moved: list[tuple[int, int, int, Future[int]]] = []  # chunk, offset, bytes, its memmove
            for begun, (offset, count) in enumerate(sizes):
                number = self._chunk()
                moved.append((number, offset, count, threads.submit(ctypes.memmove, self.addresses[number],
                                                                    origin + offset, count)))
                if begun >= CHUNKS // 2:
                    self._send(address, *moved[begun - CHUNKS // 2], stream)
            for one in moved[max(0, len(sizes) - CHUNKS // 2):]:
                self._send(address, *one, stream)

    def _send(self, address: int, number: int, offset: int, count: int, moved: Future[int], stream: int) -> None:
        moved.result()
        self._to_device(address + offset, self.addresses[number], count, stream)
        self.events[number] = self.device.record(stream)

    def _to_device(self, address: int, origin: int, count: int, stream: int) -> None:
        self.device.driver.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(origin),
                                ctypes.c_size_t(count), self.device.stream(stream))

    def copy_out(self, address: int, target: int, total: int, stream: int) -> None:
        """Copy from the device; returns when the bytes are there."""
        with self.lock:
            threads, sizes = self._ready(), _sizes(total)
            queued: list[tuple[int, int, int, Any]] = []
            moving: dict[int, Future[int]] = {}

            def land(number: int, offset: int, count: int, event: Any) -> None:
                event.wait()
                moving[number] = threads.submit(ctypes.memmove, target + offset, self.addresses[number], count)

            for begun, (offset, count) in enumerate(sizes):
                if begun >= CHUNKS // 2:
                    land(*queued[begun - CHUNKS // 2])
                number = self._chunk()
                if number in moving:
                    moving.pop(number).result()
                self.device.driver.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(self.addresses[number]),
                                        ctypes.c_uint64(address + offset), ctypes.c_size_t(count),
                                        self.device.stream(stream))
                queued.append((number, offset, count, self.device.record(stream)))
            for one in queued[max(0, len(sizes) - CHUNKS // 2):]:
                land(*one)
            for one_moving in moving.values():
                one_moving.result()


def _sizes(total: int) -> list[tuple[int, int]]:
    """The chunks of so many bytes: where each begins, and its bytes.

    >>> _sizes((4 << 20) + 5)
    [(0, 2097152), (2097152, 2097152), (4194304, 5)]
    """
    return [(offset, min(CHUNK_BYTES, total - offset)) for offset in range(0, total, CHUNK_BYTES)]
