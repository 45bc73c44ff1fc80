"""Products of distributed matrices: SUMMA, which broadcasts panels along rows and columns of the grid."""

from __future__ import annotations

import numpy as np

import morpho as mo
from morpho.base.errors import ShapeError, fail
from morpho.cluster.arrays.array import DistributedArray, set_product
from morpho.cluster.arrays.layout import ALL, COLUMNS, ROWS, WHOLE, bounds
from morpho.cluster.parallel.replicas import from_buffer, to_buffer

BLOCKS = ((ROWS,), (COLUMNS,))


def matmul(a: DistributedArray, b: DistributedArray) -> DistributedArray:
    """a @ b for matrices, or a matrix and a vector.

    >>> x = mo.cluster.array(np.eye(3, dtype=np.float32))
    >>> (x @ x).gather().tolist() == np.eye(3).tolist()
    True
    """
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[1] != b.shape[0]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape} do not align")
    if b.ndim == 1:
        return _vector(a, b)
    return _summa(a.redistribute(BLOCKS), b.redistribute(BLOCKS, a.grid))


def _summa(a: DistributedArray, b: DistributedArray) -> DistributedArray:
    grid = a.grid
    inner = a.shape[1]
    edges = sorted({bounds(inner, parts, part)[0] for parts in (grid.columns, grid.rows) for part in range(parts)})
    row, column = grid.place(grid.group.rank)
    total: mo.Tensor | None = None
    for first, end in zip(edges, [*edges[1:], inner]):
        if first == end:
            continue
        left = _panel(a, first, end, 1, column, grid.columns)
        right = _panel(b, first, end, 0, row, grid.rows)
        product = left @ right
        total = product if total is None else total + product
    if total is None:
        total = mo.zeros((a.local.shape[0], b.local.shape[1]), dtype=a.dtype)
    return DistributedArray(total, (a.shape[0], b.shape[1]), BLOCKS, grid)


def _panel(x: DistributedArray, first: int, end: int, axis: int, mine: int, parts: int) -> mo.Tensor:
    """Columns of a block row, or rows of a block column, from the rank that has them."""
    size = x.shape[axis]
    owner = next(part for part in range(parts) if bounds(size, parts, part)[0] <= first < bounds(size, parts, part)[1])
    start = bounds(size, parts, owner)[0]
    if parts == 1:
        return _cut(x.local, axis, first - start, end - start)
    if mine == owner:
        buffer = to_buffer(_cut(x.local, axis, first - start, end - start))
    else:
        shape = [int(n) for n in x.local.shape]
        shape[axis] = end - first
        buffer = np.empty(shape, x.dtype.numpy)
    x.grid.along[(COLUMNS,) if axis == 1 else (ROWS,)].broadcast(buffer, owner)
    return from_buffer(buffer, x.dtype)


def _cut(x: mo.Tensor, axis: int, first: int, end: int) -> mo.Tensor:
    return x[:, first:end] if axis else x[first:end]


def _vector(a: DistributedArray, x: DistributedArray) -> DistributedArray:
    """Rows of blocks times the part of the vector that meets them, summed along the rows of the grid."""
    blocks = a.redistribute(BLOCKS)
    part = x.redistribute(((COLUMNS,),), a.grid)
    total = blocks._over((COLUMNS,), "sum", blocks.local @ part.local)
    return DistributedArray(total, (a.shape[0],), ((ROWS,),), a.grid).redistribute(x.cuts)


def dot(a: DistributedArray, b: DistributedArray) -> mo.Tensor:
    """The inner product of two arrays of one shape, on every rank."""
    found: mo.Tensor = (a * b).sum()
    return found


def by_rows(a: DistributedArray) -> DistributedArray:
    """A matrix whose rows are cut over all ranks."""
    return a.redistribute((ALL, WHOLE))


set_product(matmul)
