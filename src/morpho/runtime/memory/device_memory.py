"""Device memory that the host cannot address: its holders, and copies to and from the host."""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends.base import FINISHED, Backend, Event
from morpho.backends.driver.entry.block_code import HolderField
from morpho.backends.driver.layout import slot_offset
from morpho.backends.registry import backend_of
from morpho.base.dtypes import DType
from morpho.base.shapes import contiguous_strides
from morpho.runtime.memory.buffer import Buffer, OffHost
from morpho.runtime.trace.spans import span as traced


class Block:
    """An allocation of a backend, given back when nobody holds it any more."""

    __slots__ = ("backend", "raw")

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend = backend
        self.raw = backend.allocate(nbytes)

    def __del__(self) -> None:
        if hasattr(self, "raw") and not sys.is_finalizing():
            self.backend.release(self.raw)


class DeviceMemory(OffHost):
    """The storage of device tensors: one allocation of a backend, given back when nobody holds it any more.

    `event` is the end of what last wrote it; whoever brings elements to the host waits for that, and gets its error.
    """

    __slots__ = ("__weakref__", "address", "backend", "block", "event", "nbytes", "own")

    def __init__(self, backend: Backend, nbytes: int) -> None:
        self.backend, self.event, self.own = backend, FINISHED, False
        self.block = Block(backend, nbytes or 1)  # or a capsule of native code, see `holder`
        self.address, self.nbytes = self.block.raw.address, nbytes or 1
        self.own = True  # borrowed memory is another library's to give back

    address: int
    backend: Backend
    block: Any
    event: Event
    nbytes: int
    own: bool

    @property
    def raw(self) -> Part:
        """All of it."""
        return Part(self.backend.device, self.nbytes, self.address, self.block)  # which counts as no holder of this

    @property
    def native_mark(self) -> int:
        """That of its device."""
        return getattr(self.backend, "native_mark", 0)

    @property
    def device(self) -> str:
        """The device it lies on."""
        return self.backend.device

    def download(self, buffer: Buffer) -> np.ndarray:
        """The elements of a buffer here as an array of the host's own, bfloat16 as its bits; waits for them."""
        if 0 in buffer.shape:
            return np.empty(buffer.shape, buffer.dtype.numpy)
        low, nbytes = span(buffer)
        room = getattr(self.backend, "host_room", _plain_room)(nbytes)  # not filled: the copy writes all of it
        if not self.event.done():
            with traced("device", f"wait for {self.device}"):
                self.event.wait()
        with traced("transfer", f"from {self.device}") as told:
            told["bytes"] = nbytes
            self.event.wait()
            self.backend.copy_out(Part(buffer.device, nbytes, buffer.address + low, self), room.data).wait()
        steps = [stride * buffer.dtype.itemsize for stride in buffer.strides]
        return np.ndarray(buffer.shape, buffer.dtype.numpy, room, -low, steps)


class Fetch:
    """A small buffer on its way to the host, behind what was queued before. Called, it waits and gives the elements."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.words: Any = None
        self.event: Event = FINISHED
        if isinstance(buffer.storage, DeviceMemory) and 0 not in buffer.shape:
            low, nbytes = span(buffer)
            memory = buffer.storage
            self.words = getattr(memory.backend, "host_words", _plain_words)(-(-nbytes // 4))
            room = self.words.array.view(np.uint8)[:nbytes]
            self.event = memory.backend.copy_out(Part(buffer.device, nbytes, buffer.address + low, memory), room.data)

    def __call__(self) -> np.ndarray:
        buffer = self.buffer
        if self.words is None:
            return buffer.numpy()
        buffer.storage.event.wait()
        self.event.wait()
        low, _ = span(buffer)
        steps = [stride * buffer.dtype.itemsize for stride in buffer.strides]
        return np.array(np.ndarray(buffer.shape, buffer.dtype.numpy, self.words.array, -low, steps))


def fetch(buffer: Buffer) -> Fetch:
    """Begin to bring a small buffer to the host, without waiting for it."""
    return Fetch(buffer)


class _PlainWords:
    def __init__(self, count: int) -> None:
        self.array = np.zeros(count, np.uint32)


def _plain_words(count: int) -> _PlainWords:
    return _PlainWords(count)


def _plain_room(nbytes: int) -> np.ndarray:
    return np.empty(nbytes, np.uint8)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a tensor, as an executable takes them (`backends.base.Buffer`)."""

    device: str
    nbytes: int
    address: int
    owner: Any


def holder(backend: Any, nbytes: int) -> tuple[int, Any] | None:
    """Parts from which the native entry makes a `DeviceMemory` of so many bytes: the stack of free blocks, and a table
    of `HolderField`s with what it names; None where the backend has no such blocks."""
    found = backend.free_blocks(nbytes) if hasattr(backend, "free_blocks") else None
    if found is None:
        return None
    blocks, name, destructor = found
    new, put = (ctypes.cast(getattr(ctypes.pythonapi, f"PyCapsule_{part}"), ctypes.c_void_p).value or 0
                for part in ("New", "SetContext"))
    size, at = int(nbytes), {name: slot_offset(DeviceMemory, name) for name in DeviceMemory.__slots__[1:]}
    words = (ctypes.c_int64 * int(HolderField.SIZE))()
    for field, value in {
            HolderField.TYPE: id(DeviceMemory), HolderField.BACKEND: id(backend), HolderField.EVENT: id(FINISHED),
            HolderField.NBYTES: id(size), HolderField.BACKEND_AT: at["backend"], HolderField.EVENT_AT: at["event"],
            HolderField.NBYTES_AT: at["nbytes"], HolderField.OWN_AT: at["own"], HolderField.ADDRESS_AT: at["address"],
            HolderField.BLOCK_AT: at["block"], HolderField.NEW_CAPSULE: new, HolderField.NAME: name,
            HolderField.DESTRUCTOR: destructor, HolderField.SET_CONTEXT: put}.items():
        words[field] = value
    return blocks, (words, size, backend)


def span(buffer: Buffer) -> tuple[int, int]:
    """The first byte of a buffer's elements relative to its address, and how many bytes there are from it on."""
    if 0 in buffer.shape:
        return 0, 0
    steps = [(size - 1) * stride * buffer.dtype.itemsize
             for size, stride in zip(buffer.shape, buffer.strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    return low, sum(step for step in steps if step > 0) - low + buffer.dtype.itemsize


def part(buffer: Buffer) -> Part:
    """A tensor's elements for an executable: from the address of its first element on."""
    _, nbytes = span(buffer)
    return Part(buffer.device, nbytes, buffer.address, buffer.storage)


def allocate_on(device: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
    """A new contiguous buffer on a device, contents undefined."""
    count = math.prod(shape)
    memory = DeviceMemory(backend_of(device), count * dtype.itemsize)
    return Buffer(memory, memory.raw.address, shape, contiguous_strides(shape), dtype, True)  # type: ignore[arg-type]


def upload(array: np.ndarray, dtype: DType, device: str, ahead: bool = False) -> Buffer:
    """A copy of an array on a device; `ahead`: beside what runs there now, where the device can do that."""
    made = allocate_on(device, tuple(array.shape), dtype)
    if array.size:
        memory: DeviceMemory = made.storage
        with traced("transfer", f"to {device}") as told:
            told["bytes"] = array.nbytes
            copy = getattr(memory.backend, "copy_ahead", memory.backend.copy_in) if ahead else memory.backend.copy_in
            memory.event = copy(memory.raw, np.ascontiguousarray(array).data.cast("B"))
    return made


def moved(buffer: Buffer, device: str) -> Buffer:
    """The elements of a buffer on another device, through the host."""
    return upload(buffer.numpy(), buffer.dtype, device)
