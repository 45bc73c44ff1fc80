"""Exchange of device memory: DLPack and `__cuda_array_interface__`, with the handover between streams.

A consumer's stream waits for what writes a tensor before it reads. When the consumer gives the memory back, the
device's own streams wait for the consumer's; borrowed memory goes back when nothing queued here reads it any more.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from morpho.backends.base import FINISHED
from morpho.backends.registry import backend_of
from morpho.backends.registry import devices as all_devices
from morpho.base.dtypes import bfloat16
from morpho.base.errors import DeviceError, DTypeError, MorphoError, fail
from morpho.runtime.memory.buffer import Buffer
from morpho.runtime.memory.device_memory import DeviceMemory
from morpho.tensor.core import Tensor
from morpho.tensor.interop.capsule import Imported

CUDA = 2
LEGACY, PER_THREAD = 1, 2  # DLPack's numbers of default streams are the driver's handles


def place_of(device: str) -> tuple[int, int] | None:
    """DLPack's numbers of a device; None for one whose memory others cannot address."""
    found: tuple[int, int] | None = getattr(backend_of(device), "dlpack_device", None)
    return found


class Lent:
    """Memory that another library reads: it comes back in the order of the stream that read it."""

    def __init__(self, storage: Any, backend: Any, stream: int) -> None:
        self.storage, self.backend, self.stream = storage, backend, stream

    def __del__(self) -> None:
        with contextlib.suppress(MorphoError):  # the stream is gone: so is what it read
            self.backend.wait_for_stream(self.stream)


class Borrowed(DeviceMemory):
    """Memory of another library on this device; given back when nothing queued reads it."""

    __slots__ = ()

    def __init__(self, backend: Any, owner: Any) -> None:
        self.backend, self.event, self.block = backend, FINISHED, owner
        weakref.finalize(self, _give_back, backend, [owner])


def _give_back(backend: Any, held: list[Any]) -> None:
    with contextlib.suppress(MorphoError):  # somebody else's error, which is told at the next wait
        backend.gpu.synchronize()
    held.clear()


def handed_over(device: str, stream: Any) -> int:
    """Let a consumer's stream (DLPack's number, None: the default one) wait for what was queued; the handle of the one
    that is waited for when the memory comes back. Another thread may give it back, whose own default stream is another
    one: the default stream comes after those of all threads."""
    known = stream is None or (isinstance(stream, int) and not isinstance(stream, bool))
    if not known or stream == 0 or (stream is not None and stream < -1):
        raise fail(DeviceError, "__dlpack__", f"stream {stream!r} is not a stream",
                   "None and 1 are the default stream, 2 that of the thread, -1 asks for no waiting")
    handle = LEGACY if stream is None else stream
    if handle != -1:
        backend_of(device).let_wait(handle)  # type: ignore[attr-defined]
    return LEGACY if handle in (-1, PER_THREAD) else handle


def lent(buffer: Buffer, device: str, stream: Any) -> Lent:
    """Owner that keeps an exported tensor alive."""
    return Lent(buffer.storage, backend_of(device), handed_over(device, stream))


def device_of(place: tuple[int, int]) -> str:
    """The device with DLPack's numbers; an error where Morpho has none."""
    name = f"cuda:{place[1]}"
    if name not in all_devices():
        raise fail(DeviceError, "from_dlpack", f"the elements lie on {name}, which Morpho does not see",
                   "`morpho doctor` says why; or move them to the CPU first")
    return name


def borrowed(found: Imported, device: str) -> Buffer:
    """A buffer over what a capsule holds."""
    if found.dtype is None:
        raise fail(DTypeError, "from_dlpack", f"DLPack dtype ({found.described}) has no tensor dtype")
    memory = Borrowed(backend_of(device), found.owner)
    return Buffer(memory, found.address, found.shape, found.strides, found.dtype, False)


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """Device memory as CuPy, Numba and PyTorch take it, version 3: read-only, with the stream to wait for. Tensors
    elsewhere have no such attribute."""
    place = None if self.device == "cpu" else place_of(self.device)
    if place is None or place[0] != CUDA:
        raise AttributeError(f"a tensor on {self.device} has no __cuda_array_interface__")
    if self.dtype is bfloat16:
        raise AttributeError("bfloat16 has no type in __cuda_array_interface__; use DLPack")
    buffer = self.elements()
    steps = tuple(stride * self.dtype.itemsize for stride in buffer.strides)
    return {"shape": buffer.shape, "typestr": self.dtype.numpy.str, "data": (buffer.address, True), "strides": steps,
            "version": 3, "stream": backend_of(self.device).stream_handle()}  # type: ignore[attr-defined]
