"""Products: sparse with dense, with sparse, sampled at a pattern; semirings; complex ones by their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ops.sources import pick
from morpho.ops.sparse.pattern import SEMIRINGS
from morpho.sparse.arrays import BSR, CSC, CSR, Compressed, Tensor, is_sparse
from morpho.sparse.checks import common, compressed, number_of, of_numbers, op, rows_of, vector_or_matrix


def matmul(a: Any, b: Any, /, *, semiring: str = "plus_times") -> Any:
    """The product of two matrices or of a matrix and a vector, of which at least one is sparse.

    `semiring` names what takes the place of plus and times: "plus_times", "min_plus", "max_plus", "max_times",
    "max_min", "min_max", "or_and" of bools, or "bits" of unsigned integers, each of whose bits is a bool; a row without
    elements gives the empty sum, such as inf for "min_plus".

    >>> a = mo.sparse.from_dense(mo.asarray([[0.0, 2.0], [1.0, 0.0]]))
    >>> mo.sparse.matmul(a, mo.asarray([3.0, 4.0])).tolist()
    [8.0, 3.0]
    >>> mo.sparse.matmul(a, mo.asarray([3.0, 4.0]), semiring="min_plus").tolist()
    [6.0, 4.0]
    """
    if semiring not in SEMIRINGS:
        raise fail(ArgumentError, "matmul", f"semiring {semiring!r} is unknown", "one of " + ", ".join(SEMIRINGS))
    if is_sparse(a) and is_sparse(b):
        if semiring != "plus_times":
            raise fail(ArgumentError, "matmul", f"semiring {semiring} is for products with dense operands",
                       "make one of the two dense with to_dense()")
        return spgemm(compressed("matmul", a), compressed("matmul", b))
    if not is_sparse(a) and not is_sparse(b):
        raise fail(ArgumentError, "matmul", "neither operand is sparse", "mo.matmul multiplies dense ones")
    if is_sparse(a):
        return _times_dense(a, vector_or_matrix("matmul", b), semiring)
    left = vector_or_matrix("matmul", a)
    found = _times_dense(compressed("matmul", b).T, left.T if left.ndim == 2 else left, semiring)
    return found.T if left.ndim == 2 else found


def _times_dense(a: Any, x: Tensor, semiring: str) -> Tensor:
    if a.shape[1] != x.shape[0]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {x.shape} do not align: {a.shape[1]} != {x.shape[0]}")
    wide = x if x.ndim == 2 else mo.reshape(x, (-1, 1))
    if isinstance(a, BSR):
        if semiring != "plus_times":
            raise fail(ArgumentError, "matmul", f"a matrix in blocks has no product by semiring {semiring}",
                       "convert it with tocsr()")
        data, wide = common("matmul", a.data, wide)
        found = _by_parts(lambda d, y: _blocks(a, d, y), data, wide) if data.dtype.kind == "c" else \
            _blocks(a, data, wide)
    else:
        found = _columns(compressed("matmul", a), wide, semiring)
    return found if x.ndim == 2 else mo.reshape(found, (a.shape[0],))


def _columns(a: Compressed, x: Tensor, semiring: str) -> Tensor:
    data, x = common("matmul", a.data, x)
    if data.dtype.kind == "c":
        if semiring != "plus_times":
            raise fail(DTypeError, "matmul", f"semiring {semiring} does not take {data.dtype}")
        return _by_parts(lambda d, y: _real(a, d, y, semiring), data, x)
    return _real(a, data, x, semiring)


def _by_parts(product: Callable[[Tensor, Tensor], Tensor], data: Tensor, x: Tensor) -> Tensor:
    """(a + ib)(c + id): two products, with c and d side by side."""
    width = x.shape[1]
    both = mo.concat([mo.real(x), mo.imag(x)], axis=1)
    of_real, of_imag = product(mo.real(data), both), product(mo.imag(data), both)
    re = of_real[:, :width] - of_imag[:, width:]
    im = of_real[:, width:] + of_imag[:, :width]
    return op("complex", re, im)


def _real(a: Compressed, data: Tensor, x: Tensor, semiring: str) -> Tensor:
    if isinstance(a, CSR):
        how = {} if semiring == "plus_times" else {"semiring": semiring}
        return op("spmm", x, a.indices, a.indptr, data, axis=0, **how)
    if semiring != "plus_times" or data.dtype.kind == "b":
        raise fail(ArgumentError, "matmul", f"a matrix in columns has no product by semiring {semiring}",
                   "convert it with tocsr()")
    base = mo.zeros((a.shape[0], x.shape[1]), dtype=data.dtype)
    return op("spmm_transposed", base, a.indices, a.indptr, data, x, axis=0)


def _blocks(a: BSR, data: Tensor, x: Tensor) -> Tensor:
    """Every block times the rows it meets, then block rows added up: products of dense matrices."""
    height, width = a.blocksize
    columns = x.shape[1]
    met = mo.take(mo.reshape(x, (a.shape[1] // width, width, columns)), a.indices, axis=0)
    terms = mo.reshape(mo.matmul(data, met), (data.shape[0], height * columns))
    ones = mo.ones(data.shape[0], dtype=terms.dtype)
    numbers = mo.arange(data.shape[0], dtype=a.indices.dtype)
    found = op("spmm", terms, numbers, a.indptr, ones, axis=0)
    return mo.reshape(found, (a.shape[0], columns))


def sddmm(pattern: Compressed, left: Any, right: Any, /) -> Compressed:
    """`left @ right` at the places of a pattern, and nowhere else: as scores are needed under a mask.

    >>> mask = mo.sparse.eye(2)
    >>> mo.sparse.sddmm(mask, mo.asarray([[1.0], [2.0]]), mo.asarray([[3.0, 4.0]])).data.tolist()
    [3.0, 8.0]
    """
    pattern = compressed("sddmm", pattern)
    x, y = common("sddmm", left, right)
    if x.ndim != 2 or y.ndim != 2 or (x.shape[0], y.shape[1]) != tuple(pattern.shape) or x.shape[1] != y.shape[0]:
        raise fail(ShapeError, "sddmm", f"the product of {x.shape} and {y.shape} is not of shape {pattern.shape}")
    if isinstance(pattern, CSC):
        return sddmm(pattern.T, y.T, x.T).T
    if x.dtype.kind != "c":
        return pattern.with_data(op("sddmm", y.T, pattern.indices, pattern.indptr, x, axis=0))
    parts = [[sddmm(pattern, a, b).data for b in (mo.real(y), mo.imag(y))] for a in (mo.real(x), mo.imag(x))]
    return pattern.with_data(op("complex", parts[0][0] - parts[1][1], parts[0][1] + parts[1][0]))


# -- sparse times sparse -----------------------------------------------------------------------------------------------
def spgemm(a: Compressed, b: Compressed) -> Compressed:
    """A product in CSR, columns in order; how many there are is known at once. Two matrices in columns give one."""
    if a.shape[1] != b.shape[0]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape} do not align: {a.shape[1]} != {b.shape[0]}")
    if isinstance(a, CSC) and isinstance(b, CSC):
        found: CSR = spgemm(b.T, a.T)  # type: ignore[assignment]
        return found.T
    left, right = (turned(x) if isinstance(x, CSC) else x for x in (a, b))
    of_numbers("matmul", left)
    of_numbers("matmul", right)
    data, values = common("matmul", left.data, right.data)
    counts = op("spgemm_count", right.indptr, left.indices, left.indptr, right.indices, axis=0, columns=b.shape[1])
    ends = starts_of(counts, left.indptr.dtype)
    count = number_of(ends, "matmul", "the number of elements of a sparse product")

    def product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        made = op("spgemm", right.indptr, left.indices, left.indptr, right.indices, x, y, ends, axis=0,
                  columns=b.shape[1], count=count).node
        return Tensor.of_node(pick(made, 0)), Tensor.of_node(pick(made, 1))

    if data.dtype.kind != "c":
        indices, numbers = product(data, values)
    else:
        (indices, rr), (_, ii) = product(mo.real(data), mo.real(values)), product(mo.imag(data), mo.imag(values))
        (_, ri), (_, ir) = product(mo.real(data), mo.imag(values)), product(mo.imag(data), mo.real(values))
        numbers = op("complex", rr - ii, ri + ir)
    return CSR(numbers, indices, ends, (a.shape[0], b.shape[1]))


def starts_of(counts: Tensor, dtype: Any) -> Tensor:
    """Row starts from the lengths of rows."""
    sums = mo.cumulative_sum(counts, include_initial=True)
    return mo.astype(sums, dtype)


def turned(a: Compressed) -> Any:
    """The same matrix compressed along the other axis: a stable sort by the inner index."""
    order = mo.argsort(a.indices, stable=True)
    inner = a.shape[1] if isinstance(a, CSR) else a.shape[0]
    by_order = mo.take(a.indices, order)
    ends = mo.searchsorted(by_order, mo.arange(inner + 1, dtype=a.indices.dtype))
    parts = (mo.take(a.data, order), mo.take(rows_of(a), order), mo.astype(ends, a.indptr.dtype), a.shape)
    return CSC(*parts) if isinstance(a, CSR) else CSR(*parts)
