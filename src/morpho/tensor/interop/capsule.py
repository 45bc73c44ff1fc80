"""DLPack's C structures and the capsules they travel in, by ctypes.

An exported struct stays alive in `_exports` until its consumer calls the deleter, or drops a capsule that it did not
take; both are native functions (`release`), since they are called while a consumer's exception may be on its way. An
imported struct is released when the last tensor over its memory goes.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from morpho.base.dtypes import ALL, DType, bfloat16
from morpho.base.errors import ValueFault, fail
from morpho.base.shapes import contiguous_strides
from morpho.tensor.interop.release import native

VERSION = (1, 1)
CPU = 1
READ_ONLY, IS_COPIED = 1, 2
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED_PLAIN, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))
_exports: dict[int, tuple[Any, ...]] = {}


def _released(address: int, exports: dict[int, Any] = _exports) -> None:
    exports.pop(address, None)


def live_exports() -> int:
    """How many exported tensors have not been given back."""
    return len(_exports)


def make_capsule(owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, flags: int,
                 versioned: bool, device: tuple[int, int] = (CPU, 0)) -> Any:
    """A capsule over memory that `owner` keeps alive; strides in elements."""
    rank = len(shape)
    sizes, steps = (ctypes.c_int64 * max(rank, 1))(*shape), (ctypes.c_int64 * max(rank, 1))(*strides)
    managed: Any = _ManagedVersioned() if versioned else _Managed()
    inner = managed.tensor
    inner.data, inner.ndim, inner.byte_offset = address, rank, 0
    inner.device = _Device(*device)
    inner.dtype = _DataType(4 if dtype is bfloat16 else _CODES[dtype.kind], dtype.itemsize * 8, 1)
    inner.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    inner.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    deleter, destructor = native(_released)
    managed.deleter = deleter
    if versioned:
        managed.major, managed.minor, managed.flags = *VERSION, flags
    place = ctypes.addressof(managed)
    _exports[place] = (managed, sizes, steps, owner)
    return _new(place, _VERSIONED if versioned else _PLAIN, destructor)


class Foreign:
    """Memory of another library; given back when the last tensor over it goes."""

    __slots__ = ("_deleter", "_place")

    def __init__(self, place: int, deleter: int | None) -> None:
        self._place, self._deleter = place, deleter

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._place)


class Imported(NamedTuple):
    """Contents of a capsule; strides in elements."""

    owner: Foreign
    device: tuple[int, int]
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | None
    described: str
    read_only: bool


def open_capsule(capsule: Any) -> Imported:
    """Take over a capsule's memory; the capsule is marked as used."""
    versioned = bool(_is_valid(capsule, _VERSIONED))
    if not versioned and not _is_valid(capsule, _PLAIN):
        used = _is_valid(capsule, _USED_PLAIN) or _is_valid(capsule, _USED_VERSIONED)
        raise fail(ValueFault, "from_dlpack", "the capsule was used already" if used else
                   f"__dlpack__ gave {type(capsule).__name__}, not a DLPack capsule",
                   "a capsule is taken once: have __dlpack__ make a new one for every call")
    place = _pointer(capsule, _VERSIONED if versioned else _PLAIN)
    managed: Any = (_ManagedVersioned if versioned else _Managed).from_address(place)
    if versioned and managed.major != VERSION[0]:
        raise BufferError(f"DLPack version {managed.major}.{managed.minor} is not understood")
    _rename(capsule, _USED_VERSIONED if versioned else _USED_PLAIN)
    inner = managed.tensor
    shape = tuple(inner.shape[i] for i in range(inner.ndim))
    strides = tuple(inner.strides[i] for i in range(inner.ndim)) if inner.strides else contiguous_strides(shape)
    kind = inner.dtype
    described = f"code {kind.code}, {kind.bits} bits, {kind.lanes} lanes"
    return Imported(Foreign(place, managed.deleter), (inner.device.type, inner.device.number),
                    (inner.data or 0) + inner.byte_offset, shape, strides,  # type: ignore[arg-type]
                    _dtype(kind.code, kind.bits, kind.lanes), described,
                    not versioned or bool(managed.flags & READ_ONLY))


def _dtype(code: int, bits: int, lanes: int) -> DType | None:
    if lanes != 1:
        return None
    if code == 4:
        return bfloat16 if bits == 16 else None
    for dtype in ALL:
        if dtype is not bfloat16 and _CODES[dtype.kind] == code and dtype.itemsize * 8 == bits:
            return dtype
    return None
