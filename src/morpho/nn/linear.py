"""Layers that are products, or a lookup: Linear, FusedMLP, Embedding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import init
from morpho.nn.activations import activation
from morpho.nn.containers import Sequential
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


def linear(x: mo.Tensor, weight: mo.Tensor, bias: mo.Tensor | None = None) -> mo.Tensor:
    """x @ weight.T + bias over the last axis; the weight is (outputs, inputs).

    >>> mo.nn.linear(mo.ones((2, 3, 4)), mo.ones((5, 4))).shape
    (2, 3, 5)
    """
    x = mo.asarray(x)
    if not x.ndim or x.shape[-1] != weight.shape[-1]:
        raise fail(ShapeError, "Linear", f"shape {tuple(x.shape)} does not end in {weight.shape[-1]} features")
    y = mo.matmul(x, mo.matrix_transpose(weight))  # (..., inputs) -> (..., outputs)
    return y if bias is None else y + bias.astype(y.dtype)  # with `amp.autocast` y may be a half


class Linear(Module):
    """x @ weight.T + bias, over the last axis; the weight is (outputs, inputs).

    >>> mo.nn.Linear(4, 2)(mo.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, dtype: Any = mo.float32) -> None:
        check_sizes("Linear", inputs=inputs, outputs=outputs)
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(init.kaiming_uniform((outputs, inputs), dtype=dtype))
        self.bias = Parameter(init.uniform((outputs,), 1 / math.sqrt(inputs), dtype)) if bias else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.inputs}, {self.outputs}" + ("" if self.bias is not None else ", bias=False")


class FusedMLP(Sequential):
    """Linear, activation, Linear in two kernels: each product takes its bias, and the first one the activation, along.

    It stands in for `Sequential(Linear(...), GELU(), Linear(...))`: the names in its state dict are the same.
    `activation` is a name such as "gelu", "relu", "silu", or a module; `outputs` is `inputs` unless given.

    >>> mlp = mo.nn.FusedMLP(4, 16)
    >>> mlp(mo.ones((3, 4))).shape, list(mlp.state_dict())
    ((3, 4), ['0.weight', '0.bias', '2.weight', '2.bias'])
    """

    def __init__(self, inputs: int, hidden: int, outputs: int | None = None, activation: str | Module = "gelu",
                 bias: bool = True, dtype: Any = mo.float32) -> None:
        outputs = inputs if outputs is None else outputs
        check_sizes("FusedMLP", inputs=inputs, hidden=hidden, outputs=outputs)
        super().__init__(Linear(inputs, hidden, bias, dtype), _as_module(activation),
                         Linear(hidden, outputs, bias, dtype))

    @staticmethod
    def of(model: Sequential) -> FusedMLP:
        """The same layers, shared, of a Sequential of a Linear, an activation and a Linear."""
        layers = list(model)
        fits = len(layers) == 3 and isinstance(layers[0], Linear) and isinstance(layers[2], Linear)
        if not fits:
            raise fail(ArgumentError, "FusedMLP", "the model is not a Linear, an activation and a Linear")
        made = FusedMLP.__new__(FusedMLP)
        Sequential.__init__(made, *layers)
        return made

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        first, middle, last = self
        return last(middle(first(x)))  # type: ignore[no-any-return]


def _as_module(wanted: str | Module | Callable[..., Any]) -> Any:
    return activation(wanted) if isinstance(wanted, str) else wanted


class Embedding(Module):
    """Rows of a table by number; the weight is (count, width). The row of `padding_idx` is zeros and stays so.

    >>> mo.nn.Embedding(10, 4)(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, count: int, width: int, dtype: Any = mo.float32, std: float = 1.0,
                 padding_idx: int | None = None) -> None:
        check_sizes("Embedding", count=count, width=width)
        if padding_idx is not None and not -count <= padding_idx < count:
            raise fail(ArgumentError, "Embedding", f"padding_idx={padding_idx} is not among {count} rows")
        self.count, self.width = count, width
        self.padding_idx = None if padding_idx is None else padding_idx % count
        table = init.normal((count, width), std, dtype=dtype)
        if self.padding_idx is not None:
            table = mo.where(mo.arange(count)[:, None] == self.padding_idx, mo.zeros((), dtype=dtype), table)
        self.weight = Parameter(table)

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        found = mo.embedding(self.weight, ids)
        if self.padding_idx is None:
            return found
        padding = mo.expand_dims(mo.asarray(ids) == self.padding_idx, axis=-1)
        return mo.where(padding, found.detach(), found)  # no gradient flows to the row of padding

    def describe(self) -> str:
        return f"{self.count}, {self.width}" + ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}")
