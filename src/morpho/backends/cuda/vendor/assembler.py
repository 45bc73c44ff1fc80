"""PTX to a chip's own code by nvJitLink, where it is installed: in as many threads as there are, where the driver
assembles one kernel at a time. Nothing needs it. Some kernels are left to the driver: those for warpgroups, with which
by nvJitLink a training step took 25.6 ms instead of 24.0, and those that call functions or keep a stack, of which four
(convolutions of bfloat16 by few kernels) read addresses that were not theirs when nvJitLink had assembled them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from morpho.backends.cuda.vendor import libraries

LEFT = (b"wgmma.", b"call", b".local")  # what kernels that the driver assembles have in their PTX
PTX = 2  # nvJitLinkInputType
VERSIONS = ("13_0", "12_0")  # of the names that the library shows its functions by


class Assembler:
    """The functions of the library. `handle` is ctypes' own, or a fake one of tests."""

    def __init__(self, handle: Any, version: str) -> None:
        self.handle, self.version = handle, version

    def call(self, name: str, *given: Any) -> int:
        """A function by its name; its status."""
        return int(getattr(self.handle, f"__nvJitLink{name}_{self.version}")(*given))

    def code(self, text: bytes, architecture: str) -> bytes | None:
        """The chip's code of a kernel's PTX; None where the driver had better make it."""
        if any(mark in text for mark in LEFT):
            return None
        linker, options = ctypes.c_void_p(), (ctypes.c_char_p * 1)(f"-arch={architecture}".encode())
        if self.call("Create", ctypes.byref(linker), ctypes.c_uint32(1), options):
            return None
        try:
            data, size = text + b"\0", ctypes.c_size_t()
            if (self.call("AddData", linker, PTX, data, ctypes.c_size_t(len(data)), b"kernel")
                    or self.call("Complete", linker)
                    or self.call("GetLinkedCubinSize", linker, ctypes.byref(size))):
                return None
            room = ctypes.create_string_buffer(size.value)
            return None if self.call("GetLinkedCubin", linker, room) else room.raw
        finally:
            self.call("Destroy", ctypes.byref(linker))


@cache
def assembler() -> Assembler | None:
    """The library's, or None where it is not installed."""
    handle = libraries.found("nvJitLink")
    for version in VERSIONS if handle is not None else ():
        if hasattr(handle, f"__nvJitLinkCreate_{version}"):
            return Assembler(handle, version)
    return None
