"""Copies between pageable memory and a device, through a ring of pinned memory that is made once.

A GPU reads and writes pinned memory at the speed of its bus; pageable memory goes through chunks of it. The engine's
threads move the bytes of a chunk (`host_copy.py`) while the bus moves the chunks before it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from morpho.backends.cuda.driver.host_copy import copy_on_host
from morpho.backends.cuda.driver.memory import Owner

DIRECT_BYTES = 256 << 10  # up to which the driver's own staging is as good
CHUNK_BYTES, CHUNKS = 4 << 20, 8
MANY_BYTES = 16 << 20  # from which on chunks are whole; copy and bus share the time of less than that by halves


class StagingRing:
    """The ring. Chunks are used in turn; each waits for the copy that used it last."""

    def __init__(self, device: Owner) -> None:
        self.device, self.lock = device, threading.Lock()
        self.addresses: list[int] = []
        self.events: list[Any] = [None] * CHUNKS
        self.next = 0

    def _ready(self) -> None:
        """Make the memory, once."""
        if not self.addresses:
            address = ctypes.c_void_p()
            self.device.driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(CHUNK_BYTES * CHUNKS), 0)
            self.addresses = [(address.value or 0) + CHUNK_BYTES * number for number in range(CHUNKS)]

    @contextmanager
    def _settled(self, stream: int) -> Iterator[None]:
        """The ring for a copy. Where that ends early, nothing uses its chunks any more: they have no events then."""
        with self.lock:
            self._ready()
            try:
                yield
            except BaseException:
                self.device.driver.status("cuStreamSynchronize", self.device.stream(stream))
                raise

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
        with self._settled(stream):
            for offset, count in _sizes(total):
                number = self._chunk()
                copy_on_host(self.addresses[number], origin + offset, count)
                self._to_device(address + offset, self.addresses[number], count, stream)
                self.events[number] = self.device.record(stream)

    def _to_device(self, address: int, origin: int, count: int, stream: int) -> None:
        self.device.driver.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(origin),
                                ctypes.c_size_t(count), self.device.stream(stream))

    def copy_out(self, address: int, target: int, total: int, stream: int) -> None:
        """Copy from the device; returns when the bytes are there."""
        with self._settled(stream):
            queued: list[tuple[int, int, int, Any]] = []

            def land(number: int, offset: int, count: int, event: Any) -> None:
                event.wait()
                copy_on_host(target + offset, self.addresses[number], count)

            for begun, (offset, count) in enumerate(_sizes(total)):
                if begun >= CHUNKS // 2:
                    land(*queued[begun - CHUNKS // 2])
                number = self._chunk()
                self.device.driver.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(self.addresses[number]),
                                        ctypes.c_uint64(address + offset), ctypes.c_size_t(count),
                                        self.device.stream(stream))
                queued.append((number, offset, count, self.device.record(stream)))
            for one in queued[max(0, len(queued) - CHUNKS // 2):]:
                land(*one)


def _sizes(total: int) -> list[tuple[int, int]]:
    """The chunks of so many bytes: where each begins, and its bytes.

    >>> _sizes((4 << 20) + 5)
    [(0, 2097152), (2097152, 2097152), (4194304, 5)]
    >>> len(_sizes(64 << 20))
    16
    """
    step = CHUNK_BYTES if total >= MANY_BYTES else CHUNK_BYTES // 2
    return [(offset, min(step, total - offset)) for offset in range(0, total, step)]
