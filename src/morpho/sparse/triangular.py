"""Triangular solves, and preconditioners: Jacobi, ILU(0) and IC(0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.sparse.arrays import COO, CSC, CSR, Compressed, Tensor
from morpho.sparse.checks import common, compressed, number_of, op, places, square, vector_or_matrix
from morpho.sparse.convert import tocsr
from morpho.sparse.reduce import diagonal

Apply = Callable[[Tensor], Tensor]


def solve_triangular(a: Any, b: Any, /, *, upper: bool = False, unitriangular: bool = False) -> Tensor:
    """x with `a x = b` for the lower or upper triangle of a; elements outside it are not read.

    Row after row, native; several columns of b are divided among threads.

    >>> a = mo.sparse.from_dense(mo.asarray([[2.0, 0.0], [1.0, 4.0]]))
    >>> mo.sparse.solve_triangular(a, mo.asarray([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    x, right = compressed("solve_triangular", a), vector_or_matrix("solve_triangular", b)
    square("solve_triangular", x)
    if right.shape[0] != x.shape[0]:
        raise fail(ShapeError, "solve_triangular", f"{right.shape[0]} rows on the right for a matrix of {x.shape[0]}")
    data, right = common("solve_triangular", x.data, right)
    if data.dtype.kind != "f":
        raise fail(DTypeError, "solve_triangular", f"dtype {data.dtype} is not taken", "convert to a floating dtype")
    narrow = data.dtype
    if narrow.itemsize == 2:
        data, right = mo.astype(data, mo.float32), mo.astype(right, mo.float32)
    wide = right if right.ndim == 2 else mo.reshape(right, (-1, 1))
    turned = isinstance(x, CSC)  # its transpose is in rows, and has the other triangle
    found = op("sptrsv", wide, x.indices, x.indptr, data, axis=0, upper=bool(upper) != turned,
               unit=bool(unitriangular), transposed=turned)
    found = mo.astype(found, narrow)
    return found if right.ndim == 2 else mo.reshape(found, right.shape)


def triangle(a: Any, /, *, upper: bool = False) -> CSR:
    """The lower or upper triangle, with the diagonal. How much is in it is known at once.

    >>> mo.sparse.triangle(mo.sparse.from_dense(mo.ones((2, 2)))).to_dense().tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    x = tocsr(compressed("triangle", a))
    row, col = places(x)
    keep = col >= row if upper else col <= row
    count = number_of(mo.sum(keep), "triangle", "the number of elements of a triangle")
    order = mo.argsort(mo.astype(~keep, mo.int8), stable=True)[:count]
    return tocsr(COO(mo.take(x.data, order), mo.take(row, order), mo.take(col, order), x.shape))


def jacobi(a: Any, /) -> Apply:
    """The preconditioner that divides by the diagonal.

    >>> mo.sparse.jacobi(mo.sparse.eye(2) * 4)(mo.asarray([4.0, 8.0])).tolist()
    [1.0, 2.0]
    """
    x = compressed("jacobi", a)
    square("jacobi", x)
    pivots = diagonal(x)
    inverse = mo.where(pivots == 0, mo.ones_like(pivots), 1 / pivots)
    return lambda r: r * (inverse if r.ndim == 1 else inverse[:, None])


def ilu0(a: Any, /) -> Apply:
    """The preconditioner of the incomplete factors L U on the pattern of a: no new elements.

    >>> a = mo.sparse.from_dense(mo.asarray([[4.0, 1.0], [1.0, 3.0]]))
    >>> mo.sparse.ilu0(a)(a @ mo.asarray([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    factors = _factors("ilu0", tocsr(compressed("ilu0", a)), "lu")

    def apply(r: Tensor) -> Tensor:
        half = solve_triangular(factors, r, unitriangular=True)
        return solve_triangular(factors, half, upper=True)

    return apply


def ic0(a: Any, /) -> Apply:
    """The preconditioner of the incomplete Cholesky factor on the pattern of a symmetric, positive definite matrix.

    >>> a = mo.sparse.from_dense(mo.asarray([[4.0, 2.0], [2.0, 5.0]]))
    >>> mo.sparse.ic0(a)(a @ mo.asarray([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    lower = _factors("ic0", triangle(a), "cholesky")
    return lambda r: solve_triangular(lower.T, solve_triangular(lower, r), upper=True)


def _factors(name: str, a: CSR, how: str) -> CSR:
    square(name, a)
    if a.dtype not in (mo.float32, mo.float64):
        raise fail(DTypeError, name, f"dtype {a.dtype} is not taken", "convert to float32 or float64")
    return a.with_data(op("incomplete_factors", a.data, a.indices, a.indptr, how=how))


__all__ = ["Compressed", "ic0", "ilu0", "jacobi", "solve_triangular", "triangle"]
