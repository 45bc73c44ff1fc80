"""Tensors of a file: typed lists, raw bytes, or another file beside the model; sizes are checked before allocating."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from morpho.onnx.proto.dtypes import BFLOAT16, STRING, ElementType, element_type
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.wire import Message, numbers

MOST_ELEMENTS = 1 << 31  # of one tensor
EXTERNAL = 1
Array = np.ndarray[Any, Any]
# Which typed list holds which types; the rest are in int32_data.
LISTS = {"float": "float_data", "complex64": "float_data", "double": "double_data", "complex128": "double_data",
         "int64": "int64_data", "uint32": "uint64_data", "uint64": "uint64_data"}

DATA = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


class Folder:
    """Where a model's external data may lie: the folder of the model, and nothing outside it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.is_used = False  # whether anything was read from it

    def read(self, entries: dict[str, str], size_bytes: int) -> memoryview:
        """The bytes of external data, mapped; a path that leaves the folder, by `..` or a link, is refused."""
        known = {"location", "offset", "length", "checksum"}
        if unknown := sorted(set(entries) - known):
            raise refuse(f"external data has the key {unknown[0]!r}, which is not known")
        location = entries.get("location", "")
        if self.path is None:
            raise refuse(f"the model has external data in {location!r}, and came without a folder",
                         "load it from its file")
        path, self.is_used = self._contained(location), True
        offset, length = (_natural(entries.get(key, default), key) for key, default in
                          (("offset", "0"), ("length", str(size_bytes))))
        if length != size_bytes:
            raise refuse(f"external data in {location!r} is {length} bytes long, and the tensor needs {size_bytes}")
        there = path.stat().st_size
        if offset + length > there:
            raise refuse(f"external data of bytes {offset} to {offset + length} is not in {location!r}, which has "
                         f"{there}")
        if not length:
            return memoryview(b"")
        return memoryview(np.memmap(path, np.uint8, "r", offset, (length,)))  # type: ignore[arg-type]

    def _contained(self, location: str) -> Path:
        assert self.path is not None
        if not location or "\0" in location or os.path.isabs(location) or "\\" in location:
            raise refuse(f"external data in {location!r} is not a path inside the model's folder")
        root = self.path.resolve()
        path = (root / location).resolve()
        if not path.is_relative_to(root) or path == root:
            raise refuse(f"external data in {location!r} is outside the model's folder")
        if not path.is_file():
            raise refuse(f"external data in {location!r} is not a file in the model's folder")
        return path


def _natural(text: str, key: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise refuse(f"{key} of external data is {text[:40]!r}, which is not a number")
    return int(text)


def dims_of(found: Message, what: str) -> tuple[int, ...]:
    """The sizes of a tensor, whose product is bounded."""
    dims = tuple(int(size) for size in numbers(found, "dims"))
    if any(size < 0 for size in dims):
        raise refuse(f"{what} has the shape {dims}, with a negative size")
    if len(dims) > 64 or math.prod(size or 1 for size in dims) > MOST_ELEMENTS:  # also beside a size of 0
        raise refuse(f"{what} has the shape {dims[:8]}, which is more than {MOST_ELEMENTS} elements or 64 axes")
    return dims


def array_of(found: Message, folder: Folder) -> tuple[Array, ElementType]:
    """(array, type) of a tensor message. Types that NumPy has not come as unsigned codes: bfloat16 as uint16, narrower
    ones one in a byte; texts as an array of objects."""
    what = f"tensor {found.get('name', '')!r}"
    dims, kind = dims_of(found, what), element_type(found.get("data_type", 0))
    count = math.prod(dims)
    if kind is STRING:
        return _texts(found, what, dims), kind
    if len(given := [name for name in DATA if len(found.get(name, ()))]) > 1:
        raise refuse(f"{what} has its numbers twice: in {' and in '.join(given)}")
    size_bytes = (count * kind.bits + 7) // 8
    if found.get("data_location", 0) == EXTERNAL:
        entries = {entry.get("key", ""): entry.get("value", "") for entry in found.get("external_data", [])}
        return _from_bytes(folder.read(entries, size_bytes), kind, count).reshape(dims), kind
    if "raw_data" in found:
        data = found["raw_data"]
        if len(data) != size_bytes:
            raise refuse(f"{what} of shape {dims} and type {kind.name} needs {size_bytes} bytes, and has {len(data)}")
        return _from_bytes(data, kind, count).reshape(dims), kind
    return _from_list(found, kind, count, what).reshape(dims), kind


def _texts(found: Message, what: str, dims: tuple[int, ...]) -> Array:
    texts = found.get("string_data", [])
    if len(texts) != math.prod(dims):
        raise refuse(f"{what} of shape {dims} has {len(texts)} texts")
    array = np.empty(len(texts), object)
    array[:] = [str(text, "utf-8", "replace") for text in texts]
    return array.reshape(dims)


def _storage(kind: ElementType) -> np.dtype[Any]:
    if kind is BFLOAT16:
        return np.dtype("<u2")
    return np.dtype(np.uint8) if kind.dtype is None else kind.dtype.numpy


def _from_bytes(data: memoryview, kind: ElementType, count: int) -> Array:
    if kind.bits >= 8:
        return np.frombuffer(data, _storage(kind), count)
    return unpacked(np.frombuffer(data, np.uint8), kind.bits, count)


def unpacked(octets: Array, bits: int, count: int) -> Array:
    """Codes of 4 or 2 bits, the first in the lowest bits, one in a byte each."""
    places = np.arange(0, 8, bits, dtype=np.uint8)
    return (octets[:, None] >> places & ((1 << bits) - 1)).astype(np.uint8).reshape(-1)[:count]


def _from_list(found: Message, kind: ElementType, count: int, what: str) -> Array:
    data = numbers(found, LISTS.get(kind.name, "int32_data"))
    parts = 2 if kind.name.startswith("complex") else 1
    if 0 < kind.bits < 8:  # four or two bits: packed in the bytes of int32s
        per_byte = 8 // kind.bits
        if len(data) == (count + per_byte - 1) // per_byte:
            return unpacked(data.astype(np.int64).astype(np.uint8), kind.bits, count)
    if len(data) != count * parts:
        raise refuse(f"{what} of type {kind.name} has {len(data)} numbers, and its shape {count * parts}")
    if kind.name.startswith("complex"):
        return np.ascontiguousarray(data).view(_storage(kind))
    if kind.name == "float16":
        return data.astype(np.uint16).view(np.float16)
    if kind.name == "uint64":
        return data.astype(np.int64).view(np.uint64)
    return data.astype(_storage(kind))
