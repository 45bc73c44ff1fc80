"""Element by element: sums, products, comparisons of sparse matrices with each other, with numbers and with dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.sparse.arrays import CSC, CSR, Compressed, Tensor, is_sparse
from morpho.sparse.checks import common, compressed, places
from morpho.sparse.convert import keys_of, to_dense, tocsr
from morpho.sparse.products import spgemm
from morpho.tensor.scalars import is_scalar


def same_pattern(a: Compressed, b: Compressed) -> bool:
    """Whether two matrices share the tensors of their pattern, so that nothing has to be compared."""
    return type(a) is type(b) and a.indices is b.indices and a.indptr is b.indptr and a.shape == b.shape


def _aligned(name: str, a: Compressed, b: Compressed) -> tuple[CSR, CSR, bool]:
    """Both in rows, and whether they were in columns: then these are their transposes."""
    if a.shape != b.shape:
        raise fail(ShapeError, name, f"shapes {a.shape} and {b.shape} differ", "sparse matrices are not broadcast")
    turned = isinstance(a, CSC) and isinstance(b, CSC)
    left, right = (a.T, b.T) if turned else (tocsr(a), tocsr(b))
    return left, right, turned  # type: ignore[return-value]


def _sum(name: str, a: Compressed, b: Compressed, sign: int) -> Compressed:
    """a + b: (I, I) times both below each other, a product of sparse matrices, which sorts and adds."""
    if same_pattern(a, b):
        return a.with_data(a.data + b.data if sign > 0 else a.data - b.data)
    left, right, turned = _aligned(name, a, b)
    x, y = common(name, left.data, right.data)
    index = left.indices.dtype
    rows = left.shape[0]
    below = CSR(mo.concat([x, y if sign > 0 else -y]),
                mo.concat([left.indices, mo.astype(right.indices, index)]),
                mo.concat([left.indptr, mo.astype(right.indptr[1:], left.indptr.dtype)
                           + mo.full((), left.nnz, dtype=left.indptr.dtype)]), (2 * rows, left.shape[1]))
    numbers = mo.arange(rows, dtype=index)
    both = mo.reshape(mo.stack([numbers, numbers + mo.full((), rows, dtype=index)], axis=1), (-1,))
    starts = mo.arange(rows + 1, dtype=left.indptr.dtype) * mo.full((), 2, dtype=left.indptr.dtype)
    found = spgemm(CSR(mo.ones(2 * rows, dtype=x.dtype), both, starts, (rows, 2 * rows)), below)
    return found.T if turned else found


def add(a: Any, b: Any, /) -> Any:
    """The sum: sparse of two sparse matrices, dense with a dense one. A number that is not zero would fill the matrix.

    >>> a = mo.sparse.eye(2)
    >>> (a + a).data.tolist(), (a + a.T).to_dense().tolist()
    ([2.0, 2.0], [[2.0, 0.0], [0.0, 2.0]])
    """
    return _added("add", a, b, 1)


def subtract(a: Any, b: Any, /) -> Any:
    """The difference, as `add`.

    >>> mo.sparse.subtract(mo.sparse.eye(2), mo.ones((2, 2))).tolist()
    [[0.0, -1.0], [-1.0, 0.0]]
    """
    return _added("subtract", a, b, -1)


def _added(name: str, a: Any, b: Any, sign: int) -> Any:
    if is_sparse(a) and is_sparse(b):
        return _sum(name, compressed(name, a), compressed(name, b), sign)
    for x, y in ((a, b), (b, a)):
        if is_scalar(y):
            if y == 0:
                return x if sign > 0 or x is a else -x
            raise fail(ArgumentError, name, f"adding {y} to a sparse matrix would fill it",
                       "add to a.data for the stored elements alone, or make it dense with to_dense()")
    left, right = (to_dense(compressed(name, x)) if is_sparse(x) else mo.asarray(x) for x in (a, b))
    return left + right if sign > 0 else left - right


def multiply(a: Any, b: Any, /) -> Compressed:
    """The product of elements, at the places of the first sparse operand: with a number, a dense matrix, a row or a
    column that is broadcast, or another sparse matrix, whose missing elements are zeros.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 2.0], [0.0, 3.0]]))
    >>> (a * mo.asarray([10.0, 100.0])).to_dense().tolist()
    [[10.0, 200.0], [0.0, 300.0]]
    """
    if not is_sparse(a):
        a, b = b, a
    x = compressed("multiply", a)
    return x.with_data(x.data * _at("multiply", x, b))


def divide(a: Any, b: Any, /) -> Compressed:
    """A sparse matrix divided by a number, a dense matrix, a row or a column.

    >>> (mo.sparse.eye(2) / 4).data.tolist()
    [0.25, 0.25]
    """
    if is_sparse(b):
        raise fail(ArgumentError, "divide", "the divisor is sparse: where it has no element this is 0 / 0",
                   "divide a.data where the patterns are the same")
    x = compressed("divide", a)
    return x.with_data(x.data / _at("divide", x, b))


def _at(name: str, a: Compressed, b: Any) -> Any:
    """The other operand at the places of a."""
    if is_scalar(b):
        return b
    if is_sparse(b):
        other = compressed(name, b)
        if same_pattern(a, other):
            return other.data
        if a.shape != other.shape:
            raise fail(ShapeError, name, f"shapes {a.shape} and {other.shape} differ")
        return values_at(tocsr(other), *places(a))
    dense: Tensor = b if isinstance(b, Tensor) else mo.asarray(b)
    if dense.ndim == 0:
        return dense
    row, col = places(a)
    shape = (1,) * (2 - dense.ndim) + tuple(dense.shape)
    if len(shape) != 2 or any(n not in (1, m) for n, m in zip(shape, a.shape, strict=True)):
        raise fail(ShapeError, name, f"shapes {a.shape} and {tuple(dense.shape)} do not broadcast")
    wide = mo.astype(row if shape[0] > 1 else row * 0, mo.int64) * shape[1]
    at = wide + mo.astype(col if shape[1] > 1 else col * 0, mo.int64)
    return mo.take(mo.reshape(dense, (-1,)), at)


def values_at(a: CSR, row: Any, col: Any) -> Tensor:
    """The elements at places, zero where none is stored; columns of `a` must be in order, without equal places."""
    wanted = mo.astype(row, mo.int64) * a.shape[1] + mo.astype(col, mo.int64)
    if a.nnz == 0:
        return mo.zeros(wanted.shape, dtype=a.dtype)
    keys = keys_of(a)
    at = mo.minimum(mo.searchsorted(keys, wanted), mo.full((), a.nnz - 1, dtype=mo.int64))
    found = mo.take(a.data, at)
    return mo.where(mo.take(keys, at) == wanted, found, mo.zeros_like(found))


def _comparison(name: str, symbol: str, text: str) -> Callable[[Any, Any], Any]:
    function = getattr(mo, name)

    def compare(a: Any, b: Any) -> Any:
        x = compressed(name, a)
        if is_sparse(b):
            if name in ("equal", "less_equal", "greater_equal"):
                raise fail(ArgumentError, name, f"a {symbol} b holds wherever neither has an element: the result would "
                                                "be full", "compare with !=, < or >, and negate, or make both dense")
            other = compressed(name, b)
            if same_pattern(x, other):
                return x.with_data(function(x.data, other.data))
            left, right, turned = _aligned(name, x, other)
            both = _sum(name, left.with_data(mo.ones(left.nnz, dtype=mo.int8)),
                        right.with_data(mo.ones(right.nnz, dtype=mo.int8)), 1)
            assert isinstance(both, CSR)
            at = places(both)
            found = both.with_data(function(values_at(left, *at), values_at(right, *at)))
            return found.T if turned else found
        if is_scalar(b):
            if bool(function(mo.zeros((), dtype=x.dtype), b)):
                raise fail(ArgumentError, name, f"0 {symbol} {b}: the result would be full",
                           "compare a.data for the stored elements alone, or make it dense with to_dense()")
            return x.with_data(function(x.data, b))
        return function(to_dense(x), b)

    compare.__name__, compare.__doc__ = name, text
    return compare


COMPARISONS = {name: _comparison(name, symbol, f"Elements that are {symbol} those of the other matrix.")
               for name, symbol in (("equal", "=="), ("not_equal", "!="), ("less", "<"), ("less_equal", "<="),
                                    ("greater", ">"), ("greater_equal", ">="))}
