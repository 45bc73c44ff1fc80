"""Addresses of the emulated device: the host's with a mark in the upper bits, which no address of the host has.

The host that follows one ends there, as no processor takes it. What a kernel is launched with is looked at word by
word: addresses of the device become the host's, one of the host is an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from morpho.base.errors import DeviceError, fail

MARK = 0x5ADE << 48
BITS = 48  # of an address of the host
LEAST = 0x5000_0000_0000  # from which on the host's memory lies; a kernel's numbers are below, or beyond all addresses


def on_device(address: int) -> int:
    """Device address of an address of the host.

    >>> hex(on_device(0x5000_1234_5600)), on_host(on_device(4096))
    ('0x5ade500012345600', 4096)
    """
    return int(address) | MARK


def on_host(address: int) -> int:
    """Where the host finds what the device has at an address."""
    if address >> BITS != MARK >> BITS:
        raise fail(DeviceError, "cuda", f"{address:#x} is no address of the emulated device")
    return address ^ MARK


def words_on_host(words: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A copy of a launch's words with the host's addresses in place of the device's.

    >>> list(words_on_host([3, 0, on_device(4096), -1]))
    [3, 0, 4096, -1]
    """
    found = (ctypes.c_int64 * len(words))(*words)
    for number, word in enumerate(words):
        if word >> BITS == MARK >> BITS:
            found[number] = word ^ MARK
        elif LEAST <= word < 1 << BITS:
            raise fail(DeviceError, "cuda", f"word {number} of a kernel, {word:#x}, is an address of the host")
    return found
