"""Scatter: values put or combined at indices along one axis, every output element in the order of its indices.

Threads divide the lines that lie across the indexed axis, never the indices: a line walks all its indices in order, so
the sum at each place is one chain and the bits do not depend on the number of threads. A single line is divided by its
places: each thread takes the indices of its own range, in order. Half floats add and multiply in float32: the target is
then a float32 copy of the base, and is rounded once when all is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

PIECE = 64  # columns that one item of work holds at least, where there are as many
IN_ORDER = 8  # operations of vectors in the time in which a value is put in its place
INDEX, VALUE, TARGET = range(3)  # the operands, in the order of their places and strides


@dataclass(frozen=True)
class ScatterKernel(Kernel):
    """target[.., index[.., n, c], c] = value[.., n, c], or combined with it, n ascending.

    Called over pieces of columns: item i is columns PIECE (i mod pieces).. of line i div pieces. Where it `divides` the
    places of its only line, an item is a share of them.
    """

    mode: str  # set, or how values that meet are combined: add, mul, max, min
    dtype: DType  # of the values
    target: DType  # of the memory they go to: float32 where half floats are added
    index: DType
    outer_rank: int
    shared: bool  # one index for all columns
    unit: bool  # values and target lie side by side along the columns
    divides: bool = False

    role = "scatter"
    may_fault = True

    @property
    def flops(self) -> int:
        """Operations for every value; those of a few columns take the time of some more, one after the other."""
        return 2 + IN_ORDER if self.divides else 2

    @property
    def transposed(self) -> bool:
        """A thread takes all of its share at once: every piece is a walk over all indices."""
        return self.divides

    @property
    def record(self) -> Record:
        """Extents of the outer axes; the number of indices, columns and pieces (shares, where it divides places); the
        size of the indexed axis; strides of the operands along the outer axes, the indexed axis and the columns."""
        along = self.outer_rank + 2
        return Record(f"extents[{self.outer_rank}] count columns pieces size "
                      f"index[{along}] value[{along}] target[{along}]")
