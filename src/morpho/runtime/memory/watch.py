"""Watches of a pool: the peak of memory in use, and the lines that allocate."""

from __future__ import annotations

import time
from sys import _getframe
from types import CodeType
from typing import Protocol

from morpho.base.errors import known_files, user_place
from morpho.runtime.memory.chunk import Chunk


class Watched(Protocol):
    """Interface of a pool for a watch."""

    _held_bytes: int

    def asked_bytes(self) -> int: ...

    def holders(self) -> dict[str, tuple[int, int]]: ...


class Watch:
    """The most bytes that were in use at once, as asked for, and those in use at the beginning.

    >>> import morpho as mo
    >>> with mo.pool.watch() as seen:
    ...     block = mo.pool.acquire(1 << 20)
    >>> seen.peak_bytes - seen.base_bytes >= 1 << 20
    True
    """

    __slots__ = ("base_bytes", "peak_bytes")

    def __init__(self, base_bytes: int) -> None:
        self.base_bytes = self.peak_bytes = base_bytes

    def see(self, pool: Watched, chunk: Chunk, frames: int) -> None:
        """A block is about to be handed out; `frames` above the pool's are Morpho's."""
        self.peak_bytes = max(self.peak_bytes, pool.asked_bytes())


class Tracker(Watch):
    """Notes the line of the user's program that asks for each block, and who held what when the pool held most."""

    __slots__ = ("at_peak", "peak_s", "_code", "_looked_bytes")

    def __init__(self, base_bytes: int) -> None:
        super().__init__(base_bytes)
        self.at_peak: dict[str, tuple[int, int]] = {}  # line -> bytes, blocks
        self.peak_s = time.perf_counter()
        self._code: CodeType | None = None
        self._looked_bytes = 0

    def see(self, pool: Watched, chunk: Chunk, frames: int) -> None:
        # This runs at every request: the walk of `user_place` written out, and a line only when somebody reads it. A
        # frame that is looked at becomes an object first: those that are known to be Morpho's are passed over.
        frame = _getframe(frames + 2)
        code = frame.f_code
        while code is not self._code and known_files.get(code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]
            if frame is None:
                break
            code = frame.f_code
        if code is self._code:  # of the user, and who asked last asks again
            chunk.place = code, frame.f_lasti
        else:
            chunk.place = place = user_place(frames + 2)
            self._code = None if place is None else place[0]
        if pool._held_bytes > self._looked_bytes:  # only what makes the pool grow can be a peak
            self._looked_bytes = pool._held_bytes + pool._held_bytes // 64  # and a little more is not worth a look
            found = pool.holders()
            total = sum(nbytes for nbytes, _ in found.values()) + chunk.asked
            if total > self.peak_bytes or not self.at_peak:
                self.at_peak, self.peak_bytes, self.peak_s = found, total, time.perf_counter()
