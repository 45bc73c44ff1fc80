"""Running extremes and log-sums along an axis."""

from __future__ import annotations

from typing import Any, NamedTuple

from morpho.base.dtypes import bool_, int64, uint8
from morpho.ir.node import build
from morpho.ops.algebra import reshape
from morpho.tensor.autodiff.precision import widened
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.reduce import scanned
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import DEFAULT_FLOAT


class Running(NamedTuple):
    """Running extremes, and where each was attained."""

    values: Tensor
    indices: Tensor


def cummax(x: Any, /, *, axis: int | None = None, return_indices: bool = False) -> Any:
    """The largest element so far along an axis; NaN wins. With `return_indices` also where it stood, the last of equal
    ones (PyTorch's pair).

    >>> mo.cummax([1.0, 3.0, 2.0, 5.0]).tolist()
    [1.0, 3.0, 3.0, 5.0]
    >>> mo.cummax([1.0, 3.0, 2.0], return_indices=True).indices.tolist()
    [0, 1, 1]
    """
    return _extreme("cummax", "cumulative_max", x, axis, return_indices)


def cummin(x: Any, /, *, axis: int | None = None, return_indices: bool = False) -> Any:
    """The smallest element so far along an axis; NaN wins. See `cummax`.

    >>> mo.cummin([3.0, 1.0, 2.0]).tolist()
    [3.0, 1.0, 1.0]
    """
    return _extreme("cummin", "cumulative_min", x, axis, return_indices)


def _extreme(name: str, op: str, x: Any, axis: Any, return_indices: bool) -> Any:
    node = as_node(x, name)
    if node.dtype is bool_:  # the order of 0 and 1
        found = _extreme(name, op, ew.astype(Tensor.of_node(node), uint8), axis, return_indices)
        if not return_indices:
            return ew.astype(found, bool_)
        return Running(ew.astype(found.values, bool_), found.indices)
    shape = node.shape  # a number stays one, unlike NumPy's cumsum
    node, number = scanned(name, x, axis)
    found = reshape(build(op, node, axis=number), shape)
    if not return_indices:
        return Tensor.of_node(found)
    hit = build("equal", node, reshape(found, node.shape))
    if node.dtype.is_float:
        hit = build("logical_or", hit, build("isnan", node))
    numbers = build("iota", shape=node.shape, axis=number, dtype=int64)
    places = ew.where(Tensor.of_node(hit), Tensor.of_node(numbers), 0)
    places = Tensor.of_node(reshape(build("cumulative_max", places.node, axis=number), shape))
    return Running(Tensor.of_node(found), places)


def logcumsumexp(x: Any, /, *, axis: int | None = None) -> Tensor:
    """The logarithm of running sums of exp(x) along an axis, without overflow.

    >>> mo.logcumsumexp([0.0, 0.0, 1000.0]).tolist()
    [0.0, 0.6931471824645996, 1000.0]
    """
    shape = as_node(x, "logcumsumexp").shape
    node, number = scanned("logcumsumexp", x, axis)
    node = widened(node)
    if node.dtype.kind in "iub":
        node = ew.astype(Tensor.of_node(node), DEFAULT_FLOAT).node
    return Tensor.of_node(reshape(build("cumulative_logsumexp", node, axis=number), shape))
