"""Columns in Arrow's memory, through Arrow's C data interface: pyarrow, polars, Hugging Face datasets, DuckDB, ...

No library is imported: an object gives capsules (`__arrow_c_array__`, `__arrow_c_stream__`), whose structs are read
here, checked, and kept until the last view of their memory goes. Numbers without nulls are looked at where they lie;
booleans, which are bits there, and columns in several pieces are copied. What has no number (nulls, strings, dates) is
refused by a sentence.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, DTypeError, MorphoError, ShapeError, ValueFault, fail

FORMATS = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8", "e": "f2",
           "f": "f4", "g": "f8"}
STRINGS = ("u", "U", "vu", "z", "Z", "vz")
OTHERS = {"n": "nothing but nulls", "t": "dates or times", "d": "decimals", "+m": "maps", "+u": "unions",
          "+r": "run-end encoded values"}
MOST_ELEMENTS = 1 << 48
EXTENSION, SHAPES = b"ARROW:extension:name", b"ARROW:extension:metadata"
TENSOR = b"arrow.fixed_shape_tensor"


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_Schema._fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p),
                    ("flags", ctypes.c_int64), ("n_children", ctypes.c_int64),
                    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))), ("dictionary", ctypes.POINTER(_Schema)),
                    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))), ("private", ctypes.c_void_p)]
_Array._fields_ = [("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
                   ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64),
                   ("buffers", ctypes.POINTER(ctypes.c_void_p)), ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
                   ("dictionary", ctypes.POINTER(_Array)),
                   ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))), ("private", ctypes.c_void_p)]
_Stream._fields_ = [("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
                    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
                    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
                    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))), ("private", ctypes.c_void_p)]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Held:
    """A struct that was moved out of its capsule, and is released with this object."""

    def __init__(self, kind: Any, capsule: Any = None, name: bytes = b"") -> None:
        self.struct = kind()
        if capsule is not None:
            place = kind.from_address(_pointer(capsule, name))
            ctypes.memmove(ctypes.byref(self.struct), ctypes.byref(place), ctypes.sizeof(kind))
            place.release = type(place.release)()  # the capsule has nothing to release any more

    def __del__(self) -> None:
        if self.struct.release:
            self.struct.release(ctypes.byref(self.struct))


class Memory:
    """Some bytes of an array's, as NumPy asks for them; holds what they belong to."""

    def __init__(self, owner: Any, address: int, count: int, kind: str) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (count,), "typestr": f"={kind}" if kind[1] != "1" else
                                    f"|{kind}", "data": (address, True)}


def speaks_arrow(obj: Any) -> bool:
    """Whether an object gives its elements through Arrow's C data interface."""
    return hasattr(obj, "__arrow_c_array__") or hasattr(obj, "__arrow_c_stream__")


def column(obj: Any, copy: bool | None = None) -> np.ndarray:
    """The elements of a column: a view of its memory where that can be, else an array of its own; a table of numbers
    gives a matrix. With `copy=False` what needs a copy is an error."""
    schema, chunks = _opened(obj)
    parts = [_decoded(schema.struct, chunk.struct, chunk, "") for chunk in chunks]
    views = [array for array, _ in parts]
    moved = any(is_copy for _, is_copy in parts)
    if copy is False and (moved or len(views) > 1):
        why = f"it lies in {len(views)} pieces" if len(views) > 1 else "its elements lie otherwise than a tensor's"
        raise fail(ValueFault, "asarray", f"a {type(obj).__name__} does not become a tensor without a copy: {why}",
                   "leave out copy=False, or combine its chunks first")
    if len(views) == 1:
        return views[0]
    if not views:
        return np.empty(0, FORMATS.get(_format(schema.struct), "f8"))
    return np.concatenate(views)


def _opened(obj: Any) -> tuple[Held, list[Held]]:
    """The schema and the pieces of a column."""
    if not hasattr(obj, "__arrow_c_stream__"):
        schema, array = obj.__arrow_c_array__()
        return Held(_Schema, schema, b"arrow_schema"), [Held(_Array, array, b"arrow_array")]
    stream = Held(_Stream, obj.__arrow_c_stream__(), b"arrow_array_stream")
    held = Held(_Schema)
    _call(stream, stream.struct.get_schema, held)
    return held, list(_pieces(stream))


def _pieces(stream: Held) -> Iterator[Held]:
    while True:
        chunk = Held(_Array)
        _call(stream, stream.struct.get_next, chunk)
        if not chunk.struct.release:
            return
        if chunk.struct.length:
            yield chunk


def _call(stream: Held, function: Any, out: Held) -> None:
    if function(ctypes.byref(stream.struct), ctypes.byref(out.struct)):
        said = stream.struct.get_last_error(ctypes.byref(stream.struct)) or b"no reason given"
        raise fail(ArgumentError, "asarray", f"the stream of Arrow data failed: {said.decode(errors='replace')[:200]}")


def _format(schema: Any) -> str:
    return (schema.format or b"").decode()


def _decoded(schema: Any, array: Any, owner: Any, name: str) -> tuple[np.ndarray, bool]:
    """Elements of an array or a table, and whether they were copied."""
    kind = _format(schema)
    where = f"column {name!r}" if name else "the column"
    if schema.dictionary:
        raise fail(DTypeError, "asarray", f"{where} is dictionary-encoded (categories), which are no numbers",
                   "give its codes, or decode it first")
    if kind == "+s":
        return _table(schema, array, owner), True
    _refuse_nulls(array, where)
    if kind in FORMATS:
        return _numbers(array, owner, FORMATS[kind]), False
    if kind == "b":
        bits = _view(array.buffers[1], -(-(array.offset + array.length) // 8), "u1", owner)
        return np.unpackbits(bits, bitorder="little")[array.offset:array.offset + array.length].astype(bool), True
    if kind.startswith("+w:"):
        return _fixed_lists(schema, array, owner, int(kind[3:]), where)
    if kind in ("+l", "+L"):
        return _lists(schema, array, owner, "i4" if kind == "+l" else "i8", where)
    raise _refusal(kind, where)


def _refusal(kind: str, where: str) -> MorphoError:
    if kind in STRINGS:
        return fail(DTypeError, "asarray", f"{where} holds strings or bytes, which are no numbers",
                    "encode them first: a tokenizer, categories, or .cast")
    told = next((text for start, text in OTHERS.items() if kind.startswith(start)), f"values of Arrow's type {kind!r}")
    return fail(DTypeError, "asarray", f"{where} holds {told}, which no tensor can hold", "cast it to a number first")


def _refuse_nulls(array: Any, where: str) -> None:
    """Nulls have no number. Counted here where the array does not say how many there are."""
    count = array.null_count
    if count and array.n_buffers and array.buffers[0]:
        bits = _view(array.buffers[0], -(-(array.offset + array.length) // 8), "u1", None)
        known = np.unpackbits(bits, bitorder="little")[array.offset:array.offset + array.length]
        count = int(array.length - known.sum())
    elif count < 0:
        count = 0  # no bitmap: all are there
    if count:
        raise fail(ValueFault, "asarray", f"{where} has {count} nulls of {array.length}, which are no numbers",
                   "fill or drop them first: .fill_null(0), .drop_nulls()")


def _view(address: int | None, count: int, kind: str, owner: Any) -> np.ndarray:
    if not 0 <= count <= MOST_ELEMENTS:
        raise fail(ValueFault, "asarray", f"a column of {count} elements is no column")
    if not count or not address:
        return np.empty(0, kind)
    return np.asarray(Memory(owner, address, count, kind))


def _numbers(array: Any, owner: Any, kind: str) -> np.ndarray:
    return _view(array.buffers[1], array.offset + array.length, kind, owner)[array.offset:]


def _fixed_lists(schema: Any, array: Any, owner: Any, width: int, where: str) -> tuple[np.ndarray, bool]:
    """Lists of one length: rows of a matrix, or tensors of one shape."""
    values, is_copy = _decoded(schema.children[0].contents, array.children[0].contents, owner, "")
    rows = values[array.offset * width:(array.offset + array.length) * width]
    shape = _tensor_shape(schema, where) or (width,)
    return rows.reshape((array.length, *shape, *values.shape[1:])), is_copy


def _tensor_shape(schema: Any, where: str) -> tuple[int, ...] | None:
    """The shape of each element of a column of tensors, from its metadata."""
    found = dict(_metadata(schema.metadata)) if schema.metadata else {}
    if found.get(EXTENSION) != TENSOR:
        return None
    told = json.loads(found.get(SHAPES, b"{}"))
    order = told.get("permutation")
    if order and list(order) != sorted(order):
        raise fail(ValueFault, "asarray", f"{where} holds tensors with permuted axes", "store them in order")
    return tuple(int(size) for size in told["shape"])


def _metadata(address: int) -> Iterator[tuple[bytes, bytes]]:
    at = address

    def number() -> int:
        nonlocal at
        (value,) = struct.unpack("=i", ctypes.string_at(at, 4))
        at += 4
        return int(value)

    for _ in range(number()):
        pair = []
        for _ in range(2):
            length = number()
            pair.append(ctypes.string_at(at, length))
            at += length
        yield pair[0], pair[1]


def _lists(schema: Any, array: Any, owner: Any, kind: str, where: str) -> tuple[np.ndarray, bool]:
    """Lists whose lengths the offsets say: rows of a matrix where all have one length."""
    ends = _view(array.buffers[1], array.offset + array.length + 1, kind, owner)[array.offset:]
    lengths = np.unique(np.diff(ends))
    if lengths.size > 1:
        raise fail(ShapeError, "asarray", f"{where} holds lists of different lengths, {lengths.min()} to "
                                          f"{lengths.max()}", "pad them first")
    width = int(lengths[0]) if lengths.size else 0
    values, is_copy = _decoded(schema.children[0].contents, array.children[0].contents, owner, "")
    first = int(ends[0]) if ends.size else 0
    return values[first:first + array.length * width].reshape((array.length, width, *values.shape[1:])), is_copy


def _table(schema: Any, array: Any, owner: Any) -> np.ndarray:
    """The columns of a table side by side, in the dtype they promote to."""
    _refuse_nulls(array, "the table")
    columns = []
    for number in range(schema.n_children):
        child = schema.children[number].contents
        name = (child.name or b"").decode(errors="replace")
        values, _ = _decoded(child, array.children[number].contents, owner, name)
        if values.ndim != 1:
            raise fail(ShapeError, "asarray", f"column {name!r} of the table holds lists", "give that column alone")
        columns.append(values[array.offset:array.offset + array.length])
    if not columns:
        raise fail(ShapeError, "asarray", "the table has no columns")
    return np.stack(columns, axis=1)
