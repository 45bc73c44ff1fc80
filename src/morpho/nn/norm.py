"""Norms over the last axes: LayerNorm, RMSNorm."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.nn.module import Module
from morpho.tensor.variable import Parameter


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias.

    >>> mo.nn.LayerNorm(4)(mo.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True, dtype: Any = mo.float32) -> None:
        self.width, self.eps = width, eps
        self.weight = Parameter(mo.ones((width,), dtype=dtype))
        self.bias = Parameter(mo.zeros((width,), dtype=dtype)) if bias else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        others = (self.weight,) if self.bias is None else (self.weight, self.bias)
        return mo.layer_norm(x, *others, eps=self.eps)

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean of squares + eps) over the last axis, times weight.

    >>> mo.nn.RMSNorm(4)(mo.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, width: int, eps: float = 1e-5, dtype: Any = mo.float32) -> None:
        self.width, self.eps = width, eps
        self.weight = Parameter(mo.ones((width,), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"
