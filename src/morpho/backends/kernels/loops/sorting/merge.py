"""Values of 32 and 64 bits sorted by merging: blocks in vector registers, then runs of them, two by two.

Equal keys have equal bits, so that nothing tells this from a stable sort; zeros of two signs are looked after.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

MOST_BLOCK = 256  # elements: 16 vectors of 16 lanes
SMALL = 4  # vectors of which a short line is made
AT_ONCE = 2  # vectors that one step of a merge takes


@dataclass(frozen=True)
class MergeSortKernel(Kernel):
    """target[.., i, ..] = the i-th of a line of source. `unit` operands lie side by side along the line."""

    dtype: DType
    descending: bool
    outer_rank: int
    unit: tuple[bool, bool]

    role = "scan"
    flops = 12

    @property
    def scratch_bytes(self) -> int:
        """Bytes that fill lines up to whole blocks, twice, and bytes read beyond the end."""
        return 4 * MOST_BLOCK * self.dtype.itemsize

    @property
    def scratch_bytes_per_column(self) -> int:
        """The keys, twice."""
        return 2 * self.dtype.itemsize

    @property
    def record(self) -> Record:
        """Extents of the outer axes, the length, strides of both operands along the outer axes and along the line."""
        along = self.outer_rank + 1
        return Record(f"extents[{self.outer_rank}] length source[{along}] target[{along}]")
