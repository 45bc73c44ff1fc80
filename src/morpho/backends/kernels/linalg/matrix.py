"""A factorisation or solve of every matrix of a batch, as a kernel: a matrix is a row of its work."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import FAULT_ENDLESS, FAULT_INDEFINITE, FAULT_SINGULAR, Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

MOST_ROWS = 32  # of a matrix, and columns; LAPACK does larger ones
MOST_UNROLLED = 6  # rows up to which a whole matrix is held in registers, and loops may hold one
LANES = 8  # of the vectors that rows of larger matrices are computed in, whatever the machine's are

# Axes of every operand, inputs first; the axes of the batch are in front.
RANKS = {"cholesky": (2, 2), "det": (2, 0), "slogdet": (2, 0, 0), "inv": (2, 2), "solve": (2, 2, 2),
         "solve_triangular": (2, 2, 2), "lu": (2, 1, 2, 2), "qr": (2, 2, 2), "svd": (2, 2, 1, 2), "svdvals": (2, 1),
         "eigh": (2, 1, 2), "eigvalsh": (2, 1)}
UNROLLED = frozenset({"cholesky", "det", "slogdet", "inv", "solve", "solve_triangular"})
FAULTS = {"cholesky": FAULT_INDEFINITE, **dict.fromkeys(("inv", "solve", "solve_triangular"), FAULT_SINGULAR),
          **dict.fromkeys(("svd", "svdvals", "eigh", "eigvalsh"), FAULT_ENDLESS)}


def pitch(columns: int) -> int:
    """Elements from one row to the next of a matrix in scratch memory: whole vectors."""
    return (columns + LANES - 1) // LANES * LANES


@dataclass(frozen=True)
class MatrixKernel(Kernel):
    """The operation `name` on matrices of `rows` x `columns`; of a solve these are the columns of the right side, 0
    where there are many. `options` say which of its forms; with `batched` several
    matrices are computed at once, a vector's lane each, where they fit registers."""

    name: str
    dtype: DType
    rows: int
    columns: int
    outer_rank: int
    options: tuple[str, ...] = ()
    batched: bool = False

    role = "scan"
    flops = 2

    @property
    def unrolled(self) -> bool:
        """Whether all elements of a matrix are values in registers."""
        return self.name in UNROLLED and self.rows <= MOST_UNROLLED and 0 < self.columns <= MOST_UNROLLED

    @property
    def may_fault(self) -> bool:
        """Whether a matrix may be one that cannot be factorised."""
        return self.name in FAULTS

    @property
    def op_names(self) -> frozenset[str]:
        """The logarithm of a determinant."""
        return frozenset({"log"}) if self.name == "slogdet" else frozenset()

    @property
    def inputs(self) -> int:
        """How many operands are read; the others are written."""
        return 2 if self.name.startswith("solve") else 1

    @property
    def scratch_bytes(self) -> int:
        """Four matrices and eight lines of numbers at most."""
        side = max(self.rows, self.columns)
        return 0 if self.unrolled else (4 * side + 8) * pitch(side) * 8

    @property
    def record(self) -> Record:
        """Extents of the batch, the columns of a right side, strides of the operands."""
        along = self.outer_rank
        operands = " ".join(f"operand{n}[{along + rank}]" for n, rank in enumerate(RANKS[self.name]))
        return Record(f"extents[{along}] count {operands}")
