"""`x.at[key]`: a region of a tensor, and the tensor with that region changed, as a value.

`x.at[key].add(v)` is what `x[key] += v` would make of x, with two differences: x stays as it is, and an element that an
index names twice is changed twice. Inside a compiled function the new value takes the old one's memory where nobody
reads that any more, and one kernel writes the region.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.dims import product
from morpho.base.dtypes import bool_
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.ir.node import Node, build
from morpho.ops import algebra
from morpho.tensor.core import Tensor
from morpho.tensor.functions.indexing import index
from morpho.tensor.functions.indexing.fancy import Fancy

_OPERATIONS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}  # of scatter -> of elements


class At:
    """`x.at`: indexed by a key, it is the region that the key names."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, key: Any) -> Region:
        return Region(self._tensor, key)

    def __repr__(self) -> str:
        return "x.at: index it, and call set, add, multiply, divide, max, min, apply or get"


class Region:
    """A region of a tensor. Each method returns the whole tensor with the region changed; the tensor stays as it is.

    >>> x = mo.asarray([1.0, 2.0, 3.0])
    >>> x.at[1:].set(0.0), x.at[mo.asarray([0, 0])].add(5.0)
    (Tensor([1., 0., 0.], dtype=float32), Tensor([11.,  2.,  3.], dtype=float32))
    """

    __slots__ = ("_key", "_tensor")

    def __init__(self, tensor: Tensor, key: Any) -> None:
        self._tensor, self._key = tensor, key

    def get(self) -> Tensor:
        """The region itself: `x[key]`."""
        return index.getitem(self._tensor, self._key)

    def set(self, value: Any) -> Tensor:
        """Replaced by a value."""
        return Tensor.of_node(index.assigned(self._tensor, self._key, value))

    def add(self, value: Any) -> Tensor:
        """With a value added; as often as indices name an element."""
        return self._combined("add", value)

    def multiply(self, value: Any) -> Tensor:
        """Multiplied by a value; as often as indices name an element."""
        return self._combined("mul", value)

    mul = multiply

    def divide(self, value: Any) -> Tensor:
        """Divided by a value; as often as indices name an element."""
        if not self._tensor.dtype.is_float and not self._tensor.dtype.is_complex:
            raise fail(DTypeError, "at.divide", f"a quotient does not fit {self._tensor.dtype}", "use floats")
        ones = Tensor.of_node(algebra.constant_like(self._tensor.node, 1))
        return Tensor.of_node(build("divide", self._tensor.node, Region(ones, self._key).multiply(value).node))

    def max(self, value: Any) -> Tensor:
        """The larger of it and a value."""
        return self._combined("max", value)

    def min(self, value: Any) -> Tensor:
        """The smaller of it and a value."""
        return self._combined("min", value)

    def apply(self, function: Callable[[Tensor], Any]) -> Tensor:
        """Apply a function to the elements, once each, however often indices name an element."""
        return self.set(function(self.get()))

    def _combined(self, mode: str, value: Any) -> Tensor:
        x = self._tensor
        if mode in ("max", "min") and x.dtype.is_complex:
            raise fail(DTypeError, f"at.{mode}", f"dtype {x.dtype} has no order", "take abs(), real() or imag() first")
        if mode in ("add", "mul") and x.dtype is bool_:
            raise fail(ArgumentError, f"at.{mode}", "bool has no sums and products", "use max for or, min for and")
        given = index.as_value(value, x)
        mask = index.lone_mask(self._key, x)
        if mask is not None and product(given.shape) == 1:
            whole = algebra.expand(algebra.reshape(given, ()), x.shape)
            return Tensor.of_node(index.chosen(mask, x, build(_OPERATIONS[mode], x.node, whole)))
        node, region = index.prepared(x.node, self._key)
        view = region.read(node)
        if region.is_basic:
            old = algebra.reshape(view, region.result)
            filled: Node = build(_OPERATIONS[mode], old, index.fitted(given, region.result))
        else:
            index.check_indices(region)
            fancy = Fancy(view.shape, region.fancy, region.together)
            filled = fancy.write(view, index.fitted(given, fancy.result), mode)
        return Tensor.of_node(algebra.reshape(region.write(node, filled), x.shape))
