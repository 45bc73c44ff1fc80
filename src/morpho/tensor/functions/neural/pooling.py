"""Pooling: the largest or the mean element of windows, of fixed size or of as many as are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Dim, Size, product
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant_like, div, expand, reduce, reshape, size_value
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor
from morpho.tensor.functions.neural.convolution import padded
from morpho.tensor.functions.neural.spatial import (
    Widths,
    as_given,
    as_images,
    batched,
    both,
    check_window,
    padding_widths,
    per_axis,
    pooled,
)
from morpho.tensor.functions.neural.windows import pooled_max, pooled_mean
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded


@recorded
@batched(1)
def max_pool1d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of lines x[N, C, L]; see `max_pool2d`.

    >>> import morpho as mo
    >>> mo.max_pool1d(mo.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2).numpy()
    array([[[3., 2.]]], dtype=float32)
    """
    if ceil_mode or return_indices:
        return pooled_max("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding, dilation)


@recorded
@batched(2)
def max_pool2d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of images x[N, C, H, W]; NaN wins, padding never does. `stride` is the size of
    the window unless given; the gradient goes to the first of equal largest elements. With `ceil_mode` a last window
    may reach over the end; with `return_indices` places come along, in each channel read as a vector.

    >>> import morpho as mo
    >>> mo.max_pool2d(mo.reshape(mo.arange(16.0), (1, 1, 4, 4)), 2).numpy()[0, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    if ceil_mode or return_indices:
        return pooled_max("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding, dilation)


@recorded
@batched(1)
def avg_pool1d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of lines x[N, C, L]; see `avg_pool2d`.

    >>> import morpho as mo
    >>> mo.avg_pool1d(mo.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2).numpy()
    array([[[2., 1.]]], dtype=float32)
    """
    if ceil_mode:
        return pooled_mean("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, count_include_pad)


@recorded
@batched(2)
def avg_pool2d(x: Any, /, kernel_size: Any, *, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of images x[N, C, H, W]. `stride` is the size of the window unless given; zeros of the
    padding count as elements unless `count_include_pad=False`.

    >>> import morpho as mo
    >>> mo.avg_pool2d(mo.ones((1, 1, 2, 2)), 2, stride=1, padding=1, count_include_pad=False).numpy()[0, 0, 0]
    array([1., 1., 1.], dtype=float32)
    """
    if ceil_mode:
        return pooled_mean("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, count_include_pad)


@recorded
@batched(1)
def adaptive_avg_pool1d(x: Any, /, output_size: Any) -> Tensor:
    """The means of `output_size` windows that cover each line of x[N, C, L]; see `adaptive_avg_pool2d`.

    >>> import morpho as mo
    >>> mo.adaptive_avg_pool1d(mo.asarray([[[1.0, 3.0, 2.0]]]), 2).numpy()
    array([[[2. , 2.5]]], dtype=float32)
    """
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size, "sum")


@recorded
@batched(2)
def adaptive_avg_pool2d(x: Any, /, output_size: Any) -> Tensor:
    """The means of `output_size` windows that cover each image of x[N, C, H, W]; window i of n along an axis runs from
    floor(i * size / n) to ceil((i + 1) * size / n).

    >>> import morpho as mo
    >>> mo.adaptive_avg_pool2d(mo.reshape(mo.arange(9.0), (1, 1, 3, 3)), 2).numpy()[0, 0]
    array([[2., 3.],
           [5., 6.]], dtype=float32)
    """
    return _adaptive("adaptive_avg_pool2d", 2, x, output_size, "sum")


@recorded
@batched(1)
def adaptive_max_pool1d(x: Any, /, output_size: Any) -> Tensor:
    """The largest elements of `output_size` windows that cover each line of x[N, C, L]; see `adaptive_avg_pool2d`.

    >>> import morpho as mo
    >>> mo.adaptive_max_pool1d(mo.asarray([[[1.0, 3.0, 2.0, 0.0, 5.0]]]), 2).numpy()
    array([[[3., 5.]]], dtype=float32)
    """
    return _adaptive("adaptive_max_pool1d", 1, x, output_size, "max")


@recorded
@batched(2)
def adaptive_max_pool2d(x: Any, /, output_size: Any) -> Tensor:
    """The largest elements of `output_size` windows that cover images x[N, C, H, W]; see `adaptive_avg_pool2d`.

    >>> import morpho as mo
    >>> mo.adaptive_max_pool2d(mo.reshape(mo.arange(9.0), (1, 1, 3, 3)), 2).numpy()[0, 0]
    array([[4., 5.],
           [7., 8.]], dtype=float32)
    """
    return _adaptive("adaptive_max_pool2d", 2, x, output_size, "max")


@recorded
def global_avg_pool(x: Any, /, *, keepdims: bool = False) -> Tensor:
    """The mean of every channel of x[N, C, ...] over all axes behind it.

    >>> import morpho as mo
    >>> mo.global_avg_pool(mo.ones((2, 3, 5, 5))).shape
    (2, 3)
    """
    node = _channels("global_avg_pool", x, floats=True)
    total = reduce("sum", cast(node, node.dtype.compute), tuple(range(2, len(node.shape))))
    found = _divided(total, product(node.shape[2:]), node)
    return Tensor.of_node(found if keepdims else reshape(found, node.shape[:2]))


@recorded
def global_max_pool(x: Any, /, *, keepdims: bool = False) -> Tensor:
    """The largest element of every channel of x[N, C, ...] over all axes behind it; NaN wins.

    >>> import morpho as mo
    >>> mo.global_max_pool(mo.reshape(mo.arange(8.0), (1, 2, 2, 2))).numpy()
    array([[3., 7.]], dtype=float32)
    """
    node = _channels("global_max_pool", x, floats=False)
    if 0 in node.shape[2:]:
        raise fail(ShapeError, "global_max_pool", f"shape {node.shape} has no elements to pool")
    found = pooled("max", node, tuple(range(2, len(node.shape))))
    return Tensor.of_node(found if keepdims else reshape(found, node.shape[:2]))


def _channels(name: str, x: Any, floats: bool) -> Node:
    """x[N, C, ...] with an axis at least behind its channels."""
    node = _numbers(name, x, floats)
    if len(node.shape) < 3:
        raise fail(ShapeError, name, f"shape {node.shape} has no axis behind its channels")
    return node


# -- windows of one size ---------------------------------------------------------------------------------------------
def _numbers(name: str, x: Any, floats: bool) -> Node:
    node = as_node(x, name)
    if not (node.dtype.is_float or (node.dtype.is_integer and not floats)):
        raise fail(DTypeError, name, f"dtype {node.dtype} is not taken", "convert with astype")
    return node


def _divided(total: Node, count: Size, like: Node) -> Node:
    """A sum in the wide dtype divided by a count and rounded once to the dtype of `like`."""
    return cast(div(total, expand(size_value(count, total.dtype), total.shape)), like.dtype)


def _window_arguments(name: str, rank: int, images: Node, kernel_size: Any, stride: Any, padding: Any,
                      dilation: Any) -> tuple[Any, Any, Any, Widths]:
    """Sizes, steps, dilations and padding of windows on images, for two axes."""
    lengths = both(per_axis(name, "kernel_size", kernel_size, rank, 1), rank, 1)
    steps = lengths if stride is None else both(per_axis(name, "stride", stride, rank, 1), rank, 1)
    apart = both(per_axis(name, "dilation", dilation, rank, 1), rank, 1)
    spans = tuple((length - 1) * step + 1 for length, step in zip(lengths, apart, strict=True))
    widths = both(padding_widths(name, padding, spans[2 - rank:], steps[2 - rank:]), rank, (0, 0))
    for d in (0, 1):
        if max(widths[d]) > spans[d] // 2:
            raise fail(ArgumentError, name, f"padding {max(widths[d])} is more than half of a window of {spans[d]}",
                       "a window must not lie in the padding alone")
        check_window(name, images.shape[2 + d], widths[d], spans[d], steps[d])
    return lengths, steps, apart, widths


def _reduced(images: Node, lengths: Any, steps: Any, apart: Any, how: str) -> Node:
    """A reduction of each window; the last two axes of the result are the windows'."""
    seen = build("window", images, axes=(2, 3), sizes=lengths, steps=steps, dilations=apart)
    wide = cast(seen, images.dtype.compute) if how == "sum" else seen
    return reshape(pooled(how, wide, (4, 5)), seen.shape[:4])


def _max_pool(name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Tensor:
    images = as_images(name, _numbers(name, x, floats=False), rank)
    lengths, steps, apart, widths = _window_arguments(name, rank, images, kernel_size, stride, padding, dilation)
    least: float | int = -np.inf if images.dtype.is_float else int(np.iinfo(images.dtype.numpy).min)
    found = _reduced(padded(images, widths, least), lengths, steps, apart, "max")
    return Tensor.of_node(as_given(found, rank))


def _avg_pool(name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, with_padding: bool) -> Tensor:
    images = as_images(name, _numbers(name, x, floats=True), rank)
    lengths, steps, apart, widths = _window_arguments(name, rank, images, kernel_size, stride, padding, 1)
    total = _reduced(padded(images, widths, 0.0), lengths, steps, apart, "sum")
    if with_padding or not any(map(any, widths)):
        found = _divided(total, lengths[0] * lengths[1], images)
    else:
        found = cast(div(total, _counts(name, total, images, lengths, steps, widths)), images.dtype)
    return Tensor.of_node(as_given(found, rank))


def _counts(name: str, total: Node, images: Node, lengths: Any, steps: Any, widths: Widths) -> Node:
    """How many elements of the image each window holds."""
    sides = []
    for d in (0, 1):
        size = _static(name, images.shape[2 + d])
        starts = np.arange(_static(name, total.shape[2 + d])) * steps[d] - widths[d][0]
        sides.append(np.minimum(starts + lengths[d], size) - np.maximum(starts, 0))
    counts = np.multiply.outer(*sides).astype(total.dtype.numpy)
    return expand(reshape(unplaced(counts).node, (1, 1, *counts.shape)), total.shape)


def _static(name: str, size: Size) -> int:
    if isinstance(size, Dim):
        raise fail(ShapeError, name, f"the windows over the dynamic size {size} are not known",
                   "make only the batch dynamic")
    return size


# -- windows that cover ------------------------------------------------------------------------------------------------
def _adaptive(name: str, rank: int, x: Any, output_size: Any, how: str) -> Tensor:
    images = as_images(name, _numbers(name, x, floats=how == "sum"), rank)
    if output_size is None or isinstance(output_size, tuple | list):  # None keeps the size of an axis, as in PyTorch
        wanted = list(output_size) if output_size is not None else [None] * rank
        output_size = [images.shape[place - rank] if size is None else size for place, size in enumerate(wanted)]
    counts = both(per_axis(name, "output_size", output_size, rank, 1), rank, 1)
    sizes = tuple(_static(name, size) for size in images.shape[2:])
    if 0 in sizes:
        raise fail(ShapeError, name, f"shape {images.shape} has no elements to pool")
    if all(size % count == 0 for size, count in zip(sizes, counts, strict=True)):  # windows of one size
        lengths = tuple(size // count for size, count in zip(sizes, counts, strict=True))
        found = _reduced(images, lengths, lengths, (1, 1), how)
        if how == "sum":
            found = _divided(found, product(lengths), images)
        return Tensor.of_node(as_given(found, rank))
    wide = cast(images, images.dtype.compute) if how == "sum" else images
    order = ((2, counts[0]), (3, counts[1]))
    for axis, count in order if how == "sum" else order[::-1]:  # the first largest row by row has the slope
        wide = _covered(wide, axis, count, how)
    return Tensor.of_node(as_given(cast(wide, images.dtype), rank))


def _covered(node: Node, axis: int, count: int, how: str) -> Node:
    """One axis reduced to `count` windows; a mean of means is the mean, since the windows of an axis are alike."""
    size = int(node.shape[axis])
    parts = []
    for number in range(count):
        first, last = number * size // count, -(-(number + 1) * size // count)
        starts = tuple(first if d == axis else 0 for d in range(4))
        sizes = tuple(last - first if d == axis else s for d, s in enumerate(node.shape))
        part = pooled(how, build("slice", node, starts=starts, sizes=sizes, steps=(1,) * 4), (axis,))
        parts.append(div(part, constant_like(part, last - first)) if how == "sum" else part)
    return parts[0] if count == 1 else build("concatenate", *parts, axis=axis)
