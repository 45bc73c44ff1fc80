"""Token files: a text as numbers, mapped into memory, so that a corpus larger than memory is read where it is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import morpho as mo
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, IndexFault, ValueFault, fail
from morpho.data.dataset import Dataset

KINDS = ("uint16", "uint32")
MAGIC = b"\x93NUMPY"


def write_tokens(path: str | os.PathLike[str], tokens: Any, dtype: str | None = None) -> Path:
    """Write tokens as a `.npy` file of uint16, or uint32 where a number needs it; whole or not at all.

    >>> import tempfile
    >>> path = mo.data.write_tokens(tempfile.mkdtemp() + "/text.npy", [3, 1, 2])
    >>> mo.data.TokenFile(path, length=2)[0][0].tolist()
    [3, 1]
    """
    array = np.asarray(tokens.numpy() if isinstance(tokens, mo.Tensor) else tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise fail(ArgumentError, "write_tokens", f"tokens of {array.dtype}{array.shape} are not a line of integers")
    largest = int(array.max(initial=0))
    kind = dtype or ("uint16" if largest < 1 << 16 else "uint32")
    if kind not in KINDS:
        raise fail(ArgumentError, "write_tokens", f"dtype {kind!r} is unknown", "use uint16 or uint32")
    if array.min(initial=0) < 0 or largest > np.iinfo(kind).max:
        raise fail(ValueFault, "write_tokens", f"tokens from {array.min(initial=0)} to {largest} do not fit {kind}")
    path = Path(path)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(scratch, "wb") as file:
            np.lib.format.write_array(file, array.astype(kind), version=(1, 0), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def _mapped(path: Path, dtype: str | None) -> np.ndarray:
    """The tokens of a `.npy` file, or of a plain file of numbers of a dtype; nothing is read beyond the header."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            header = _header(file)
    except OSError as error:
        raise fail(ArgumentError, "TokenFile", f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, SyntaxError):
        raise fail(ValueFault, "TokenFile", f"{path} has a damaged header") from None
    if header is None:
        return _plain(path, size, dtype)
    shape, found, offset = header
    if found.name not in KINDS or found.byteorder == ">" or len(shape) != 1:
        raise fail(ValueFault, "TokenFile", f"{path} holds {found}{shape}, not a line of uint16 or uint32")
    if dtype not in (None, found.name):
        raise fail(ArgumentError, "TokenFile", f"{path} holds {found.name}, not {dtype}")
    if shape[0] < 0 or offset + shape[0] * found.itemsize != size:
        raise fail(ValueFault, "TokenFile", f"{path} has {size} bytes where its header speaks of {shape[0]} tokens",
                   "the file is cut off or has something behind it")
    return np.memmap(path, found, "r", offset, shape) if shape[0] else np.zeros(0, found)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype, int] | None:
    """Shape, dtype and where the numbers begin; None for a file of numbers alone."""
    if file.read(len(MAGIC)) != MAGIC:
        return None
    file.seek(0)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, found = readers[np.lib.format.read_magic(file)](file, max_header_size=10_000)
    return shape, found, file.tell()


def _plain(path: Path, size: int, dtype: str | None) -> np.ndarray:
    if dtype not in KINDS:
        raise fail(ArgumentError, "TokenFile", f"{path} has no header that names its numbers",
                   'pass dtype="uint16" or "uint32" for a plain file')
    width = np.dtype(dtype).itemsize
    if size % width:
        raise fail(ValueFault, "TokenFile", f"{path} has {size} bytes, which is no whole number of {dtype}")
    return np.memmap(path, dtype, "r") if size else np.zeros(0, dtype)


class TokenFile(Dataset):
    """Windows of `length` tokens with the token that follows each: an item is (inputs, targets), int32 both.

    path: a `.npy` file as `write_tokens` makes it, or a plain file of little-endian numbers with `dtype` given.
    stride: from one window to the next; `length` by default, 1 for every window there is. A loader with `shuffle=True`
        takes them in random order.
    vocabulary: how many tokens there are, where known: a larger number in the file is an error that says where.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "tokens.npy")
    >>> _ = mo.data.write_tokens(path, range(10))
    >>> inputs, targets = mo.data.TokenFile(path, length=4)[0]
    >>> inputs.tolist(), targets.tolist()
    ([0, 1, 2, 3], [1, 2, 3, 4])
    """

    def __init__(self, path: str | os.PathLike[str], length: int, stride: int | None = None, dtype: str | None = None,
                 vocabulary: int | None = None) -> None:
        numbers = []
        for name, value in (("length", length), ("stride", length if stride is None else stride)):
            number = as_whole(value)
            if number is None or number < 1:
                raise fail(ArgumentError, "TokenFile", f"{name}={value!r} is not a positive integer")
            numbers.append(number)
        self.path, self.vocabulary = Path(path), vocabulary
        self.length, self.stride = numbers
        self.tokens = _mapped(self.path, dtype)
        if len(self.tokens) < self.length + 1:
            raise fail(ValueFault, "TokenFile", f"{self.path} has {len(self.tokens)} tokens, and one window needs "
                                                f"{self.length + 1}", "use a smaller length")

    def __len__(self) -> int:
        return (len(self.tokens) - self.length - 1) // self.stride + 1

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        window = self.windows(np.array([number]))[0]
        return window[:-1], window[1:]

    def batch(self, numbers: np.ndarray) -> tuple[mo.Tensor, mo.Tensor]:
        """Several windows at once."""
        windows = self.windows(numbers)
        return (mo.asarray(np.ascontiguousarray(windows[:, :-1])), mo.asarray(np.ascontiguousarray(windows[:, 1:])))

    def windows(self, numbers: np.ndarray) -> np.ndarray:
        """Windows with the token behind them, (count, length + 1)."""
        numbers = np.asarray(numbers)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise fail(IndexFault, "TokenFile", f"window {int(numbers.max())} is out of range: there are {len(self)}")
        found = np.empty((len(numbers), self.length + 1), np.int32)
        for row, number in enumerate(numbers.tolist()):
            found[row] = self.tokens[number * self.stride:number * self.stride + self.length + 1]
        if self.vocabulary is not None and found.size and (found.min() < 0 or found.max() >= self.vocabulary):
            row, column = np.argwhere((found < 0) | (found >= self.vocabulary))[0].tolist()
            position = int(numbers[row]) * self.stride + column
            raise fail(ValueFault, "TokenFile", f"token {int(self.tokens[position])} at position {position} is not "
                                                f"below the vocabulary of {self.vocabulary}")
        return found
