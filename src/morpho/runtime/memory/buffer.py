"""A `Buffer`: realised elements in memory that something else owns, with shape and strides."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.backends.driver import layout
from morpho.base.dtypes import ALL, DType
from morpho.base.shapes import contiguous_strides
from morpho.runtime.memory.pool import pool

NATIVE_ALIGNMENT = 16  # bytes of the widest access of a device's programs


class OffHost:
    """Storage in memory that the host cannot read (`device_memory.py`)."""

    __slots__ = ()

    @property
    def native_mark(self) -> int:
        """The number by which the native entry tells this memory from others; 0 where it launches no programs."""
        return 0

    @property
    def device(self) -> str:
        """The device it lies on."""
        raise NotImplementedError

    def download(self, buffer: Buffer) -> np.ndarray:
        """The elements of a buffer in this storage, copied to the host once what writes them is over."""
        raise NotImplementedError


class Buffer:
    """`storage` keeps the memory alive: a pool block, or the foreign owner of borrowed memory."""

    __slots__ = ("__weakref__", "address", "dtype", "shape", "storage", "strides", "writable")

    def __init__(self, storage: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType,
                 writable: bool) -> None:
        self.storage, self.address, self.shape, self.strides = storage, address, shape, strides
        self.dtype, self.writable = dtype, writable

    @property
    def device(self) -> str:
        """The device in whose memory the elements lie."""
        return self.storage.device if isinstance(self.storage, OffHost) else "cpu"

    def record(self) -> bytes | None:
        """The native record; None for memory of devices whose programs it does not launch, and there for
        addresses that a wide access cannot take."""
        mark = self.storage.native_mark if isinstance(self.storage, OffHost) else 0
        if isinstance(self.storage, OffHost) and (not mark or self.address % NATIVE_ALIGNMENT):
            return None
        return layout.pack_record(self.address, int(self.writable), self.dtype, self.shape, self.strides, mark)

    def numpy(self) -> np.ndarray:
        """A read-only NumPy view that keeps the storage alive; bfloat16 appears as its bits. From another device it is
        a copy, once what computes it is over."""
        if isinstance(self.storage, OffHost):
            array = self.storage.download(self)
            array.flags.writeable = False
            return array
        return view_memory(self.storage, self.address, self.shape, self.strides, self.dtype, True)


class Exporter:
    """Presents memory to NumPy; the array's base is this object, which holds the storage."""

    __slots__ = ("__array_interface__", "storage")

    def __init__(self, storage: Any, interface: dict[str, Any]) -> None:
        self.storage, self.__array_interface__ = storage, interface


_TYPES = {dtype: dtype.numpy.str for dtype in ALL}  # as NumPy's array interface names them


def view_memory(storage: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...],
                dtype: DType, read_only: bool = False) -> np.ndarray:
    """Memory as a NumPy array."""
    if 0 in shape:
        array = np.empty(shape, dtype.numpy)
        array.flags.writeable = not read_only
        return array
    item = dtype.itemsize
    return np.asarray(Exporter(storage, {"version": 3, "data": (address, read_only), "shape": shape,
                                         "typestr": _TYPES[dtype], "strides": tuple([s * item for s in strides])}))


def allocate(shape: tuple[int, ...], dtype: DType) -> Buffer:
    """A new buffer from the pool, contiguous, contents undefined."""
    count = 1
    for size in shape:
        count *= size
    block = pool().acquire(max(count * dtype.itemsize, 1))
    return Buffer(block, block.address, shape, contiguous_strides(shape), dtype, True)  # type: ignore[arg-type]


def borrow(array: np.ndarray, dtype: DType) -> Buffer:
    """A buffer over a NumPy array's memory; the array stays alive and is never written."""
    item, strides = dtype.itemsize, array.strides
    return Buffer(array, layout.array_address(array), array.shape, tuple([s // item for s in strides]), dtype, False)


def copy_bytes(target: int, source: int, count: int) -> None:
    ctypes.memmove(target, source, count)
