"""Convolutions of lines, images and volumes; transposed ones of lines and images."""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, fail
from morpho.nn import init
from morpho.nn.module import Module
from morpho.tensor.functions.neural.spatial import per_axis
from morpho.tensor.functions.neural.volumes import convolved
from morpho.tensor.state.variable import Parameter


class _Convolution(Module):
    """Base of convolutions: numbers of channels, the window's settings, a weight and perhaps a bias."""

    rank = 2
    transposed = False

    def _setup(self, in_channels: int, out_channels: int, kernel_size: Any, groups: int, bias: bool,
               dtype: Any) -> None:
        name = type(self).__name__
        check_sizes(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise fail(ArgumentError, name, f"{in_channels} and {out_channels} channels do not both divide into "
                                            f"{groups} groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, self.rank, 1)
        shape = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        fan = shape[1] * math.prod(self.kernel_size)
        self.weight = Parameter(init.kaiming_uniform((*shape, *self.kernel_size), dtype=dtype))
        self.bias = Parameter(init.uniform((out_channels,), 1 / math.sqrt(fan), dtype)) if bias else None

    def _check_steps(self) -> None:
        for what in ("stride", "dilation"):
            per_axis(type(self).__name__, what, vars(self)[what], self.rank, 1)

    def describe(self) -> str:
        size = self.kernel_size[0] if len(set(self.kernel_size)) == 1 else self.kernel_size
        parts = [f"{self.in_channels}, {self.out_channels}, {size}"]
        for name, plain in (("stride", 1), ("padding", 0), ("output_padding", 0), ("dilation", 1), ("groups", 1)):
            if vars(self).get(name, plain) != plain:
                parts.append(f"{name}={vars(self)[name]!r}")
        return ", ".join(parts) + ("" if self.bias is not None else ", bias=False")


class Conv2d(_Convolution):
    """The convolution of images x[N, in_channels, H, W]; the weight is (out_channels, in_channels / groups, KH, KW).
    See `mo.conv2d`.

    >>> mo.nn.Conv2d(3, 8, 3, padding=1)(mo.ones((2, 3, 6, 6))).shape
    (2, 8, 6, 6)
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: Any = mo.float32) -> None:
        self._setup(in_channels, out_channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self._check_steps()

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        convolve = mo.conv2d if self.rank == 2 else mo.conv1d
        return convolve(x, self.weight, self.bias, stride=self.stride, padding=self.padding, dilation=self.dilation,
                        groups=self.groups)


class Conv1d(Conv2d):
    """The convolution of lines x[N, in_channels, L]; the weight is (out_channels, in_channels / groups, K). See
    `mo.conv1d`.

    >>> mo.nn.Conv1d(3, 8, 3)(mo.ones((2, 3, 6))).shape
    (2, 8, 4)
    """

    rank = 1


class Conv3d(_Convolution):
    """The convolution of volumes x[N, in_channels, D, H, W]; the weight is (out_channels, in_channels / groups, KD, KH,
    KW). The planes that a window reaches over are channels of one `mo.conv2d`.

    >>> mo.nn.Conv3d(3, 8, 3, padding=1)(mo.ones((1, 3, 4, 6, 6))).shape
    (1, 8, 4, 6, 6)
    """

    rank = 3

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: Any = mo.float32) -> None:
        self._setup(in_channels, out_channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self._check_steps()

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return convolved("Conv3d", x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(_Convolution):
    """The transposed convolution of images; the weight is (in_channels, out_channels / groups, KH, KW). See
    `mo.conv_transpose2d`.

    >>> mo.nn.ConvTranspose2d(3, 8, 2, stride=2)(mo.ones((2, 3, 4, 4))).shape
    (2, 8, 8, 8)
    """

    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 dtype: Any = mo.float32) -> None:
        self._setup(in_channels, out_channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.output_padding, self.dilation = stride, padding, output_padding, dilation
        self._check_steps()

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        convolve = mo.conv_transpose2d if self.rank == 2 else mo.conv_transpose1d
        return convolve(x, self.weight, self.bias, stride=self.stride, padding=self.padding,
                        output_padding=self.output_padding, dilation=self.dilation, groups=self.groups)


class ConvTranspose1d(ConvTranspose2d):
    """The transposed convolution of lines; the weight is (in_channels, out_channels / groups, K). See
    `mo.conv_transpose1d`.

    >>> mo.nn.ConvTranspose1d(3, 8, 2, stride=2)(mo.ones((2, 3, 4))).shape
    (2, 8, 8)
    """

    rank = 1
