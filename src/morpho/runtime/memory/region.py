"""Regions (bump allocators): many pieces out of few allocations, released together."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Protocol

from morpho.base.errors import ValueFault, fail
from morpho.base.target import ALIGNMENT_BYTES
from morpho.base.units import format_bytes
from morpho.runtime.memory.memory import Memory


class Backing(Protocol):
    """The memory that a region takes from its pool and cuts into pieces."""

    address: int
    capacity: int


class Source(Protocol):
    """The pool of a region."""

    def acquire(self, nbytes: int, zero: bool = False, device: str = "cpu") -> Any:
        """A block of at least so many bytes."""
        ...

    def count_region(self, change: int) -> None:
        """So many more regions are open."""
        ...


class Piece(Memory):
    """Part of a region's block; it and every array made from it hold that block.

    >>> import morpho as mo
    >>> with mo.pool.region(4096) as region:
    ...     piece = region.acquire(100)
    ...     print(type(piece).__name__, piece.nbytes)
    Piece 100
    """

    __slots__ = ("_block", "capacity")

    def __init__(self, block: Backing, address: int, nbytes: int, capacity: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.capacity = capacity
        self._block = block

    def __repr__(self) -> str:
        return f"<Piece of {format_bytes(self.nbytes)} at {self.address:#x}>"


class Region:
    """Many pieces out of few blocks, all released together at the end of the `with` block.

    A piece costs an addition. When a block is full the next one is twice as large. A piece (or a view of one) that
    outlives the region keeps its block. A region belongs to one thread.

    >>> import morpho as mo
    >>> with mo.pool.region(4096) as region:
    ...     print(region.acquire(100).address % 64)
    0
    """

    __slots__ = ("_pool", "_first_bytes", "_blocks", "_next", "_end", "_open", "used_bytes")

    def __init__(self, pool: Source, nbytes: int = 0) -> None:
        self._pool = pool
        self._first_bytes = nbytes or 1 << 16
        self._blocks: list[Backing] = []
        self._next = self._end = 0
        self._open = False
        self.used_bytes = 0

    def __enter__(self) -> Region:
        if self._open:
            raise fail(ValueFault, "pool", "the region is already open", "use pool.region() for a second one")
        self._open = True
        self._pool.count_region(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._blocks.clear()
        self._next = self._end = self.used_bytes = 0
        self._pool.count_region(-1)

    @property
    def capacity_bytes(self) -> int:
        """The bytes of all its blocks."""
        return sum(block.capacity for block in self._blocks)

    def acquire(self, nbytes: int, zero: bool = False) -> Piece:
        """The next `nbytes` of the region, 64-byte aligned."""
        if not self._open:
            raise fail(ValueFault, "pool", "the region is closed", "acquire inside its with block")
        if nbytes < 0:
            raise fail(ValueFault, "pool", f"{nbytes} bytes were asked for")
        rounded = max(-(-nbytes // ALIGNMENT_BYTES), 1) * ALIGNMENT_BYTES
        if self._next + rounded > self._end:
            self._add_block(rounded)
        piece = Piece(self._blocks[-1], self._next, nbytes, rounded)
        self._next += rounded
        self.used_bytes += rounded
        if zero:
            ctypes.memset(piece.address, 0, nbytes)
        return piece

    def _add_block(self, nbytes: int) -> None:
        wanted = 2 * self._blocks[-1].capacity if self._blocks else self._first_bytes
        block = self._pool.acquire(max(wanted, nbytes))
        self._blocks.append(block)
        self._next, self._end = block.address, block.address + block.capacity
