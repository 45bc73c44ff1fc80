"""Gated feed-forward units: one product decides how much of another passes."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.nn.activations import function_of
from morpho.nn.linear import Linear
from morpho.nn.module import Module


class GatedUnit(Module):
    """down(activation(gate(x)) * up(x)): three Linear layers, without bias unless asked for.

    >>> mo.nn.SwiGLU(4, 8)(mo.ones((3, 4))).shape
    (3, 4)
    """

    activation = "sigmoid"

    def __init__(self, inputs: int, hidden: int, outputs: int | None = None, bias: bool = False,
                 dtype: Any = mo.float32) -> None:
        outputs = inputs if outputs is None else outputs
        check_sizes(type(self).__name__, inputs=inputs, hidden=hidden, outputs=outputs)
        self.gate = Linear(inputs, hidden, bias, dtype)
        self.up = Linear(inputs, hidden, bias, dtype)
        self.down = Linear(hidden, outputs, bias, dtype)

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
