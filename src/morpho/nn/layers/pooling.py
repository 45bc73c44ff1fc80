"""Pooling as modules: the largest or the mean element of windows of fixed size or number, or of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.nn.module import Module
from morpho.tensor.functions.neural.spatial import per_axis


class _Pool(Module):
    """A pooling function with the module's attributes as its settings."""

    function: Callable[..., mo.Tensor]
    rank = 2

    def _check(self, **numbers: Any) -> None:
        """Sizes and steps: one for all axes, or one for each."""
        for what, value in numbers.items():
            per_axis(type(self).__name__, what, value, self.rank, 1)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return type(self).function(x, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def describe(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._settings().items())


class MaxPool2d(_Pool):
    """The largest element of each window of images. See `mo.max_pool2d`.

    >>> mo.nn.MaxPool2d(2)(mo.ones((1, 3, 4, 4))).shape
    (1, 3, 2, 2)
    """

    function = staticmethod(mo.max_pool2d)

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> None:
        self._check(kernel_size=kernel_size, stride=1 if stride is None else stride, dilation=dilation)
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation


class MaxPool1d(MaxPool2d):
    """The largest element of each window of lines. See `mo.max_pool1d`.

    >>> mo.nn.MaxPool1d(2)(mo.ones((1, 3, 4))).shape
    (1, 3, 2)
    """

    function = staticmethod(mo.max_pool1d)
    rank = 1


class AvgPool2d(_Pool):
    """The mean of each window of images. See `mo.avg_pool2d`.

    >>> mo.nn.AvgPool2d(2)(mo.ones((1, 3, 4, 4))).shape
    (1, 3, 2, 2)
    """

    function = staticmethod(mo.avg_pool2d)

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, *,
                 count_include_pad: bool = True) -> None:
        self._check(kernel_size=kernel_size, stride=1 if stride is None else stride)
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.count_include_pad = count_include_pad


class AvgPool1d(AvgPool2d):
    """The mean of each window of lines. See `mo.avg_pool1d`.

    >>> mo.nn.AvgPool1d(2)(mo.ones((1, 3, 4))).shape
    (1, 3, 2)
    """

    function = staticmethod(mo.avg_pool1d)
    rank = 1


class AdaptiveAvgPool2d(_Pool):
    """The means of as many windows as are asked for, over images. See `mo.adaptive_avg_pool2d`.

    >>> mo.nn.AdaptiveAvgPool2d(1)(mo.ones((2, 3, 5, 4))).shape
    (2, 3, 1, 1)
    """

    function = staticmethod(mo.adaptive_avg_pool2d)

    def __init__(self, output_size: Any) -> None:
        self._check(output_size=output_size)
        self.output_size = output_size


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """The means of as many windows as are asked for, over lines.

    >>> mo.nn.AdaptiveAvgPool1d(2)(mo.ones((2, 3, 5))).shape
    (2, 3, 2)
    """

    function = staticmethod(mo.adaptive_avg_pool1d)
    rank = 1


class AdaptiveMaxPool2d(AdaptiveAvgPool2d):
    """The largest elements of as many windows as are asked for, over images.

    >>> mo.nn.AdaptiveMaxPool2d(2)(mo.ones((2, 3, 5, 4))).shape
    (2, 3, 2, 2)
    """

    function = staticmethod(mo.adaptive_max_pool2d)


class AdaptiveMaxPool1d(AdaptiveAvgPool2d):
    """The largest elements of as many windows as are asked for, over lines. See `mo.adaptive_max_pool1d`.

    >>> mo.nn.AdaptiveMaxPool1d(2)(mo.ones((2, 3, 5))).shape
    (2, 3, 2)
    """

    function = staticmethod(mo.adaptive_max_pool1d)
    rank = 1


class GlobalAvgPool(_Pool):
    """The mean of every channel of x[N, C, ...] over all axes behind it. See `mo.global_avg_pool`.

    >>> mo.nn.GlobalAvgPool()(mo.ones((2, 3, 5, 5))).shape
    (2, 3)
    """

    function = staticmethod(mo.global_avg_pool)

    def __init__(self, keepdims: bool = False) -> None:
        self.keepdims = keepdims


class GlobalMaxPool(_Pool):
    """The largest element of every channel of x[N, C, ...] over all axes behind it. See `mo.global_max_pool`.

    >>> mo.nn.GlobalMaxPool()(mo.ones((2, 3, 5, 5))).shape
    (2, 3)
    """

    function = staticmethod(mo.global_max_pool)

    def __init__(self, keepdims: bool = False) -> None:
        self.keepdims = keepdims
