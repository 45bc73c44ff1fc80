"""Solvers on distributed arrays: conjugate gradients, QR of tall matrices, the largest singular values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.cluster.arrays.array import DistributedArray
from morpho.cluster.arrays.layout import ALL, WHOLE
from morpho.cluster.arrays.products import by_rows, dot
from morpho.cluster.parallel.replicas import from_buffer, to_buffer


def cg(a: DistributedArray | Callable[[DistributedArray], DistributedArray], b: DistributedArray, tol: float = 1e-6,
       maxiter: int = 1000) -> tuple[DistributedArray, int]:
    """x with a @ x = b for a symmetric positive matrix, or the function that multiplies by one, and the steps taken.

    >>> a = mo.cluster.array(np.diag([1.0, 2.0, 4.0]))
    >>> x, steps = mo.cluster.cg(a, mo.cluster.array(np.ones(3)))
    >>> np.round(x.gather(), 4).tolist(), steps
    ([1.0, 0.5, 0.25], 3)
    """
    product = a if callable(a) else a.__matmul__
    x = b * 0
    residual, direction = b, b
    square = dot(b, b).item()
    limit = tol * tol * square
    for step in range(maxiter):
        if square <= limit:
            return x, step
        image = product(direction)
        curvature = dot(direction, image).item()
        if not curvature > 0:
            raise fail(ArgumentError, "cg", f"the matrix is not positive: a curvature of {curvature:.3g}")
        rate = square / curvature
        x, residual = x + direction * rate, residual - image * rate
        before, square = square, dot(residual, residual).item()
        direction = residual + direction * (square / before)
    return x, maxiter


def qr(a: DistributedArray) -> tuple[DistributedArray, mo.Tensor]:
    """The factors of a tall matrix, in one round of messages (TSQR): Q with its rows over all ranks, and R on each.

    >>> q, r = mo.cluster.qr(mo.cluster.array(np.arange(8.0).reshape(4, 2)))
    >>> np.allclose(q.gather() @ r.numpy(), np.arange(8.0).reshape(4, 2))
    True
    """
    if a.ndim != 2:
        raise fail(ShapeError, "qr", f"shape {a.shape} is not a matrix")
    rows, group, columns = by_rows(a), a.grid.group, a.shape[1]
    if a.shape[0] < columns * group.size:
        raise fail(ShapeError, "qr", f"a matrix of {a.shape} is not tall enough for {group.size} ranks",
                   f"each needs {columns} rows or more")
    local, factor = mo.linalg.qr(rows.local)
    buffer = to_buffer(factor)
    stacked = np.empty((group.size * columns, columns), buffer.dtype)
    group.all_gather(buffer, stacked)
    above, final = mo.linalg.qr(from_buffer(stacked, a.dtype))  # the same on every rank
    part = above[group.rank * columns:(group.rank + 1) * columns]
    return DistributedArray(local @ part, a.shape, (ALL, WHOLE), a.grid), final


def svd(a: DistributedArray, rank: int, oversample: int = 8, power: int = 2, seed: int = 0
        ) -> tuple[DistributedArray, mo.Tensor, mo.Tensor]:
    """The largest `rank` singular values of a tall matrix with their vectors, by random projection: U with its rows
    over all ranks, values and V transposed on each. `power` steps of iteration sharpen them.

    >>> x = np.outer(np.arange(1.0, 41.0), [3.0, 4.0])
    >>> u, s, v = mo.cluster.svd(mo.cluster.array(x), 1)
    >>> np.allclose(u.gather() @ np.diag(s.numpy()) @ v.numpy(), x)
    True
    """
    if a.ndim != 2 or not 1 <= rank <= min(a.shape):
        raise fail(ArgumentError, "svd", f"rank {rank} is not possible for shape {a.shape}")
    width = min(rank + oversample, a.shape[1])
    rows = by_rows(a)
    probe = mo.random.normal(mo.random.key(seed), (a.shape[1], width), dtype=a.dtype)  # the same on every rank
    basis, _ = qr(_times(rows, probe))
    for _ in range(power):
        image, _ = mo.linalg.qr(mo.matrix_transpose(_inner(basis, rows)))
        basis, _ = qr(_times(rows, image))
    left, values, right = mo.linalg.svd(_inner(basis, rows), full_matrices=False)
    return _times(basis, left[:, :rank]), values[:rank], right[:rank]


def _times(rows: DistributedArray, small: mo.Tensor) -> DistributedArray:
    """Rows of a matrix times one that every rank has."""
    return DistributedArray(rows.local @ small, (rows.shape[0], int(small.shape[1])), rows.cuts, rows.grid)


def _inner(a: DistributedArray, b: DistributedArray) -> mo.Tensor:
    """a transposed times b, on every rank."""
    return a._over(ALL, "sum", mo.matrix_transpose(a.local) @ b.local)
