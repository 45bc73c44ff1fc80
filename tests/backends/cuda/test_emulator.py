"""What the emulated device sees that a GPU's driver would not say: addresses of the other side, and writes outside."""

from __future__ import annotations

import ctypes
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
        with pytest.raises(DeviceError, match="address of the"):
            call()
    assert here[0] == 7
    device.free(there, 8)


@pytest.mark.parametrize("at", [-1, 1])
def test_writes_outside_are_found_when_memory_goes_back(at: int) -> None:
    device = EmulatedDevice()
    there = device.allocate(8)
    device.zero(there, 8, 0)
    launched(device, there, there, at)
    with pytest.raises(DeviceError, match="outside its memory"):
        device.free(there, 8)
