"""The kernels over compressed sparse rows, as data.

Where rows can be computed apart, work is divided by merge path: the path through the rows and the stored elements has
m + nnz steps, a piece is `PIECE` of them, and a row belongs to the piece in which it begins. So pieces are equal work
whatever the lengths of rows are, and no row is ever cut, so that its sum does not depend on the division.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.gemm.gemm import EPILOGUE
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

PIECE = 1024  # steps of the merge path that one item of work is
WIDTH = 64  # columns that one item of a transposed product or of a solve is
RANKS = 128  # i64s of scratch for the ranks of a short row of a sparse product: 16 registers of 64 bytes
SPARE = 33  # and behind its list of columns, where a block of registers reads on, and one term more is noted

SPMM = Record("rows size count piece columns stride")  # of A, of what indices look up, of nnz; of the dense operand
FOLLOWED_SPMM = SPMM.extended(f"unused[{EPILOGUE - len(SPMM)}] epilogue by_rows")


@dataclass(frozen=True)
class SpmmKernel(Kernel):
    """C[m, n] = A B for A in CSR. Buffers: B, indices, indptr, data, C, then those of the epilogue, which `follows`."""

    dtype: DType
    index: DType
    pointer: DType
    semiring: str = "plus_times"
    single: bool = False  # one column
    strided: bool = True  # rows of the dense operand do not lie one element apart
    follows: bool = False

    flops = 2
    may_fault = True
    gathered = (0,)

    @property
    def op_names(self) -> frozenset[str]:
        """Extremes."""
        return frozenset({"minimum", "maximum"}) if self.semiring != "plus_times" else frozenset()

    @property
    def record(self) -> Record:
        """Numbers of the kernel; see the top of this file."""
        return FOLLOWED_SPMM if self.follows else SPMM


@dataclass(frozen=True)
class TransposedSpmmKernel(Kernel):
    """C[k, n] += A^T B, rows ascending. Buffers: indices, indptr, data, B, C. An item is `WIDTH` columns."""

    dtype: DType
    wide: DType  # of C
    index: DType
    pointer: DType

    role = "scatter"
    flops = 2
    may_fault = True
    record = Record("rows size count columns stride")


@dataclass(frozen=True)
class SddmmKernel(Kernel):
    """For every stored element the product of a row of `left` and one of `right`. Buffers: right, indices, indptr,
    left, result."""

    dtype: DType
    index: DType
    pointer: DType

    flops = 2
    may_fault = True
    record = Record("rows size count piece columns right left")


@dataclass(frozen=True)
class RowReduceKernel(Kernel):
    """Sum or extreme of every row. Buffers: values, indptr, result."""

    how: str
    dtype: DType
    pointer: DType

    flops = 1
    record = Record("rows count piece")

    @property
    def op_names(self) -> frozenset[str]:
        """Extremes."""
        return frozenset({"minimum", "maximum"}) if self.how != "sum" else frozenset()


@dataclass(frozen=True)
class SpgemmKernel(Kernel):
    """C = A B in CSR, row by row (Gustavson). A thread has a dense row of sums, each beside the last row in which its
    column was met, and a list of the columns of a row in order of appearance, which is sorted once the row is summed:
    by rank where it is short, by a bitmap in two levels where it is long. Buffers: indptr of B, indices and indptr of
    A, indices of B; to count, the lengths of rows; else data of A, of B, indptr of C, columns and data of C."""

    dtype: DType | None  # None: count
    index: tuple[DType, DType]  # of A and B
    pointer: tuple[DType, DType, DType]  # of A, B, C

    flops = 8
    may_fault = True
    record = Record("rows inner columns left_count right_count count piece")


@dataclass(frozen=True)
class TriangularKernel(Kernel):
    """x in place of b. Buffers: indices, indptr, data, x. An item is `WIDTH` columns of x."""

    dtype: DType
    index: DType
    pointer: DType
    upper: bool
    unit: bool
    turned: bool  # with the transpose

    role = "scan"
    flops = 2
    may_fault = True
    record = Record("rows count columns")


@dataclass(frozen=True)
class IncompleteKernel(Kernel):
    """Incomplete factors in place of the numbers. Buffers: indices, indptr, data. Scratch: where each column of a row
    lies, and the diagonal."""

    how: str
    dtype: DType
    index: DType
    pointer: DType

    role = "scan"
    flops = 8
    may_fault = True
    record = Record("rows count")
