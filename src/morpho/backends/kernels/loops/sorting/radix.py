"""Sorting lines: values, or the indices that would sort them, by radix; short lines by insertion. Indices of keys of
32 and 64 bits are packed behind their keys where vector registers sort (`packed_code.py`).

Elements become unsigned keys in whose order they are: integers with their sign turned, floats by their bits, NaN above
all. The sort is stable: equal keys keep their order. Threads divide the lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

DIGITS = 256  # buckets of one pass: a byte of the key
SHORT = 24  # elements up to which a line is sorted by insertion


@dataclass(frozen=True)
class RadixSortKernel(Kernel):
    """target[.., i, ..] = the i-th of a line of source, or its index where `indices`; `wide` lines may have 2**31
    elements and more."""

    dtype: DType
    indices: bool
    descending: bool
    outer_rank: int
    wide: bool

    role = "scan"
    flops = 24

    @property
    def counter_bytes(self) -> int:
        return 8 if self.wide else 4

    @property
    def passes(self) -> int:
        return self.dtype.itemsize

    @property
    def scratch_bytes(self) -> int:
        """The counts of every pass."""
        return self.passes * DIGITS * self.counter_bytes

    @property
    def scratch_bytes_per_column(self) -> int:
        """Keys and indices, twice each."""
        return 2 * (self.dtype.itemsize + (self.counter_bytes if self.indices else 0))

    @property
    def record(self) -> Record:
        """Extents of the outer axes, the length, strides of both operands along the outer axes and along the line."""
        along = self.outer_rank + 1
        return Record(f"extents[{self.outer_rank}] length source[{along}] target[{along}]")
