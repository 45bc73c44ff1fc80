"""Sums, extremes, norms and softmax over what is stored; the diagonal."""

from __future__ import annotations

import builtins
import math
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.sparse.arrays import CSC, CSR, Compressed, Tensor
from morpho.sparse.checks import common, compressed, op, places, rows_of


def _axis(name: str, axis: Any) -> int | None:
    if axis is None:
        return None
    if axis not in (0, 1, -1, -2):
        raise fail(ArgumentError, name, f"axis {axis!r} is not an axis of a matrix",
                   "0 for columns, 1 for rows, None for all")
    return int(axis) % 2


def _by_rows(a: Compressed, axis: int) -> bool:
    """Whether what is reduced lies together."""
    return isinstance(a, CSR) == (axis == 1)


def _lines(a: Compressed, values: Tensor, how: str) -> Tensor:
    """Along the compressed axis."""
    return op("row_reduce", values, a.indptr, how=how)


def sum(a: Any, /, *, axis: int | None = None) -> Tensor:
    """The sum of all elements, or along an axis; of integers in 64 bits, as `mo.sum` has it.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 2.0], [0.0, 3.0]]))
    >>> a.sum().item(), a.sum(axis=0).tolist(), a.sum(axis=1).tolist()
    (6.0, [1.0, 5.0], [3.0, 3.0])
    """
    x, along = compressed("sum", a), _axis("sum", axis)
    wide = {"b": mo.int64, "i": mo.int64, "u": mo.uint64}.get(x.dtype.kind)
    data = x.data if wide is None else mo.astype(x.data, wide)
    if along is None:
        return mo.sum(data)
    if not _by_rows(x, along):
        return mo.scatter_add(mo.zeros(x.shape[1 - along], dtype=data.dtype), x.indices, data)
    if data.dtype.kind == "c":
        return op("complex", _lines(x, mo.real(data), "sum"), _lines(x, mo.imag(data), "sum"))
    return _lines(x, data, "sum")


def mean(a: Any, /, *, axis: int | None = None) -> Tensor:
    """The mean of all elements, or along an axis; zeros that are not stored count.

    >>> mo.sparse.mean(mo.sparse.eye(2)).item()
    0.5
    """
    x, along = compressed("mean", a), _axis("mean", axis)
    count = x.shape[0] * x.shape[1] if along is None else x.shape[along]
    return sum(x, axis=axis) / count


def _extreme(name: str, a: Any, axis: int | None) -> Tensor:
    x, along = compressed(name, a), _axis(name, axis)
    pair = mo.maximum if name == "max" else mo.minimum
    if 0 in x.shape and (along is None or x.shape[along] == 0):
        raise fail(ArgumentError, name, f"a matrix of shape {x.shape} has no {name}imum" if along is None else
                   f"lines without elements have no {name}imum")
    if along is None:
        if x.nnz == 0:
            return mo.zeros((), dtype=x.dtype)
        whole = getattr(mo, name)(x.data)
        return whole if x.nnz >= x.shape[0] * x.shape[1] else pair(whole, mo.zeros_like(whole))
    if not _by_rows(x, along):
        from morpho.sparse.products import turned

        x = turned(x)
    found = _lines(x, x.data, name)
    stored = x.indptr[1:] - x.indptr[:-1]
    short = stored < mo.full((), x.shape[along], dtype=stored.dtype)
    return mo.where(short, pair(found, mo.zeros_like(found)), found)


def max(a: Any, /, *, axis: int | None = None) -> Tensor:
    """The largest element, or those along an axis; zeros that are not stored count.

    >>> mo.sparse.max(mo.sparse.eye(2), axis=1).tolist()
    [1.0, 1.0]
    """
    return _extreme("max", a, axis)


def min(a: Any, /, *, axis: int | None = None) -> Tensor:
    """The smallest element, or those along an axis; zeros that are not stored count.

    >>> mo.sparse.min(mo.sparse.eye(2), axis=1).tolist()
    [0.0, 0.0]
    """
    return _extreme("min", a, axis)


def diagonal(a: Any, /, *, offset: int = 0) -> Tensor:
    """The elements on a diagonal, zero where none is stored.

    >>> mo.sparse.diagonal(mo.sparse.from_dense(mo.asarray([[1.0, 2.0], [0.0, 3.0]]))).tolist()
    [1.0, 3.0]
    """
    x = compressed("diagonal", a)
    row, col = places(x)
    first = -offset if offset < 0 else 0
    count = builtins.max(0, builtins.min(x.shape[0] - first, x.shape[1] - (offset if offset > 0 else 0)))
    on = col - row == mo.full((), offset, dtype=row.dtype)
    at = mo.where(on, row - mo.full((), first, dtype=row.dtype), mo.full((), count, dtype=row.dtype))
    found = mo.scatter_add(mo.zeros(count + 1, dtype=x.dtype), at, x.data)  # the last one takes what lies elsewhere
    return found[:count]





def norm(a: Any, /, *, ord: Any = "fro") -> Tensor:
    """A norm: "fro", 1 (largest sum of a column), inf (of a row), -1, -inf, or "max" (largest element).

    >>> mo.sparse.norm(mo.sparse.from_dense(mo.asarray([[3.0, 0.0], [4.0, 0.0]]))).item()
    5.0
    """
    x = compressed("norm", a)
    sizes = x.with_data(mo.abs(x.data))
    if ord == "fro":
        (numbers,) = common("norm", sizes.data)
        length: Tensor = mo.linalg.vector_norm(numbers)
        return length
    if ord == "max":
        return max(sizes)
    if ord not in (1, -1, math.inf, -math.inf):
        raise fail(ArgumentError, "norm", f"order {ord!r} is unknown", 'one of "fro", 1, -1, inf, -inf, "max"')
    totals = sum(sizes, axis=0 if abs(ord) == 1 else 1)
    return mo.max(totals) if ord > 0 else mo.min(totals)


def softmax(a: Any, /, *, axis: int = -1) -> Compressed:
    """Softmax along an axis over what is stored: as if all else were minus infinity.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 1.0, 0.0], [0.0, 0.0, 5.0]]))
    >>> mo.sparse.softmax(a).data.tolist()
    [0.5, 0.5, 1.0]
    """
    x, along = compressed("softmax", a), _axis("softmax", axis)
    if not _by_rows(x, 1 if along is None else along):
        raise fail(ArgumentError, "softmax", f"{type(x).__name__} lies along the other axis",
                   "convert with tocsr() for rows, with tocsc() for columns")
    lines = rows_of(x)
    largest = _lines(x, x.data, "max")
    raised = mo.exp(x.data - mo.take(mo.stop_gradient(largest), lines))
    return x.with_data(raised / mo.take(_lines(x, raised, "sum"), lines))


__all__ = ["CSC", "diagonal", "max", "mean", "min", "norm", "softmax", "sum"]
