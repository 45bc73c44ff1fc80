"""Batch and instance normalisation: by the statistics of the batch, or of each example, while training; by running ones
afterwards where they are kept."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers, check_sizes
from morpho.base.dims import product
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.tensor.state.variable import Buffer, Parameter


class BatchNorm2d(Module):
    """(x - mean) / sqrt(variance + eps) per channel, axis 1, times weight, plus bias.

    While training, mean and variance are those of the batch, and the running ones move towards them by `momentum` (with
    None they are the plain averages over all batches); the running variance divides by one less than the number of
    elements, as PyTorch's does. After training the running ones are used, and the layer is part of the kernel of the
    convolution before it.

    >>> norm = mo.nn.BatchNorm2d(3)
    >>> norm(mo.ones((2, 3, 4, 4))).shape, norm.running_mean.numpy().round(3).tolist()
    ((2, 3, 4, 4), [0.1..., 0.1..., 0.1...])
    """

    ranks: tuple[int, ...] = (4,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, dtype: Any = mo.float32) -> None:
        name = type(self).__name__
        check_sizes(name, num_features=num_features)
        check_numbers(name, 0, eps=eps)
        if momentum is not None:
            check_numbers(name, momentum=momentum)
            if not 0 <= momentum <= 1:
                raise fail(ArgumentError, name, f"momentum={momentum} does not lie between 0 and 1")
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter(mo.ones((num_features,), dtype=dtype)) if affine else None
        self.bias = Parameter(mo.zeros((num_features,), dtype=dtype)) if affine else None
        tracked = track_running_stats
        self.running_mean = Buffer(mo.zeros((num_features,), dtype=dtype)) if tracked else None
        self.running_var = Buffer(mo.ones((num_features,), dtype=dtype)) if tracked else None
        self.num_batches_tracked = Buffer(mo.asarray(0, dtype=mo.int64)) if tracked else None

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        name = type(self).__name__
        if x.ndim not in self.ranks or x.shape[1] != self.num_features:
            raise fail(ShapeError, name, f"shape {tuple(x.shape)} is not one of {self.ranks} axes with "
                                         f"{self.num_features} channels in axis 1")
        if not self.training and self.running_mean is not None:
            return mo.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.eps)
        count = product(tuple(size for axis, size in enumerate(x.shape) if axis != 1))
        if self.training and count == 1:
            raise fail(ShapeError, name, "one element per channel has no variance to train with",
                       "use larger batches, or eval()")
        y, mean, variance = mo.batch_norm_training(x, self.weight, self.bias, self.eps)
        if self.training and self.running_mean is not None:
            self._follow(mean, variance, count)
        return y

    def _follow(self, mean: mo.Tensor, variance: mo.Tensor, count: Any) -> None:
        """Move the running statistics towards those of a batch of `count` elements per channel."""
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        dtype = self.running_mean.dtype
        wide = mo.float32 if dtype.itemsize == 2 else dtype  # float16 ends where a spread of 256 begins
        with mo.no_grad():
            batches = self.num_batches_tracked + 1
            share = 1 / batches.astype(wide) if self.momentum is None else self.momentum
            unbiased = variance.astype(wide) * count / (count - 1)
            kept = ((self.running_mean, mean.astype(wide)), (self.running_var, unbiased))
            for buffer, seen in kept:
                buffer.defer(((1 - share) * buffer.astype(wide) + share * seen).astype(dtype))
            self.num_batches_tracked.defer(batches)

    def describe(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class InstanceNorm2d(BatchNorm2d):
    """(x - mean) / sqrt(variance + eps) per channel of each example of images x[N, C, H, W] or x[C, H, W]; with
    `affine` times weight, plus bias. With `track_running_stats` running statistics are kept while training and used
    afterwards.

    >>> norm = mo.nn.InstanceNorm2d(3)
    >>> norm(mo.ones((2, 3, 4, 4))).shape, list(norm.state_dict())
    ((2, 3, 4, 4), [])
    """

    ranks = (3, 4)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
                 track_running_stats: bool = False, dtype: Any = mo.float32) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        name, single = type(self).__name__, x.ndim == self.ranks[0]
        if x.ndim not in self.ranks or x.shape[0 if single else 1] != self.num_features:
            raise fail(ShapeError, name, f"shape {tuple(x.shape)} is not one of {self.ranks} axes with "
                                         f"{self.num_features} channels")
        whole = mo.expand_dims(x, axis=0) if single else x
        if not self.training and self.running_mean is not None:
            y = mo.batch_norm(whole, self.running_mean, self.running_var, self.weight, self.bias, self.eps)
        else:
            y = self._by_itself(name, whole)
        return mo.squeeze(y, axis=0) if single else y

    def _by_itself(self, name: str, x: mo.Tensor) -> mo.Tensor:
        """Normalised by the statistics of x, which the running ones follow."""
        count = product(x.shape[2:])
        if self.training and count == 1:
            raise fail(ShapeError, name, "one element per channel of an example has no variance", "use larger images")
        rows = mo.reshape(x, (*x.shape[:2], count))
        if self.training and self.running_mean is not None:
            if x.shape[0] == 0 or count == 0:
                raise fail(ShapeError, name, f"shape {tuple(x.shape)} has no elements for the running statistics",
                           "leave empty batches out")
            wide = rows.astype(mo.float32) if x.dtype.itemsize == 2 else rows  # squares would overflow
            self._follow(mo.mean(mo.mean(wide, axis=-1), axis=0), mo.mean(mo.var(wide, axis=-1), axis=0), count)
        y = mo.reshape(mo.layer_norm(rows, eps=self.eps), x.shape)
        if self.weight is None or self.bias is None:
            return y
        along = (self.num_features, *(1 for _ in x.shape[2:]))
        return y * mo.reshape(self.weight, along) + mo.reshape(self.bias, along)


class InstanceNorm1d(InstanceNorm2d):
    """`InstanceNorm2d` of lines x[N, C, L] or x[C, L].

    >>> mo.nn.InstanceNorm1d(3)(mo.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    ranks = (2, 3)


class InstanceNorm3d(InstanceNorm2d):
    """`InstanceNorm2d` of volumes x[N, C, D, H, W] or x[C, D, H, W].

    >>> mo.nn.InstanceNorm3d(3)(mo.ones((2, 3, 2, 2, 2))).shape
    (2, 3, 2, 2, 2)
    """

    ranks = (4, 5)


class BatchNorm1d(BatchNorm2d):
    """Batch normalisation of rows x[N, C] or lines x[N, C, L]; see `BatchNorm2d`.

    >>> mo.nn.BatchNorm1d(3).eval()(mo.ones((2, 3))).shape
    (2, 3)
    """

    ranks = (2, 3)
