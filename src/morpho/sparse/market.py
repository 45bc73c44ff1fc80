"""Matrix Market files: read and written, every number checked before anything of its size is allocated."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.base.machine import machine
from morpho.sparse.arrays import CSR, Matrix, Tensor, is_sparse
from morpho.sparse.checks import compressed, places
from morpho.sparse.convert import coo, tocsr

BANNER = "%%MatrixMarket"
FIELDS = {"real": 3, "double": 3, "integer": 3, "complex": 4, "pattern": 2,  # numbers on a line of coordinates
          "unsigned-integer": 3}  # SciPy's word
RANGES = {"integer": (-(1 << 63), 1 << 63), "unsigned-integer": (0, 1 << 64)}
MOST_PACKED = 1032  # bytes that gzip makes one of, at most
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
LONGEST_LINE = 4096
MOST_SIDE = 1 << 40
SIDE_BYTES = 24  # that a row or a column takes while elements are put in order


def read_mm(path: str | os.PathLike[str], /) -> CSR | Tensor:
    """A matrix from a Matrix Market file: sparse from "coordinate", dense from "array".

    Symmetric files hold one triangle; the other is filled in. Reals are float64, integers int64, those that SciPy calls
    unsigned uint64, patterns ones. A name that ends with `.gz` is a file that gzip packed.

    >>> mo.sparse.write_mm("eye.mtx", mo.sparse.eye(2))
    >>> mo.sparse.read_mm("eye.mtx").to_dense().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not os.fspath(path).endswith(".gz"):
                return _Reader(file, Path(path).name, size).matrix()
            with gzip.open(file) as unpacked:
                return _Reader(unpacked, Path(path).name, size * MOST_PACKED).matrix()
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise fail(ArgumentError, "read_mm", f"{os.fspath(path)!r} cannot be read: {why}") from None


def _words(line: str) -> list[str]:
    """Words between ASCII white space; Python's `split` also splits at separators and spaces of other alphabets."""
    return [word.decode() for word in line.encode().split()]


class _Reader:
    """A file being read; `wrong` says what is not as the format has it, and in which line."""

    def __init__(self, file: Any, name: str, size: int) -> None:
        self.file, self.name, self.size, self.number = file, name, size, 0

    def wrong(self, what: str) -> Exception:
        return fail(ValueFault, "read_mm", f"{self.name}, line {self.number}: {what}")

    def line(self) -> str | None:
        """The next line, without its end; None after the last."""
        raw = self.file.readline(LONGEST_LINE + 1)
        if not raw:
            return None
        self.number += 1
        if len(raw) > LONGEST_LINE:
            raise self.wrong(f"a line is longer than {LONGEST_LINE} bytes")
        try:
            return raw.decode("ascii" if self.number == 1 else "utf-8").strip()  # type: ignore[no-any-return]
        except UnicodeDecodeError:
            raise self.wrong("not text") from None

    def content(self) -> str | None:
        """The next line that is neither empty nor a comment."""
        while (line := self.line()) is not None:
            if line and not line.startswith("%"):
                return line
        return None

    def matrix(self) -> CSR | Tensor:
        first = (self.line() or "").split()
        if len(first) != 5 or first[0] != BANNER or first[1].lower() != "matrix":
            raise self.wrong(f"the first line is not '{BANNER} matrix <format> <field> <symmetry>'")
        form, self.field, self.symmetry = (word.lower() for word in first[2:])
        if form not in ("coordinate", "array"):
            raise self.wrong(f"format {form!r} is unknown: coordinate or array")
        if self.field not in FIELDS or (form == "array" and self.field == "pattern"):
            raise self.wrong(f"field {self.field!r} is unknown here: real, integer, complex"
                             + (", pattern" if form == "coordinate" else ""))
        if self.symmetry not in SYMMETRIES or (self.symmetry == "hermitian") > (self.field == "complex") or (
                self.symmetry, self.field) == ("skew-symmetric", "unsigned-integer"):
            raise self.wrong(f"symmetry {self.symmetry!r} does not go with {self.field}")
        return self.coordinates() if form == "coordinate" else self.dense()

    def sizes(self, count: int) -> list[int]:
        words = _words(self.content() or "")
        if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
            raise self.wrong(f"the sizes are not {count} whole numbers")
        found = [int(word) for word in words]
        if max(found) > MOST_SIDE:
            raise self.wrong(f"size {max(found)} is beyond {MOST_SIDE}")
        if self.symmetry != "general" and found[0] != found[1]:
            raise self.wrong(f"a {self.symmetry} matrix of {found[0]} x {found[1]} is not square")
        return found

    def numbers(self, line: str, count: int) -> list[str]:
        words = _words(line)
        if len(words) != count:
            raise self.wrong(f"{len(words)} numbers instead of {count}")
        return words

    def value(self, words: list[str]) -> Any:
        try:
            if any("_" in word or not word.isascii() for word in words):  # which Python reads as numbers
                raise ValueError
            if self.field in RANGES:
                found, (low, high) = int(words[0]), RANGES[self.field]
                if not low + (self.symmetry == "skew-symmetric") <= found < high:  # its negative is written too
                    raise ValueError
                return found
            parts = [float(word) for word in words]
        except ValueError:
            raise self.wrong(f"{' '.join(words)!r} is not {self.field}") from None
        return complex(*parts) if self.field == "complex" else parts[0]

    @property
    def dtype(self) -> Any:
        return {"integer": np.int64, "unsigned-integer": np.uint64,
                "complex": np.complex128}.get(self.field, np.float64)

    def place(self, word: str, size: int, what: str) -> int:
        if not word.isascii() or not word.isdigit() or len(word) > 18 or not 1 <= int(word) <= size:
            raise self.wrong(f"{what} {word} is not between 1 and {size}")
        return int(word) - 1

    def coordinates(self) -> CSR:
        rows, columns, count = self.sizes(3)
        if count > rows * columns:
            raise self.wrong(f"{count} elements in a matrix of {rows} x {columns}")
        if 4 * count > self.size:  # a line has at least four bytes: nothing is allocated for what cannot be there
            raise self.wrong(f"{count} elements in a file of {self.size} bytes")
        if SIDE_BYTES * (rows + columns) > machine().memory_bytes:
            raise self.wrong(f"{rows} x {columns} is beyond the memory, however few its elements")
        row, col = np.empty(count, np.int64), np.empty(count, np.int64)
        data = np.ones(count, self.dtype)
        width = FIELDS[self.field]
        for n in range(count):
            line = self.content()
            if line is None:
                raise self.wrong(f"the file ends after {n} of {count} elements")
            words = self.numbers(line, width)
            row[n], col[n] = self.place(words[0], rows, "row"), self.place(words[1], columns, "column")
            if width > 2:
                data[n] = self.value(words[2:])
        self.end()
        if self.symmetry != "general":
            row, col, data = self.mirrored(row, col, data)
        return tocsr(coo(data, (row, col), (rows, columns)))

    def mirrored(self, row: Any, col: Any, data: Any) -> tuple[Any, Any, Any]:
        """The other triangle too."""
        if np.any(row < col):
            raise self.wrong(f"a {self.symmetry} file holds the lower triangle, and an element lies above")
        if self.symmetry == "skew-symmetric" and np.any(row == col):
            raise self.wrong("a skew-symmetric matrix has no diagonal")
        off = row != col
        other = data[off]
        other = -other if self.symmetry == "skew-symmetric" else other.conj() if self.symmetry == "hermitian" else other
        return np.r_[row, col[off]], np.r_[col, row[off]], np.r_[data, other]

    def dense(self) -> Tensor:
        rows, columns = self.sizes(2)
        if 2 * rows * columns > 4 * self.size:  # of a triangle half is there, a line has at least two bytes
            raise self.wrong(f"{rows} x {columns} elements in a file of {self.size} bytes")
        found = np.zeros((rows, columns), self.dtype)
        skew, general = self.symmetry == "skew-symmetric", self.symmetry == "general"
        for c in range(columns):
            for r in range(0 if general else c + skew, rows):
                line = self.content()
                if line is None:
                    raise self.wrong(f"the file ends before element {r + 1}, {c + 1}")
                value = self.value(self.numbers(line, 2 if self.field == "complex" else 1))
                found[r, c] = value
                if not general and r != c:
                    found[c, r] = -value if skew else np.conj(value) if self.symmetry == "hermitian" else value
        self.end()
        return mo.asarray(found)

    def end(self) -> None:
        if self.content() is not None:
            raise self.wrong("there are more lines than elements")


def write_mm(path: str | os.PathLike[str], a: Matrix | Tensor, /, *, comment: str = "") -> None:
    """Write a matrix, sparse as "coordinate", dense as "array", so that reading gives the same numbers.

    >>> mo.sparse.write_mm("a.mtx", mo.sparse.eye(2), comment="two ones")
    >>> print(open("a.mtx").read().splitlines()[:3])
    ['%%MatrixMarket matrix coordinate real general', '% two ones', '2 2 2']
    """
    lines = [f"{BANNER} matrix {'coordinate' if is_sparse(a) else 'array'} {_field(a.dtype)} general",
             *[f"% {line}" for line in comment.splitlines()]]
    if is_sparse(a):
        matrix = compressed("write_mm", a)
        row, col = (part.numpy() for part in places(matrix))
        lines.append(f"{matrix.shape[0]} {matrix.shape[1]} {matrix.nnz}")
        lines += [f"{r + 1} {c + 1} {_text(value)}" for r, c, value in zip(row.tolist(), col.tolist(),
                                                                           matrix.data.tolist(), strict=True)]
    else:
        dense = mo.asarray(a)
        if dense.ndim != 2:
            raise fail(ArgumentError, "write_mm", f"shape {tuple(dense.shape)} is not that of a matrix")
        lines.append(f"{dense.shape[0]} {dense.shape[1]}")
        lines += [_text(value) for value in dense.numpy().T.reshape(-1).tolist()]
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(part, whole)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise fail(ArgumentError, "write_mm", f"{os.fspath(path)!r} cannot be written: {error.strerror}") from None


def _field(dtype: Any) -> str:
    """Of uint64 SciPy's word, since half of its numbers are no int64."""
    return "unsigned-integer" if dtype is mo.uint64 else {"c": "complex", "f": "real"}.get(dtype.kind, "integer")


def _text(value: Any) -> str:
    """A number with all its digits."""
    if isinstance(value, complex):
        return f"{_text(value.real)} {_text(value.imag)}"
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
