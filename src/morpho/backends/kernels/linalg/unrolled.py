"""Factorisations of matrices of a few rows as straight-line arithmetic: every element is a value of its own.

Written once for whatever computes with the values: the lanes of vectors, a matrix in each, or the scalars of a loop in
registers. Rows are exchanged by selects, so that nothing branches. The order of operations is that of docs/numerics.md,
and of the loops over rows of larger matrices (`triangular_code.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Scalar = Any  # of an Arithmetic
Matrix = list[list[Scalar]]


class Arithmetic(Protocol):
    """Operations on the elements of one dtype, each rounded once; masks come from comparisons."""

    def number(self, value: float) -> Scalar: ...
    def fma(self, a: Scalar, b: Scalar, c: Scalar) -> Scalar: ...
    def multiply(self, a: Scalar, b: Scalar) -> Scalar: ...
    def divide(self, a: Scalar, b: Scalar) -> Scalar: ...
    def add(self, a: Scalar, b: Scalar) -> Scalar: ...
    def negative(self, a: Scalar) -> Scalar: ...
    def absolute(self, a: Scalar) -> Scalar: ...
    def sqrt(self, a: Scalar) -> Scalar: ...
    def log(self, a: Scalar) -> Scalar: ...
    def greater(self, a: Scalar, b: Scalar) -> Scalar: ...
    def is_zero(self, a: Scalar) -> Scalar: ...
    def either(self, a: Scalar, b: Scalar) -> Scalar: ...
    def unless(self, a: Scalar, b: Scalar) -> Scalar:
        """a, where b is not."""
        ...

    def select(self, mask: Scalar, a: Scalar, b: Scalar) -> Scalar: ...
    def fail_if(self, mask: Scalar) -> None:
        """The matrix cannot be factorised where the mask holds."""
        ...

    def fail_unless(self, mask: Scalar) -> None: ...


class Factors(NamedTuple):
    """The upper factor of a matrix, the right side after the same steps, and whether each step exchanged rows."""

    upper: Matrix
    right: Matrix
    exchanged: list[Scalar]


def eliminate(m: Arithmetic, a: Matrix, right: Matrix, check: bool) -> Factors:
    """Gaussian elimination; the pivot of a column is the first of its largest elements."""
    n, exchanged = len(a), []
    a, right = [list(row) for row in a], [list(row) for row in right]
    for k in range(n):
        taken = _exchange(m, k, a, right)
        if taken is not None:
            exchanged.append(taken)
        pivot = a[k][k]
        none = m.is_zero(pivot)
        if check:
            m.fail_if(none)
        for i in range(k + 1, n):
            factor = m.divide(a[i][k], pivot)
            if not check:  # nothing is left in the column, unless it is NaN
                factor = m.select(none, a[i][k], factor)
            less = m.negative(factor)
            for j in range(k + 1, n):
                a[i][j] = m.fma(less, a[k][j], a[i][j])
            for j in range(len(right[0]) if right else 0):
                right[i][j] = m.fma(less, right[k][j], right[i][j])
    return Factors(a, right, exchanged)


def _exchange(m: Arithmetic, k: int, a: Matrix, right: Matrix) -> Scalar | None:
    """Bring the row of the pivot of column k to place k; whether it was another one."""
    n = len(a)
    if k == n - 1:
        return None
    best, taken = m.absolute(a[k][k]), []
    for i in range(k + 1, n):
        size = m.absolute(a[i][k])
        larger = m.greater(size, best)
        best = m.select(larger, size, best)
        taken.append(larger)
    later, is_pivot = None, []
    for larger in reversed(taken):  # the last one that was larger
        is_pivot.append(larger if later is None else m.unless(larger, later))
        later = larger if later is None else m.either(larger, later)
    is_pivot.reverse()
    for rows, first in ((a, k), (right, 0)):
        for j in range(first, len(rows[k]) if rows else 0):
            old = top = rows[k][j]
            for i in range(k + 1, n):
                top = m.select(is_pivot[i - k - 1], rows[i][j], top)
                rows[i][j] = m.select(is_pivot[i - k - 1], old, rows[i][j])
            rows[k][j] = top
    return later


def back_substitute(m: Arithmetic, upper: Matrix, right: Matrix, unit: bool = False) -> Matrix:
    """x with upper @ x = right: from the last row on, each x is taken off all rows above."""
    right = [list(row) for row in right]
    for j in reversed(range(len(upper))):
        for c in range(len(right[j])):
            found = right[j][c] if unit else m.divide(right[j][c], upper[j][j])
            right[j][c] = found
            for i in range(j):
                right[i][c] = m.fma(m.negative(upper[i][j]), found, right[i][c])
    return right


def forward_substitute(m: Arithmetic, lower: Matrix, right: Matrix, unit: bool = False) -> Matrix:
    """x with lower @ x = right: from the first row on, each x is taken off all rows below."""
    right = [list(row) for row in right]
    for j in range(len(lower)):
        for c in range(len(right[j])):
            found = right[j][c] if unit else m.divide(right[j][c], lower[j][j])
            right[j][c] = found
            for i in range(j + 1, len(lower)):
                right[i][c] = m.fma(m.negative(lower[i][j]), found, right[i][c])
    return right


def solve(m: Arithmetic, a: Matrix, right: Matrix) -> Matrix:
    """x with a @ x = right."""
    found = eliminate(m, a, right, check=True)
    return back_substitute(m, found.upper, found.right)


def solve_triangular(m: Arithmetic, a: Matrix, right: Matrix, options: Sequence[str]) -> Matrix:
    """The same for a triangle of a; the other one is not looked at."""
    unit = "unit" in options
    for i in range(0 if unit else len(a)):
        m.fail_if(m.is_zero(a[i][i]))
    return (back_substitute if "upper" in options else forward_substitute)(m, a, right, unit)


def inverse(m: Arithmetic, a: Matrix) -> Matrix:
    """The solution whose right side is the identity."""
    n = len(a)
    return solve(m, a, [[m.number(1.0 if i == j else 0.0) for j in range(n)] for i in range(n)])


def determinant(m: Arithmetic, a: Matrix) -> Scalar:
    """The product of the pivots, from the first one on, times the sign of the exchanges."""
    found = eliminate(m, a, [], check=False)
    total = _sign(m, found)
    for i in range(len(a)):
        total = m.multiply(total, found.upper[i][i])
    return total


def log_determinant(m: Arithmetic, a: Matrix) -> tuple[Scalar, Scalar]:
    """Sign, and the sum of the logarithms of the pivots' sizes, from the first one on."""
    found = eliminate(m, a, [], check=False)
    sign, total = _sign(m, found), m.number(0.0)
    zero, one, minus = m.number(0.0), m.number(1.0), m.number(-1.0)
    for i in range(len(a)):
        pivot = found.upper[i][i]
        own = m.select(m.greater(pivot, zero), one, m.select(m.greater(zero, pivot), minus, pivot))  # 0 and NaN as is
        sign = m.multiply(sign, own)
        total = m.add(total, m.log(m.absolute(pivot)))
    return sign, total


def _sign(m: Arithmetic, found: Factors) -> Scalar:
    sign = m.number(1.0)
    for exchanged in found.exchanged:
        sign = m.select(exchanged, m.negative(sign), sign)
    return sign


def cholesky(m: Arithmetic, a: Matrix) -> Matrix:
    """The lower factor, from the lower triangle: row j of its transpose is taken off all rows below."""
    n = len(a)
    upper = [[a[max(i, j)][min(i, j)] for j in range(n)] for i in range(n)]
    zero = m.number(0.0)
    for j in range(n):
        m.fail_unless(m.greater(upper[j][j], zero))
        root = m.sqrt(upper[j][j])
        upper[j][j] = root
        for c in range(j + 1, n):
            upper[j][c] = m.divide(upper[j][c], root)
        for i in range(j + 1, n):
            less = m.negative(upper[j][i])
            for c in range(i, n):
                upper[i][c] = m.fma(less, upper[j][c], upper[i][c])
    return [[upper[j][i] if j <= i else zero for j in range(n)] for i in range(n)]


def run(m: Arithmetic, name: str, options: Sequence[str], a: Matrix, right: Matrix) -> list[Any]:
    """The results of an operation by name: matrices, or numbers."""
    if name == "solve":
        return [solve(m, a, right)]
    if name == "solve_triangular":
        return [solve_triangular(m, a, right, options)]
    if name == "inv":
        return [inverse(m, a)]
    if name == "det":
        return [determinant(m, a)]
    if name == "slogdet":
        return list(log_determinant(m, a))
    lower = cholesky(m, a)
    return [[list(column) for column in zip(*lower, strict=True)] if "upper" in options else lower]
