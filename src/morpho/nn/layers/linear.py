"""Layers that are products, or a lookup: Linear, FusedMLP, Embedding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.checks import as_whole, check_sizes, shown
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import init
from morpho.nn.containers import Sequential
from morpho.nn.layers.activations import activation
from morpho.nn.module import Module
from morpho.tensor.convert import following
from morpho.tensor.operands import check_widening
from morpho.tensor.recorded import recorded
from morpho.tensor.state.variable import Parameter


@recorded
def linear(input: mo.Tensor, weight: mo.Tensor, bias: mo.Tensor | None = None) -> mo.Tensor:
    """input @ weight.T + bias over the last axis; the weight is (out_features, in_features).

    >>> mo.nn.linear(mo.ones((2, 3, 4)), mo.ones((5, 4))).shape
    (2, 3, 5)
    """
    x = following(input)
    if not x.ndim or x.shape[-1] != weight.shape[-1]:
        raise fail(ShapeError, "Linear", f"shape {tuple(x.shape)} does not end in {weight.shape[-1]} features")
    check_widening("Linear", x, weight)
    y = mo.matmul(x, mo.matrix_transpose(weight))  # (..., in_features) -> (..., out_features)
    return y if bias is None else y + bias.astype(y.dtype)  # with `amp.autocast` y may be a half


class Linear(Module):
    """x @ weight.T + bias, over the last axis; the weight is (out_features, in_features).

    >>> mo.nn.Linear(4, 2)(mo.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = mo.float32) -> None:
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(init.kaiming_uniform((out_features, in_features), dtype=dtype))
        self.bias = Parameter(init.uniform((out_features,), 1 / math.sqrt(in_features), dtype)) if bias else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class FusedMLP(Sequential):
    """Linear, activation, Linear in two kernels: each product takes its bias, and the first one the activation, along.

    It stands in for `Sequential(Linear(...), GELU(), Linear(...))`: the names in its state dict are the same.
    `activation` is a name such as "gelu", "relu", "silu", or a module; `out_features` is `in_features` unless given.

    >>> mlp = mo.nn.FusedMLP(4, 16)
    >>> mlp(mo.ones((3, 4))).shape, list(mlp.state_dict())
    ((3, 4), ['0.weight', '0.bias', '2.weight', '2.bias'])
    """

    def __init__(self, in_features: int, hidden_features: int, out_features: int | None = None,
                 activation: str | Module = "gelu", bias: bool = True, dtype: Any = mo.float32) -> None:
        out_features = in_features if out_features is None else out_features
        check_sizes("FusedMLP", in_features=in_features, hidden_features=hidden_features, out_features=out_features)
        super().__init__(Linear(in_features, hidden_features, bias, dtype), _as_module(activation),
                         Linear(hidden_features, out_features, bias, dtype))

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


def check_padding(name: str, padding_idx: int | None, num_embeddings: int) -> int | None:
    """The row of padding, counted from the front."""
    if padding_idx is None:
        return None
    number = as_whole(padding_idx)
    if number is None or not -num_embeddings <= number < num_embeddings:
        raise fail(ArgumentError, name, f"padding_idx={shown(padding_idx)} is not among {num_embeddings} rows")
    return number % num_embeddings


class Embedding(Module):
    """Rows of a table by number; the weight is (num_embeddings, embedding_dim). The row of `padding_idx` is zeros and
    stays so. `std` is the standard deviation of the first values.

    >>> mo.nn.Embedding(10, 4)(mo.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 dtype: Any = mo.float32, std: float = 1.0) -> None:
        check_sizes("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = check_padding("Embedding", padding_idx, num_embeddings)
        table = init.normal((num_embeddings, embedding_dim), std, dtype=dtype)
        if self.padding_idx is not None:
            table = mo.where(mo.arange(num_embeddings)[:, None] == self.padding_idx, mo.zeros((), dtype=dtype), table)
        self.weight = Parameter(table)

    def forward(self, ids: mo.Tensor) -> mo.Tensor:
        found = mo.embedding(self.weight, ids)
        if self.padding_idx is None:
            return found
        padding = mo.expand_dims(following(ids) == self.padding_idx, axis=-1)
        return mo.where(padding, found.detach(), found)  # no gradient flows to the row of padding

    def describe(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
