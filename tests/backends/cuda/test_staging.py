"""Copies through the ring of pinned memory, with a driver that copies in this process, late."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import morpho.tensor.jit.compile  # noqa: F401 (the engine reads inside its objects)
from morpho.backends.cuda.driver.host_copy import copy_on_host
from morpho.backends.cuda.driver.memory import HostRooms
from morpho.backends.cuda.driver.staging import CHUNK_BYTES, CHUNKS, DIRECT_BYTES, StagingRing


class LateEvent:
    def __init__(self, device: Any) -> None:
        self.device, self.at = device, len(device.queue) + device.done

    def wait(self) -> None:
        while self.device.done < self.at:
            target, source, count = self.device.queue.pop(0)
            ctypes.memmove(target, source, count)
            self.device.done += 1


class LateDevice:
    """Copies run when somebody waits for them."""

    def __init__(self) -> None:
        self.queue: list[tuple[int, int, int]] = []
        self.done, self.driver, self.kept = 0, self, np.zeros(CHUNK_BYTES * CHUNKS, np.uint8)

    def call(self, name: str, *given: Any) -> None:
        if name == "cuMemHostAlloc":
            ctypes.cast(given[0], ctypes.POINTER(ctypes.c_void_p))[0] = self.kept.ctypes.data
        else:
            self.queue.append((given[0].value, given[1].value, given[2].value))

    def stream(self, number: int) -> int:
        return number

    def record(self, stream: int) -> LateEvent:
        return LateEvent(self)


@pytest.mark.parametrize("nbytes", [DIRECT_BYTES + 1, 5 * CHUNK_BYTES + 7, (CHUNKS + 3) * CHUNK_BYTES + 1])
def test_bytes_go_there_and_back(rng: np.random.Generator, nbytes: int) -> None:
    device: Any = LateDevice()
    ring = StagingRing(device)
    source = rng.integers(0, 256, nbytes, np.uint8)
    memory, back = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    given = source.copy()
    ring.copy_in(memory.ctypes.data, given.data, 0)
    given[:] = 0  # the caller's memory is free again
    ring.copy_out(memory.ctypes.data, back.ctypes.data, nbytes, 0)
    assert np.array_equal(memory, source) and np.array_equal(back, source)


@pytest.mark.parametrize("nbytes", [1, (128 << 10) - 1, 128 << 10, (1 << 20) + 1, 4_000_000])
def test_all_threads_copy_every_byte_once(rng: np.random.Generator, nbytes: int) -> None:
    source, target = rng.integers(0, 256, nbytes, np.uint8), np.zeros(nbytes + 64, np.uint8)
    copy_on_host(target.ctypes.data, source.ctypes.data, nbytes)
    assert np.array_equal(target[:nbytes], source) and not target[nbytes:].any()


def test_bytes_go_before_anything_was_computed() -> None:
    code = ("import ctypes, numpy as np\n"
            "from morpho.backends.cuda.driver.host_copy import copy_on_host\n"
            "from morpho.backends.driver.executable import is_ready\n"
            "a, b = np.arange(1 << 20, dtype='u1'), np.zeros(1 << 20, 'u1')\n"
            "copy_on_host(b.ctypes.data, a.ctypes.data, 1 << 20)\n"
            "assert not is_ready() and (a == b).all()")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class Pinning:
    """A driver whose pinned memory is the process's own."""

    def __init__(self) -> None:
        self.driver, self.given = self, []

    def status(self, name: str, place: Any, size: Any, flags: int) -> int:
        self.given.append(np.zeros(size.value, np.uint8))
        ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))[0] = self.given[-1].ctypes.data
        return 0


def test_pinned_rooms_are_used_again() -> None:
    device: Any = Pinning()
    rooms = HostRooms(device)
    assert rooms.take(100) is None and rooms.take(1 << 40) is None
    first = rooms.take(1 << 20)
    assert first is not None and rooms.holds(first.ctypes.data, first.nbytes)
    assert not rooms.holds(first.ctypes.data, first.nbytes + (1 << 20))
    kept, address = first[5:].view(), first.ctypes.data
    del first
    second = rooms.take(1 << 20)
    assert second is not None and second.ctypes.data != address  # a view holds the first one
    del kept, second
    third = rooms.take(1 << 20)
    assert third is not None and len(device.given) == 2
