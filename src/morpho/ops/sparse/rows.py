"""Sums and extremes over the rows of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import bool_, int32, int64
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import TWO, Attributes, Op, Spec, register
from morpho.ops.algebra import cast, constant_like, div, where, zeros_like
from morpho.ops.batching import loop
from morpho.ops.sparse.pattern import in_chains, rows_of
from morpho.ops.sparse.products import ORDER

PLUS = {"sum": "add", "max": "maximum", "min": "minimum"}


def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    values, indptr = inputs
    if len(values.shape) != 1 or len(indptr.shape) != 1 or indptr.dtype not in (int32, int64):
        raise fail(ShapeError, "row_reduce", f"values {values.shape} and starts {indptr.dtype}{indptr.shape} are not "
                                             f"vectors of numbers and of int32 or int64")
    if values.dtype.is_complex or values.dtype is bool_:
        raise fail(DTypeError, "row_reduce", f"dtype {values.dtype} is not taken")
    return Spec((indptr.shape[0] - 1,), values.dtype)


def _reference(attributes: Attributes, values: Any, indptr: Any) -> Any:
    inside = np.clip(indptr.astype(np.int64), 0, len(values))
    with np.errstate(all="ignore"):
        return in_chains(values, inside, PLUS[attributes["how"]], values.dtype)


def spread(node: Node, indptr: Node, count: Any) -> Node:
    """The value of its row, for every stored element."""
    return build("gather", node, rows_of(indptr, count), axis=0)


def _rule(node: Node, ct: Node) -> list[Node | None]:
    """Every element of a sum has its row's; an extreme shares it evenly among all that attain it."""
    values, indptr = node.inputs
    count = values.shape[0]
    if node["how"] == "sum":
        return [spread(ct, indptr, count), None]
    hits = build("equal", values, spread(node, indptr, count))
    ties = build("row_reduce", cast(hits, ct.dtype), indptr, how="sum")
    share = div(ct, where(build("equal", ties, zeros_like(ties)), constant_like(ties, 1), ties))
    return [where(hits, spread(share, indptr, count), zeros_like(values)), None]


register(Op("row_reduce", "scan", _infer, _rule, _reference, 1, ORDER, arity=TWO, batch=loop))
