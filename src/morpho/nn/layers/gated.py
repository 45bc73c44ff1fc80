"""Gated feed-forward units: one product decides how much of another passes."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.nn.layers.activations import function_of
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module


class GatedUnit(Module):
    """down(activation(gate(x)) * up(x)): three Linear layers, without bias unless asked for.

    >>> mo.nn.SwiGLU(4, 8)(mo.ones((3, 4))).shape
    (3, 4)
    """

    activation = "sigmoid"

    def __init__(self, in_features: int, hidden_features: int, out_features: int | None = None, bias: bool = False,
                 dtype: Any = mo.float32) -> None:
        out_features = in_features if out_features is None else out_features
        check_sizes(type(self).__name__, in_features=in_features, hidden_features=hidden_features,
                    out_features=out_features)
        self.gate = Linear(in_features, hidden_features, bias, dtype)
        self.up = Linear(in_features, hidden_features, bias, dtype)
        self.down = Linear(hidden_features, out_features, bias, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.down(function_of(self.activation)(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class SwiGLU(GatedUnit):
    """The gated unit with SiLU, as in Llama.

    >>> mo.nn.SwiGLU(4, 8, bias=False).parameter_count()
    96
    """

    activation = "silu"


class GeGLU(GatedUnit):
    """The gated unit with exact GELU.

    >>> mo.nn.GeGLU(4, 8)(mo.ones((3, 4))).shape
    (3, 4)
    """

    activation = "gelu"
