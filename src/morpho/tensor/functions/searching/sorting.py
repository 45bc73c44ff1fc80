"""Sorting along an axis."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import product
from morpho.base.shapes import normalise_axis
from morpho.ir.node import build
from morpho.ops.algebra import reshape
from morpho.tensor.core import Tensor
from morpho.tensor.operands import as_node


def sort(x: Any, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis, or all of them with axis=None; NaN comes last (first when descending).

    >>> mo.sort(mo.asarray([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    return _sorted("sort", x, axis, descending, stable)


def argsort(x: Any, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that would sort along an axis; equal elements keep their order when stable.

    >>> mo.argsort([3.0, 9.0, 5.0])
    Tensor([0, 2, 1], dtype=int64)
    """
    return _sorted("argsort", x, axis, descending, stable)


def _sorted(name: str, x: Any, axis: int | None, descending: bool, stable: bool) -> Tensor:
    node = as_node(x, name)
    if axis is None:  # all elements, as NumPy has it
        node, axis = reshape(node, (product(node.shape),)), 0
    number = normalise_axis(axis, len(node.shape), name)
    return Tensor.of_node(build(name, node, axis=number, descending=bool(descending), stable=bool(stable)))
