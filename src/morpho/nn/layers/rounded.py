"""Layers that multiply packed weights with activations rounded to 8 bits; for use, not for training."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.nn.module import Module
from morpho.tensor.functions.products.rounded import RoundedWeight
from morpho.tensor.state.variable import Buffer


class Int8Linear(Module):
    """x @ weight.T + bias with a packed weight, x rounded to 8 bits per block of 32 values; in the dtype of x. The same
    bits for any number of rows and threads and on every processor, by its dot-product instructions where it has them.

    >>> layer = mo.nn.Int8Linear(mo.quantise(mo.ones((2, 32)), "q8_0"))
    >>> layer(mo.ones((3, 32))).shape
    (3, 2)
    """

    def __init__(self, weight: mo.Quantised, bias: Any = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.weight = RoundedWeight(weight)
        self.bias = None if bias is None else Buffer(bias)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        y: mo.Tensor = x @ self.weight
        return y if self.bias is None else y + self.bias

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.weight.kind!r}, 8-bit activations"
