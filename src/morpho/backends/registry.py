"""Devices by name: which kinds there are, and the backend of each device, made when it is first asked for.

>>> canonical("cpu:0", "test"), backend_of("reference").host_memory
('cpu', True)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morpho.backends.base import Backend, Executable
from morpho.base import settings
from morpho.base.errors import ArgumentError, DeviceError, fail
from morpho.ir.graph import Graph

HOST = "cpu"  # whose memory every tensor without another device lies in


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of device: how to make the backend of one, and how many there are now."""

    make: Callable[[int], Backend]
    count: Callable[[], int]
    numbered: bool  # whether its devices are called kind:0, kind:1; if not, there is one, called by the kind
    missing: Callable[[], str] = lambda: ""  # why there is none, in a sentence
    listed: bool = True  # whether it is a device, and not a choice among others


_kinds: dict[str, Kind] = {}
_made: dict[str, Backend] = {}
_lock = threading.RLock()


def register(kind: str, make: Callable[[int], Backend], count: Callable[[], int] = lambda: 1,
             numbered: bool = False, missing: Callable[[], str] = lambda: "", listed: bool = True) -> None:
    """Add a kind of device; `make(number)` gives the backend of one, `missing()` says why there is none."""
    if not kind.isidentifier() or kind in _kinds:
        raise fail(ArgumentError, "register", f"{kind!r} is no new name of a kind of device",
                   "use letters, digits and underscores, and a name that is not taken")
    _kinds[kind] = Kind(make, count, numbered, missing, listed)
    settings.device_kinds.append(kind)


def unregister(kind: str) -> None:
    """Take back a kind of device. Tensors that lie there keep their memory."""
    with _lock:
        del _kinds[kind]
        settings.device_kinds.remove(kind)
        for name in [name for name in _made if name.split(":")[0] == kind]:
            del _made[name]


def canonical(device: Any, operation: str) -> str:
    """The one name of a device: `cpu` for `cpu:0`, `cuda:0` for `cuda`. An error names the devices there are."""
    name = device if isinstance(device, str) else ""
    kind, colon, number = name.partition(":")
    found = _kinds.get(kind)
    if found is None or (colon and not number.isdecimal()):
        raise fail(DeviceError, operation, f"device {device!r} is not there",
                   "the devices are: " + ", ".join(devices()))
    index = int(number or 0)
    if index >= found.count():
        reason = (found.missing() if found.count() == 0 else "") or f"of {kind} there are {found.count()}"
        raise fail(DeviceError, operation, f"device {device!r} is not there: {reason}",
                   "the devices are: " + ", ".join(devices()))
    return f"{kind}:{index}" if found.numbered else kind


def devices() -> list[str]:
    """The names of all devices here, the CPU first.

    >>> devices()[:2]
    ['cpu', 'reference']
    """
    return [f"{kind}:{number}" if found.numbered else kind
            for kind, found in list(_kinds.items()) if found.listed for number in range(found.count())]


def backend_of(device: str) -> Backend:
    """The backend of a device, by its canonical name."""
    found = _made.get(device)
    if found is not None:
        return found
    with _lock:
        found = _made.get(device)
        if found is None:
            kind, _, number = canonical(device, "device").partition(":")
            found = _made[device] = _kinds[kind].make(int(number or 0))
        return found


def memory_of(device: str) -> str:
    """The device in whose memory a device computes: the CPU's for those that share it."""
    return HOST if device == HOST or backend_of(device).host_memory else device


def holder(device: Any, operation: str) -> str:
    """The one name of a device that tensors can lie on: not of one that only computes on the memory of the CPU."""
    name = canonical(device, operation)
    if memory_of(name) != name:
        raise fail(DeviceError, operation, f"device {device!r} computes on the memory of the CPU: no tensors lie there",
                   f"compute there in a block: with mo.settings(device={name!r}):")
    return name


def default_device() -> str:
    """The device of the settings: where tensors are made, and what runs programs on the host's memory."""
    if settings.get().device.partition(":")[0] not in _kinds:
        raise fail(ArgumentError, "settings", f"the device {settings.get().device!r} was removed while a mo.settings "
                                              "block names it", "leave the block, or add the backend again")
    return canonical(settings.get().device, "settings")


def _cpu(number: int) -> Backend:
    from morpho.backends.cpu.backend import CpuBackend

    return CpuBackend()


def cpu_program(graph: Graph) -> Executable:
    """A graph's program by the CPU's own code, for backends with steps of the host."""
    from morpho.backends.cpu.backend import CpuBackend

    return CpuBackend().program(graph)


def _reference(number: int) -> Backend:
    from morpho.backends.reference.backend import InterpreterBackend

    return InterpreterBackend("reference")


def _cuda(number: int) -> Backend:
    from morpho.backends.cuda.backend import CudaBackend
    from morpho.backends.cuda.driver.device import CudaDevice

    return CudaBackend(f"cuda:{number}", CudaDevice(number), cpu_program)


def _cuda_count() -> int:
    from morpho.backends.cuda.driver.library import count

    return count()


def _cuda_missing() -> str:
    from morpho.backends.cuda.driver.library import why_not

    return why_not()


def _auto(number: int) -> Backend:
    from morpho.backends.auto.backend import AutoBackend

    return AutoBackend(backend_of, devices)


register(HOST, _cpu)
register("reference", _reference)
register("cuda", _cuda, _cuda_count, numbered=True, missing=_cuda_missing)
register("auto", _auto, listed=False)
