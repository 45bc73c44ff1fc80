"""Buffers that ranks of one host have in common: each adds a part of all of them and writes it into all of them.

MPI moves such buffers through small pieces of its own shared memory, twice, and looks for them without a sleep: on a
machine whose cores all compute that costs the step more than the sum. Here a sum of n bytes by r ranks reads n bytes
and writes n bytes on each rank, whatever r is.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from morpho.base.dtypes import DType
from morpho.runtime.groups.reducing import reduce_into

FOLDER = Path("/dev/shm")
BLOCK_BYTES = 1 << 17  # what is added at a time, so that it is still in the cache when it is written
_LINE = 64  # bytes: ranks do not write into each other's lines


def create(nbytes: int) -> str:
    """A file of shared memory, with all its pages there; an empty name where there is no room."""
    try:
        handle, name = tempfile.mkstemp(prefix="morpho-", dir=FOLDER)
    except OSError:
        return ""
    try:
        os.posix_fallocate(handle, 0, nbytes)  # now, and not by a signal when a page is first written
        return name
    except OSError:
        os.unlink(name)
        return ""
    finally:
        os.close(handle)


def open_memory(name: str, nbytes: int) -> mmap.mmap:
    """The memory of a file that `create` made."""
    handle = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(handle, nbytes)
    finally:
        os.close(handle)


class SharedBuffers:
    """A buffer of each rank in one memory; `mine` is this rank's, `number` the same on all ranks.

    >>> size = SharedBuffers.nbytes(2, 5, np.dtype(np.float32))
    >>> name = create(size)
    >>> first, second = (SharedBuffers(open_memory(name, size), rank, 2, 5, np.dtype(np.float32)) for rank in range(2))
    >>> os.unlink(name)
    >>> first.mine[:], second.mine[:] = 1, 2
    >>> from morpho.base.dtypes import float32
    >>> for each in (first, second):
    ...     each.reduce_share("sum", float32)
    >>> first.mine.tolist(), second.mine.tolist()
    ([3.0, 3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0, 3.0])
    """

    @staticmethod
    def nbytes(ranks: int, count: int, dtype: np.dtype) -> int:
        """Of the file of so many ranks."""
        return ranks * SharedBuffers._stride(count, dtype)

    @staticmethod
    def _stride(count: int, dtype: np.dtype) -> int:
        return -(-count * dtype.itemsize // _LINE) * _LINE

    def __init__(self, memory: mmap.mmap, rank: int, ranks: int, count: int, dtype: np.dtype, number: int = 1) -> None:
        self.number = number
        stride = self._stride(count, dtype)
        self.all = [np.frombuffer(memory, dtype, count, each * stride) for each in range(ranks)]
        self.mine = self.all[rank]
        line = max(_LINE // dtype.itemsize, 1)
        share = -(-count // (ranks * line)) * line
        self.share = range(min(rank * share, count), min((rank + 1) * share, count))

    def reduce_share(self, op: str, dtype: DType) -> None:
        """This rank's part of everybody's buffer: added in the order of ranks, written into each. All ranks have filled
        theirs before, and none reads its own before all have done this."""
        step = max(BLOCK_BYTES // self.mine.itemsize, 1)
        for start in range(self.share.start, self.share.stop, step):
            stop = min(start + step, self.share.stop)
            first, *others = (each[start:stop] for each in self.all)
            reduce_into(first, (first, *others), op, dtype)
            for other in others:
                np.copyto(other, first)
