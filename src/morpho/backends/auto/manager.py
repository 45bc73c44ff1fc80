"""Which of several devices takes new work: one with room for it, and of those the one with the least queued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from morpho.base.errors import DeviceError, MemoryLimit, fail
from morpho.base.units import format_bytes


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device now: bytes that no process holds (what this process only keeps for later counts as free), all bytes, and
    runs that are queued and not over."""

    device: str
    free_bytes: int
    total_bytes: int
    queued: int


def state_of(device: str, backend: Any) -> DeviceState:
    """Of a device with memory of its own."""
    free, total = backend.memory_now()
    return DeviceState(device, free, total, backend.queued())


def best_of(states: Sequence[DeviceState], nbytes: int) -> DeviceState:
    """The one that takes new work that needs so many bytes.

    >>> best_of([DeviceState("cuda:0", 100, 200, 3), DeviceState("cuda:1", 90, 200, 1)], 50).device
    'cuda:1'
    >>> best_of([DeviceState("cuda:0", 100, 200, 3), DeviceState("cuda:1", 90, 200, 1)], 95).device
    'cuda:0'
    """
    if not states:
        raise fail(DeviceError, "choose_device", "there is no GPU", "`morpho doctor` says why; use device='cpu'")
    fitting = [state for state in states if state.free_bytes >= nbytes]
    if not fitting:
        free = ", ".join(f"{state.device} {format_bytes(state.free_bytes)}" for state in states)
        raise fail(MemoryLimit, "choose_device", f"no device has {format_bytes(nbytes)} free: {free}",
                   "drop tensors that are no longer needed, or use device='cpu'")
    return min(fitting, key=lambda state: (state.queued, -state.free_bytes))


def states(names: Sequence[str], backend_of: Callable[[str], Any]) -> list[DeviceState]:
    """Of all devices that have memory of their own and say how much of it is free."""
    found = [(name, backend_of(name)) for name in names]
    return [state_of(name, backend) for name, backend in found if hasattr(backend, "memory_now")]
