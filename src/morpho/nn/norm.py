"""Norms over the last axes, LayerNorm and RMSNorm, and over groups of channels, GroupNorm."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers, check_sizes
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) over the last axis, times weight, plus bias.

    >>> mo.nn.LayerNorm(4)(mo.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, width: int, eps: float = 1e-5, bias: bool = True, dtype: Any = mo.float32) -> None:
        check_sizes("LayerNorm", width=width)
        check_numbers("LayerNorm", 0, eps=eps)
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
        check_sizes("RMSNorm", width=width)
        check_numbers("RMSNorm", 0, eps=eps)
        self.width, self.eps = width, eps
        self.weight = Parameter(mo.ones((width,), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return f"{self.width}, eps={self.eps}"


class GroupNorm(Module):
    """Channels, axis 1, in `groups`: each group of each example is normalised over all its elements, then every channel
    multiplied by its weight and its bias added.

    >>> mo.nn.GroupNorm(2, 4)(mo.ones((3, 4, 5, 5))).shape
    (3, 4, 5, 5)
    """

    def __init__(self, groups: int, channels: int, eps: float = 1e-5, affine: bool = True,
                 dtype: Any = mo.float32) -> None:
        check_sizes("GroupNorm", groups=groups, channels=channels)
        check_numbers("GroupNorm", 0, eps=eps)
        if channels % groups:
            raise fail(ArgumentError, "GroupNorm", f"{channels} channels are not divisible into {groups} groups")
        self.groups, self.channels, self.eps = groups, channels, eps
        self.weight = Parameter(mo.ones((channels,), dtype=dtype)) if affine else None
        self.bias = Parameter(mo.zeros((channels,), dtype=dtype)) if affine else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise fail(ShapeError, "GroupNorm", f"axis 1 of shape {tuple(x.shape)} is not {self.channels} channels")
        rows = mo.reshape(x, (x.shape[0], self.groups, product(x.shape[1:]) // self.groups))
        y = mo.reshape(mo.layer_norm(rows, eps=self.eps), x.shape)
        if self.weight is None or self.bias is None:
            return y
        along = (self.channels, *(1 for _ in x.shape[2:]))
        return y * mo.reshape(self.weight, along) + mo.reshape(self.bias, along)

    def describe(self) -> str:
        return f"{self.groups}, {self.channels}, eps={self.eps}"
