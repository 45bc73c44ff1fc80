"""A solve or factorisation of every matrix of a batch by LAPACK, called by its address inside a native program.

NumPy carries an OpenBLAS; its routines are found by name (`base/python/blas.py`) and called as NumPy calls them: on a
copy of the matrix in double precision, columns side by side, with the work space the routine asks for, so that results
have NumPy's bits. Where a routine is not found the operation is a step of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.linalg.lapack.work_spaces import Matrix, area_bytes, asked_now, work_spaces
from morpho.backends.kernels.linalg.matrix import RANKS as SMALL_RANKS
from morpho.base.dims import Size
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

# Axes of every operand beside those of the batch, inputs first.
RANKS = {**SMALL_RANKS, "eig": (2, 1, 2), "eigvals": (2, 1), "schur": (2, 2, 2), "ldl": (2, 1, 2, 2),
         "matrix_function": (2, 2), "solve_refined": (2, 2, 0, 2, 2, 0, 0)}
# Of real matrices; complex ones where the name is another one.
ROUTINES = {"solve": ("gesv",), "inv": ("gesv",), "cholesky": ("potrf",), "qr": ("geqrf", "orgqr"),
            "svd": ("gesdd",), "svdvals": ("gesdd",), "eigh": ("syevd",), "eigvalsh": ("syevd",), "slogdet": ("getrf",),
            "det": ("getrf",), "lu": ("getrf",), "solve_triangular": ("trtrs",), "eig": ("geev",), "eigvals": ("geev",),
            "schur": ("gees",), "ldl": ("sytrf",), "matrix_function": ("gees", "axpy", "gemm", "trtrs"),
            "solve_refined": ("getrf", "getrs", "gemv", "gemm")}
OF_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd", "sytrf": "hetrf"}
# Of the C library, as NumPy has it: the size of a complex number is its `hypot`.
FROM_C = {"slogdet": ("log",), "det": ("log", "exp"), "matrix_function": ("hypot",)}
ALWAYS_COMPLEX = ("schur", "matrix_function")  # real matrices too
OF_TWO = {"solve_refined": "ssdd"}  # letters of routines of two precisions
LETTERS = {"float32": "d", "float64": "d", "complex64": "z", "complex128": "z"}  # in double precision, as NumPy has it
AREAS = {"solve": "left right order", "inv": "left right order", "cholesky": "left", "qr": "left tau right work",
         "svd": "left values right other work real whole", "eigh": "left values work real whole"}
AREAS |= {"slogdet": "left order", "det": "left order", "lu": "left order", "solve_triangular": "left right",
          "eig": "left numbers imaginary right work real", "schur": "left numbers right work real whole",
          "ldl": "left order work", "matrix_function": "left numbers right work real whole root rest total",
          "solve_refined": "right order residual rounded scales"}
AREAS |= {"svdvals": AREAS["svd"], "eigvalsh": AREAS["eigh"], "eigvals": AREAS["eig"]}  # "words" stand behind them

# Operations in thirds of m n^2: LAPACK's working note 41, and Golub and Van Loan for what is iterated.
SOLVES = ("solve", "inv", "solve_triangular", "solve_refined")
THIRDS = {"solve": 2, "inv": 2, "det": 2, "slogdet": 2, "cholesky": 1, "qr": 8, "eigvalsh": 4, "eigh": 27, "svdvals": 8,
          "svd": 66, "lu": 2, "solve_triangular": 0, "eig": 75, "eigvals": 30, "schur": 75, "ldl": 1,
          "matrix_function": 120, "solve_refined": 2}


def routines_of(name: str, dtype: DType) -> tuple[str, ...]:
    """LAPACK's names for an operation on a dtype, or nothing.

    >>> from morpho.base.dtypes import complex64, float64, int64
    >>> routines_of("inv", float64), routines_of("qr", complex64), routines_of("inv", int64)
    (('dgesv',), ('zgeqrf', 'zungqr'), ())
    >>> routines_of("det", float64), routines_of("slogdet", complex64), routines_of("schur", float64)
    (('dgetrf', 'log', 'exp'), ('zgetrf', 'log', 'hypot'), ('zgees',))
    """
    letter = LETTERS.get(dtype.name)
    if not letter or name not in ROUTINES:
        return ()
    if name in OF_TWO:
        return tuple(map(str.__add__, OF_TWO[name], ROUTINES[name])) if dtype.name == "float64" else ()
    letter = "z" if name in ALWAYS_COMPLEX else letter
    stems = (OF_COMPLEX.get(stem, stem) if letter == "z" else stem for stem in ROUTINES[name])
    sizes = ("hypot",) if letter == "z" and name in ("det", "slogdet") else ()
    return (*(letter + stem for stem in stems), *FROM_C.get(name, ()), *sizes)


@dataclass(frozen=True)
class LapackKernel(Kernel):
    """The operation `name` on matrices. `upper` is the form of a Cholesky factor or a triangle, with a `unit` diagonal,
    `full` that of the square factors of a QR or singular value decomposition, `function` that of a matrix, `most` the
    corrections of a solution. The addresses of its routines are the first of its numbers, put there when the program is
    loaded. Where the size of the matrices is `dynamic` it asks for its work space itself, and allocates it."""

    name: str
    dtype: DType
    outer_rank: int
    upper: bool = False
    full: bool = False
    unit: bool = False
    function: str = ""
    dynamic: bool = False
    most: int = 0

    role = "scan"
    flops = 2
    may_fault = True

    @property
    def routines(self) -> tuple[str, ...]:
        """The routines it calls."""
        return (*routines_of(self.name, self.dtype), *(("malloc", "free") if self.dynamic else ()))

    @property
    def parts(self) -> int:
        """Numbers that an element consists of where LAPACK computes."""
        return 2 if self.dtype.is_complex or self.name in ALWAYS_COMPLEX else 1

    @property
    def given_parts(self) -> int:
        """The same of an operand that is read."""
        return 2 if self.dtype.is_complex else 1

    @property
    def found_parts(self) -> int:
        """The same of matrices and vectors that are written, real values apart."""
        return 2 if self.dtype.is_complex or self.name in ("eig", "eigvals", "schur") else 1

    @property
    def areas(self) -> list[str]:
        """Areas of its scratch memory, in order."""
        return [*AREAS[self.name].split(), "words"]

    @property
    def record(self) -> Record:
        """The routines, sizes of the matrix and of what is computed of it, numbers of elements of the work spaces,
        where the areas begin (in bytes), extents of the batch, strides of the operands."""
        along = self.outer_rank
        operands = " ".join(f"operand{n}[{along + rank}]" for n, rank in enumerate(RANKS[self.name]))
        return Record(f"routine[{len(self.routines)}] rows columns count size[3] area[{len(self.areas)}] "
                      f"extents[{along}] {operands}")

    def operations(self, rows: Size, columns: Size, count: Size) -> Size:
        """About what LAPACK computes for one matrix and `count` right sides.

        >>> from morpho.base.dtypes import float64
        >>> LapackKernel("inv", float64, 0).operations(100, 100, 100)
        2666666
        """
        right = 2 * rows * rows * count if self.name in SOLVES else 0
        if isinstance(rows, int) and isinstance(columns, int):
            cube: Size = THIRDS[self.name] * max(rows, columns) * min(rows, columns) ** 2 // 3
        else:  # not known which is the longer one
            cube = (THIRDS[self.name] + 2) // 3 * rows * columns * columns
        return (4 if self.parts == 2 else 1) * (cube + right)

    def sizes(self, rows: int, columns: int, count: int) -> tuple[list[int], list[int]]:
        """Elements of the three work spaces (of the matrix, of real numbers, of whole ones), and the bytes at which its
        areas begin, the end of the last one included."""
        matrix = Matrix(rows, columns, count)
        work = _work_spaces(self, matrix)
        held, places = area_bytes(self, matrix, work), [0]
        for area in self.areas:
            places.append(places[-1] + held[area])
        return work, places


@cache
def _work_spaces(kernel: LapackKernel, matrix: Matrix) -> list[int]:
    return [max(int(size), 0) for size in work_spaces(kernel, matrix, asked_now(kernel))]
