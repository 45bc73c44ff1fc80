"""Solves with a sparse triangle, and incomplete factors on the pattern of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import float32, float64
from morpho.base.errors import DTypeError, ShapeError, ValueFault, fail
from morpho.ir.node import Node, build
from morpho.ir.op import THREE, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import neg, where, zeros_like
from morpho.ops.batching import Rows, loop
from morpho.ops.sparse.pattern import check_number, check_pattern, check_rank, checked, rows_of


def _infer_solve(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    b, indices, indptr, data = inputs
    check_pattern("sptrsv", indices, indptr, data)
    check_number("sptrsv", b, data)
    check_rank("sptrsv", b)
    if not b.dtype.is_float or b.dtype.itemsize < 4:
        raise fail(DTypeError, "sptrsv", f"dtype {b.dtype} is not taken", "convert to float32 or float64")
    if b.shape[0] + 1 != indptr.shape[0]:
        raise fail(ShapeError, "sptrsv", f"{b.shape[0]} rows on the right for a matrix of {indptr.shape[0] - 1}")
    return b


def _reference_solve(attributes: Attributes, b: Any, indices: Any, indptr: Any, data: Any) -> Any:
    """Row by row, or for the transpose column by column; elements outside the triangle are not read."""
    upper, unit, turned = (attributes[name] for name in ("upper", "unit", "transposed"))
    columns, x = checked("sptrsv", indices, b.shape[0], indptr), np.array(b)
    backwards = upper != turned
    with np.errstate(all="ignore"):
        for r in reversed(range(len(x))) if backwards else range(len(x)):
            own = slice(int(indptr[r]), int(indptr[r + 1]))
            at, values = columns[own], data[own]
            pivot = values[at == r]
            inside = at > r if upper else at < r
            if not unit and (pivot.size == 0 or pivot[-1] == 0):
                raise fail(ValueFault, "sptrsv", "singular matrix")
            if not turned:
                for c, value in zip(at[inside], values[inside], strict=True):
                    x[r] -= value * x[c]
            if not unit:
                x[r] /= pivot[-1]
            if turned:
                for c, value in zip(at[inside], values[inside], strict=True):
                    x[c] -= value * x[r]
    return x


def _solve_rule(node: Node, ct: Node) -> list[Node | None]:
    """b's is a solve with the transpose; that of a stored element minus the product of it and of x, in the triangle."""
    b, indices, indptr, data = node.inputs
    how = {name: node[name] for name in ("upper", "unit", "axis")}
    moved = build("sptrsv", ct, indices, indptr, data, transposed=not node["transposed"], **how)
    sides = (node, moved) if not node["transposed"] else (moved, node)  # looked up by column, by row
    slope = neg(build("sddmm", sides[0], indices, indptr, sides[1], axis=0))
    rows = rows_of(indptr, indices.shape[0])
    columns = build("cast", indices, dtype=rows.dtype)
    order = ("greater" if node["upper"] else "less") + ("" if node["unit"] else "_equal")
    return [moved, None, None, where(build(order, columns, rows), slope, zeros_like(slope))]


def _batch_solve(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    from morpho.ops.sparse.products import _batch_spmm

    return _batch_spmm(node, inputs, batched, rows)


register(Op("sptrsv", "index", _infer_solve, _solve_rule, _reference_solve, 2, "one chain per element, stored order",
            arity=(4, 4), batch=_batch_solve))


# -- incomplete factors ------------------------------------------------------------------------------------------------
def _infer_incomplete(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    data, indices, indptr = inputs
    check_pattern("incomplete_factors", indices, indptr, data)
    if data.dtype not in (float32, float64):
        raise fail(DTypeError, "incomplete_factors", f"dtype {data.dtype} is not taken",
                   "convert to float32 or float64")
    return data


def _reference_incomplete(attributes: Attributes, data: Any, indices: Any, indptr: Any) -> Any:
    columns = checked("incomplete_factors", indices, len(indptr) - 1, indptr)
    factor = _lu if attributes["how"] == "lu" else _cholesky
    return factor(np.array(data), columns, indptr)


def _lu(data: Any, columns: Any, indptr: Any) -> Any:
    """Both factors on the pattern of the matrix; the diagonal of L is one."""
    diagonal: dict[int, int] = {}
    with np.errstate(all="ignore"):
        for r in range(len(indptr) - 1):
            place = {int(columns[j]): j for j in range(int(indptr[r]), int(indptr[r + 1]))}
            for c, j in place.items():
                if c < r:
                    data[j] = data[j] / data[diagonal[c]]
                    for other in range(diagonal[c] + 1, int(indptr[c + 1])):
                        if (at := place.get(int(columns[other]))) is not None:
                            data[at] = data[at] - data[j] * data[other]
            if r not in place or data[place[r]] == 0:
                raise fail(ValueFault, "incomplete_factors", "singular matrix")
            diagonal[r] = place[r]
    return data


def _cholesky(data: Any, columns: Any, indptr: Any) -> Any:
    """The factor L on the pattern of the lower triangle, which is all that is stored."""
    with np.errstate(all="ignore"):
        for r in range(len(indptr) - 1):
            start, end = int(indptr[r]), int(indptr[r + 1])
            place = {int(columns[j]): j for j in range(start, end)}
            if end == start or columns[end - 1] != r:
                raise fail(ValueFault, "incomplete_factors", "matrix is not positive definite")
            for j in range(start, end):
                c = int(columns[j])
                total = data[j]
                last = end - 1 if c == r else int(indptr[c + 1]) - 1
                for other in range(int(indptr[c]), last):
                    if (at := place.get(int(columns[other]))) is not None:
                        total = total - data[at] * data[other]
                if c == r and not total > 0:
                    raise fail(ValueFault, "incomplete_factors", "matrix is not positive definite")
                data[j] = np.sqrt(total) if c == r else total / data[last]
    return data


register(Op("incomplete_factors", "host", _infer_incomplete,
            NoGradient("a preconditioner is not differentiated; the solution of the system is", missing=True),
            _reference_incomplete, 8, "one chain per element, stored order", arity=THREE, batch=loop))
