"""Checks of the operands of sparse functions, and short names for nodes."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import build
from morpho.ops.sparse.pattern import rows_of as _rows_of
from morpho.sparse.arrays import COO, CSC, CSR, Compressed, Tensor, is_sparse
from morpho.tensor.sync import realised_array


def op(name: str, *operands: Tensor, **attributes: Any) -> Tensor:
    """An operation on tensors, by the name of its record."""
    return Tensor.of_node(build(name, *[x.node for x in operands], **attributes))


def rows_of(a: Compressed) -> Tensor:
    """The row of every stored element of a CSR matrix, the column of one in CSC."""
    return mo.astype(Tensor.of_node(_rows_of(a.indptr.node, a.nnz)), a.indices.dtype)


def places(a: Compressed) -> tuple[Tensor, Tensor]:
    """Row and column of every stored element."""
    outer = rows_of(a)
    return (outer, a.indices) if isinstance(a, CSR) else (a.indices, outer)


def compressed(name: str, a: Any) -> Compressed:
    """A matrix in rows or columns; others are converted."""
    from_others = CONVERT.get(type(a))
    if isinstance(a, CSR | CSC):
        return a
    if from_others is None:
        raise fail(ArgumentError, name, f"{type(a).__name__} is not a sparse matrix",
                   "mo.sparse.from_dense(x), from_scipy(a) or csr(...) make one")
    return from_others(a)  # type: ignore[no-any-return]


CONVERT: dict[type, Any] = {}  # of COO and BSR to CSR; `convert.py` fills it


def common(name: str, *values: Any) -> list[Tensor]:
    """Tensors of one dtype."""
    from morpho.tensor.operands import promoted

    return [Tensor.of_node(node) for node in promoted(name, *values)]


def vector_or_matrix(name: str, x: Any) -> Tensor:
    """A dense operand."""
    found: Tensor = x if isinstance(x, Tensor) else mo.asarray(x)
    if found.ndim not in (1, 2):
        raise fail(ShapeError, name, f"a dense operand has {found.ndim} dimensions, not one or two",
                   "reshape it, or use mo.vmap")
    return found


def number_of(x: Tensor, name: str, what: str) -> int:
    """A number that shapes what follows, or the last of several: known now, or an error inside `compile`.

    All of `x` is computed here and once; of one element of it the rest would be computed a second time."""
    found = realised_array(x, name, f"{what} depends on the values",
                           "make the pattern outside of the compiled function and give it as an argument")
    return int(found.reshape(-1)[-1])


def of_numbers(name: str, a: Compressed) -> None:
    if a.dtype.kind == "b":
        raise fail(DTypeError, name, "dtype bool is not taken", "convert with astype")


def square(name: str, a: Compressed) -> None:
    """Refuse what has more rows than columns, or fewer."""
    if a.shape[0] != a.shape[1]:
        raise fail(ShapeError, name, f"shape {a.shape} is not that of a square matrix")


__all__ = ["COO", "CONVERT", "common", "compressed", "is_sparse", "number_of", "of_numbers", "op", "places", "rows_of",
           "square", "vector_or_matrix"]
