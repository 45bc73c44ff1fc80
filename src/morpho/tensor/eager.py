"""Values in memory: whether a thread asks for nothing but values; numbers, rows and items without a program."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

from morpho.backends.driver.layout import pack_record
from morpho.base import settings
from morpho.base.dtypes import DType, bool_, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from morpho.tensor.autodiff.grad_mode import changed as modes_changed
from morpho.tensor.autodiff.grad_mode import modes_on, tracing

EAGER = "<eager>"  # the name of programs of lazy evaluation, which no function of a user has
MARK = 16  # the byte of a record with the dtype and, above 31, the mark of another device's memory
SMALL: dict[DType, Any] = {float32: ctypes.c_float, float64: ctypes.c_double, int64: ctypes.c_int64,
                           int32: ctypes.c_int32}  # numbers in memory of their own, by dtype
SMALL_CODES = {dtype: (kind, dtype.code) for dtype, kind in SMALL.items()}
_address, _new, _pack = ctypes.addressof, object.__new__, struct.Struct("<QQQ").pack
READ: dict[DType, Any] = {
    float32: ctypes.c_float, float64: ctypes.c_double, int64: ctypes.c_int64, int32: ctypes.c_int32,
    int16: ctypes.c_int16, int8: ctypes.c_int8, uint64: ctypes.c_uint64, uint32: ctypes.c_uint32,
    uint16: ctypes.c_uint16, uint8: ctypes.c_uint8, bool_: ctypes.c_bool}

# 1 while no thread has settings of a block, a trace or a transformation; native code reads it too. 0 means: ask.
quiet = ctypes.c_int64(0)
_chosen = settings.current.get
_deciding = threading.Lock()


def _decide() -> None:
    """Find out whether everything is quiet; told of every change, after it was counted."""
    with _deciding:
        quiet.value = int(not modes_on() and not settings.blocks() and settings.is_usual())


def is_quiet() -> bool:
    """Whether nothing but values is asked for: no settings of a block, no trace, no transformation."""
    if _chosen() is not None:
        return False
    if quiet.value:
        return True
    if tracing.current is not None or tracing.transformed or tracing.batched or tracing.gradients_off \
            or not settings.is_usual():
        return False
    if not modes_on() and not settings.blocks():
        _decide()
    return True


def _hush() -> None:
    """A mode or a block begins or ends. Whether all is quiet again is for the next who asks to find out."""
    with _deciding:
        quiet.value = 0


def _after_fork() -> None:
    global _deciding
    _deciding = threading.Lock()
    quiet.value = 0


settings.changed.append(_hush)
modes_changed.append(_hush)
os.register_at_fork(after_in_child=_after_fork)


Snapshot = tuple[Any, tuple[int, Any, Any, DType, bool], bytes]  # memory, layout, record


def snapshot(x: Any) -> Snapshot | None:
    """The elements of a tensor that is realised in the CPU's memory and has no gradient to collect: one value of it,
    whatever other threads do; None for any other, and where another thread was just at it."""
    layout = x._layout
    if layout is None or getattr(x, "_track", None) is not None:
        return None
    storage, record = x._storage, x._record
    return None if record is None or record[MARK] > 31 or x._layout is not layout else (storage, layout, record)


# -- values ------------------------------------------------------------------------------------------------------------
def number_tensor(kind: type, value: Any, dtype: DType) -> Any:
    """A number in memory."""
    store, code = SMALL_CODES[dtype]
    memory = store(value)
    address = _address(memory)
    made: Any = _new(kind)
    made._node = None  # and no `_track`, as tensors that native code makes
    made._storage = memory
    made._layout = (address, (), (), dtype, True)
    made._record = _pack(address, 1, code)  # as `pack_record` has it for no axes
    return made


def scalar_tensor(kind: type, value: Any, dtype: DType) -> Any:
    """Tensor of a NumPy number in memory, whatever its dtype."""
    memory = (ctypes.c_ubyte * dtype.itemsize).from_buffer_copy(value.tobytes())
    address = _address(memory)
    made: Any = _new(kind)
    made._node = None
    made._storage, made._layout = memory, (address, (), (), dtype, True)
    made._record = _pack(address, 1, dtype.code)
    return made


native_row: list[Callable[..., Any]] = []  # `Tensor.__getitem__` once native code serves it
load_driver: list[Callable[[], object]] = []  # told by the floor above: loads native code, `native_row` with it
MANY = 10_000  # elements taken one by one take longer than that
_taken = itertools.count(1)


def row(x: Any, number: int) -> Any:
    """x[number] of a realised tensor: a view that needs no program; None where the usual way is to be gone."""
    own = snapshot(x) if is_quiet() else None
    if own is None:
        return None
    if next(_taken) == MANY:
        for load in load_driver:
            load()
    address, shape, strides, dtype, writable = own[1]
    if not shape or not -shape[0] <= number < shape[0]:
        return None
    start = address + (number % shape[0]) * strides[0] * dtype.itemsize
    return view_of(type(x), own[0], start, shape[1:], strides[1:], dtype, writable)


def rows(x: Any) -> list[Any] | None:
    """All rows of a realised tensor as views."""
    own = snapshot(x) if is_quiet() else None
    if own is None or not own[1][1]:
        return None
    address, shape, strides, dtype, writable = own[1]
    kind, storage = type(x), own[0]
    if native_row:
        fixed, take = view_of(kind, storage, address, shape, strides, dtype, writable), native_row[0]
        fixed._base = False  # `parts.UNKNOWN`: no variable of anybody's
        return [take(fixed, number) for number in range(shape[0])]
    step, inner, inner_strides = strides[0] * dtype.itemsize, shape[1:], strides[1:]
    return [view_of(kind, storage, address + number * step, inner, inner_strides, dtype, writable)
            for number in range(shape[0])]


def view_of(kind: type, storage: Any, address: int, shape: Any, strides: Any, dtype: DType, writable: bool) -> Any:
    made: Any = object.__new__(kind)
    made._node = made._track = None
    made._storage, made._layout = storage, (address, shape, strides, dtype, writable)
    made._record = pack_record(address, int(writable), dtype, shape, strides)
    return made


def item(x: Any) -> Any:
    """The only element of a realised tensor as a Python number, or None where the usual way is to be gone."""
    storage, layout, record = x._storage, x._layout, x._record
    if layout is None or record is None or record[MARK] > 31 or x._storage is not storage:
        return None
    if not quiet.value and tracing.transformed:
        return None
    if layout[1]:
        for size in layout[1]:
            if size != 1:
                return None
    read = _READ_BY_DTYPE.get(layout[3])
    return None if read is None else read(layout[0]).value  # `storage` is held meanwhile


_READ_BY_DTYPE = {dtype: kind.from_address for dtype, kind in READ.items()}
