"""Norms over the last axes, LayerNorm and RMSNorm, and over groups of channels, GroupNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers, check_sizes
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.tensor.convert import following
from morpho.tensor.state.variable import Parameter


def _sizes(name: str, normalized_shape: Any) -> tuple[int, ...]:
    """The last axes of what is normalised: one size, or a sequence of them."""
    sizes = tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    for size in sizes or (None,):
        check_sizes(name, normalized_shape=size)
    return tuple(int(size) for size in sizes)


class _LastAxes(Module):
    """Base of LayerNorm and RMSNorm, which treat the last axes as one."""

    normalized_shape: tuple[int, ...]
    weight: Parameter | None

    def _row(self, given: Any) -> mo.Tensor:
        """It with its last axes as one."""
        x, sizes = following(given), self.normalized_shape
        if len(sizes) == 1 and self.weight is not None:
            return x  # the function compares the last axis with the weight
        if tuple(x.shape[-len(sizes):]) != sizes:
            raise fail(ShapeError, type(self).__name__, f"shape {tuple(x.shape)} does not end in {sizes}")
        return x if len(sizes) == 1 else mo.reshape(x, (*x.shape[:-len(sizes)], product(sizes)))

    def describe(self) -> str:
        sizes = self.normalized_shape
        return f"{sizes[0] if len(sizes) == 1 else sizes}, eps={vars(self)['eps']}"


def _flat(parameter: mo.Tensor | None) -> mo.Tensor | None:
    return parameter if parameter is None or parameter.ndim == 1 else mo.reshape(parameter, (-1,))


class LayerNorm(_LastAxes):
    """(x - mean) / sqrt(variance + eps) over the last axes, those of `normalized_shape`, times weight, plus bias.

    >>> mo.nn.LayerNorm(4)(mo.ones((2, 4))).shape
    (2, 4)
    >>> mo.nn.LayerNorm((3, 4)).weight.shape
    (3, 4)
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True, dtype: Any = mo.float32) -> None:
        check_numbers("LayerNorm", 0, eps=eps)
        self.normalized_shape, self.eps = _sizes("LayerNorm", normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        self.weight = Parameter(mo.ones(shape, dtype=dtype)) if elementwise_affine else None
        self.bias = Parameter(mo.zeros(shape, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        weight, bias = (None if one is None else _flat(one) for one in (self.weight, self.bias))
        y = mo.layer_norm(self._row(x), weight, bias, eps=self.eps)
        return y if len(self.normalized_shape) == 1 else mo.reshape(y, x.shape)


class RMSNorm(_LastAxes):
    """x / sqrt(mean of squares + eps) over the last axes, those of `normalized_shape`, times weight. With `eps=None` it
    is the precision of x's dtype.

    >>> mo.nn.RMSNorm(4)(mo.ones((2, 4))).shape
    (2, 4)
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True, dtype: Any = mo.float32) -> None:
        check_numbers("RMSNorm", 0, eps=0 if eps is None else eps)
        self.normalized_shape, self.eps = _sizes("RMSNorm", normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter(mo.ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        row = self._row(x)
        eps = float(mo.finfo(row.dtype).eps) if self.eps is None else self.eps
        y = mo.rms_norm(row, None if self.weight is None else _flat(self.weight), eps=eps)
        return y if len(self.normalized_shape) == 1 else mo.reshape(y, x.shape)


class GroupNorm(Module):
    """Channels, axis 1, in `num_groups` groups: each group of each example is normalised over all its elements, then
    every channel multiplied by its weight and its bias added.

    >>> mo.nn.GroupNorm(2, 4)(mo.ones((3, 4, 5, 5))).shape
    (3, 4, 5, 5)
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 dtype: Any = mo.float32) -> None:
        check_sizes("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        check_numbers("GroupNorm", 0, eps=eps)
        if num_channels % num_groups:
            raise fail(ArgumentError, "GroupNorm", f"{num_channels} channels are not divisible into {num_groups} "
                                                   "groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = Parameter(mo.ones((num_channels,), dtype=dtype)) if affine else None
        self.bias = Parameter(mo.zeros((num_channels,), dtype=dtype)) if affine else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise fail(ShapeError, "GroupNorm", f"axis 1 of shape {tuple(x.shape)} is not {self.num_channels} "
                                                "channels")
        rows = mo.reshape(x, (x.shape[0], self.num_groups, product(x.shape[1:]) // self.num_groups))
        y = mo.reshape(mo.layer_norm(rows, eps=self.eps), x.shape)
        if self.weight is None or self.bias is None:
            return y
        along = (self.num_channels, *(1 for _ in x.shape[2:]))
        return y * mo.reshape(self.weight, along) + mo.reshape(self.bias, along)

    def describe(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"
