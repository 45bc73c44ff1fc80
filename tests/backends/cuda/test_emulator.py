"""What the emulated device sees that a GPU's driver would not say: addresses of the other side, writes outside, memory
that nobody wrote, and threads whose order is nobody's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import DeviceError


def launched(device: EmulatedDevice, source: int, target: int, at: int = 0) -> None:
    """A kernel that copies a word."""
    e = GridEmitter()
    e.store(e.load(e.address(Header.SIZE), "i64", 1), e.offset(e.address(Header.SIZE + 1), "i64", at))
    words = (ctypes.c_int64 * 10)(*[0] * 8, source, target)
    image = device.build(entry("kernel_main", 10, e.text()))
    device.launch(device.load(image, "kernel_main"), Geometry(1, 1), words, 0)


def test_neither_side_takes_an_address_of_the_other() -> None:
    device, here = EmulatedDevice(), np.array([7], np.int64)
    there = device.allocate(8)
    device.copy_in(there, here.tobytes(), 0)
    launched(device, there, there)
    assert there >> 48 and device.host_words(1).address >> 48  # no processor follows one
    calls: list[Any] = [lambda: launched(device, here.ctypes.data, there),
                        lambda: launched(device, there, here.ctypes.data),
                        lambda: device.copy(here.ctypes.data, there, 8, 0), lambda: device.zero(here.ctypes.data, 8, 0),
                        lambda: device.copy_in(here.ctypes.data, bytes(8), 0),
                        lambda: device.copy_out(here.ctypes.data, memoryview(bytearray(8)), 0)]
    for call in calls:
        with pytest.raises(DeviceError, match=r"address of the|accesses memory outside"):
            call()
    assert here[0] == 7
    device.free(there, 8)


@pytest.mark.parametrize("at", [-1, 1])
@pytest.mark.parametrize("reads", [False, True])
def test_an_access_outside_is_an_error_that_names_the_kernel_and_the_thread(at: int, reads: bool) -> None:
    device = EmulatedDevice()
    there = device.allocate(8)
    device.zero(there, 8, 0)
    e = GridEmitter()
    source, target = e.address(Header.SIZE), e.address(Header.SIZE + 1)
    outside = e.offset(source if reads else target, "i64", e.ask("thread") * at)
    value = e.load(outside if reads else source, "i64", 1)
    e.store(value, target if reads else outside)
    image = device.build(entry("kernel_main", 10, e.text()))
    words = (ctypes.c_int64 * 10)(*[0] * 8, there, there)
    with pytest.raises(DeviceError, match=rf"kernel_main, thread 1 of block 0, accesses memory outside: byte {8 * at} "
                                          f"of a block of 8 bytes, in `.*{'load' if reads else 'store'}"):
        device.launch(device.load(image, "kernel_main"), Geometry(1, 2), words, 0)
    device.free(there, 8)  # the access itself was diverted


def test_an_access_behind_shared_memory_is_an_error() -> None:
    device = EmulatedDevice()
    e = GridEmitter()
    e.store(e.constant(1, "i64", 1), e.offset(e.shared(), "i64", e.ask("thread")))
    image = device.build(entry("kernel_main", 8, e.text()))
    kernel, words = device.load(image, "kernel_main"), (ctypes.c_int64 * 8)()
    device.launch(kernel, Geometry(1, 4, 32), words, 0)
    with pytest.raises(DeviceError, match=r"thread 4 of block 0, .*byte 32 of 32 bytes of shared memory"):
        device.launch(kernel, Geometry(1, 5, 32), words, 0)


def numbers_of(device: EmulatedDevice, write: Callable[[GridEmitter, str], None], blocks: int = 1) -> list[int]:
    """The words that a kernel of 64 threads leaves, one a block."""
    e = GridEmitter()
    write(e, e.offset(e.address(Header.SIZE), "i64", e.ask("block")))
    there = device.allocate(8 * blocks)
    words = (ctypes.c_int64 * 9)(*[0] * 8, there)
    image = device.build(entry("kernel_main", 9, e.text()))
    found = bytearray(8 * blocks)
    try:
        device.launch(device.load(image, "kernel_main"), Geometry(blocks, 64, 64), words, 0)
        device.copy_out(there, memoryview(found), 0)
    finally:
        device.free(there, 8 * blocks)
    return [*np.frombuffer(found, np.int64)]


def test_memory_that_nobody_wrote_is_nan() -> None:
    device = EmulatedDevice()

    def write(e: GridEmitter, place: str) -> None:
        e.store(e.load(e.shared(), "i64", 1), place)

    device.room["shared"] = np.zeros(4096, np.uint8)  # of a launch before
    assert numbers_of(device, write) == [-1]
    assert numbers_of(device, lambda e, place: None, 2) == [-1, -1]
    for kind in (np.float16, np.float32, np.float64):
        assert np.isnan(np.full(1, -1, np.int64).view(kind)).all()


def test_threads_run_in_both_orders() -> None:
    def write(e: GridEmitter, place: str) -> None:
        e.store(e.ask("thread"), place)  # the last one's stays
        e.barrier()

    assert numbers_of(EmulatedDevice(), write, 2) == [63, 0]


def test_threads_that_wait_for_nobody_are_an_error() -> None:
    def write(e: GridEmitter, place: str) -> None:
        with e.when(e.icmp("slt", e.ask("thread"), 63)):
            e.barrier()

    with pytest.raises(DeviceError, match="do not all reach the same barrier"):
        numbers_of(EmulatedDevice(), write)
