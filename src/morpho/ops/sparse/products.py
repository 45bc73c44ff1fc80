"""Sparse times dense (SpMM; a vector is one column), its transpose, and products sampled at a pattern (SDDMM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import bool_
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import Attributes, Op, Spec, register
from morpho.ops.algebra import permute, reshape
from morpho.ops.batching import Rows, loop
from morpho.ops.sparse.pattern import (
    NUMPY,
    SEMIRINGS,
    check_number,
    check_pattern,
    check_rank,
    checked,
    in_chains,
    row_numbers,
    zero_matrix,
)

ORDER = "four chains per row, stored order"


def _same_rows(name: str, dense: Spec, indptr: Spec) -> None:
    if dense.shape[0] + 1 != indptr.shape[0]:
        raise fail(ShapeError, name, f"{dense.shape[0]} rows for a pattern of {indptr.shape[0] - 1}")


# -- spmm: inputs are (dense, indices, indptr, data), so that `dense` is what `indices` look up ------------------------
def _infer_spmm(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    dense, indices, indptr, data = inputs
    check_pattern("spmm", indices, indptr, data)
    check_number("spmm", dense, data)
    check_rank("spmm", dense)
    semiring = attributes.get("semiring", "plus_times")
    if (semiring == "or_and") != (data.dtype is bool_):
        raise fail(DTypeError, "spmm", f"semiring {semiring} does not take {data.dtype}",
                   "or_and takes bool, the others take numbers")
    if semiring == "bits" and data.dtype.kind != "u":
        raise fail(DTypeError, "spmm", f"semiring bits does not take {data.dtype}", "bits are in unsigned integers")
    return Spec((indptr.shape[0] - 1, dense.shape[1]), dense.dtype)


def _reference_spmm(attributes: Attributes, dense: Any, indices: Any, indptr: Any, data: Any) -> Any:
    rule = SEMIRINGS[attributes.get("semiring", "plus_times")]
    found = checked("spmm", indices, dense.shape[0], indptr)
    with np.errstate(all="ignore"):
        terms = NUMPY[rule.times](data[:, None], dense[found])
        return in_chains(terms, indptr, rule.plus, dense.dtype)


def _spmm_rule(node: Node, ct: Node) -> list[Node | None]:
    dense, indices, indptr, data = node.inputs
    if node.attributes.get("semiring", "plus_times") != "plus_times":
        raise fail(ArgumentError, "spmm", f"semiring {node['semiring']} has no gradient", "plus_times has one")
    back = build("spmm_transposed", zero_matrix(dense.shape, dense.dtype), indices, indptr, data, ct, axis=0)
    return [back, None, None, build("sddmm", dense, indices, indptr, ct, axis=0)]


def _batch_spmm(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    """One matrix for all rows of a batch: their columns lie side by side. Each is the same chains."""
    dense = inputs[0]
    if any(batched[1:]):
        return loop(node, inputs, batched, rows)
    wide = reshape(permute(dense, (1, 0, 2)), (dense.shape[1], dense.shape[0] * dense.shape[2]))
    made = make(node.op, (wide, *inputs[1:]), node.attributes)
    return permute(reshape(made, (made.shape[0], dense.shape[0], dense.shape[2])), (1, 0, 2))


register(Op("spmm", "index", _infer_spmm, _spmm_rule, _reference_spmm, 2, ORDER, arity=(4, 4), batch=_batch_spmm))


# -- spmm_transposed: base + A^T dense ---------------------------------------------------------------------------------
def _infer_transposed(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    base, indices, indptr, data, dense = inputs
    check_pattern("spmm_transposed", indices, indptr, data)
    check_number("spmm_transposed", base, data, dense)
    check_rank("spmm_transposed", dense)
    _same_rows("spmm_transposed", dense, indptr)
    if len(base.shape) != 2 or base.shape[1] != dense.shape[1]:
        raise fail(ShapeError, "spmm_transposed", f"shapes {base.shape} and {dense.shape} differ in columns")
    return base


def _reference_transposed(attributes: Attributes, base: Any, indices: Any, indptr: Any, data: Any, dense: Any) -> Any:
    found = checked("spmm_transposed", indices, base.shape[0], indptr)
    result = np.array(base)
    with np.errstate(all="ignore"):
        np.add.at(result, found, (data[:, None] * dense[row_numbers(indptr)]).astype(result.dtype))
    return result


def _transposed_rule(node: Node, ct: Node) -> list[Node | None]:
    base, indices, indptr, data, dense = node.inputs
    return [ct, None, None, build("sddmm", ct, indices, indptr, dense, axis=0),
            build("spmm", ct, indices, indptr, data, axis=0)]


def _batch_transposed(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    if any(batched[1:4]):
        return loop(node, inputs, batched, rows)
    base, dense = rows.all([inputs[0], inputs[4]], [batched[0], batched[4]])
    wide = [reshape(permute(x, (1, 0, 2)), (x.shape[1], x.shape[0] * x.shape[2])) for x in (base, dense)]
    made = make(node.op, (wide[0], *inputs[1:4], wide[1]), node.attributes)
    return permute(reshape(made, (made.shape[0], base.shape[0], base.shape[2])), (1, 0, 2))


register(Op("spmm_transposed", "index", _infer_transposed, _transposed_rule, _reference_transposed, 2,
            "one chain per element, rows ascending", arity=(5, 5), batch=_batch_transposed))


# -- sddmm: for every stored element the product of a row of `left` and a row of `right` -------------------------------
def _infer_sddmm(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    right, indices, indptr, left = inputs
    check_pattern("sddmm", indices, indptr)
    check_number("sddmm", right, left)
    check_rank("sddmm", right)
    check_rank("sddmm", left)
    _same_rows("sddmm", left, indptr)
    if left.dtype is bool_:
        raise fail(DTypeError, "sddmm", "dtype bool is not taken", "convert with astype")
    if left.shape[1] != right.shape[1]:
        raise fail(ShapeError, "sddmm", f"rows of {left.shape} and {right.shape} have different lengths")
    return Spec(indices.shape, left.dtype)


def _reference_sddmm(attributes: Attributes, right: Any, indices: Any, indptr: Any, left: Any) -> Any:
    found = checked("sddmm", indices, right.shape[0], indptr)
    with np.errstate(all="ignore"):
        terms = left[row_numbers(indptr)] * right[found]
        flat, width = terms.reshape(-1), terms.shape[1]
        return in_chains(flat, np.arange(len(found) + 1) * width, "add", left.dtype)


def _sddmm_rule(node: Node, ct: Node) -> list[Node | None]:
    right, indices, indptr, left = node.inputs
    back = build("spmm_transposed", zero_matrix(right.shape, right.dtype), indices, indptr, ct, left, axis=0)
    return [back, None, None, build("spmm", right, indices, indptr, ct, axis=0)]


register(Op("sddmm", "index", _infer_sddmm, _sddmm_rule, _reference_sddmm, 2, ORDER, arity=(4, 4), batch=loop))
