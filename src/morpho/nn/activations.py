"""Activations as modules, each one the function of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.nn.module import Module


class _Activation(Module):
    function: Callable[..., Any]

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return type(self).function(x)  # type: ignore[no-any-return]


def _named(name: str, function: Callable[..., Any]) -> type[Module]:
    """A module class for a function of one tensor."""
    made = type(name, (_Activation,), {"function": staticmethod(function), "__doc__": function.__doc__,
                                       "__module__": __name__})
    return made


ReLU = _named("ReLU", mo.relu)
SELU = _named("SELU", mo.selu)
SiLU = _named("SiLU", mo.silu)
Mish = _named("Mish", mo.mish)
Sigmoid = _named("Sigmoid", mo.sigmoid)
Tanh = _named("Tanh", mo.tanh)
Softplus = _named("Softplus", mo.softplus)


class GELU(Module):
    """x times the normal distribution function of x: exact, or by tanh.

    >>> mo.nn.GELU()(mo.asarray([0.0])).numpy()
    array([0.], dtype=float32)
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.gelu(x, approximate=self.approximate)

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"


__all__ = ["ReLU", "SELU", "SiLU", "Mish", "Sigmoid", "Tanh", "Softplus", "GELU"]
