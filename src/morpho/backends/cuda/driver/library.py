"""libcuda as functions that raise sentences.

Nothing is loaded before the first call of `library()`, and nothing but the driver is needed: no toolkit, no runtime
library. `why_not()` says in one sentence why there is no GPU here.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from morpho.base.errors import DeviceError, MemoryLimit, MorphoError, fail

NAMES = ("libcuda.so.1", "libcuda.so") if sys.platform != "win32" else ("nvcuda.dll",)
SUCCESS, OUT_OF_MEMORY, NOT_READY = 0, 2, 600
# What a kernel did wrong; the context is lost with any of these.
BROKEN = {700: "a kernel read or wrote an address that is not its own", 716: "a kernel read a misaligned address",
          719: "a kernel failed", 715: "a kernel had an illegal instruction", 702: "a kernel ran too long",
          714: "a hardware stack error", 717: "an address of another space", 718: "an invalid program counter"}


class Library:
    """The functions of libcuda; each returns a status, which `call` makes an error of."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.broken = ""  # what ended the context, once something has

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function; its status."""
        function = getattr(self.handle, name, None)
        if function is None:
            raise fail(DeviceError, name, f"the NVIDIA driver has no {name}: it is too old", "install a newer driver")
        return int(function(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; what failed is an error."""
        status = self.status(name, *arguments)
        if status:
            raise self.error(name, status)

    def said(self, status: int) -> str:
        """A status in the driver's words."""
        text = ctypes.c_char_p()
        if self.handle.cuGetErrorString(status, ctypes.byref(text)) or not text.value:
            return f"status {status}"
        return text.value.decode()

    def error(self, name: str, status: int) -> MorphoError:
        """The error behind a status."""
        if status == OUT_OF_MEMORY:
            return fail(MemoryLimit, name, "the GPU has no memory left")
        if status in BROKEN:
            self.broken = self.broken or BROKEN[status]
            return fail(DeviceError, name, f"{BROKEN[status]} ({self.said(status)}): everything on the device is lost",
                        "start the process again; this is a defect of Morpho, please report the program")
        return fail(DeviceError, name, f"the CUDA driver says: {self.said(status)} ({status})",
                    "`morpho doctor` shows the driver and the device")


@cache
def _found() -> tuple[Library | None, str]:
    handle, problems = None, []
    for name in NAMES:
        try:
            handle = ctypes.CDLL(name)
            break
        except OSError as error:
            problems.append(str(error))
    if handle is None:
        there = [one for one in problems if "No such file" not in one and "could not find" not in one.lower()]
        return None, (f"the NVIDIA driver cannot be loaded ({there[0]})" if there else
                      f"no NVIDIA driver is installed ({NAMES[0]} was not found)")
    missing = [one for one in ("cuInit", "cuGetErrorString", "cuDeviceGetCount") if not hasattr(handle, one)]
    if missing:
        return None, f"{name} is no NVIDIA driver (it has no {missing[0]})"
    status = int(handle.cuInit(0))
    if status == 100:
        return None, "the NVIDIA driver sees no GPU"
    if status:
        return None, f"the NVIDIA driver does not start (cuInit: {Library(handle).said(status)})"
    return Library(handle), ""


def library() -> Library:
    """The driver, or an error that says why there is none."""
    found, reason = _found()
    if found is None:
        raise fail(DeviceError, "cuda", reason, "use device='cpu'; `morpho doctor` says more")
    return found


def why_not() -> str:
    """Why there is no GPU here; empty where there is one.

    >>> isinstance(why_not(), str)
    True
    """
    found, reason = _found()
    return reason if found is None else "" if count() else "the NVIDIA driver sees no GPU"


def count() -> int:
    """How many GPUs this process may use.

    >>> count() >= 0
    True
    """
    found, _ = _found()
    if found is None:
        return 0
    number = ctypes.c_int()
    return number.value if found.status("cuDeviceGetCount", ctypes.byref(number)) == SUCCESS else 0


def described(number: int) -> tuple[str, str, int]:
    """The name of a GPU, its compute capability and its memory in bytes, without a context on it."""
    driver, handle = library(), ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(handle), number)
    name, memory, parts = ctypes.create_string_buffer(128), ctypes.c_size_t(), []
    driver.call("cuDeviceGetName", name, 128, handle)
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    for which in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ..._MINOR
        value = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        parts.append(str(value.value))
    return name.value.decode(errors="replace"), ".".join(parts), memory.value


def driver_version() -> str:
    """The newest CUDA version the driver knows, as "13.0"."""
    number = ctypes.c_int()
    library().call("cuDriverGetVersion", ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"
