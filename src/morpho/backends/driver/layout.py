"""The few memory layouts that native code and Python share, and the check that this Python has the ones we rely on.

Compiled code reads a tensor through its *record*: an immutable `bytes` object in a slot of the tensor, holding

    word 0  address of element 0
    word 1  flags: 1 = this memory may be written
    word 2  dtype code + 32 * mark of the device (0: the host's memory) + 256 * number of dimensions
    then    the shape, then the strides in elements

A guard compares words 2.. with what the function was compiled for. Where the slots lie inside an object is measured
once, by looking for known pointers, not assumed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from morpho.base.dtypes import DType

WRITABLE = 1
BYTES_DATA = bytes.__basicsize__ - 1  # where the contents of a bytes object begin
TUPLE_ITEMS = tuple.__basicsize__  # where the items of a tuple begin
WORD = 8
ARRAY_DATA = object.__basicsize__  # where a NumPy array says where its elements lie
TUPLE_SIZE = 2 * WORD  # where a tuple says how many they are: behind its count of references and its type


def pack_record(address: int, flags: int, dtype: DType, shape: Sequence[int], strides: Sequence[int],
                mark: int = 0) -> bytes:
    """The record of a realised tensor; `mark` is that of the device whose memory it lies in."""
    rank = len(shape)
    return struct.pack(f"<QQQ{2 * rank}q", address, flags, dtype.code | mark << 5 | rank << 8, *shape, *strides)


def repacked(record: bytes, flags: int) -> bytes:
    """The same record as another object, with other flags."""
    return record[:WORD] + struct.pack("<Q", flags) + record[2 * WORD:]


def record_words(dtype: DType, shape: Sequence[int], strides: Sequence[int], mark: int = 0) -> tuple[int, ...]:
    """Words that a guard expects from word 2 on."""
    return (dtype.code | mark << 5 | len(shape) << 8, *shape, *strides)


@cache
def _knows_arrays() -> bool:
    """Whether NumPy's arrays begin as its C interface says: what all objects have, then the address of the data."""
    arrays = np.zeros(3, np.int8), np.zeros((2, 2), np.complex128)[1:]
    return np.ndarray.__basicsize__ >= ARRAY_DATA + WORD and all(
        ctypes.c_size_t.from_address(id(array) + ARRAY_DATA).value == array.ctypes.data for array in arrays)


def array_address(array: np.ndarray) -> int:
    """Where the elements of a NumPy array lie; `array.ctypes.data` makes three objects to say it."""
    if not _knows_arrays():
        return int(array.ctypes.data)
    return int(ctypes.c_size_t.from_address(id(array) + ARRAY_DATA).value)


@cache
def slot_offset(kind: type, name: str) -> int:
    """Where a `__slots__` member lies inside its object, found by storing a marker and searching for its address."""
    marker = object()
    holder: Any = object.__new__(kind)
    setattr(holder, name, marker)
    words = (ctypes.c_size_t * (kind.__basicsize__ // WORD)).from_address(id(holder))
    found = [i for i, word in enumerate(words) if word == id(marker)]
    object.__setattr__(holder, name, None)
    if len(found) != 1:
        raise RuntimeError(f"the slot {name} of {kind.__name__} was not found")
    return found[0] * WORD


# -- objects callable by vectorcall ----------------------------------------------------------------------------------
_VECTORCALL_OFFSET, _TYPE_FLAGS, _BASIC_SIZE = 56, 168, 32  # inside PyTypeObject since Python 3.8
_HAVE_VECTORCALL = 1 << 11


def _word(kind: type, offset: int) -> int:
    return int(ctypes.c_size_t.from_address(id(kind) + offset).value)


@cache
def knows_types() -> bool:
    """Whether this interpreter's type objects look as expected; if not, compiled calls go through Python."""

    def probe() -> None: ...

    function = type(probe)
    return (_word(function, _BASIC_SIZE) == function.__basicsize__ and _word(int, _BASIC_SIZE) == int.__basicsize__
            and _word(function, _TYPE_FLAGS) == function.__flags__ and _word(int, _TYPE_FLAGS) == int.__flags__
            and bool(function.__flags__ & _HAVE_VECTORCALL)
            and 0 < _word(function, _VECTORCALL_OFFSET) < function.__basicsize__
            and bytes.__basicsize__ == 33)


def make_vectorcallable(kind: type, instance: ctypes.Structure) -> bool:
    """Let calls of `kind`'s instances go straight to the native function whose address is their first field."""
    offset = ctypes.addressof(instance) - id(instance)
    if not knows_types() or not 0 < offset < kind.__basicsize__:
        return False
    ctypes.c_ssize_t.from_address(id(kind) + _VECTORCALL_OFFSET).value = offset
    flags = ctypes.c_size_t.from_address(id(kind) + _TYPE_FLAGS)
    flags.value |= _HAVE_VECTORCALL
    return True
