"""Parts of a matrix: an element, rows, columns, blocks, lists of rows or columns, single elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import IndexFault, ShapeError, fail
from morpho.sparse.arrays import CSC, CSR, Compressed, Tensor, is_sparse
from morpho.sparse.checks import number_of
from morpho.sparse.combine import values_at
from morpho.sparse.convert import tocsr
from morpho.sparse.products import spgemm


def getitem(a: Compressed, key: Any) -> Any:
    """`a[i, j]` is an element, `a[i]` a dense row; slices and lists of rows or of columns give a matrix.

    As in NumPy and SciPy, a list of rows beside a list of columns are places, and a mask of the matrix's shape is those
    where it is true: their elements come as a dense vector.
    Rows i to j are views of the parts of a CSR matrix. How many elements they have is known at once, so that a part
    cannot be taken of a matrix that is an argument of `compile`.
    """
    if (places := _places(a, key)) is not None:
        lists = a.T if isinstance(a, CSC) else a
        return values_at(lists, *(mo.asarray(one, device=a.device) for one in places[::1 if lists is a else -1]))
    if a.dtype.kind == "b":  # parts are products, and bools have none
        found = getitem(a.with_data(mo.astype(a.data, mo.int8)), key)
        return found.with_data(found.data != 0) if is_sparse(found) else found != 0
    if isinstance(a, CSC):
        both = key if isinstance(key, tuple) else (key, slice(None))
        if len(both) == 2 and not any(_is_number(k) for k in both):
            return getitem(a.T, (both[1], both[0])).T
        return getitem(tocsr(a), key)
    if isinstance(key, tuple):
        if len(key) != 2:
            raise fail(IndexFault, "index", f"{len(key)} indices for a matrix")
        rows, columns = key
        if _is_number(rows) and _is_number(columns):
            at = [_number(k, n) for k, n in zip(key, a.shape, strict=True)]
            return values_at(a, *(mo.full((1,), n, dtype=mo.int64) for n in at))[0]
        if _is_number(rows):
            return getitem(a, rows)[columns]
        if _is_number(columns):
            return _columns(_rows(a, rows), [columns]).to_dense()[:, 0]
        return _columns(_rows(a, rows), columns)
    if _is_number(key):
        number = _number(key, a.shape[0])
        return _rows(a, slice(number, number + 1)).to_dense()[0]
    return _rows(a, key)


def _places(a: Compressed, key: Any) -> tuple[Any, Any] | None:
    """Rows and columns of single elements, where a key names such: two lists, or a mask of the whole matrix."""
    if not isinstance(key, tuple):
        if isinstance(key, slice) or _is_number(key) or np.ndim(mask := _array(key)) != 2 or mask.dtype != bool:
            return None
        if mask.shape != tuple(a.shape):
            raise fail(ShapeError, "index", f"a mask of shape {mask.shape} for a matrix of shape {tuple(a.shape)}")
        rows, columns = np.nonzero(mask)
        return rows, columns
    if len(key) != 2 or any(isinstance(one, slice) or _is_number(one) for one in key):
        return None
    rows, columns = (np.array(_list(one, size), np.int64) for one, size in zip(key, a.shape, strict=True))
    if len(rows) != len(columns) and 1 not in (len(rows), len(columns)):
        raise fail(ShapeError, "index", f"{len(rows)} rows and {len(columns)} columns are no pairs",
                   "a[rows][:, columns] is the block of both")
    rows, columns = np.broadcast_arrays(rows, columns)
    return rows.copy(), columns.copy()


def _array(key: Any) -> Any:
    return np.asarray(key.numpy() if isinstance(key, Tensor) else key)


def _is_number(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)


def _number(key: Any, size: int) -> int:
    number = int(key)
    if not -size <= number < size:
        raise fail(IndexFault, "index", f"index {number} is out of range for an axis of size {size}")
    return number % size


def _list(key: Any, size: int) -> list[int]:
    found = _array(key)
    if found.dtype == bool:
        if found.shape != (size,):
            raise fail(ShapeError, "index", f"a mask of shape {found.shape} for an axis of size {size}")
        return [int(n) for n in np.flatnonzero(found)]
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise fail(IndexFault, "index", f"{type(key).__name__} is no index of a sparse matrix",
                   "numbers, slices, lists of numbers and masks are")
    return [_number(n, size) for n in found]


def _rows(a: CSR, key: Any) -> CSR:
    if isinstance(key, slice):
        first, last, step = key.indices(a.shape[0])
        if step == 1:
            if (first, last) == (0, a.shape[0]):
                return a
            last = max(first, last)
            begin, end = (number_of(a.indptr[n], "index", "the number of elements of some rows") for n in (first, last))
            starts = a.indptr[first:last + 1] - mo.full((), begin, dtype=a.indptr.dtype)
            return CSR(a.data[begin:end], a.indices[begin:end], starts, (last - first, a.shape[1]))
        key = list(range(first, last, step))
    found = spgemm(_selection(_list(key, a.shape[0]), a, 0), a)
    assert isinstance(found, CSR)
    return found


def _columns(a: CSR, key: Any) -> CSR:
    if isinstance(key, slice):
        numbers = range(*key.indices(a.shape[1]))
        if len(numbers) == a.shape[1] and key.step in (None, 1):
            return a
        key = list(numbers)
    found = spgemm(a, _selection(_list(key, a.shape[1]), a, 1))
    assert isinstance(found, CSR)
    return found


def _selection(numbers: list[int], a: CSR, axis: int) -> CSR:
    """The matrix of ones that picks rows, from the left, or columns, from the right."""
    count, size = len(numbers), a.shape[axis]
    index = np.array(numbers, np.int64).reshape(-1)
    if axis == 0:
        return CSR(mo.ones(count, dtype=a.dtype), mo.astype(mo.asarray(index, device=a.device), a.indices.dtype),
                   mo.arange(count + 1, dtype=a.indptr.dtype), (count, size))
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(size + 1))
    return CSR(mo.ones(count, dtype=a.dtype), mo.asarray(order.astype(np.int64), device=a.device),
               mo.asarray(starts, device=a.device), (size, count))
