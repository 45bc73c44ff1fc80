"""A solve or factorisation of every matrix of a batch by LAPACK, called by its address inside a native program.

NumPy carries an OpenBLAS; its routines are found by name (`base/python/blas.py`) and called as NumPy calls them: on a
copy of the matrix in double precision, columns side by side, so that results have NumPy's bits. Where a routine is not
found the operation is a step of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.backends.cpu.linalg.matrix import RANKS
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

ROUTINES = {"solve": "gesv", "inv": "gesv", "cholesky": "potrf"}
LETTERS = {"float32": "d", "float64": "d", "complex64": "z", "complex128": "z"}  # in double precision, as NumPy has it
WORDS = 8  # 64-bit numbers that a routine is given by address


def routine_of(name: str, dtype: DType) -> str:
    """LAPACK's name for an operation on a dtype, or nothing.

    >>> from morpho.base.dtypes import float64, int64
    >>> routine_of("inv", float64), routine_of("svd", float64), routine_of("inv", int64)
    ('dgesv', '', '')
    """
    letter, routine = LETTERS.get(dtype.name), ROUTINES.get(name)
    return letter + routine if letter and routine else ""


@dataclass(frozen=True)
class LapackKernel(Kernel):
    """The operation `name` on square matrices; `upper` is the form of a Cholesky factor. The address of the routine is
    the first of its numbers, put there when the program is loaded."""

    name: str
    dtype: DType
    outer_rank: int
    upper: bool = False

    role = "scan"
    flops = 2
    may_fault = True

    @property
    def routine(self) -> str:
        """The routine it calls."""
        return routine_of(self.name, self.dtype)

    @property
    def parts(self) -> int:
        """Numbers that an element consists of."""
        return 2 if self.dtype.is_complex else 1

    def scratch(self, rows: int, count: int) -> int:
        """Bytes of a matrix, a right side, the order of rows and the numbers given by address."""
        return (rows * rows + rows * count) * 8 * self.parts + (rows + WORDS) * 8

    @property
    def record(self) -> Record:
        """The routine, rows, columns of the right side, extents of the batch, strides of the operands."""
        along = self.outer_rank
        operands = " ".join(f"operand{n}[{along + rank}]" for n, rank in enumerate(RANKS[self.name]))
        return Record(f"routine rows count extents[{along}] {operands}")
