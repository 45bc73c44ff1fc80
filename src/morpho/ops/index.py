"""Indexing by data: gather (a native kernel with checked indices) and scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.errors import DTypeError, IndexFault, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ir.op import Attributes, Op, Spec, register
from morpho.ops.algebra import zeros_like


def _infer_gather(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    x, index = inputs
    axis = attributes["axis"]
    if not index.dtype.is_integer:
        raise fail(DTypeError, "take", f"indices are {index.dtype}, not integers")
    same = all(a == b for i, (a, b) in enumerate(zip(x.shape, index.shape, strict=False)) if i != axis)
    if len(x.shape) != len(index.shape) or not same:
        raise fail(ShapeError, "take_along_axis", f"shapes {x.shape} and {index.shape} differ outside axis {axis}")
    return Spec(index.shape, x.dtype)


def _check(index: Any, size: int) -> None:
    if np.size(index) and (np.min(index) < 0 or np.max(index) >= size):
        worst = int(np.min(index)) if np.min(index) < 0 else int(np.max(index))
        raise fail(IndexFault, "take", f"index {worst} is out of range for an axis of size {size}")


def _reference_gather(attributes: Attributes, x: Any, index: Any) -> Any:
    axis = attributes["axis"]
    _check(index, x.shape[axis])
    return np.take_along_axis(x, index.astype(np.int64), axis)


def _gather_rule(node: Node, ct: Node) -> list[Node | None]:
    x, index = node.inputs
    return [build("scatter", zeros_like(x), index, ct, axis=node["axis"], mode="add"), None]


def _infer_scatter(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    base, index, value = inputs
    if index.shape != value.shape or base.dtype is not value.dtype:
        raise fail(ShapeError, "scatter", f"indices {index.shape} and values {value.dtype}{value.shape} do not fit "
                                          f"{base.dtype}{base.shape}")
    _infer_gather([base, index], attributes)
    return base


def _reference_scatter(attributes: Attributes, base: Any, index: Any, value: Any) -> Any:
    """Values are put or added in index order; of equal indices the last one put stays."""
    axis = attributes["axis"]
    _check(index, base.shape[axis])
    result = np.array(base)
    where: list[Any] = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    where[axis] = index.astype(np.int64)
    if attributes["mode"] == "add":
        with np.errstate(all="ignore"):
            np.add.at(result, tuple(where), value)
    else:
        result[tuple(where)] = value
    return result


def _scatter_rule(node: Node, ct: Node) -> list[Node | None]:
    base, index, value = node.inputs
    taken = build("gather", ct, index, axis=node["axis"])
    if node["mode"] == "add":
        return [ct, None, taken]
    return [build("scatter", ct, index, zeros_like(value), axis=node["axis"], mode="set"), None, taken]


GATHER = register(Op("gather", "index", _infer_gather, _gather_rule, _reference_gather))
SCATTER = register(Op("scatter", "index", _infer_scatter, _scatter_rule, _reference_scatter,
                      numerics="one chain per element, index ascending"))
