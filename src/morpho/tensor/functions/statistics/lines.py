"""Lines of statistics: the reduced axes as one last axis, and the result with its axes restored."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import product
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.tensor.autodiff.precision import widened
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.move import permute_dims, reshape
from morpho.tensor.functions.reduce import reduced_axes
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import DEFAULT_FLOAT


def floating(name: str, x: Any) -> Tensor:
    """x as floats; integers and truths become the default ones."""
    node = widened(as_node(x, name))
    if node.dtype.is_complex:
        raise fail(DTypeError, name, f"dtype {node.dtype} is not taken", "take abs(), real() or imag() first")
    found = Tensor.of_node(node)
    return found if node.dtype.is_float else ew.astype(found, DEFAULT_FLOAT)


class Lines:
    """x with its reduced axes as one, the last."""

    def __init__(self, name: str, x: Tensor, axis: Any) -> None:
        self.shape, self.name = x.shape, name
        self.axes = reduced_axes(axis, x.ndim, name)
        kept = [d for d in range(x.ndim) if d not in self.axes]
        self.kept = tuple(x.shape[d] for d in kept)
        self.length = product(tuple(x.shape[d] for d in self.axes))
        self.values = reshape(permute_dims(x, (*kept, *self.axes)), (*self.kept, self.length))

    def need_elements(self) -> None:
        """Refuse lines without an element."""
        if self.length == 0:
            raise fail(ShapeError, self.name, f"shape {self.shape} has no elements along axis {self.axes}")

    def finished(self, found: Tensor, keepdims: bool, leading: int = 0) -> Tensor:
        """A result of one element per line, behind `leading` axes of its own; the reduced axes stay as ones."""
        if not keepdims:
            return found
        sizes = tuple(1 if d in self.axes else size for d, size in enumerate(self.shape))
        return reshape(found, (*found.shape[:leading], *sizes))
