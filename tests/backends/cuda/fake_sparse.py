"""cuSPARSE's functions over the emulated device's memory, by NumPy, as in its reference. Arguments have the widths of
its header: a plain int stands for an enum alone, everything else says its type."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.backends.cuda.emulator.addresses import on_host

TYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16, 14: np.uint16}
INDICES: dict[int, Any] = {2: np.int32, 3: np.int64}
NOT_SUPPORTED = 10


def _array(address: ctypes.c_void_p, count: int, kind: Any) -> np.ndarray:
    room = (ctypes.c_uint8 * (count * np.dtype(kind).itemsize)).from_address(on_host(address.value or 0))
    return np.frombuffer(room, kind)


def _wide(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x


class FakeSparse:
    """Things are numbers of a table; one that is destroyed is gone."""

    def __init__(self, supports: bool = True) -> None:
        self.things: dict[int, Any] = {}
        self.made, self.streams, self.supports = 0, 0, supports

    def _make(self, out: Any, thing: Any) -> int:
        self.made += 1
        self.things[self.made] = thing
        out._obj.value = self.made
        return 0

    def cusparseCreate(self, out: Any) -> int:
        out._obj.value = 1 << 20
        return 0

    def cusparseSetStream(self, context: Any, stream: ctypes.c_void_p) -> int:
        assert isinstance(stream, ctypes.c_void_p)
        self.streams += 1
        return 0

    def cusparseCreateCsr(self, out: Any, rows: Any, columns: Any, count: Any, starts: Any, indices: Any, numbers: Any,
                          of_starts: int, of_indices: int, base: int, kind: int) -> int:
        assert all(isinstance(n, ctypes.c_int64) for n in (rows, columns, count)) and base == 0
        return self._make(out, (_array(starts, rows.value + 1, INDICES[of_starts]),
                                _array(indices, count.value, INDICES[of_indices]),
                                _array(numbers, count.value, TYPES[kind]), (rows.value, columns.value)))

    def cusparseCreateDnVec(self, out: Any, size: Any, values: Any, kind: int) -> int:
        assert isinstance(size, ctypes.c_int64)
        return self._make(out, _array(values, size.value, TYPES[kind]))

    def cusparseCreateDnMat(self, out: Any, rows: Any, columns: Any, step: Any, values: Any, kind: int,
                            order: int) -> int:
        assert all(isinstance(n, ctypes.c_int64) for n in (rows, columns, step))
        assert order == 2 and step.value >= columns.value
        flat = _array(values, (rows.value - 1) * step.value + columns.value, TYPES[kind])
        return self._make(out, np.lib.stride_tricks.as_strided(
            flat, (rows.value, columns.value), (step.value * flat.itemsize, flat.itemsize)))

    def _destroy(self, thing: ctypes.c_void_p) -> int:
        del self.things[thing.value or 0]
        return 0

    cusparseDestroySpMat = cusparseDestroyDnVec = cusparseDestroyDnMat = _destroy

    def _size(self, *given: Any) -> int:
        given[-1]._obj.value = 640
        return 0 if self.supports else NOT_SUPPORTED

    cusparseSpMV_bufferSize = cusparseSpMM_bufferSize = _size

    def _product(self, scale: Any, a: Any, b: Any, old: Any, c: Any, compute: int, way: int, room: Any) -> int:
        starts, indices, numbers, shape = self.things[a.value]
        dense, result = self.things[b.value], self.things[c.value]
        assert (scale._obj.value, old._obj.value, way) == (1, 0, 0) and room.value
        assert (compute == 1) == (dense.dtype == np.float64) and dense.shape[0] == shape[1]
        assert ctypes.sizeof(scale._obj) == ctypes.sizeof(old._obj) == (8 if compute == 1 else 4)
        whole = np.zeros(shape)
        np.add.at(whole, (np.repeat(np.arange(shape[0]), np.diff(starts)), indices), _wide(numbers).astype(np.float64))
        value = whole @ _wide(dense).astype(np.float64)
        if result.dtype == np.uint16:
            bits = value.astype(np.float32).view(np.uint32)
            value = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        result[...] = value
        return 0

    def cusparseSpMV(self, context: Any, turned: int, *given: Any) -> int:
        assert turned == 0
        return self._product(*given)

    def cusparseSpMM(self, context: Any, left: int, right: int, *given: Any) -> int:
        assert left == right == 0
        return self._product(*given)
