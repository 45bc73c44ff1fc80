"""Interface of a device for the backend: the CUDA driver's (`device.py`) or the emulated one (`emulator/`).

Addresses are numbers of the device's own. A kernel is launched with one block of 64-bit words, which it gets by value.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from morpho.backends.base import Bytes, Event
from morpho.backends.cuda.driver.launch_code import LaunchTable
from morpho.backends.cuda.driver.tensor_map import TensorMap
from morpho.base.errors import MorphoError


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a device that code and choices depend on."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    shared_bytes: int  # the most a block may ask for
    l2_bytes: int

    @property
    def architecture(self) -> str:
        """As LLVM and ptxas name it: with Hopper's own instructions where it has them.

        >>> Properties("H200", (9, 0), 132, 1 << 37, 232448, 50 << 20).architecture
        'sm_90a'
        """
        major, minor = self.capability
        return f"sm_{major}{minor}" + ("a" if (major, minor) >= (9, 0) else "")


@dataclass(frozen=True, slots=True)
class Geometry:
    """A grid: blocks, threads of a block, bytes of shared memory of a block."""

    blocks: int
    threads: int
    shared_bytes: int = 0


class HostWords(Protocol):
    """Words of the host that kernels write: `address` as the device sees them, `array` for the host."""

    address: int
    array: Any


class Device(Protocol):
    """One device."""

    properties: Properties
    number: int
    loads_in_threads: bool  # whether `load` may be called by several threads at once

    def launch_error(self, status: int) -> MorphoError:
        """The error behind a status of a launch."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Memory, aligned to 256 bytes."""
        ...

    def free_bytes(self) -> int:
        """Memory that can be had now."""
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Take it back, in the order of what was queued."""
        ...

    def free_blocks(self, nbytes: int) -> int:
        """The address of the stack of free blocks for so many bytes, for native code (`free_blocks.py`); 0: none."""
        ...

    def copy_in(self, address: int, source: Bytes, stream: int) -> Event:
        """Queue a copy from the host; `source` may be changed when this returns."""
        ...

    def copy_ahead(self, address: int, source: Bytes) -> Event:
        """The same in a stream of its own, beside what was queued; what is queued later waits for it."""
        ...

    def mark(self) -> Any:
        """A point of stream 0 whose time the device notes."""
        ...

    def seconds_between(self, first: Any, last: Any) -> float:
        """By the device's clock; waits for both points."""
        ...

    def copy_out(self, address: int, target: memoryview, stream: int) -> Event:
        """Queue a copy to the host."""
        ...

    def copy(self, source: int, target: int, nbytes: int, stream: int) -> None:
        """Queue a copy within the device."""
        ...

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        """Queue filling with zero bytes."""
        ...

    def host_room(self, nbytes: int) -> np.ndarray | None:
        """Pinned memory of the host for so many bytes; None: any will do."""
        ...

    def host_words(self, count: int) -> HostWords:
        """Zeroed 32-bit words that kernels report faults in; given back when nobody holds them."""
        ...

    def build(self, text: str) -> bytes:
        """A kernel's text (`codegen/`) as an image that `load` takes."""
        ...

    def load(self, image: bytes, name: str) -> Any:
        """The kernel `name` of an image, to be launched."""
        ...

    def launch(self, function: Any, geometry: Geometry, words: ctypes.Array[ctypes.c_int64], stream: int) -> None:
        """Queue a launch; the words are taken before it returns."""
        ...

    def encode_map(self, made: TensorMap, words: ctypes.Array[ctypes.c_int64]) -> None:
        """Write a tensor map into the words of a launch, whose operands' addresses are there."""
        ...

    def launch_entry(self) -> int:
        """The address of `cuLaunchKernel`, for launches from native code; 0: launch by `launch` alone."""
        ...

    def native_entries(self) -> dict[str, int]:
        """The addresses of the driver's functions that `native_call.py` needs, by name, 0 for those that are not there;
        `context`, `stream` and, for the number of launches, `counter`. Empty: launch through Python."""
        ...

    def destroy_graph(self, handle: int) -> None:
        """Drop a CUDA graph."""
        ...

    def launch_all(self, table: LaunchTable, slots: list[int], scratch: int, faults: int, stream: int) -> bool:
        """Queue a program's launches at once; False where an address does not fit, and nothing was queued."""
        ...

    def record(self, stream: int) -> Event:
        """The end of what was queued so far."""
        ...

    dlpack_device: tuple[int, int] | None  # None: other libraries cannot address its memory

    def stream_handle(self) -> int:
        """The driver's handle of stream 0."""
        ...

    def let_wait(self, stream: int) -> None:
        """Let another library's stream wait for stream 0."""
        ...

    def wait_for_stream(self, stream: int) -> None:
        """Let stream 0 wait for another library's stream."""
        ...

    def synchronize(self) -> None:
        """Wait for all streams."""
        ...
