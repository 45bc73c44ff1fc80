"""GGUF files out: a header of keys, then tensors one after another, each at a multiple of 32 bytes."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.weights.atomic import atomic_file
from morpho.weights.gguf.header import DEFAULT_ALIGNMENT, MAGIC, NATIVE

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10


@dataclass(frozen=True)
class Written:
    """A tensor to write: the number of its type, its shape (rows first), and a function that gives its bytes."""

    type: int
    shape: tuple[int, ...]
    data: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        _, size, block = NATIVE[self.type]
        return math.prod(self.shape) // size * block


def write_gguf(path: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Mapping[str, Written]) -> None:
    """Write a GGUF file, whole or not at all. Whole numbers become uint32 (int32 below 0, uint64 beyond), numbers
    float32, lists arrays of one of these kinds.

    >>> import tempfile, pathlib, numpy as np
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.gguf"
    >>> write_gguf(path, {"general.architecture": "llama"}, {"w": Written(0, (2,), lambda: np.ones(2, np.float32))})
    >>> mo.weights.load_gguf(path).tensors["w"].numpy()
    array([1., 1.], dtype=float32)
    """
    header = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        kind = _kind(key, value)
        header += [_text(key), struct.pack("<I", kind), _value(key, kind, value)]
    at = 0
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        header += [_text(name), struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.type, at)]
        at += _padded(tensor.nbytes)
    start = b"".join(header)
    with atomic_file(Path(path)) as file:
        file.write(start + bytes(_padded(len(start)) - len(start)))
        for name, tensor in tensors.items():
            raw = np.ascontiguousarray(tensor.data()).view(np.uint8).reshape(-1)
            if raw.size != tensor.nbytes:
                raise fail(ArgumentError, "write_gguf", f"{name} has {raw.size} bytes, not the {tensor.nbytes} of its "
                                                        "type and shape")
            file.write(raw.tobytes() + bytes(_padded(raw.size) - raw.size))


def _padded(size: int) -> int:
    return -(-size // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _kind(key: str, value: Any) -> int:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT32 if value < 0 else UINT32 if value < 1 << 32 else UINT64
    if isinstance(value, float):
        return FLOAT32
    if isinstance(value, str):
        return STRING
    if isinstance(value, list | tuple) and value:
        return ARRAY
    raise fail(ArgumentError, "write_gguf", f"{key} is {value!r}, which a header cannot have")


def _value(key: str, kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _text(value)
    if kind != ARRAY:
        return struct.pack("<" + {UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?", UINT64: "Q"}[kind], value)
    inner = INT32 if all(type(each) is int for each in value) else _kind(key, value[0])
    return struct.pack("<IQ", inner, len(value)) + b"".join(_value(key, inner, each) for each in value)
