"""The memory that LAPACK's routines want to work in. They are asked for it, as NumPy asks them: with less they take
other ways, of other bits.

Where the size of a matrix is known the question is put while a program is lowered, else by the kernel itself: so sizes
are either numbers or values of the code being written, and one description serves both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from morpho.base.python.blas import routine_address

Number = Any  # an int, or a Value of the code being written
Argument = Any  # a number, a letter, the name of a work space, or None for an array that is not looked at
Answers = dict[str, Number]


class Described(Protocol):
    """Properties of a kernel that decide."""

    @property
    def name(self) -> str: ...
    @property
    def full(self) -> bool: ...
    @property
    def parts(self) -> int: ...
    @property
    def routines(self) -> tuple[str, ...]: ...


class Matrix(NamedTuple):
    """A matrix, the columns of its right side or first factor, and how numbers are compared."""

    rows: Number
    columns: Number
    count: Number
    least: Callable[[Number, Number], Number] = min
    most: Callable[[Number, Number], Number] = max

    @property
    def inner(self) -> Number:
        return self.least(self.rows, self.columns)


Asks = Callable[[int, tuple[Argument, ...]], Answers]  # the number of a routine, and its arguments but the status


def work_spaces(kernel: Described, m: Matrix, ask: Asks) -> list[Number]:
    """How many elements of the matrix's kind, real and whole numbers the routines of a kernel want."""
    n, inner, complex_ = m.rows, m.inner, kernel.parts == 2
    if kernel.name == "qr":
        first = ask(0, (n, m.columns, None, n, None, "work", -1))["work"]
        second = ask(1, (n, m.count, inner, None, n, None, "work", -1))["work"]
        return [m.most(m.most(first, second), m.columns), 0, 0]
    if kernel.name in ("svd", "svdvals"):
        form = "N" if kernel.name == "svdvals" else "A" if kernel.full else "S"
        most = m.most(inner * inner * 5 + inner * 5, m.most(n, m.columns) * inner * 2 + inner * inner * 2 + inner)
        wide = m.columns if form == "A" else inner
        real = () if not complex_ else (None,)
        found = ask(0, (form, n, m.columns, None, n, None, None, n, None, wide, "work", -1, *real, None))["work"]
        return [m.most(found, inner), (inner * 7 if form == "N" else most) if complex_ else 0, inner * 8]
    if kernel.name in ("eigh", "eigvalsh"):
        between = ("real", -1) if complex_ else ()
        answers = ask(0, ("N" if kernel.name == "eigvalsh" else "V", "L", n, None, n, None, "work", -1, *between,
                          "whole", -1))
        return [answers["work"], answers.get("real", 0), answers["whole"]]
    if kernel.name in ("eig", "eigvals"):
        own: tuple[None, ...] = (None,) if complex_ else (None, None)
        behind: tuple[None, ...] = (None,) if complex_ else ()
        form = "V" if kernel.name == "eig" else "N"
        return [ask(0, ("N", form, n, None, n, *own, None, n, None, n, "work", -1, *behind))["work"],
                n * 2 if complex_ else 0, 0]
    if kernel.name in ("schur", "matrix_function"):
        found = ask(0, ("V", "N", None, n, None, n, None, None, None, n, "work", -1, None, None))["work"]
        return [found, n, n]
    if kernel.name == "ldl":
        return [ask(0, ("L", n, None, n, None, "work", -1))["work"], 0, 0]
    return [0, 0, 0]


def asked_now(kernel: Described) -> Asks:
    """The question put to the routines of this process."""
    return lambda routine, arguments: _answers(kernel.routines[routine], arguments)


def _answers(routine: str, arguments: tuple[Argument, ...]) -> Answers:
    """The status comes last, lengths of letters behind it."""
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


# What an area of scratch memory holds, in bytes; `item` are those of an element, `work` the three work spaces.
def area_bytes(kernel: Described, m: Matrix, work: list[Number]) -> dict[str, Number]:
    """The size of every area that some kernel has, whole cache lines."""
    item = 8 * kernel.parts
    square = m.rows * m.columns * item
    wide = (m.columns if kernel.full else m.inner) if kernel.name == "svd" else m.count
    held = {"left": square, "right": m.rows * m.count * item, "order": m.rows * 8, "tau": m.inner * item,
            "values": m.inner * 8, "other": wide * m.columns * item, "work": work[0] * item, "real": work[1] * 8,
            "whole": work[2] * 8, "words": WORDS * 8, "numbers": m.inner * 16, "imaginary": m.inner * 8,
            "root": square, "rest": square, "total": square, "residual": m.rows * m.count * 8,
            "rounded": m.rows * m.count * 4, "scales": m.count * 8}
    return {area: (size + 63) & -64 for area, size in held.items()}


WORDS = 96  # 64-bit numbers that routines are given by address
