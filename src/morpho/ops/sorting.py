"""Order: sorting along an axis, the indices that would sort, and places in sorted lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, int64
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.ir.node import Node, build, make
from morpho.ir.op import (
    ONE,
    TWO,
    Arity,
    Attributes,
    Batching,
    Forward,
    Gradient,
    Infer,
    NoGradient,
    Op,
    Reference,
    Spec,
    register,
)
from morpho.ops.algebra import zeros_like
from morpho.ops.batching import Rows, along_axis


def _ordered(name: str, infer: Infer, vjp: Gradient | NoGradient, reference: Reference, arity: Arity = ONE,
             batch: Batching = along_axis, jvp: Forward | None = None) -> Op:
    return register(Op(name, "scan", infer, vjp, reference, 24, "exact", arity=arity, batch=batch, jvp=jvp))


def _real_line(name: str, result: DType | None = None) -> Infer:
    def infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
        shape, dtype = inputs[0]
        if dtype.is_complex:
            raise fail(DTypeError, name, f"dtype {dtype} has no order", "sort real(), imag() or abs()")
        return Spec(shape, result or dtype)

    return infer


def _reference_argsort(attributes: Attributes, x: Any) -> Any:
    """NaN is last when ascending, first when descending; equal elements keep their order when stable."""
    axis = attributes["axis"]
    kind: Any = "stable" if attributes["stable"] else None
    if not attributes["descending"]:
        return np.argsort(x, axis=axis, kind=kind)
    turned = np.argsort(np.flip(x, axis), axis=axis, kind=kind)
    return x.shape[axis] - 1 - np.flip(turned, axis)


def _reference_sort(attributes: Attributes, x: Any) -> Any:
    axis = attributes["axis"]
    if not attributes["descending"]:
        return _in_order(x, axis, attributes["stable"])
    return np.flip(_in_order(np.flip(x, axis), axis, attributes["stable"]), axis)


def _in_order(x: Any, axis: int, stable: bool) -> Any:
    """Sorted values. Only zeros are equal and yet of two kinds: without both, NumPy's vector sort, which is not stable,
    gives what its stable one would. For one and two bytes the stable one is by far the faster."""
    if x.dtype.kind in "iub" and x.dtype.itemsize <= 2:
        return np.sort(x, axis=axis, kind="stable")
    found = np.sort(x, axis=axis)
    if stable and x.dtype.kind == "f":
        signs = np.signbit(found[found == 0])
        if signs.any() and not signs.all():
            return np.sort(x, axis=axis, kind="stable")
    return found


def _infer_searchsorted(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    """One sorted line; or, with `lines` axes in front of both, a line for each place along these."""
    line, values = inputs
    lines = attributes.get("lines", 0)
    if len(line.shape) != 1 + lines or line.shape[:lines] != values.shape[:lines]:
        raise fail(ShapeError, "searchsorted", f"the sorted tensor has shape {line.shape}, not one dimension")
    if line.dtype is not values.dtype or line.dtype.is_complex:
        raise fail(DTypeError, "searchsorted", f"dtypes {line.dtype} and {values.dtype} have no common order")
    return Spec(values.shape, int64)


def _reference_searchsorted(attributes: Attributes, line: Any, values: Any) -> Any:
    found = np.empty(values.shape, np.int64)
    for place in np.ndindex(*line.shape[:-1]):
        found[place] = np.searchsorted(line[place], values[place], side=attributes["side"])
    return found


def _batch_searchsorted(node: Node, inputs: Sequence[Node], batched: Sequence[bool], rows: Rows) -> Node:
    if not batched[0] and "lines" not in node.attributes:
        return make(node.op, inputs, node.attributes)  # more values for the same line
    attributes = {**node.attributes, "lines": node.attributes.get("lines", 0) + 1}
    return make(node.op, rows.all(inputs, batched), attributes)


def _order_of(node: Node) -> Node:
    return build("argsort", node.inputs[0], axis=node["axis"], descending=node["descending"], stable=node["stable"])


def _sort_rule(node: Node, ct: Node) -> list[Node]:
    return [build("scatter", zeros_like(node.inputs[0]), _order_of(node), ct, axis=node["axis"], mode="set")]


def _sort_forward(node: Node, tangents: Sequence[Node | None], push: Any) -> list[Node]:
    assert tangents[0] is not None
    return [build("gather", tangents[0], _order_of(node), axis=node["axis"])]


_ordered("argsort", _real_line("argsort", int64), NoGradient("the result is indices"), _reference_argsort,
         batch=along_axis)
_ordered("sort", _real_line("sort"), _sort_rule, _reference_sort, batch=along_axis, jvp=_sort_forward)
_ordered("searchsorted", _infer_searchsorted, NoGradient("the result is indices"), _reference_searchsorted, arity=TWO,
      batch=_batch_searchsorted)
