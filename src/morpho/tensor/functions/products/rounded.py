"""Products of quantised weights with activations rounded to 8 bits, by the processor's dot-product instructions."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import product as size_of
from morpho.base.dtypes import float32
from morpho.base.errors import ShapeError, fail
from morpho.ir.node import build
from morpho.ops.algebra import cast, reshape
from morpho.ops.neural.rounded import panels_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.quantised import Quantised
from morpho.tensor.operands import as_node


class RoundedWeight:
    """A quantised matrix (n, k) laid out for products with activations in 8 bits, by every function that uses it; it
    takes as many bytes as the matrix itself. The numerics are rule 6's of `docs/numerics.md`.

    >>> from morpho.tensor.functions.products.rounded import RoundedWeight
    >>> weight = RoundedWeight(mo.quantise(mo.ones((2, 32)), "q8_0"))
    >>> (mo.ones((3, 32)) @ weight).tolist()[0]
    [31.998046875, 31.998046875]
    """

    __slots__ = ("kind", "panels", "shape")
    __array_ufunc__ = None

    def __init__(self, weight: Quantised) -> None:
        self.shape, self.kind = weight.shape, weight.kind
        self.panels = asarray(panels_of(weight.data.numpy(), weight.kind), copy=True).realise()

    def to(self, device: str) -> RoundedWeight:
        """The same weights in the memory of another device."""
        made = object.__new__(RoundedWeight)
        made.shape, made.kind, made.panels = self.shape, self.kind, self.panels.to(device).realise()
        return made

    def __rmatmul__(self, x: Any) -> Tensor:
        """x (..., k), each block of 32 values rounded to 8 bits, times the transposed weights, (..., n)."""
        node = as_node(x, "matmul")
        n, k = self.shape
        if not node.shape or node.shape[-1] != k:
            raise fail(ShapeError, "matmul", f"shape {node.shape} and quantised weights {self.shape} do not align",
                       "the last axis of x has as many values as a row of the weights")
        rows = reshape(cast(node, float32), (size_of(node.shape[:-1]), k))
        found = build("matmul_rounded", build("quantise_rows", rows), self.panels.node, kind=self.kind, n=n)
        return Tensor.of_node(cast(reshape(found, (*node.shape[:-1], n)), node.dtype))
