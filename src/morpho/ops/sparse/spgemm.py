"""Sparse times sparse (SpGEMM) in two steps: how long each row of the result is, then its columns and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import JOINT, Attributes, NoGradient, Op, Spec, register
from morpho.ops.algebra import reshape
from morpho.ops.batching import Rows, loop, row_at
from morpho.ops.sources import pick
from morpho.ops.sparse.pattern import check_number, check_pattern, checked, row_numbers


# Inputs of the count: (indptr of B, indices of A, indptr of A, indices of B). A's indices look up rows of B.
def _infer_count(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    starts, indices, indptr, others = inputs
    check_pattern("spgemm", indices, indptr)
    check_pattern("spgemm", others, starts)
    return Spec((indptr.shape[0] - 1,), int64)


def _reference_count(attributes: Attributes, starts: Any, indices: Any, indptr: Any, others: Any) -> Any:
    rows = _rows(attributes, starts, indices, indptr, others)
    return np.array([len(row) for row in rows], np.int64)


def _rows(attributes: Attributes, starts: Any, indices: Any, indptr: Any, others: Any,
          data: Any = None, values: Any = None) -> list[dict[int, Any]]:
    """Every row of the product, by column."""
    left = checked("spgemm", indices, len(starts) - 1, indptr)
    right = checked("spgemm", others, attributes["columns"], starts)
    found: list[dict[int, Any]] = []
    with np.errstate(all="ignore"):
        for r in range(len(indptr) - 1):
            row: dict[int, Any] = {}
            for j in range(int(indptr[r]), int(indptr[r + 1])):
                for other in range(int(starts[left[j]]), int(starts[left[j] + 1])):
                    c = int(right[other])
                    term = 0 if data is None else data[j] * values[other]
                    row[c] = row[c] + term if c in row else term
            found.append(row)
    return found


register(Op("spgemm_count", "index", _infer_count, NoGradient("the result counts places"), _reference_count, 8, "exact",
            arity=(4, 4), batch=loop))


# Those of the product: the same, then (data of A, data of B, indptr of the result).
def _infer_product(inputs: Sequence[Spec], attributes: Attributes) -> tuple[Spec, Spec]:
    starts, indices, indptr, others, data, values, ends = inputs
    check_pattern("spgemm", indices, indptr, data)
    check_pattern("spgemm", others, starts, values)
    check_number("spgemm", data, values)
    if data.dtype is bool_:
        raise fail(DTypeError, "spgemm", "dtype bool is not taken", "convert with astype")
    if ends.shape != indptr.shape:
        raise fail(ShapeError, "spgemm", f"{ends.shape} starts for a result of {indptr.shape} rows")
    return Spec((attributes["count"],), indices.dtype), Spec((attributes["count"],), data.dtype)


def _reference_product(attributes: Attributes, starts: Any, indices: Any, indptr: Any, others: Any, data: Any,
                       values: Any, ends: Any) -> Any:
    rows = _rows(attributes, starts, indices, indptr, others, data, values)
    columns = np.zeros(attributes["count"], np.int64)
    numbers = np.zeros(attributes["count"], data.dtype)
    for start, row in zip(ends, rows, strict=False):
        for place, c in enumerate(sorted(row)):
            columns[start + place], numbers[start + place] = c, row[c]
    return columns, numbers


def _product_rule(node: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """dA = (dC B^T) at A's places, dB = (A^T dC) at B's: products of sparse rows sampled at a pattern."""
    starts, indices, indptr, others, data, values, ends = node.inputs
    ct = cotangents[1]
    if ct is None:
        return [None] * 7
    columns = pick(node, 0)
    how = {"columns": node["columns"], "axis": 0}
    of_left = build("spgemm_slopes", starts, indices, indptr, others, values, ends, columns, ct, side="left", **how)
    of_right = build("spgemm_slopes", starts, indices, indptr, others, data, ends, columns, ct, side="right", **how)
    return [None, None, None, None, of_left, of_right, None]


def _batch_product(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> list[Node]:
    """Row by row: how many elements there are is the same for all."""
    if not isinstance(rows.size, int) or rows.size == 0:
        raise fail(ArgumentError, "vmap", f"a batch of {rows.size} sparse products is no loop", line=node.origin)
    made = [make(node.op, [row_at(x, n) if has else x for x, has in zip(inputs, batched, strict=True)],
                 node.attributes) for n in range(rows.size)]
    parts = [[pick(one, number) for one in made] for number in range(2)]
    return [build("concatenate", *[reshape(x, (1, *x.shape)) for x in one], axis=0) for one in parts]


register(Op("spgemm", "index", _infer_product, _product_rule, _reference_product, 8,
            "one chain per element, stored order", frozenset({JOINT}), arity=(7, 7), batch=_batch_product))


# The gradient: inputs (indptr of B, indices of A, indptr of A, indices of B, data of the other side, indptr of C,
# columns of C, cotangent of C).
def _infer_slopes(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    starts, indices, indptr, others, data, ends, columns, ct = inputs
    check_pattern("spgemm", columns, ends, ct)
    return Spec(indices.shape if attributes["side"] == "left" else others.shape, ct.dtype)


def _reference_slopes(attributes: Attributes, starts: Any, indices: Any, indptr: Any, others: Any, data: Any,
                      ends: Any, columns: Any, ct: Any) -> Any:
    """One chain per element of A or B, in the order in which the product meets it."""
    left = attributes["side"] == "left"
    found = np.zeros(len(indices) if left else len(others), ct.dtype)
    rows = row_numbers(indptr)
    with np.errstate(all="ignore"):
        for j, (r, k) in enumerate(zip(rows, indices, strict=True)):
            own = slice(int(ends[r]), int(ends[r + 1]))
            at = dict(zip(columns[own].tolist(), ct[own], strict=True))
            for other in range(int(starts[k]), int(starts[k + 1])):
                slope = at[int(others[other])]
                if left:
                    found[j] = found[j] + data[other] * slope
                else:
                    found[other] = found[other] + data[j] * slope
    return found


def _slopes_rule(node: Node, ct: Node) -> list[Node | None]:
    """It is linear in the numbers of the other side and in the cotangent: a product, and the slopes of that side."""
    starts, indices, indptr, others, data, ends, columns, slopes = node.inputs
    left = node["side"] == "left"
    how = {"columns": node["columns"], "axis": 0}
    pair = (ct, data) if left else (data, ct)
    made = build("spgemm", starts, indices, indptr, others, *pair, ends, count=columns.shape[0], **how)
    of_data = build("spgemm_slopes", starts, indices, indptr, others, ct, ends, columns, slopes,
                    side="right" if left else "left", **how)
    return [None, None, None, None, of_data, None, None, pick(made, 1)]


register(Op("spgemm_slopes", "host", _infer_slopes, _slopes_rule, _reference_slopes, 8,
            "one chain per element, stored order", arity=(8, 8), batch=loop))
