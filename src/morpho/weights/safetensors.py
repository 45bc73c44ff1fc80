"""The safetensors format: eight bytes of length, a JSON header, then the elements of every tensor.

Reading maps the file into memory and borrows: no element is copied, and a tensor's pages are read when it is used. The
header is checked whole before anything is believed: its size against the file's, every tensor's place, shape and dtype,
and that the places cover the rest of the file without a gap or an overlap. A file must not be cut short while it is in
use (`mo.weights.save` never does: it writes another file and moves it into place).
"""

from __future__ import annotations

import math
import mmap
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base import dtypes
from morpho.base.dtypes import DType
from morpho.base.errors import fail
from morpho.base.shapes import contiguous_strides
from morpho.ops.neural.float8 import KINDS, POWERS, table
from morpho.runtime.memory.buffer import Buffer
from morpho.tensor.core import Tensor
from morpho.weights.errors import FileFault, MissingFile
from morpho.weights.named import NamedTensors
from morpho.weights.scanner import Malformed, Scanner, shortened

DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64, "F16": dtypes.float16,
    "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64, "C64": dtypes.complex64,
}
FLOATS8 = (*KINDS, POWERS)
LENGTH = struct.Struct("<Q")
METADATA = "__metadata__"
MOST_HEADER_BYTES = 32 << 20
MOST_DIMENSIONS = 32
MOST_ELEMENTS = 1 << 56  # of a shape, zeros left out: anything larger is no file's


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies: bytes `start` to `stop` of the file."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int
    float8: str = ""  # the kind of float of 8 bits that becomes `dtype` when it is read


class Weights(NamedTensors[tuple["MappedFile", Entry], Tensor]):
    """Tensors by name, read from a file (or several) when they are asked for.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> mo.weights.save(path, {"w": mo.ones((2, 3)), "b": mo.zeros(3, dtype="bfloat16")}, metadata={"step": "10"})
    >>> weights = mo.weights.load(path)
    >>> weights
    Weights(2 tensors, 30 bytes)
    >>> weights.shapes
    {'b': (3,), 'w': (2, 3)}
    >>> weights["w"].sum().item(), weights.metadata
    (6.0, {'step': '10'})
    """

    operation = "weights"

    def __init__(self, places: Mapping[str, tuple[MappedFile, Entry]], metadata: dict[str, str]) -> None:
        super().__init__(dict(sorted(places.items())))
        self.metadata, self.device = metadata, ""

    def on(self, device: str) -> Weights:
        """The same, whose tensors go straight from the file's memory to a device when they are asked for.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> mo.weights.save(path, {"w": mo.ones((2, 3))})
        >>> mo.weights.load(path).on("cpu")["w"].device
        'cpu'
        """
        found = Weights(self._places, self.metadata)
        found.device = device
        return found

    def _make(self, name: str, place: tuple[MappedFile, Entry]) -> Tensor:
        file, entry = place
        made = file.tensor(name, entry)
        return made.to(self.device) if self.device else made

    def place(self, name: str) -> tuple[MappedFile, Entry]:
        """The file of a tensor, and where in it."""
        return self._places[name]

    def places(self, name: str) -> list[tuple[MappedFile, Entry]]:
        """All that is read for a tensor: its own place."""
        return [self._places[name]]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor; none is read."""
        return {name: entry.shape for name, (_, entry) in self._places.items()}

    @property
    def dtypes(self) -> dict[str, DType]:
        """The dtype of every tensor; none is read."""
        return {name: entry.dtype for name, (_, entry) in self._places.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(entry.stop - entry.start for _, entry in self._places.values())

    def __repr__(self) -> str:
        return f"Weights({len(self)} tensors, {self.nbytes} bytes)"


class MappedFile:
    """One safetensors file in memory, with the checked places of its tensors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                self.entries, self.metadata = read_header(file, size)
            except Malformed as error:
                raise fail(FileFault, "load", f"{path.name} is not a safetensors file: {error}",
                           _advice(file)) from None
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if len(self._map) != size:
                raise fail(FileFault, "load", f"{path.name} changed its size while it was read")

    def codes(self, entry: Entry) -> np.ndarray:
        """The bytes of a tensor of floats of 8 bits, in its shape."""
        return np.frombuffer(self._map, np.uint8, math.prod(entry.shape), entry.start).reshape(entry.shape)

    def tensor(self, name: str, entry: Entry) -> Tensor:
        """A tensor over the file's memory; one whose place is not aligned for its dtype is copied."""
        count = math.prod(entry.shape)
        if entry.float8:
            array = np.asarray(table(entry.float8)[self.codes(entry)])
        elif count == 0:
            array = np.empty(entry.shape, entry.dtype.numpy)
        else:
            array = np.frombuffer(self._map, entry.dtype.numpy, count, entry.start)
            if entry.dtype is dtypes.bool_ and array.view(np.uint8).max() > 1:
                raise fail(FileFault, "load", f"{shortened(name)} in {self.path.name} holds bytes that are no bool")
            if not array.flags.aligned:
                array = array.copy()
        return Tensor.of_buffer(Buffer(array, array.ctypes.data, entry.shape, contiguous_strides(entry.shape),  # type: ignore[arg-type]
                                       entry.dtype, False))


def _advice(file: Any) -> str:
    """Advice for a file of another kind."""
    file.seek(0)
    start = file.read(4)
    if start == b"GGUF":
        return "read it with mo.weights.load_gguf"
    if start == b"PK\x03\x04" or start[:1] == b"\x80":
        return "it may be a pickle, which can run code and is not read: write it as safetensors where it comes from"
    return ""


def open_regular(path: Path) -> Any:
    """A plain file opened for reading; a pipe or a device, which could block or never end, is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise fail(MissingFile, "load", f"{path} is not there") from None
    except (OSError, ValueError) as error:
        raise fail(FileFault, "load", f"{path} cannot be opened: {error}") from None
    file = open(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise fail(FileFault, "load", f"{path} is not a plain file")
    return file


def read_header(file: Any, size: int) -> tuple[dict[str, Entry], dict[str, str]]:
    """The checked entries and the metadata of an open file of `size` bytes."""
    if size < LENGTH.size:
        raise Malformed(f"it has {size} bytes, too few for the length of a header")
    (length,) = LENGTH.unpack(file.read(LENGTH.size))
    if length > size - LENGTH.size:
        raise Malformed(f"its header should have {length} bytes, the file has {size}")
    if length > MOST_HEADER_BYTES:
        raise Malformed(f"its header has {length} bytes, more than the {MOST_HEADER_BYTES} allowed")
    raw = file.read(length)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("its header is not UTF-8") from None
    if not text.startswith("{"):
        raise Malformed("its header does not begin with '{'")
    scanner, metadata, entries = Scanner(text), {}, {}
    for name in scanner.keys():  # noqa: SIM118 (a scanner is no dict)
        if name == METADATA:
            metadata = scanner.texts()
        else:
            entries[name] = _entry(name, scanner.record(), LENGTH.size + length)
    scanner.finish()
    _check_places(entries, LENGTH.size + length, size)
    return entries, metadata


def _entry(name: str, record: dict[str, Any], offset: int) -> Entry:
    if set(record) != {"dtype", "shape", "data_offsets"}:
        raise Malformed(f"{shortened(name)} has {shortened(sorted(record))}, not dtype, shape and data_offsets")
    kinds = {**DTYPES, **dict.fromkeys(FLOATS8, dtypes.float32)}
    if not isinstance(record["dtype"], str) or record["dtype"] not in kinds:
        raise Malformed(f"{shortened(name)} has dtype {shortened(record['dtype'])}, none of {', '.join(kinds)}")
    float8 = record["dtype"] if record["dtype"] in FLOATS8 else ""
    dtype, shape, offsets = kinds[record["dtype"]], record["shape"], record["data_offsets"]
    if not _are_sizes(shape) or len(shape) > MOST_DIMENSIONS or math.prod(filter(None, shape)) > MOST_ELEMENTS:
        raise Malformed(f"{shortened(name)} has shape {shortened(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Malformed(f"{shortened(name)} has data_offsets {shortened(offsets)}")
    wanted, given = math.prod(shape) * (1 if float8 else dtype.itemsize), offsets[1] - offsets[0]
    if wanted != given:
        raise Malformed(f"{shortened(name)} of shape {shortened(tuple(shape))} and {dtype} needs {wanted} bytes, "
                        f"its data_offsets hold {shortened(given)}")
    return Entry(dtype, tuple(shape), offset + offsets[0], offset + offsets[1], float8)


def _are_sizes(found: Any) -> bool:
    return isinstance(found, list) and all(type(size) is int and size >= 0 for size in found)


def _check_places(entries: dict[str, Entry], start: int, stop: int) -> None:
    """The tensors lie one after another from the header's end to the file's."""
    at = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != at:
            what = "overlaps the tensor before it" if entry.start < at else "leaves a gap before it"
            raise Malformed(f"{shortened(name)} {what}")
        at = entry.stop
    if at != stop:
        raise Malformed(f"its tensors end at byte {shortened(at)}, the file at {stop}")


def header_of(entries: Mapping[str, tuple[DType, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Length and header of a file that holds these tensors in this order, padded so that the elements begin aligned."""
    import json

    names = {dtype: name for name, dtype in DTYPES.items()}
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape) in entries.items():
        stop = at + math.prod(shape) * dtype.itemsize
        table[name] = {"dtype": names[dtype], "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(LENGTH.size + len(text)) % 64)
    if len(text) > MOST_HEADER_BYTES:
        raise fail(FileFault, "save", f"the header would have {len(text)} bytes, more than {MOST_HEADER_BYTES}")
    return LENGTH.pack(len(text)) + text
