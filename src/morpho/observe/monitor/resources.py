"""Resources of this process: one read of `/proc/self/stat`, and NVML's answers where there is a GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Process:
    """CPU seconds, resident bytes and threads of this process, by one system call each time (`reads` counts them)."""

    def __init__(self) -> None:
        self.reads = 0
        self._process, self._file = 0, -1

    def read(self) -> dict[str, float]:
        """`cpu_s`, `rss_bytes`, `threads`; nothing on a system without /proc."""
        if self._process != os.getpid() and not self._open():  # the file of a parent stays the parent's
            return {}
        self.reads += 1
        text = os.pread(self._file, 4096, 0)
        words = text[text.rindex(b")") + 2:].split()  # a program's name may hold spaces; counted from field 3 on
        return {"cpu_s": (int(words[11]) + int(words[12])) / _TICKS, "threads": int(words[17]),
                "rss_bytes": int(words[21]) * _PAGE}

    def _open(self) -> bool:
        self.close()
        try:
            self._file = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        self._process = os.getpid()
        return True

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
        self._process, self._file = 0, -1


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Gpus:
    """NVIDIA GPUs by NVML, the library that comes with the driver; none where it is not there.

    `library` is for tests: an object with NVML's functions.
    """

    def __init__(self, library: Any = None) -> None:
        self.calls = 0
        self._library = library
        self._devices: list[ctypes.c_void_p] | None = None  # None: not looked for yet

    def read(self) -> list[Mapping[str, float]]:
        """Of each GPU: `utilisation` (0 to 1), `used_bytes`, `total_bytes`, `power_w`; what it does not say is left
        out."""
        return [self._one(device) for device in self._found()]

    def _found(self) -> list[ctypes.c_void_p]:
        if self._devices is not None:
            return self._devices
        self._devices = []
        try:
            self._library = self._library or ctypes.CDLL("libnvidia-ml.so.1")
            if self._call("nvmlInit_v2"):
                return []
            count = ctypes.c_uint()
            self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            for number in range(count.value):
                device = ctypes.c_void_p()
                if not self._call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(device)):
                    self._devices.append(device)
        except (OSError, AttributeError):  # no driver, or one of another kind
            self._devices = []
        return self._devices

    def _one(self, device: ctypes.c_void_p) -> dict[str, float]:
        memory, rates, milliwatts = _Memory(), _Rates(), ctypes.c_uint()
        found: dict[str, float] = {}
        if not self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)):
            found |= {"used_bytes": memory.used, "total_bytes": memory.total}
        if not self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(rates)):
            found["utilisation"] = rates.gpu / 100
        if not self._call("nvmlDeviceGetPowerUsage", device, ctypes.byref(milliwatts)):
            found["power_w"] = milliwatts.value / 1000
        return found

    def _call(self, name: str, *arguments: Any) -> int:
        self.calls += 1
        return int(getattr(self._library, name)(*arguments))
