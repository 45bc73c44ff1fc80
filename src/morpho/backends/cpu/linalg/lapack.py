"""A solve or factorisation of every matrix of a batch by LAPACK, called by its address inside a native program.

NumPy carries an OpenBLAS; its routines are found by name (`base/python/blas.py`) and called as NumPy calls them: on a
copy of the matrix in double precision, columns side by side, with the work space the routine asks for, so that results
have NumPy's bits. Where a routine is not found the operation is a step of the host.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.backends.cpu.linalg.matrix import RANKS
from morpho.base.dtypes import DType
from morpho.base.python.blas import routine_address
from morpho.program.kernel import Kernel

# Of real matrices; complex ones where the name is another one.
ROUTINES = {"solve": ("gesv",), "inv": ("gesv",), "cholesky": ("potrf",), "qr": ("geqrf", "orgqr"),
            "svd": ("gesdd",), "svdvals": ("gesdd",), "eigh": ("syevd",), "eigvalsh": ("syevd",), "slogdet": ("getrf",),
            "det": ("getrf",)}
FROM_C = {"slogdet": ("log",), "det": ("log", "exp")}  # of the C library, real matrices only: so does NumPy
OF_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}
LETTERS = {"float32": "d", "float64": "d", "complex64": "z", "complex128": "z"}  # in double precision, as NumPy has it
WORDS = 16  # 64-bit numbers that routines are given by address
AREAS = {"solve": "left right order", "inv": "left right order", "cholesky": "left", "qr": "left tau right work",
         "svd": "left values right other work real whole", "eigh": "left values work real whole"}
AREAS |= {"slogdet": "left order", "det": "left order"}
AREAS |= {"svdvals": AREAS["svd"], "eigvalsh": AREAS["eigh"]}  # every operation has one of "words" behind them

# Operations in thirds of m n^2: LAPACK's working note 41, and Golub and Van Loan for what is iterated.
THIRDS = {"solve": 2, "inv": 2, "det": 2, "slogdet": 2, "cholesky": 1, "qr": 8, "eigvalsh": 4, "eigh": 27, "svdvals": 8,
          "svd": 66}


def routines_of(name: str, dtype: DType) -> tuple[str, ...]:
    """LAPACK's names for an operation on a dtype, or nothing.

    >>> from morpho.base.dtypes import complex64, float64, int64
    >>> routines_of("inv", float64), routines_of("qr", complex64), routines_of("inv", int64)
    (('dgesv',), ('zgeqrf', 'zungqr'), ())
    >>> routines_of("det", float64)
    ('dgetrf', 'log', 'exp')
    """
    letter = LETTERS.get(dtype.name)
    if not letter or (letter == "z" and name in FROM_C):
        return ()
    stems = (OF_COMPLEX.get(stem, stem) if letter == "z" else stem for stem in ROUTINES.get(name, ()))
    return (*(letter + stem for stem in stems), *FROM_C.get(name, ()))


@dataclass(frozen=True)
class LapackKernel(Kernel):
    """The operation `name` on matrices. `upper` is the form of a Cholesky factor, `full` that of the square factors of
    a QR or singular value decomposition. The addresses of its routines are the first of its numbers, put there when the
    program is loaded."""

    name: str
    dtype: DType
    outer_rank: int
    upper: bool = False
    full: bool = False

    role = "scan"
    flops = 2
    may_fault = True

    @property
    def routines(self) -> tuple[str, ...]:
        """The routines it calls."""
        return routines_of(self.name, self.dtype)

    @property
    def parts(self) -> int:
        """Numbers that an element consists of."""
        return 2 if self.dtype.is_complex else 1

    @property
    def areas(self) -> list[str]:
        """What its scratch memory holds, in order."""
        return [*AREAS[self.name].split(), "words"]

    @property
    def record(self) -> Record:
        """The routines, sizes of the matrix and of what is computed of it, numbers of elements of the work spaces,
        where the areas begin (in bytes), extents of the batch, strides of the operands."""
        along = self.outer_rank
        operands = " ".join(f"operand{n}[{along + rank}]" for n, rank in enumerate(RANKS[self.name]))
        return Record(f"routine[{len(self.routines)}] rows columns count size[3] area[{len(self.areas)}] "
                      f"extents[{along}] {operands}")

    def operations(self, rows: int, columns: int, count: int) -> int:
        """About what LAPACK computes for one matrix and `count` right sides.

        >>> from morpho.base.dtypes import float64
        >>> LapackKernel("inv", float64, 0).operations(100, 100, 100)
        2666666
        """
        inner, outer = min(rows, columns), max(rows, columns)
        done = THIRDS[self.name] * outer * inner**2 // 3 + 2 * rows**2 * count * (self.name in ("solve", "inv"))
        return (4 if self.dtype.is_complex else 1) * done

    def sizes(self, rows: int, columns: int, count: int) -> tuple[list[int], list[int]]:
        """Elements of the three work spaces (of the matrix, of real numbers, of whole ones), and the bytes at which its
        areas begin, the end of the last one included."""
        inner, item = min(rows, columns), 8 * self.parts
        work = work_space(self, rows, columns)
        held = {"left": rows * columns * item, "right": rows * count * item, "order": rows * 8, "tau": inner * item,
                "values": inner * 8, "other": count * columns * item, "work": work[0] * item, "real": work[1] * 8,
                "whole": work[2] * 8, "words": WORDS * 8}
        if self.name == "svd":
            held["other"] = (columns if self.full else inner) * columns * item
        places = [0]
        for area in self.areas:
            places.append(places[-1] + (held[area] + 63) // 64 * 64)
        return work, places


@cache
def work_space(kernel: LapackKernel, rows: int, columns: int) -> list[int]:
    """How many elements of the matrix's kind, real and whole numbers the routines want to work in. LAPACK is asked, as
    NumPy asks it: with less it takes other ways, of other bits."""
    inner, outer = min(rows, columns), max(rows, columns)
    if kernel.name == "qr":
        wide = rows if kernel.full else inner
        first = _asked(kernel.routines[0], rows, columns, None, rows, None, "work", -1)
        second = _asked(kernel.routines[1], rows, wide, inner, None, rows, None, "work", -1)
        return [max(1, columns, first, second), 0, 0]
    complex_ = kernel.parts == 2
    if kernel.name in ("svd", "svdvals"):
        form = "N" if kernel.name == "svdvals" else "A" if kernel.full else "S"
        most = max(5 * inner * inner + 5 * inner, 2 * outer * inner + 2 * inner * inner + inner)
        real = 7 * inner if form == "N" else most
        wide = columns if form == "A" else inner
        array = (None,) if complex_ else ()
        lengths = _asked(kernel.routines[0], form, rows, columns, None, rows, None, None, rows, None, wide, "work", -1,
                         *array, None)
        return [max(1, lengths), real if complex_ else 0, 8 * inner]
    if kernel.name in ("eigh", "eigvalsh"):
        form = "N" if kernel.name == "eigvalsh" else "V"
        between: tuple[str | int, ...] = ("real", -1) if complex_ else ()
        found = _answers(kernel.routines[0], form, "L", rows, None, rows, None, "work", -1, *between, "whole", -1)
        return [found["work"], found.get("real", 0), found["whole"]]
    return [0, 0, 0]


def _asked(routine: str, *arguments: str | int | None) -> int:
    """The size of the work space alone."""
    return _answers(routine, *arguments)["work"]


def _answers(routine: str, *arguments: str | int | None) -> dict[str, int]:
    """A routine asked for the sizes of its work spaces. An argument is a number, a letter, the name of a work space, or
    None for an array that is not looked at; the status comes last, lengths of letters behind it."""
    function = ctypes.CFUNCTYPE(None)(routine_address(routine))
    names = {argument for argument in arguments if isinstance(argument, str) and len(argument) > 1}
    found = {name: (ctypes.c_double * 2)() if name != "whole" else (ctypes.c_int64 * 2)() for name in names}
    letters = [argument for argument in arguments if isinstance(argument, str) and len(argument) == 1]
    given = [found[a] if a in found else ctypes.byref(ctypes.c_char(a.encode())) if isinstance(a, str)
             else ctypes.byref(ctypes.c_int64(a)) if a is not None else ctypes.byref((ctypes.c_double * 2)())
             for a in arguments]
    status = ctypes.c_int64()
    function(*given, ctypes.byref(status), *[ctypes.c_size_t(1) for _ in letters])
    return {name: int(space[0]) for name, space in found.items()}
