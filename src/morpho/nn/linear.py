"""Layers that are one product, or a lookup: Linear, Embedding."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.nn import init
from morpho.nn.module import Module
from morpho.tensor.variable import Parameter


class Linear(Module):
    """x @ weight.T + bias, over the last axis; the weight is (outputs, inputs).

    >>> mo.nn.Linear(4, 2)(mo.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, dtype: Any = mo.float32) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(init.kaiming_uniform((outputs, inputs), dtype=dtype))
        self.bias = Parameter(init.uniform((outputs,), 1 / math.sqrt(max(inputs, 1)), dtype)) if bias else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        y = mo.matmul(x, mo.matrix_transpose(self.weight))  # (..., inputs) -> (..., outputs)
        return y if self.bias is None else y + self.bias.astype(y.dtype)  # with `amp.autocast` y may be a half

    def describe(self) -> str:
        return f"{self.inputs}, {self.outputs}" + ("" if self.bias is not None else ", bias=False")


class Embedding(Module):
    """Rows of a table by number; the weight is (count, width).

    >>> mo.nn.Embedding(10, 4)(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, count: int, width: int, dtype: Any = mo.float32, std: float = 1.0) -> None:
        self.count, self.width = count, width
        self.weight = Parameter(init.normal((count, width), std, dtype=dtype))

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        return mo.embedding(self.weight, ids)

    def describe(self) -> str:
        return f"{self.count}, {self.width}"
