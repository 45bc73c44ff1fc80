"""Cache of a model's file between processes, so that a later one need not parse and trace it again.

Two kinds of entries in the folder of compiled code, both by the digest of the file's bytes and of the source that
traces it: one says what the inputs and outputs are, the others are traces (`tensor/jit/kept_traces.py`), one for each
combination of shapes. Weights stay in the file: a trace says where in it they lie. Models with external data are not
kept, since the digest is not of those.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.backends.code.compiler import code
from morpho.base.dtypes import BY_NAME
from morpho.base.shapes import contiguous_strides
from morpho.base.target import current_isa
from morpho.onnx.proto.model import Model, TypeInfo, Value, parse_file
from morpho.onnx.run.walk import Constants
from morpho.runtime.code_cache.disk import Damaged
from morpho.runtime.memory.buffer import allocate, copy_bytes
from morpho.tensor.core import Tensor

TRACING = ("tensor", "linalg", "sparse", "nn", "onnx")  # folders whose source decides a trace, besides those of a plan
MOST_FILE_BYTES = 1 << 31  # of a file that is hashed
MOST_INLINE_BYTES = 1 << 20  # of a tensor that is not in the file as it is
MOST_NESTED = 8  # sequences of optionals of ...


@dataclass(frozen=True)
class Header:
    """The ends of a model, and which of its inputs were found to decide shapes."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    static: frozenset[str]


class ModelFile:
    """The bytes of a model, parsed when somebody needs a node of it."""

    def __init__(self, data: bytes | memoryview, name: str, folder: Path | None = None,
                 check: Callable[[Model, str], None] | None = None) -> None:
        """`check` refuses a model that was parsed and cannot be run."""
        self.data, self.name, self.folder = memoryview(data), name, folder
        self._check = check
        self._tensors: dict[tuple[Any, ...], Tensor] = {}
        self._noted: Header | None = None  # on disk
        self.digest = ""
        if code.disk_cache() is not None and len(self.data) <= MOST_FILE_BYTES:
            self.digest = hashlib.blake2b(self.data, digest_size=32).hexdigest()  # twice as fast as SHA-256

    def parse(self) -> Model:
        """The model, checked."""
        model = parse_file(self.data, self.name, self.folder)
        if self._check is not None:
            self._check(model, self.name)
        if model.external:
            self.digest = ""
        return model

    # -- the ends ------------------------------------------------------------------------------------------------------
    def _header_key(self) -> str:
        parts = ("onnx header", self.digest, code.source_digest(TRACING), code.code_key("trace", current_isa()))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def header(self) -> Header | None:
        """Stored header of this file; None if none is valid."""
        disk = code.disk_cache()
        if disk is None or not self.digest:
            return None
        key = self._header_key()
        data = disk.get(key)
        if data is None:
            return None
        try:
            found = json.loads(data)
            self._noted = Header(tuple(Value(_text(name), _loaded_type(kind)) for name, kind in found["inputs"]),
                                 tuple(map(_text, found["outputs"])), frozenset(map(_text, found["static"])))
            return self._noted
        except (Damaged, ValueError, TypeError, LookupError, AttributeError, RecursionError) as reason:
            disk.reject(key, f"it holds no inputs and outputs of a model ({reason})")
            return None

    def keep(self, header: Header) -> None:
        """Note the ends for the next process, if they are not noted."""
        disk = code.disk_cache()
        if disk is not None and self.digest and header != self._noted:
            self._noted = header
            content = {"inputs": [[value.name, _dumped_type(value.type)] for value in header.inputs],
                       "outputs": header.outputs, "static": sorted(header.static)}
            disk.put(self._header_key(), json.dumps(content).encode())

    # -- weights -------------------------------------------------------------------------------------------------------
    def offset_of(self, array: np.ndarray[Any, Any]) -> int | None:
        """Where an array that is part of the file begins in it."""
        start = np.frombuffer(self.data, np.uint8).__array_interface__["data"][0]
        offset = array.__array_interface__["data"][0] - start
        inside = array.flags.c_contiguous and offset >= 0 and offset + array.nbytes <= len(self.data)
        return offset if inside and array.nbytes else None

    def tensor(self, offset: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """The elements at a place of the file, in memory of their own; the same tensor for all who ask."""
        key = (offset, dtype, shape)
        if key not in self._tensors:
            self._tensors[key] = _tensor(self.data, offset, dtype, shape)
        return self._tensors[key]


class ProgramSource:
    """A model with some inputs as constants, as the source of a trace."""

    def __init__(self, file: ModelFile, parts: Any, constants: Constants, kept: Callable[[], None]) -> None:
        """`parts` says which program of the file it is; `kept` is called when there is a trace of it."""
        self.file, self.constants, self.is_kept = file, constants, kept
        self.identity = hashlib.sha256(repr(("onnx", file.digest, file.name, parts,
                                             code.source_digest(TRACING))).encode()).hexdigest()
        self.is_whole = True  # whether a trace says all that the model counts
        self._places: dict[int, tuple[int, int]] = {}

    def name_of(self, tensor: Tensor) -> Any:
        memory = tensor.elements()
        if not self.is_whole or memory.strides != contiguous_strides(memory.shape):
            return None
        found = self._found().get(memory.address)
        if found is not None and found[1] == tensor.nbytes:
            return [found[0], memory.dtype.name, list(memory.shape)]
        if tensor.nbytes > MOST_INLINE_BYTES:
            return None
        return [base64.b64encode(memory.numpy().tobytes()).decode(), memory.dtype.name, list(memory.shape)]

    def _found(self) -> dict[int, tuple[int, int]]:
        """The constants that are parts of the file: address of the copy to place and bytes there."""
        if not self._places:
            self._places = {address: (offset, array.nbytes) for address, array in self._copies()
                            if (offset := self.file.offset_of(array)) is not None}
        return self._places

    def _copies(self) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        for constant, value in self.constants.pairs():
            array = constant.array
            if isinstance(value, Tensor) and value.dtype is constant.kind.dtype and value.nbytes == array.nbytes:
                yield value.elements().address, array

    def tensor_of(self, name: Any) -> Tensor:
        where, dtype, shape = name
        sizes = tuple(shape)
        if type(dtype) is not str or any(type(size) is not int or size < 0 for size in sizes):
            raise Damaged("a tensor that is none")
        if type(where) is int:
            return self.file.tensor(where, dtype, sizes)
        return _tensor(memoryview(base64.b64decode(where, validate=True)), 0, dtype, sizes)


def _tensor(data: memoryview, offset: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
    kind = BY_NAME[dtype]
    nbytes = kind.itemsize * math.prod(shape)
    if offset < 0 or offset + nbytes > len(data):
        raise Damaged("a tensor outside its file")
    buffer = allocate(shape, kind)
    if nbytes:
        copy_bytes(buffer.address, np.frombuffer(data, np.uint8).__array_interface__["data"][0] + offset, nbytes)
    return Tensor.of_buffer(buffer)


def _dumped_type(kind: TypeInfo | None) -> Any:
    if kind is None:
        return None
    return [kind.form, kind.element, None if kind.shape is None else list(kind.shape), _dumped_type(kind.inner)]


def _loaded_type(row: Any, depth: int = 0) -> TypeInfo | None:
    if row is None:
        return None
    form, element, shape, inner = row
    sizes_are_known = shape is None or all(size is None or type(size) in (int, str) for size in shape)
    if depth > MOST_NESTED or type(element) is not int or not sizes_are_known:
        raise Damaged("a type that is none")
    return TypeInfo(_text(form), element, None if shape is None else tuple(shape), _loaded_type(inner, depth + 1))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Damaged("a name that is none")
    return value
