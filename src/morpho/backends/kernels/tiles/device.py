"""Buffers and chunks of tiles, and the choices of a device: who takes which chunk, where buffers lie, barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.base.dtypes import DType
from morpho.ops.tiles import ir

ROW_PARTIALS = 32


@dataclass(eq=False)
class Buffer:
    """Scratch memory of a tile: rows of `pitch` elements."""

    offset: int
    element: str
    rows: int
    columns: int
    pitch: int

    @property
    def end(self) -> int:
        return self.offset + self.rows * self.pitch * max(1, BITS[self.element] // 8)


@dataclass(eq=False)
class Chunk:
    """The elements of a loop: row, first column, lanes; `known` are values computed in its body."""

    row: Value
    column: Value
    lanes: int
    known: dict[Any, Value] = field(default_factory=dict)


class Device(Protocol):
    """The differences between a CPU and a GPU."""

    scratch: str

    @property
    def e(self) -> Emitter:
        """The emitter of the function."""

    def lanes(self, shape: ir.Tile, widest: int, plain: bool) -> int:
        """Elements of a chunk, for rows of a tile and elements of so many bytes."""

    def chunks(self, rows: int, columns: int, lanes: int) -> Any:
        """A loop over the chunks of a tile: a context manager that gives (row, column)."""

    def each(self, count: int) -> Any:
        """A loop over so many items: a context manager that gives the index."""

    def once(self) -> Any:
        """Code that one thread runs: a context manager."""

    def barrier(self) -> None:
        """Wait until all threads have come."""

    def joined(self, code: Any, sums: Buffer, count: int, combine: Callable[[Value, Value], Value]) -> Value:
        """The result of a reduction from its partial sums."""

    def rows(self, code: Any, tile: ir.Value, op: str, target: Buffer) -> None:
        """Reduce each row of a matrix."""

    def units(self, shape: ir.Tile) -> tuple[int, int]:
        """Rows and lanes of a block of `dot` that is computed at once."""

    def report(self, status: Value) -> None:
        """Put a fault among those of the run."""

    def align(self, buffer: Buffer, lanes: int) -> int | None:
        """Bytes that the address of a chunk of a buffer is a multiple of; None: the element's."""

    def aligned(self, pointer: str, lanes: int, element: str) -> tuple[Value | None, int | None]:
        """A test for whole accesses of arrays, where a device needs one, and the alignment behind it."""

    syncscope: str
    padding: int  # elements between rows of a buffer


def is_matrix(shape: ir.Tile) -> bool:
    return len(shape) == 2


def sides(shape: ir.Tile) -> tuple[int, int]:
    """Rows and columns of any tile."""
    return (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0] if shape else 1)


def pitch_of(shape: ir.Tile) -> int:
    """Elements from one row of a buffer to the next: whole chunks."""
    _, columns = sides(shape)
    if columns == 1:
        return 1
    unit = ROW_PARTIALS if is_matrix(shape) else min(64, 1 << (columns - 1).bit_length())
    return -(-columns // unit) * unit


def stored_type(dtype: DType) -> str:
    """The element of a buffer."""
    register = scalars.register_type(dtype)
    return "i8" if register == "i1" else register


def True_(e: Emitter) -> Value:
    return e.constant(True, "i1", 1)


def False_(e: Emitter) -> Value:
    return e.constant(False, "i1", 1)
